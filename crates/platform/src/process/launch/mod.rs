//! The hidden `launch` subcommand: the agent of a slot, and the init of each process tree in it.
//!
//! Runs before any runtime or thread exists, because namespaces belong to threads. It talks to the tool
//! through descriptors it was started with and prints nothing of its own.

mod agent;
mod init;
mod kernel_files;
mod mounts;
mod namespaces;
mod netlink;
mod network;
mod outer;
mod places;
mod rights;
#[cfg(feature = "docker")]
mod sidecar;
mod tie;
mod tree;

pub(crate) use outer::Probed;

use std::ffi::OsString;
use std::process::ExitCode;

/// What `faultscope launch ARGS..` does. Call it first thing in `main`.
pub fn launch_main(args: Vec<OsString>) -> ExitCode {
    let args: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    match args.as_slice() {
        ["agent", _label, mode, parent, groups @ ..] => outer::run(mode, parent, groups),
        ["inner", _label, mode, groups @ ..] => agent::run(*mode == MODE_NETNS, groups),
        ["instance", _label, _name] => init::run(),
        ["join", _label, _name, target, groups @ ..] => init::join(target, groups),
        #[cfg(feature = "docker")]
        ["sidecar", socket] => sidecar::run(socket),
        ["probe"] => outer::probe(),
        _ => ExitCode::from(64),
    }
}

/// Agents that own namespaces.
pub(crate) const MODE_NETNS: &str = "netns";
/// Agents that only start processes.
pub(crate) const MODE_PLAIN: &str = "plain";
