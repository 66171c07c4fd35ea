//! Which files go into a bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use faultscope_model::Application;
use faultscope_model::application::TestBody;
use faultscope_model::mount::MountSource;
use flate2::read::GzDecoder;

use super::rules::{Fate, Layer, Rules};
use super::{BundleError, MANIFEST, io_error};

/// A folder up to this size goes in as a whole. A larger bundle is no longer a quick attachment.
pub(super) const WHOLE_BYTES: u64 = 16 << 20;
const WHOLE_FILES: usize = 2_000;
/// Files above this size are left out of a larger folder, unless the application names them: sources and settings
/// are smaller, data and programs are larger.
const LARGE: u64 = 256 << 10;
/// The most that a bundle holds. Unpacking refuses more, so that a hostile archive cannot fill the disk.
pub(super) const MAX_BYTES: u64 = 256 << 20;
pub(super) const MAX_FILES: usize = 20_000;
/// The most files that are looked at. More than a bundle holds, so that the largest folders can be named.
const MAX_SEEN: usize = 10 * MAX_FILES;
/// Folders that are named when there is too much.
const SHOWN_FOLDERS: usize = 3;

/// Files by their paths below the application's folder, with their sizes.
pub(super) type Files = BTreeMap<PathBuf, u64>;

/// A file of an application by its name below the application's folder.
pub fn inside(root: &Path, file: &Path) -> Result<PathBuf, BundleError> {
    let root = fs::canonicalize(root).map_err(io_error("open", root))?;
    let file = fs::canonicalize(file).map_err(io_error("open", file))?;
    match file.strip_prefix(&root) {
        Ok(inside) => Ok(inside.to_owned()),
        Err(_) => Err(BundleError::Unfit(format!("{} lies outside {}", file.display(), root.display()))),
    }
}

/// What was chosen for a bundle.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Files with their sizes.
    pub(super) files: Files,
    /// Files of the folder that were not taken, though they might be needed.
    pub(super) left_out: Vec<PathBuf>,
    /// What `.gitignore` files list: files, and folders as a whole.
    pub(super) ignored: Vec<PathBuf>,
    /// Folders of services outside of the application's folder, which no bundle holds.
    pub(super) outside: Vec<String>,
    /// The largest folders, where the whole is not small.
    pub(super) largest: Vec<(PathBuf, u64)>,
}

/// Chooses files of one application.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    root: &'a Path,
    rules: Rules,
}

impl<'a> Collector<'a> {
    /// For an application in a folder, whose path has no links.
    pub(super) fn new(root: &'a Path, application: &Application) -> Result<Self, BundleError> {
        Ok(Self { root, rules: Rules::read(root, &application.bundle)? })
    }

    /// Adds a file, or the files of a folder.
    pub(super) fn add(&self, path: &Path, files: &mut Files) -> Result<(), BundleError> {
        let real = self.root.join(path);
        let meta = fs::metadata(&real).map_err(io_error("open", &real))?;
        if meta.is_dir() {
            files.extend(self.walk(path, self.rules.layer_of(path))?.files);
        } else {
            files.insert(path.to_owned(), meta.len());
        }
        Ok(())
    }

    /// The files of an application: all of its folder where that is small, otherwise all but the large ones that
    /// nothing names. Secrets that nothing names stay here, and so do earlier bundles, what `.gitignore` files
    /// list and what the application file excludes.
    pub(super) fn collect(&self, application: &Application) -> Result<Collected, BundleError> {
        let (named, brought) = self.named_files(application)?;
        let mut found = self.walk(Path::new(""), Layer::inside(self.rules.above(), self.root))?;
        found.files.retain(|path, _| !named.contains_key(path) && !is_bundle(&self.root.join(path)));
        let mut left_out = Vec::new();
        let mut leave_out = |files: &mut Files, stays: &dyn Fn(&Path, u64) -> bool| {
            files.retain(|path, bytes| {
                let stays = stays(path, *bytes);
                if stays {
                    left_out.push(path.clone());
                }
                !stays
            });
        };
        leave_out(&mut found.files, &|path, _| is_secret(path));
        let everything: Files =
            named.iter().chain(&found.files).map(|(p, bytes)| (p.clone(), *bytes)).collect();
        if found.is_complete && !is_small(&found.files) {
            leave_out(&mut found.files, &|_, bytes| bytes > LARGE);
        }
        if !found.is_complete || !is_small(&found.files) {
            // What describes the application is always needed.
            let describes = |path: &Path| {
                path.components().count() == 1 && path.extension().is_some_and(|e| e == "yaml" || e == "yml")
            };
            leave_out(&mut found.files, &|path, _| !describes(path));
        }
        let mut files = named;
        files.extend(found.files);
        found.ignored.retain(|path| !brought.contains(path));
        found.ignored.sort();
        Ok(Collected {
            largest: if is_small(&everything) { Vec::new() } else { largest_folders(&everything) },
            files,
            left_out,
            ignored: found.ignored,
            outside: outside(application),
        })
    }

