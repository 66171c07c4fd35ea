//! The journal of an applied mutant: written and synced before the first change, so that the original can be
//! restored whenever the tool is killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use faultscope_engine::{read_bounded, read_text_bounded};
use faultscope_model::digest::Digest;
use faultscope_mutate::MAX_SOURCE;
use serde::{Deserialize, Serialize};

/// The version of the file.
const FORMAT: u32 = 1;

/// A journal holds one source text, in which every byte may be escaped.
const MAX_JOURNAL: u64 = 8 * MAX_SOURCE as u64;

/// A mutated file is larger than its original by what was inserted.
const MAX_FILE: u64 = 2 * MAX_SOURCE as u64;

/// What was changed, and how it was before.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    pub(super) mutant: String,
    /// Relative to the folder of the application.
    pub(super) path: String,
    before: Digest,
    after: Digest,
    original: String,
}

/// What taking a mutant back meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reverted {
    /// The original was written back.
    Restored,
    /// The file was the original already: the tool was killed before it changed anything.
    WasOriginal,
}

/// Why a mutant cannot be taken back.
#[derive(Debug, thiserror::Error)]
pub(super) enum JournalError {
    #[error("no mutant is applied here")]
    NotApplied,
    #[error("{0} was changed after the mutant was applied")]
    ChangedSince(String),
    #[error("the journal {0} cannot be read")]
    Unreadable(PathBuf),
    #[error("cannot read or write {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn place(folder: &Path) -> PathBuf {
    folder.join(".faultscope").join("mutant.json")
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    move |source| JournalError::File { path: path.to_owned(), source }
}

impl Journal {
    /// The journal of the mutant that is applied in a folder.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, JournalError> {
        let place = place(folder);
        let text = match read_text_bounded(&place, MAX_JOURNAL) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&place)(error)),
        };
        match serde_json::from_str::<Self>(&text) {
            Ok(journal) if journal.format == FORMAT && is_below(&journal.path) => Ok(Some(journal)),
            _ => Err(JournalError::Unreadable(place)),
        }
    }

    /// Replaces a file, and makes sure before that it can be restored.
    pub(super) fn apply(
        folder: &Path,
        mutant: &str,
        path: &str,
        original: &str,
        changed: &str,
    ) -> Result<(), JournalError> {
        let place = place(folder);
        let journal = Self {
            format: FORMAT,
            mutant: mutant.to_owned(),
            path: path.to_owned(),
            before: Digest::hash_bytes(original.as_bytes()),
            after: Digest::hash_bytes(changed.as_bytes()),
            original: original.to_owned(),
        };
        let state = folder.join(".faultscope");
        fs::create_dir_all(&state).map_err(at(&state))?;
        let text = serde_json::to_string(&journal).map_err(|e| at(&place)(e.into()))?;
        write_whole(&place, text.as_bytes())?;
        write_whole(&folder.join(path), changed.as_bytes())
    }

    /// Restores the original and forgets the mutant.
    pub(super) fn revert(self, folder: &Path, force: bool) -> Result<Reverted, JournalError> {
        let file = folder.join(&self.path);
        let now = match read_bounded(&file, MAX_FILE) {
            Ok(bytes) => Some(Digest::hash_bytes(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(at(&file)(error)),
        };
        let reverted = if now == Some(self.before) {
            Reverted::WasOriginal
        } else if now == Some(self.after) || force {
            write_whole(&file, self.original.as_bytes())?;
            Reverted::Restored
        } else {
            return Err(JournalError::ChangedSince(self.path));
        };
        // Only now: until here, a kill leaves a journal that tells the way back.
        let place = place(folder);
        fs::remove_file(&place).map_err(at(&place))?;
        Ok(reverted)
    }
}

/// Whether a path stays below the folder it is relative to. A journal may come with a copy that somebody sent.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Replaces a file in one step: whoever looks sees the old content or the new one, also after a loss of power.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = folder.join(format!(".{name}.faultscope-{}", std::process::id()));
    let write = || {
        let mut file = File::create(&draft)?;
        if let Ok(about) = fs::metadata(path) {
            file.set_permissions(about.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&draft);
        at(path)(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.py"), "old\n").unwrap();
        folder
    }

    fn apply(folder: &Path) {
        Journal::apply(folder, "m1-1", "a.py", "old\n", "new\n").unwrap();
    }

    #[test]
    fn what_was_applied_is_reverted() {
        let folder = folder();
        apply(folder.path());
        assert_eq!(fs::read_to_string(folder.path().join("a.py")).unwrap(), "new\n");
        let journal = Journal::read(folder.path()).unwrap().unwrap();
        assert_eq!(journal.revert(folder.path(), false).unwrap(), Reverted::Restored);
        assert_eq!(fs::read_to_string(folder.path().join("a.py")).unwrap(), "old\n");
        assert!(Journal::read(folder.path()).unwrap().is_none());
    }

    #[test]
    fn a_kill_between_journal_and_change_leaves_the_original() {
        let folder = folder();
        apply(folder.path());
        fs::write(folder.path().join("a.py"), "old\n").unwrap();
        let journal = Journal::read(folder.path()).unwrap().unwrap();
        assert_eq!(journal.revert(folder.path(), false).unwrap(), Reverted::WasOriginal);
        assert!(Journal::read(folder.path()).unwrap().is_none());
    }

    #[test]
    fn later_changes_are_lost_only_by_force() {
        let folder = folder();
        apply(folder.path());
        fs::write(folder.path().join("a.py"), "mine\n").unwrap();
        let journal = Journal::read(folder.path()).unwrap().unwrap();
        let refused = journal.revert(folder.path(), false);
        assert!(matches!(refused, Err(JournalError::ChangedSince(_))), "{refused:?}");
        let journal = Journal::read(folder.path()).unwrap().unwrap();
        assert_eq!(journal.revert(folder.path(), true).unwrap(), Reverted::Restored);
    }

    #[test]
    fn a_journal_never_leads_out_of_its_folder() {
        let folder = folder();
        apply(folder.path());
        let text = fs::read_to_string(place(folder.path())).unwrap();
        for path in ["../a.py", "/etc/passwd", ""] {
            fs::write(place(folder.path()), text.replace("\"a.py\"", &format!("{path:?}"))).unwrap();
            let read = Journal::read(folder.path());
            assert!(matches!(read, Err(JournalError::Unreadable(_))), "{path}");
        }
    }
}
