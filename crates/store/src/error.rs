//! What can go wrong with files, in kinds a caller can act on.

use std::io;
use std::path::{Path, PathBuf};

use crate::secrets::UnsealError;

/// Something that could not be stored or read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct StoreError {
    /// What kind of trouble it is.
    pub kind: StoreErrorKind,
    /// What was tried.
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Kinds of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// There is no such campaign, run or file.
    NotFound,
    /// A prefix means several campaigns; the cause lists them.
    Ambiguous,
    /// A name that cannot be one.
    Invalid,
    /// No space is left.
    DiskFull,
    /// The files may not be read or written.
    NotPermitted,
    /// A file is not what it should be.
    Damaged,
    /// A later version of the tool wrote it.
    Newer,
    /// Another process works on it.
    InUse,
    /// The campaign's writer has ended.
    Closed,
    /// Anything else of the operating system or the database.
    Other,
}

/// A reason in words, where no library gives one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Reason(String);

impl StoreError {
    pub(crate) fn new(
        kind: StoreErrorKind,
        action: &'static str,
        path: &Path,
        reason: impl Into<String>,
    ) -> Self {
        Self { kind, action, path: path.to_owned(), source: Box::new(Reason(reason.into())) }
    }

    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Damaged, "read", path, reason)
    }

    /// Turns an error of the operating system into ours.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let kind = match source.kind() {
                io::ErrorKind::NotFound => StoreErrorKind::NotFound,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    StoreErrorKind::NotPermitted
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreErrorKind::DiskFull,
                io::ErrorKind::InvalidData | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                    StoreErrorKind::Damaged
                }
                io::ErrorKind::WouldBlock => StoreErrorKind::InUse,
                _ => StoreErrorKind::Other,
            };
            Self { kind, action, path: path.to_owned(), source: Box::new(source) }
        }
    }

    /// Turns an error of the database into ours.
    pub(crate) fn sqlite(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| {
            use rusqlite::ErrorCode;
            let kind = match source.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreErrorKind::DiskFull,
                Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                    StoreErrorKind::NotPermitted
                }
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreErrorKind::Damaged,
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::InUse,
                Some(_) => StoreErrorKind::Other,
                // Without a code the rows were not what the schema promises.
                None => StoreErrorKind::Damaged,
            };
            Self { kind, action, path: path.to_owned(), source: Box::new(source) }
        }
    }

    /// Says why sealed secrets of a file cannot be opened.
    pub(crate) fn unseal(path: &Path, error: UnsealError) -> Self {
        let kind = match error {
            UnsealError::OtherKey => StoreErrorKind::NotPermitted,
            UnsealError::Damaged => StoreErrorKind::Damaged,
        };
        Self::new(kind, "restore the secrets of", path, error.to_string())
    }

    /// The same trouble again, for a second one who waits for the answer.
    pub(crate) fn again(&self) -> Self {
        let mut reason = self.source.to_string();
        let mut source = self.source.source();
        while let Some(cause) = source {
            reason = format!("{reason}: {cause}");
            source = cause.source();
        }
        Self::new(self.kind, self.action, &self.path, reason)
    }
}
