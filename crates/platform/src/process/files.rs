//! File trees: removing, pruning and copying them, including the attributes that overlays store.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, XattrFlags};

/// Removes a tree, even where its owner has no permission to write.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path)
        }
        Err(error) => Err(error),
    }
}

/// Removes everything below `root` except these paths and their contents.
pub(crate) fn keep_only(root: &Path, kept: &[PathBuf]) -> io::Result<()> {
    // The empty path is the root itself.
    if kept.iter().any(|path| path.as_os_str().is_empty()) {
        return Ok(());
    }
    prune(root, Path::new(""), kept)
}

fn prune(root: &Path, below: &Path, kept: &[PathBuf]) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if kept.contains(&path) {
            continue;
        }
        let is_folder = entry.file_type()?.is_dir();
        if is_folder && kept.iter().any(|k| k.starts_with(&path)) {
            prune(root, &path, kept)?;
        } else if is_folder {
            remove_tree(&entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Copies a tree with links, modes, whiteouts of overlays and their attributes. Existing files are replaced.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(from)?;
    let kind = about.file_type();
    if kind.is_dir() {
        if !fs::symlink_metadata(to).is_ok_and(|m| m.is_dir()) {
            let _ = fs::remove_file(to);
            fs::create_dir(to)?;
        }
        copy_notes(from, to);
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy_tree(&from.join(&name), &to.join(&name))?;
        }
        return fs::set_permissions(to, about.permissions());
    }
    let _ = fs::remove_file(to);
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if kind.is_char_device() && about.rdev() == 0 {
        return Ok(rustix::fs::mknodat(CWD, to, FileType::CharacterDevice, Mode::empty(), 0)?);
    }
    if kind.is_file() {
        fs::copy(from, to)?;
        copy_notes(from, to);
    }
    // Sockets and pipes of a dead process mean nothing in a copy.
    Ok(())
}

/// Copies the attributes that overlays store; without them a copy would show other content.
fn copy_notes(from: &Path, to: &Path) {
    for space in
        ["trusted.overlay.opaque", "user.overlay.opaque", "trusted.overlay.redirect", "user.overlay.redirect"]
    {
        let Ok(name) = CString::new(space) else { continue };
        let mut value = [0; 1024];
        if let Ok(length) = rustix::fs::lgetxattr(from, &name, &mut value[..]) {
            let _ = rustix::fs::lsetxattr(to, &name, &value[..length], XattrFlags::empty());
        }
    }
}

fn open_up(path: &Path) {
    let Ok(about) = fs::symlink_metadata(path) else {
        return;
    };
    if !about.is_dir() {
        return;
    }
    let mut permissions = about.permissions();
    permissions.set_mode(permissions.mode() | 0o700);
    let _ = fs::set_permissions(path, permissions);
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path());
    }
}
