//! The application argument that every command has: positional, or after `--folder`.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::project::FILE_NAME;

/// An application file or its folder, for commands that run it.
#[derive(Debug, Clone, Args)]
pub(crate) struct FileArg {
    /// The application file, or the folder it is in.
    #[arg(value_name = "FILE", default_value = FILE_NAME, conflicts_with = "folder")]
    file: PathBuf,
    /// The same as FILE, for symmetry with commands that only read the store.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl From<PathBuf> for FileArg {
    fn from(file: PathBuf) -> Self {
        Self { file, folder: None }
    }
}

impl Deref for FileArg {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.folder.as_deref().unwrap_or(&self.file)
    }
}

/// The folder or file of an application, for commands that only read the store.
#[derive(Debug, Clone, Args)]
pub(crate) struct FolderArg {
    /// The application's folder or file; its data is in `.faultscope` beside it.
    #[arg(value_name = "FOLDER", default_value = ".", conflicts_with = "folder")]
    place: PathBuf,
    /// The same as FOLDER.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

impl Deref for FolderArg {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.folder.as_deref().unwrap_or(&self.place)
    }
}
