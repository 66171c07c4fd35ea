//! Moves damaged files out of the way, and never deletes one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::files;

/// The folder within `.faultscope`.
pub(super) const FOLDER: &str = "damaged";

/// Moves a file or folder to `.faultscope/damaged` and returns where it is. A database is moved with its log.
pub(crate) fn set_aside(state: &Path, path: &Path) -> Result<PathBuf, StoreError> {
    let folder = state.join(FOLDER);
    match files::make_private_folder(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(StoreError::io("create", &folder)(error));
        }
        _ => {}
    }
    let within = path.strip_prefix(state).unwrap_or(path);
    let name: Vec<String> =
        within.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    let name = name.join("-");
    // The same part may have been damaged before.
    let free = (1..).map(|n| folder.join(if n == 1 { name.clone() } else { format!("{name}.{n}") }));
    let to = free.into_iter().find(|to| !to.exists()).unwrap_or_else(|| folder.join(&name));
    fs::rename(path, &to).map_err(StoreError::io("move", path))?;
    for end in ["-wal", "-shm"] {
        let with = |path: &Path| {
            let mut name = OsString::from(path.as_os_str());
            name.push(end);
            PathBuf::from(name)
        };
        match fs::rename(with(path), with(&to)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("move", &with(path))(error));
            }
            _ => {}
        }
    }
    Ok(to)
}
