//! Errors of files and databases, in kinds that a caller can act on.

use std::io;
use std::path::{Path, PathBuf};

use crate::secrets::UnsealError;

/// A file or folder that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct StoreError {
    /// What a caller can act on.
    pub kind: StoreErrorKind,
    /// What was tried, as an infinitive after "cannot".
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// There is no such campaign, run or file.
    NotFound,
    /// A prefix matches several campaigns; the cause lists them.
    Ambiguous,
    /// A name that no campaign can have.
    Invalid,
    /// No space is left.
    DiskFull,
    /// The permissions of a file are missing.
    NotPermitted,
    /// The content of a file is not valid.
    Damaged,
    /// It is sealed, and the key for it is not here.
    Sealed,
    /// A newer version of the tool wrote it.
    Newer,
    /// Another process is using it.
    InUse,
    /// The writer of the campaign has ended.
    Closed,
    /// Other readers have the memory for it at the moment.
    NoRoom,
    /// Any other error of the operating system or the database.
    Other,
}

/// A reason for which no library has an error.
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

    /// Converts an error of the operating system.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| {
            let kind = match source.kind() {
                io::ErrorKind::NotFound => StoreErrorKind::NotFound,
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    StoreErrorKind::NotPermitted
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    StoreErrorKind::DiskFull
                }
                io::ErrorKind::InvalidData | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                    StoreErrorKind::Damaged
                }
                io::ErrorKind::WouldBlock => StoreErrorKind::InUse,
                _ => StoreErrorKind::Other,
            };
            Self { kind, action, path: path.to_owned(), source: Box::new(source) }
        }
    }

    /// Converts an error of the database.
    pub(crate) fn sqlite(action: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| {
            use rusqlite::ErrorCode;
            // What a row holds is wrong, or cannot be opened: the cause says more than the database does.
            let source = match source {
                rusqlite::Error::FromSqlConversionFailure(_, _, cause) => {
                    let kind =
                        cause.downcast_ref::<UnsealError>().map_or(StoreErrorKind::Damaged, kind_of_unseal);
                    return Self { kind, action, path: path.to_owned(), source: cause };
                }
                other => other,
            };
            let kind = match source.sqlite_error_code() {
                Some(ErrorCode::DiskFull) => StoreErrorKind::DiskFull,
                Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                    StoreErrorKind::NotPermitted
                }
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreErrorKind::Damaged,
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::InUse,
                // A file that was made, but not filled before a crash.
                Some(ErrorCode::Unknown) if source.to_string().starts_with("no such table") => {
                    StoreErrorKind::Damaged
                }
                Some(_) => StoreErrorKind::Other,
                // Without a code the rows do not match the schema.
                None => StoreErrorKind::Damaged,
            };
            Self { kind, action, path: path.to_owned(), source: Box::new(source) }
        }
    }

    /// Explains why sealed secrets cannot be opened.
    pub(crate) fn unseal(path: &Path, error: &UnsealError) -> Self {
        Self::new(kind_of_unseal(error), "open what is sealed in", path, error.to_string())
    }

    /// Whether it concerns only the file that it names, so that everything else can still be read.
    pub fn is_local(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Damaged
                | StoreErrorKind::Newer
                | StoreErrorKind::NotPermitted
                | StoreErrorKind::Sealed
                | StoreErrorKind::InUse
        )
    }

    /// A copy for a second caller that waits for the same result.
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

fn kind_of_unseal(error: &UnsealError) -> StoreErrorKind {
    match error {
        UnsealError::OtherKey | UnsealError::NoKey(_) => StoreErrorKind::Sealed,
        UnsealError::Damaged => StoreErrorKind::Damaged,
    }
}
