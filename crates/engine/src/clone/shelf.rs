//! The folder of all clones of an application: complete ones under their ids, and what is being written under another
//! name, so that a killed tool leaves nothing that looks like a clone.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use faultscope_store::secrets::SecretOptions;
use faultscope_store::{read_sealed, write_sealed};

use super::error::CloneError;
use super::manifest::{CloneId, FORMAT, Manifest};

/// The folder of clones in the tool's folder.
const CLONES: &str = "clones";
const MANIFEST: &str = "clone.json";
const DATA: &str = "data";
/// What an unfinished clone's folder begins with; no id does.
const UNFINISHED: &str = ".unfinished-";
/// Held by whoever writes or removes clones.
const LOCK: &str = ".lock";
/// The longest name of a clone.
const MAX_NAME: usize = 60;
/// A larger manifest is none of ours: plans of hundreds of services have a few megabytes.
const MAX_MANIFEST: u64 = 64 << 20;
/// What the manifest is sealed as.
const LABEL: &str = "clone";

/// All clones of an application.
#[derive(Debug, Clone)]
pub struct CloneShelf {
    folder: PathBuf,
    secrets: SecretOptions,
}

/// A complete clone.
#[derive(Debug, Clone)]
pub struct StoredClone {
    /// Its manifest.
    pub manifest: Manifest,
    /// The folder of its data.
    pub data: PathBuf,
}

/// A clone that cannot be read.
#[derive(Debug)]
pub struct UnreadableClone {
    /// Its id.
    pub id: CloneId,
    /// Why.
    pub error: CloneError,
}

/// A clone that is being written; removed when it is dropped before it is finished.
#[derive(Debug)]
pub(super) struct Draft {
    folder: Option<PathBuf>,
    _lock: File,
}

impl CloneShelf {
    /// The clones in a tool's folder; makes nothing.
    pub fn open(state: &Path, secrets: SecretOptions) -> Self {
        Self { folder: state.join(CLONES), secrets }
    }

    /// All clones, newest first, and those that cannot be read.
    pub fn list(&self) -> Result<(Vec<StoredClone>, Vec<UnreadableClone>), CloneError> {
        let (mut clones, mut unreadable) = (Vec::new(), Vec::new());
        for id in self.ids()? {
            match self.read(&id) {
                Ok(clone) => clones.push(clone),
                // Removed meanwhile.
                Err(_) if !self.folder.join(id.as_str()).exists() => {}
                Err(error) => unreadable.push(UnreadableClone { id, error }),
            }
        }
        clones.sort_by(|a, b| {
            (b.manifest.taken_us, &b.manifest.id).cmp(&(a.manifest.taken_us, &a.manifest.id))
        });
        Ok((clones, unreadable))
    }

    /// Finds a clone by its id, the beginning of it, its name, or `last`.
    pub fn find(&self, wanted: &str) -> Result<StoredClone, CloneError> {
        let not_found = || CloneError::NotFound { wanted: wanted.to_owned() };
        if wanted.is_empty() {
            return Err(not_found());
        }
        if let Ok(id) = wanted.parse::<CloneId>()
            && self.folder.join(id.as_str()).is_dir()
        {
            return self.read(&id);
        }
        let (clones, unreadable) = self.list()?;
        if wanted == "last" {
            return clones.into_iter().next().ok_or_else(not_found);
        }
        if let Some(named) = clones.iter().find(|clone| clone.manifest.name.as_deref() == Some(wanted)) {
            return Ok(named.clone());
        }
        let begins = |id: &CloneId| id.as_str().starts_with(wanted);
        let mut found: Vec<StoredClone> =
            clones.into_iter().filter(|clone| begins(&clone.manifest.id)).collect();
        match (found.len(), found.pop()) {
            (1, Some(clone)) => Ok(clone),
            (0, _) => match unreadable.into_iter().find(|clone| begins(&clone.id)) {
                Some(clone) => Err(clone.error),
                None => Err(not_found()),
            },
            (_, last) => {
                let all = found.iter().chain(&last).map(|clone| clone.manifest.id.to_string());
                let found = all.collect::<Vec<_>>().join(", ");
                Err(CloneError::Ambiguous { wanted: wanted.to_owned(), found })
            }
        }
    }

