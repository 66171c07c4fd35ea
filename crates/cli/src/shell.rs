//! Commands that people can paste, as this process was started.

use std::path::Path;

use faultscope_engine::views::CommandLine;
pub(crate) use faultscope_engine::views::{FolderOption, quote};

/// The option that leads `runs` and `report` to what an application file elsewhere left; nothing in its folder.
pub(crate) fn at(file: &Path) -> FolderOption {
    let folder = if file.is_dir() { file } else { file.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let is_here = real(folder) == real(Path::new("."));
    FolderOption((!is_here).then(|| folder.to_string_lossy().into_owned()))
}

/// An option with its value, for a hint that names no whole command.
pub(crate) fn option(name: &str, value: &str) -> CommandLine {
    CommandLine { words: Vec::new() }.option(name, value)
}

/// The command that this process was started with, so that it goes on with a campaign.
pub(crate) fn resume(campaign: &str) -> CommandLine {
    CommandLine::resume(std::env::args().skip(1), campaign)
}
