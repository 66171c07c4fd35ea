//! Why a clone cannot be taken, read or started.

use std::io;
use std::path::PathBuf;

use faultscope_platform::PlatformError;
use faultscope_store::StoreError;

use crate::error::EngineError;

/// An error that concerns a clone.
#[derive(Debug, thiserror::Error)]
pub enum CloneError {
    /// There is no such clone.
    #[error("there is no clone `{wanted}`")]
    NotFound {
        /// What was asked for.
        wanted: String,
    },
    /// Several clones begin like this.
    #[error("`{wanted}` is the beginning of several clones: {found}")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Their ids.
        found: String,
    },
    /// A name that is no name, or that another clone has.
    #[error("`{name}` cannot be the name of a clone: {reason}")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// A file or folder cannot be used.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// An infinitive.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// What is stored is no clone, or is cut off.
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer version wrote it.
    #[error("{} has format {found}, and this version of faultscope reads up to {known}", .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The format of this version.
        known: u64,
    },
    /// No `up` of this folder can be asked.
    #[error("no `faultscope up` runs in this folder")]
    NotUp,
    /// Several of them run.
    #[error("several `faultscope up` run in this folder: {campaigns}")]
    SeveralUp {
        /// Their campaigns.
        campaigns: String,
    },
    /// `up` could not take the clone.
    #[error("`faultscope up` took no clone: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// The manifest cannot be sealed or opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The platform could not copy the data.
    #[error(transparent)]
    Platform(Box<PlatformError>),
    /// The application cannot be planned.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<PlatformError> for CloneError {
    fn from(error: PlatformError) -> Self {
        Self::Platform(Box::new(error))
    }
}

impl CloneError {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
