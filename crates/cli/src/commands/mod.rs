//! One file for each subcommand.

pub(crate) mod bench;
pub(crate) mod beside;
mod bundles;
pub(crate) mod capture;
pub(crate) mod causal;
pub(crate) mod causal_args;
pub(crate) mod cell;
pub(crate) mod check;
mod check_programs;
pub(crate) mod clean;
pub(crate) mod clone;
mod clone_shell;
pub(crate) mod completions;
pub(crate) mod debug;
pub(crate) mod debug_args;
mod debugging;
pub(crate) mod demo;
pub(crate) mod deps;
#[cfg(feature = "mutate")]
pub(crate) mod faults;
pub(crate) mod fetch;
pub(crate) mod init;
pub(crate) mod load;
pub(crate) mod metrics;
#[cfg(feature = "mutate")]
pub(crate) mod mutate;
pub(crate) mod record;
mod record_files;
mod record_targets;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod repro;
pub(crate) mod resilience;
pub(crate) mod resilience_args;
pub(crate) mod resilience_report;
pub(crate) mod runs;
pub(crate) mod scrape;
pub(crate) mod serve;
pub(crate) mod services;
pub(crate) mod store;
pub(crate) mod test;
pub(crate) mod traces;
mod traces_fetch;
pub(crate) mod traces_import;
pub(crate) mod up;
pub(crate) mod watch;
