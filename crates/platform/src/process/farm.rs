//! The fallback without overlays: a folder of links to the application's files, with real copies of the
//! directories a service declares as written to. What it writes elsewhere through a link is shared.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::files;

/// The application as an instance with this folder sees it.
pub(crate) fn root(own: &Path) -> PathBuf {
    own.join("app")
}

/// Fills `target`; existing files stay.
pub(crate) fn plant(
    application: &Path,
    target: &Path,
    state: &Path,
    within: &Path,
    durable: &[PathBuf],
    template: Option<&Path>,
) -> io::Result<()> {
    link(application, target, Path::new(""), state, within, durable)?;
    if let Some(template) = template {
        lay(template, target)?;
    }
    // A durable directory may not exist anywhere yet.
    for path in durable {
        let folder = target.join(path);
        if !folder.exists() {
            fs::create_dir_all(folder)?;
        }
    }
    Ok(())
}

fn link(
    application: &Path,
    target: &Path,
    below: &Path,
    state: &Path,
    within: &Path,
    durable: &[PathBuf],
) -> io::Result<()> {
    fs::create_dir_all(target.join(below))?;
    for entry in fs::read_dir(application.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let (from, to) = (entry.path(), target.join(&path));
        if from == *state {
            continue;
        }
        let on_the_way =
            within.starts_with(&path) || durable.iter().any(|d| d.starts_with(&path) && *d != path);
        if durable.contains(&path) {
            if !to.exists() {
                files::copy_tree(&from, &to)?;
            }
        } else if on_the_way && entry.file_type()?.is_dir() {
            link(application, target, &path, state, within, durable)?;
        } else if fs::symlink_metadata(&to).is_err() {
            symlink(&from, &to)?;
        }
    }
    Ok(())
}

/// Copies the files that `setup` created, which are those that are not links, into a fresh farm.
fn lay(template: &Path, target: &Path) -> io::Result<()> {
    for entry in fs::read_dir(template)? {
        let entry = entry?;
        let (kind, to) = (entry.file_type()?, target.join(entry.file_name()));
        if kind.is_symlink() {
            continue;
        }
        let there = fs::symlink_metadata(&to);
        if kind.is_dir() && there.as_ref().is_ok_and(fs::Metadata::is_dir) {
            lay(&entry.path(), &to)?;
        } else if there.is_err() || there.is_ok_and(|m| m.file_type().is_symlink()) {
            let _ = fs::remove_file(&to);
            files::copy_tree(&entry.path(), &to)?;
        }
    }
    Ok(())
}
