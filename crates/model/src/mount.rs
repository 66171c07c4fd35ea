//! What an instance sees at a path: files of the application, volumes, memory, texts.

use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// The most bytes of a text that is mounted: configuration files are small, and larger ones belong into a file of
/// their own.
pub(crate) const MAX_CONTENT: usize = 256 << 10;

/// The most that a folder in memory may hold.
pub(crate) const MAX_MEMORY: ByteSize = ByteSize(4 << 30);

/// The most mounts of one service.
pub(crate) const MAX_MOUNTS: usize = 100;

/// Something an instance sees at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is seen; absolute, without `..`.
    pub to: String,
    /// What is seen there.
    pub source: MountSource,
    /// Whether the instance cannot change it.
    pub readonly: bool,
    /// The permissions of a file that is given by its text, where they are not the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

/// Places where nothing can be mounted, because they belong to the kernel or to the tool.
const RESERVED: [&str; 5] = ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf"];

/// The plainest form of a path at which something can be mounted; the error says why nothing can.
pub(crate) fn parse_target(path: &str) -> Result<String, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let plain = format!("/{}", parts.join("/"));
    if !path.starts_with('/') || parts.contains(&"..") || path.contains('\0') {
        return Err(format!("`{path}` is not an absolute path without `..`"));
    }
    let is_below = |reserved: &&str| {
        plain.strip_prefix(*reserved).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if parts.is_empty() || RESERVED.iter().any(is_below) {
        return Err(format!("nothing can be mounted at `{plain}`"));
    }
    Ok(plain)
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
