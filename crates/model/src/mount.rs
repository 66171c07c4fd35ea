//! What an instance sees at a path: files of the application, volumes, memory, texts.

use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// Something an instance sees at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is seen; absolute, without `..`.
    pub to: String,
    /// What is seen there.
    pub source: MountSource,
    /// Whether the instance cannot change it.
    pub readonly: bool,
}

/// What a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountSource {
    /// A file or folder, relative to the application file and below its folder. An instance that may write gets a
    /// copy of its own, so that no trial changes what the user has.
    Path(String),
    /// A folder that all instances of a trial share which name it, empty when the trial begins.
    Volume(String),
    /// A folder in memory, empty whenever the instance starts.
    Memory {
        /// How much fits into it.
        size: ByteSize,
    },
    /// A file with this text.
    Content(String),
}
