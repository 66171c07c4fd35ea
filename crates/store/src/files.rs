//! Small files: reads are bounded, and writes are atomic, so that a reader sees the old or the new text.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use crate::error::StoreError;

/// The largest JSON file of ours: a report with all its evidence stays far below.
const MAX_BYTES: u64 = 256 << 20;

/// Reads a text file.
pub(crate) fn read_text(path: &Path) -> Result<String, StoreError> {
    let file = File::open(path).map_err(StoreError::io("read", path))?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(StoreError::io("read", path))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(StoreError::damaged(path, format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// Replaces a text file.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), StoreError> {
    write_bytes(path, text.as_bytes())
}

/// Replaces a file.
pub(crate) fn write_bytes(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    // The process id keeps two writers from sharing a half-written file.
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary))).map_err(StoreError::io("write", path))
}

/// Creates a folder that only its owner can read: spans may contain secrets.
pub(crate) fn make_private_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// The total size of the files directly in a folder; those that vanish meanwhile count nothing.
pub(crate) fn folder_size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}
