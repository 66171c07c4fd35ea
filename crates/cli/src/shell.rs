//! Commands for people to paste, based on how this process was started.

use std::path::Path;

use faultscope_engine::views::CommandLine;
pub(crate) use faultscope_engine::views::{FolderOption, quote};

/// The option with which `runs` and `report` find an application file elsewhere; empty in its own folder.
pub(crate) fn at(file: &Path) -> FolderOption {
    let folder = if file.is_dir() { file } else { file.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let is_here = real(folder) == real(Path::new("."));
    FolderOption((!is_here).then(|| folder.to_string_lossy().into_owned()))
}

/// An option with its value, for a hint without a whole command.
pub(crate) fn option(name: &str, value: &str) -> CommandLine {
    CommandLine { words: Vec::new() }.option(name, value)
}

/// The command of this process, extended to resume a campaign.
pub(crate) fn resume(campaign: &str) -> CommandLine {
    CommandLine::resume(std::env::args().skip(1), campaign)
}
