//! Which files go into a bundle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use faultscope_model::Application;
use faultscope_model::application::TestBody;
use flate2::read::GzDecoder;

use super::{BundleError, MANIFEST, io_error};

/// A folder up to this size goes in as a whole.
pub(super) const WHOLE_BYTES: u64 = 16 << 20;
const WHOLE_FILES: usize = 2_000;
/// Files above this size are left out of a larger folder, unless the application names them.
const LARGE: u64 = 256 << 10;
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

/// What was chosen for a bundle.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Files with their sizes.
    pub(super) files: BTreeMap<PathBuf, u64>,
    /// Files of the folder that were not taken, though they might be needed.
    pub(super) left_out: Vec<PathBuf>,
}

/// The files of an application: all of its folder where that is small, otherwise all but the large ones that
/// nothing names. Secrets that nothing names stay here, and so do earlier bundles.
pub(super) fn collect(root: &Path, application: &Application) -> Result<Collected, BundleError> {
    let mut taken = BTreeMap::new();
    for name in named(application) {
        let path = root.join(&name);
        // Only what lies below the folder, also behind links.
        let Ok(real) = fs::canonicalize(&path) else { continue };
        let Ok(inside) = real.strip_prefix(root) else { continue };
        if inside.as_os_str().is_empty() {
            continue;
        }
        if real.is_dir() {
            let mut below = BTreeMap::new();
            walk(root, inside, &mut below, (MOST_FILES, MOST_BYTES))?;
            taken.extend(below.into_iter().filter(|(path, _)| !is_secret(path)));
        } else if let Ok(meta) = fs::metadata(&real) {
            taken.insert(inside.to_owned(), meta.len());
        }
    }
    let mut others = BTreeMap::new();
    let all_seen = walk(root, Path::new(""), &mut others, (MOST_FILES, u64::MAX))?;
    others.retain(|path, _| !taken.contains_key(path) && !is_bundle(&root.join(path)));
    let mut left_out = Vec::new();
    others.retain(|path, _| {
        let stays = is_secret(path);
        if stays {
            left_out.push(path.clone());
        }
        !stays
    });
    let fits = |files: &BTreeMap<PathBuf, u64>| {
        files.len() <= WHOLE_FILES && files.values().sum::<u64>() <= WHOLE_BYTES
    };
    if all_seen && !fits(&others) {
        others.retain(|path, bytes| {
            let large = *bytes > LARGE;
            if large {
                left_out.push(path.clone());
            }
            !large
        });
    }
    if !all_seen || !fits(&others) {
        // What describes the application is always needed.
        let describes = |path: &Path| {
            path.components().count() == 1 && path.extension().is_some_and(|e| e == "yaml" || e == "yml")
        };
        others.retain(|path, _| {
            let needed = describes(path);
            if !needed {
                left_out.push(path.clone());
            }
            needed
        });
    }
    taken.extend(others);
    Ok(Collected { files: taken, left_out })
}

/// Whether a file is of those in which people keep what nobody else should see.
fn is_secret(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let template = ["example", "sample", "template", "dist"].iter().any(|end| name.ends_with(end));
    (name == ".env" || name.starts_with(".env.")) && !template
        || [".pem", ".key", ".p12", ".pfx", ".kdbx"].iter().any(|end| name.ends_with(end))
        || ["id_rsa", "id_ed25519", ".netrc", ".npmrc", ".pypirc"].contains(&name.as_str())
}

/// Whether a file is a bundle itself.
fn is_bundle(path: &Path) -> bool {
    let packed = path.extension().is_some_and(|end| end == "gz" || end == "tgz" || end == "partial");
    let first = || -> std::io::Result<bool> {
        let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path)?));
        let first = archive.entries()?.next().transpose()?;
        Ok(first.is_some_and(|entry| entry.path().is_ok_and(|name| *name == *Path::new(MANIFEST))))
    };
    packed && first().unwrap_or(false)
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
    let protos = application.protos.files.iter().chain(&application.protos.imports);
    add("", &mut protos.map(|proto| &proto.path));
    for test in &application.tests {
        add("", &mut test.input.iter().map(|input| &input.file));
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body {
            add(&command.directory, &mut command.run.iter().chain(command.env.values()));
        }
    }
    names.retain(|name| {
        name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    });
    names
}
