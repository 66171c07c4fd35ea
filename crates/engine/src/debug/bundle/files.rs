//! Which files go into a bundle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use faultscope_model::Application;
use faultscope_model::application::TestBody;

use super::{BundleError, io_error};

/// A folder up to this size goes in as a whole; of a larger one only what the application names.
pub(super) const WHOLE_BYTES: u64 = 16 << 20;
const WHOLE_FILES: usize = 2_000;
/// The most that a bundle holds.
pub(super) const MOST_BYTES: u64 = 256 << 20;
pub(super) const MOST_FILES: usize = 20_000;
/// Folders that never go in: what the tool and version control keep, and what is built from the rest.
const LEFT_OUT: [&str; 6] = [".faultscope", ".git", ".hg", "target", "__pycache__", ".venv"];

/// A file of an application by its name below the application's folder.
pub fn inside(root: &Path, file: &Path) -> Result<PathBuf, BundleError> {
    let root = fs::canonicalize(root).map_err(io_error("open", root))?;
    let file = fs::canonicalize(file).map_err(io_error("open", file))?;
    match file.strip_prefix(&root) {
        Ok(inside) => Ok(inside.to_owned()),
        Err(_) => Err(BundleError::Unfit(format!("{} lies outside {}", file.display(), root.display()))),
    }
}

/// Adds a file, or all files of a folder.
pub(super) fn add(root: &Path, path: &Path, files: &mut BTreeMap<PathBuf, u64>) -> Result<(), BundleError> {
    let real = root.join(path);
    let meta = fs::metadata(&real).map_err(io_error("open", &real))?;
    if meta.is_dir() {
        walk(root, path, files, (MOST_FILES, MOST_BYTES))?;
    } else {
        files.insert(path.to_owned(), meta.len());
    }
    Ok(())
}

/// The files of an application with their sizes: all of its folder where that is small, otherwise what its
/// commands, tests and settings name.
pub(super) fn collect(root: &Path, application: &Application) -> Result<BTreeMap<PathBuf, u64>, BundleError> {
    let mut files = BTreeMap::new();
    if walk(root, Path::new(""), &mut files, (WHOLE_FILES, WHOLE_BYTES))? {
        return Ok(files);
    }
    let mut files = BTreeMap::new();
    for name in named(application) {
        let path = root.join(&name);
        // Only what lies below the folder, also behind links.
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let Ok(inside) = real.strip_prefix(root) else { continue };
        if inside.as_os_str().is_empty() {
            continue;
        }
        if real.is_dir() {
            walk(root, inside, &mut files, (MOST_FILES, MOST_BYTES))?;
        } else if let Ok(meta) = fs::metadata(&real) {
            files.insert(inside.to_owned(), meta.len());
        }
    }
    for entry in fs::read_dir(root).map_err(io_error("read", root))?.flatten() {
        let path = PathBuf::from(entry.file_name());
        if path.extension().is_some_and(|e| e == "yaml" || e == "yml") {
            files.insert(path, entry.metadata().map_or(0, |meta| meta.len()));
        }
    }
    Ok(files)
}

/// Adds all regular files below a folder; false when there are more than the bounds allow.
fn walk(
    root: &Path,
    folder: &Path,
    files: &mut BTreeMap<PathBuf, u64>,
    (most_files, most_bytes): (usize, u64),
) -> Result<bool, BundleError> {
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        let path = root.join(&folder);
        for entry in fs::read_dir(&path).map_err(io_error("read", &path))?.flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && !LEFT_OUT.iter().any(|left_out| name == *left_out) {
                open.push(folder.join(&name));
            } else if kind.is_file() {
                files.insert(folder.join(&name), entry.metadata().map_or(0, |meta| meta.len()));
            }
        }
        if files.len() > most_files || files.values().sum::<u64>() > most_bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Every text of an application that may be the name of a file or folder of its own.
fn named(application: &Application) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut add = |directory: &str, texts: &mut dyn Iterator<Item = &String>| {
        names.push(PathBuf::from(directory));
        for text in texts {
            for part in
                [Some(text.as_str()), text.split_once('=').map(|(_, value)| value)].into_iter().flatten()
            {
                names.push(Path::new(directory).join(part));
                names.push(PathBuf::from(part));
            }
        }
    };
    for service in application.services.values() {
        add(&service.directory, &mut service.command.iter().chain(service.env.values()));
        for version in service.versions.values() {
            let directory = version.directory.as_deref().unwrap_or(&service.directory);
            add(directory, &mut version.command.iter().flatten().chain(version.env.values()));
        }
    }
    add("", &mut application.setup.iter().flatten());
    for test in &application.tests {
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body {
            add(&command.directory, &mut command.run.iter().chain(command.env.values()));
        }
    }
    names.retain(|name| {
        name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    });
    names
}
