//! Watches services: turns stored calls and samples into series, runs detectors over them, and maps what they find to
//! traces, as section 4.4 of the paper on replay debugging does.
//!
//! A [`Watcher`] is given batches of what was observed, in the order of time, and returns [`Incident`]s. It knows no
//! clock and no store, so an hour of load is a test of milliseconds. [`read_run`] and [`read_between`] make batches
//! from an archive; whoever watches live calls the latter again and again.

mod action;
mod anomaly;
mod batch;
mod settings;
mod source;
#[cfg(test)]
mod tests;
mod usage;
mod watcher;

pub use action::{Action, ActionError, Trigger, parse_webhook};
pub use anomaly::{Anomaly, AnomalyKind, DetectorName, Incident, SeriesKey, group_into_incidents};
pub use batch::{Batch, ObservedCall};
pub use settings::WatchSettings;
pub use source::{read_between, read_run};
pub use watcher::{WatchCounts, Watcher};
