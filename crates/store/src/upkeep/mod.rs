//! Checks and repairs a `.faultscope` folder: one damaged part never takes the rest with it.
//!
//! Readers leave out what they cannot read and name it. [`check_store`] lists every part with its state.
//! [`repair_store`] migrates what an older version wrote, copies what can still be read of damaged databases, and
//! moves the damaged files to `.faultscope/damaged`; nothing is deleted.

mod aside;
mod check;
mod repair;
mod salvage;

use std::path::PathBuf;

use serde::Serialize;

pub(crate) use aside::set_aside;
pub use check::check_store;
pub use repair::repair_store;
pub(crate) use salvage::{copy_table, each_readable_row};

/// A campaign, a slice of spans, or the list of slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorePart {
    /// What it is.
    pub kind: PartKind,
    /// The id of a campaign, the name of a file otherwise.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it can be read.
    #[serde(flatten)]
    pub state: PartState,
}

/// Kinds of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// The trials of one command.
    Campaign,
    /// A file of reported spans and metrics.
    Slice,
    /// The list of slices.
    Catalogue,
}

/// Whether a part can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PartState {
    /// It can be read.
    Ok,
    /// An older version wrote it; it is migrated when it is first read.
    NeedsMigration,
    /// Another process is writing it, so it was not looked at.
    InUse,
    /// A newer version wrote it.
    Newer {
        /// Which file, and which version.
        reason: String,
    },
    /// The key for it is not here.
    Sealed {
        /// Which file, and why.
        reason: String,
    },
    /// Some of it cannot be read.
    Damaged {
        /// Which file, and why.
        reason: String,
    },
}

/// What was done about a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The part as it was found.
    #[serde(flatten)]
    pub part: StorePart,
    /// What was done.
    pub action: RepairAction,
}

/// What was done about a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RepairAction {
    /// It has the present format now.
    Migrated,
    /// What could be read is in its place; the damaged file was moved.
    Salvaged {
        /// Rows that could be read.
        rows: u64,
        /// Where the damaged file is now.
        moved_to: PathBuf,
    },
    /// It was moved as a whole.
    SetAside {
        /// Where it is now.
        moved_to: PathBuf,
    },
    /// Nothing could be done here.
    LeftAlone {
        /// What would help.
        reason: String,
    },
}
