//! The lock file of a folder's writer.

use std::fs::{self, File};
use std::path::Path;

/// Locked by the process that writes the folder; the operating system releases it when the process dies.
pub(crate) const LOCK: &str = "writer.lock";

/// Whether a process is writing the folder.
pub(crate) fn is_held(folder: &Path) -> bool {
    // The lock of a dead process is free, whatever file it left. A shared lock is tried, so that two
    // processes that check at the same time do not see each other.
    File::open(folder.join(LOCK))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}