    /// The files that an application names in commands, settings, tests and mounts. Names outweigh `.gitignore`
    /// files, but not what the application file excludes. Also returns the files and folders that go in because of
    /// their names.
    fn named_files(&self, application: &Application) -> Result<(Files, BTreeSet<PathBuf>), BundleError> {
        let (mut named, mut brought, mut tried) = (Files::new(), BTreeSet::new(), BTreeSet::new());
        for name in names(application) {
            // Only what lies below the folder, also behind links.
            let Ok(real) = fs::canonicalize(self.root.join(&name)) else { continue };
            let Ok(inside) = real.strip_prefix(self.root) else { continue };
            if inside.as_os_str().is_empty() {
                continue;
            }
            if real.is_dir() {
                if brought.insert(inside.to_owned()) {
                    named.extend(self.walk(inside, self.rules.layer_of(inside))?.files);
                }
            } else if let Ok(meta) = fs::metadata(&real) {
                if let Some(folder) = self.rules.ignored_folder(inside)
                    && tried.insert(folder.clone())
                {
                    // A program of `dist` needs its neighbours, and one of `target/debug` none of 5 GiB.
                    let around = self.walk(&folder, Layer::inside(None, &self.root.join(&folder)))?;
                    if around.is_complete && is_small(&around.files) {
                        named.extend(around.files);
                        brought.insert(folder);
                    }
                }
                brought.insert(inside.to_owned());
                named.insert(inside.to_owned(), meta.len());
            }
        }
        named.retain(|path, _| {
            // A file that is named itself goes in even if its name looks secret.
            let is_wanted = brought.contains(path) || !is_secret(path) && !is_bundle(&self.root.join(path));
            is_wanted && !self.rules.excludes(path)
        });
        Ok((named, brought))
    }

    /// Finds all regular files below a folder that the rules keep; links are not followed.
    fn walk(&self, folder: &Path, layer: Option<Rc<Layer>>) -> Result<Walked, BundleError> {
        let mut found = Walked { files: Files::new(), ignored: Vec::new(), is_complete: true };
        let mut open = vec![(folder.to_owned(), layer)];
        while let Some((folder, layer)) = open.pop() {
            let path = self.root.join(&folder);
            for entry in fs::read_dir(&path).map_err(io_error("read", &path))?.flatten() {
                let name = folder.join(entry.file_name());
                let Ok(kind) = entry.file_type() else { continue };
                if !kind.is_dir() && !kind.is_file() {
                    continue;
                }
                match self.rules.judge(layer.as_ref(), &name, kind.is_dir()) {
                    Fate::Excluded => {}
                    Fate::Ignored => found.ignored.push(name),
                    Fate::Kept if kind.is_dir() => {
                        let inner = Layer::inside(layer.clone(), &self.root.join(&name));
                        open.push((name, inner));
                    }
                    Fate::Kept => {
                        found.files.insert(name, entry.metadata().map_or(0, |meta| meta.len()));
                    }
                }
            }
            if found.files.len() > MAX_SEEN {
                found.is_complete = false;
                break;
            }
        }
        Ok(found)
    }
}

/// What lies below a folder.
struct Walked {
    files: Files,
    ignored: Vec<PathBuf>,
    /// False when there are more files than are looked at.
    is_complete: bool,
}

/// Whether files go in as a whole.
fn is_small(files: &Files) -> bool {
    files.len() <= WHOLE_FILES && files.values().sum::<u64>() <= WHOLE_BYTES
}

/// The folders that hold the most, largest first. A folder stands for the one that it mainly consists of.
pub(super) fn largest_folders(files: &Files) -> Vec<(PathBuf, u64)> {
    let mut sizes: BTreeMap<&Path, u64> = BTreeMap::new();
    for (path, bytes) in files {
        for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            *sizes.entry(folder).or_default() += bytes;
        }
    }
    let total: u64 = files.values().sum();
    let children = |of: &Path| -> Option<(&Path, u64)> {
        let direct = sizes.iter().filter(|(folder, _)| folder.parent() == Some(of));
        direct.map(|(folder, bytes)| (*folder, *bytes)).max_by_key(|(_, bytes)| *bytes)
    };
    let top = sizes.iter().filter(|(folder, _)| folder.components().count() == 1);
    let mut largest: Vec<(PathBuf, u64)> = Vec::new();
    for (folder, bytes) in top {
        let (mut folder, mut bytes) = (*folder, *bytes);
        while let Some((inner, held)) = children(folder).filter(|(_, held)| held * 5 >= bytes * 4) {
            (folder, bytes) = (inner, held);
        }
        // One that holds little of the whole is not what to leave out.
        if bytes * 10 >= total {
            largest.push((folder.to_owned(), bytes));
        }
    }
    largest.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
    largest.truncate(SHOWN_FOLDERS);
    largest
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

/// Folders of services and tests that lie outside of the application's folder.
fn outside(application: &Application) -> Vec<String> {
    let mut folders: Vec<&String> = application.services.values().map(|service| &service.directory).collect();
    let versions = application.services.values().flat_map(|service| service.versions.values());
    folders.extend(versions.filter_map(|version| version.directory.as_ref()));
    for test in &application.tests {
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body {
            folders.push(&command.directory);
        }
    }
    let outside: BTreeSet<String> =
        folders.into_iter().filter(|folder| !lies_inside(Path::new(folder))).cloned().collect();
    outside.into_iter().collect()
}

fn lies_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Every text of an application that may be the name of a file or folder of its own.
fn names(application: &Application) -> Vec<PathBuf> {
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
    for (name, service) in &application.services {
        for circumstance in [&application.simplest, &application.failing] {
            let config = circumstance.config.get(name);
            add(&service.directory, &mut config.into_iter().flat_map(|items| items.values()));
        }
        let words = service.entrypoint.iter().flatten().chain(&service.command);
        add(&service.directory, &mut words.chain(service.env.values()));
        for version in service.versions.values() {
            let directory = version.directory.as_deref().unwrap_or(&service.directory);
            let words = version.entrypoint.iter().chain(&version.command).flatten();
            add(directory, &mut words.chain(version.env.values()));
        }
        let mut mounted = service.mounts.iter().filter_map(|mount| match &mount.source {
            MountSource::Path(path) => Some(path),
            _ => None,
        });
        add("", &mut mounted);
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
    names.retain(|name| lies_inside(name));
    names
}
