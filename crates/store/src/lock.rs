//! The file that says who writes a folder.

use std::fs::{self, File};
use std::path::Path;

/// Held locked by whoever writes the folder; the operating system lets go of it when the process dies.
pub(crate) const LOCK: &str = "writer.lock";

/// Whether a process writes the folder.
pub(crate) fn is_held(folder: &Path) -> bool {
    // The lock of a dead process is free, whatever it left behind. Asked for shared, so that two who look
    // at once do not see each other.
    File::open(folder.join(LOCK))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}