    /// Removes a clone, also one that cannot be read.
    pub fn remove(&self, id: &CloneId) -> Result<(), CloneError> {
        let _lock = self.lock()?;
        let folder = self.folder.join(id.as_str());
        // Out of sight at once: half a clone must not look like a clone.
        let gone = self.folder.join(format!("{UNFINISHED}{id}"));
        fs::rename(&folder, &gone).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CloneError::NotFound { wanted: id.to_string() },
            _ => CloneError::File { action: "remove", path: folder.clone(), source: error },
        })?;
        faultscope_platform::process::remove_tree(&gone).map_err(CloneError::file("remove", gone))
    }

    /// The oldest clones without a name, beyond the newest `most` of them.
    pub(super) fn beyond(&self, most: usize) -> Result<Vec<CloneId>, CloneError> {
        let (clones, _) = self.list()?;
        let old = clones.into_iter().filter(|clone| clone.manifest.name.is_none()).skip(most);
        Ok(old.map(|clone| clone.manifest.id).collect())
    }

    /// Removes what a killed tool left unfinished; returns how many. What is being written now stays.
    pub fn sweep(&self) -> usize {
        if !self.folder.is_dir() {
            return 0;
        }
        let Ok(lock) = File::create(self.folder.join(LOCK)) else { return 0 };
        if lock.try_lock().is_err() {
            return 0;
        }
        remove_unfinished(&self.folder)
    }

    /// Reads a clone.
    pub fn read(&self, id: &CloneId) -> Result<StoredClone, CloneError> {
        let folder = self.folder.join(id.as_str());
        let path = folder.join(MANIFEST);
        let bytes = read_sealed(&path, LABEL, MAX_MANIFEST, self.secrets.key.clone())?;
        let manifest = parse_manifest(&path, &bytes)?;
        if manifest.id != *id {
            return Err(CloneError::Damaged { path, reason: format!("it belongs to {}", manifest.id) });
        }
        Ok(StoredClone { manifest, data: folder.join(DATA) })
    }

    /// Checks a name that a user wants to give.
    pub fn check_name(&self, name: &str) -> Result<(), CloneError> {
        let refuse = |reason| Err(CloneError::Name { name: name.to_owned(), reason });
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) || name == "last" {
            return refuse(
                "names have up to 60 letters, digits, `-`, `_` and `.`, and `last` is the newest clone",
            );
        }
        if name.starts_with('-') || name.parse::<CloneId>().is_ok() {
            return refuse("it looks like an option or an id");
        }
        let (clones, _) = self.list()?;
        match clones.iter().any(|clone| clone.manifest.name.as_deref() == Some(name)) {
            true => refuse("another clone has it"),
            false => Ok(()),
        }
    }

    /// Begins a clone. Others wait, so that what somebody else left unfinished can be removed.
    pub(super) fn begin(&self) -> Result<Draft, CloneError> {
        let lock = self.lock()?;
        remove_unfinished(&self.folder);
        let folder = self.folder.join(format!("{UNFINISHED}{}", std::process::id()));
        make_private(&folder)?;
        make_private(&folder.join(DATA))?;
        Ok(Draft { folder: Some(folder), _lock: lock })
    }

    /// An id that no clone has.
    pub(super) fn unused_id(&self, taken_us: u64) -> CloneId {
        let ids = (0..u32::MAX).map(|attempt| CloneId::make(taken_us, attempt));
        let is_free = |id: &CloneId| !self.folder.join(id.as_str()).exists();
        ids.into_iter().find(is_free).unwrap_or_else(|| CloneId::make(taken_us, 0))
    }

    /// Writes the manifest and gives the clone its place: from now on it is there.
    pub(super) fn finish(&self, mut draft: Draft, manifest: &Manifest) -> Result<StoredClone, CloneError> {
        let to = self.folder.join(manifest.id.as_str());
        let from = draft.path().to_owned();
        let bytes = serde_json::to_vec(manifest)
            .map_err(|e| CloneError::Damaged { path: to.clone(), reason: e.to_string() })?;
        write_sealed(&from.join(MANIFEST), LABEL, &bytes, &self.secrets)?;
        fs::rename(&from, &to).map_err(CloneError::file("finish", &to))?;
        draft.folder = None;
        Ok(StoredClone { manifest: manifest.clone(), data: to.join(DATA) })
    }

    fn ids(&self) -> Result<Vec<CloneId>, CloneError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(CloneError::file("read", &self.folder))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    fn lock(&self) -> Result<File, CloneError> {
        if let Some(state) = self.folder.parent() {
            fs::create_dir_all(state).map_err(CloneError::file("make", state))?;
        }
        make_private(&self.folder)?;
        let path = self.folder.join(LOCK);
        let lock = File::create(&path).and_then(|file| file.lock().map(|()| file));
        lock.map_err(CloneError::file("lock", path))
    }
}

impl Draft {
    /// The folder of the data.
    pub(super) fn data(&self) -> PathBuf {
        self.path().join(DATA)
    }

    fn path(&self) -> &Path {
        self.folder.as_deref().unwrap_or(Path::new(""))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = faultscope_platform::process::remove_tree(&folder);
        }
    }
}

/// Reads a manifest that anybody may have written.
pub(super) fn parse_manifest(path: &Path, bytes: &[u8]) -> Result<Manifest, CloneError> {
    let damaged = |reason: String| CloneError::Damaged { path: path.to_owned(), reason };
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
    let found = value.get("format").and_then(serde_json::Value::as_u64);
    let found = found.filter(|found| *found > 0).ok_or_else(|| damaged("it has no `format`".into()))?;
    if found > FORMAT {
        return Err(CloneError::Newer { path: path.to_owned(), found, known: FORMAT });
    }
    serde_json::from_value(value).map_err(|e| damaged(e.to_string()))
}

fn remove_unfinished(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let unfinished = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(UNFINISHED));
    unfinished.filter(|entry| faultscope_platform::process::remove_tree(&entry.path()).is_ok()).count()
}

/// Makes a folder that only its owner can read: the data of services is in it.
fn make_private(folder: &Path) -> Result<(), CloneError> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(CloneError::file("make", folder)),
    }
}
