//! Clones: copies of a running application, from which later deployments start.
//!
//! `up` takes them while people use the application, by hand or because a [`CloneSource`] wants one. A clone is a folder
//! below `.faultscope/clones`: a sealed manifest with the plan, and the data of all instances as files.

mod archive;
mod attach;
mod control;
mod desk;
mod error;
mod forward;
mod manifest;
mod shelf;
mod source;
mod start;
mod take;
#[cfg(test)]
mod tests;

pub use archive::{Exported, export_clone, import_clone};
pub use attach::{AttachHint, Debugger};
pub use control::{ControlAnswer, ControlServer, ask_for_clone};
pub use desk::{CloneDesk, CloneReport, Cloner};
pub use error::CloneError;
pub use forward::{Forwarded, forward_port};
pub use manifest::{CloneId, CloneTrigger, InstanceState, Manifest, MemoryState};
pub use shelf::{CloneShelf, StoredClone, UnreadableClone};
pub use source::{CloneSource, EveryInterval, OnExit};
pub use start::StartPoint;
