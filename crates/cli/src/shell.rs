//! Commands for people to paste, based on how this process was started.

use std::path::{Path, PathBuf};

use faultscope_engine::views::CommandLine;
pub(crate) use faultscope_engine::views::{FolderOption, quote};

/// The option that leads `runs` and `report` to what is stored in a folder, from where the user is; nothing when that
/// is the folder itself.
pub(crate) fn at(folder: &Path) -> FolderOption {
    let folder = if folder.is_dir() { folder } else { folder.parent().unwrap_or(Path::new("")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let (Ok(folder), Ok(here)) = (std::fs::canonicalize(folder), std::fs::canonicalize(".")) else {
        return FolderOption(Some(folder.to_string_lossy().into_owned()));
    };
    FolderOption(from_here(&folder, &here).map(|path| path.to_string_lossy().into_owned()))
}

/// The shortest way to a folder; none when it is here.
fn from_here(folder: &Path, here: &Path) -> Option<PathBuf> {
    if let Ok(below) = folder.strip_prefix(here) {
        return (!below.as_os_str().is_empty()).then(|| below.to_owned());
    }
    match here.strip_prefix(folder) {
        Ok(deeper) => Some(deeper.components().map(|_| "..").collect()),
        Err(_) => Some(folder.to_owned()),
    }
}

/// The command of this process for another test, with more words.
pub(crate) fn with_test(test: &str, more: &[&str]) -> CommandLine {
    CommandLine::with_test(std::env::args().skip(1), test, more)
}

/// The command of this process, extended to resume a campaign.
pub(crate) fn resume(campaign: &str) -> CommandLine {
    CommandLine::resume(std::env::args().skip(1), campaign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_from_where_the_user_is() {
        let way = |folder: &str, here: &str| {
            from_here(Path::new(folder), Path::new(here)).map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(way("/a/b", "/a/b"), None);
        assert_eq!(way("/a/b/c", "/a/b").as_deref(), Some("c"));
        assert_eq!(way("/a", "/a/b/c").as_deref(), Some("../.."));
        assert_eq!(way("/x", "/a/b").as_deref(), Some("/x"));
    }
}
