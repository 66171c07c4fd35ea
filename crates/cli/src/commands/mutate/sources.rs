//! Finds the source files of services.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use faultscope_model::application::Service;
use faultscope_mutate::{Language, MAX_SOURCE};
use ignore::WalkBuilder;

use crate::project::Project;

/// More files are not looked at: the folder is not that of one application.
const MAX_FILES: usize = 5_000;

/// Levels of folders below that of a service.
const MAX_DEPTH: usize = 16;

/// Folders with code of others, or made by tools.
const FOREIGN: [&str; 10] = [
    "node_modules",
    "vendor",
    "target",
    "dist",
    "build",
    "venv",
    "site-packages",
    "__pycache__",
    "third_party",
    "out",
];

/// A source file and the services it belongs to.
#[derive(Debug)]
pub(super) struct SourceFile {
    /// Relative to the application's folder, with slashes.
    pub(super) path: String,
    pub(super) language: Language,
    pub(super) services: Vec<String>,
}

/// A file that was found and not used.
#[derive(Debug, Clone, serde::Serialize)]
pub(super) struct SkippedFile {
    pub(super) path: String,
    pub(super) reason: String,
}

/// The files of all services, in the order of their paths.
pub(super) fn find_sources(project: &Project, skipped: &mut Vec<SkippedFile>) -> Vec<SourceFile> {
    let mut owners: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let mut named: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for (name, service) in &project.application.services {
        for folder in folders(service) {
            let folder = project.root.join(folder);
            for word in words(service) {
                let file = normalize(&folder.join(word));
                if file.starts_with(&project.root) && Language::for_path(&file).is_some() && file.is_file() {
                    named.entry(file.clone()).or_default().insert(name.to_string());
                    owners.entry(file).or_default().insert(name.to_string());
                }
            }
            for file in walk(&project.root, &folder, skipped) {
                owners.entry(file).or_default().insert(name.to_string());
            }
        }
    }
    let mut sources = Vec::new();
    for (file, all) in owners {
        let Some((path, language)) = relative(&project.root, &file).zip(Language::for_path(&file)) else {
            continue;
        };
        // A file that a command names belongs to that service, even if others share the folder.
        let services = named.remove(&file).unwrap_or(all).into_iter().collect();
        sources.push(SourceFile { path, language, services });
    }
    sources
}

/// A path below the application's folder, as patches write it.
pub(super) fn relative(root: &Path, file: &Path) -> Option<String> {
    let parts = file.strip_prefix(root).ok()?.components();
    let parts: Option<Vec<&str>> = parts.map(|part| part.as_os_str().to_str()).collect();
    parts.map(|parts| parts.join("/"))
}

fn folders(service: &Service) -> BTreeSet<&str> {
    let versions = service.versions.values().filter_map(|version| version.directory.as_deref());
    std::iter::once(service.directory.as_str()).chain(service.build.as_deref()).chain(versions).collect()
}

fn words(service: &Service) -> impl Iterator<Item = &str> {
    let all = service.entrypoint.iter().flatten().chain(&service.command);
    // A line with shell syntax is one word.
    all.flat_map(|word| word.split([' ', ';', '&', '\'', '"'])).filter(|word| !word.is_empty())
}

fn walk(root: &Path, folder: &Path, skipped: &mut Vec<SkippedFile>) -> Vec<PathBuf> {
    let folder = normalize(folder);
    if !folder.starts_with(root) {
        return Vec::new();
    }
    let is_own = |entry: &ignore::DirEntry| {
        let name = entry.file_name().to_str().unwrap_or_default();
        entry.depth() == 0 || !(FOREIGN.contains(&name) || is_test(name))
    };
    let entries = WalkBuilder::new(&folder)
        .max_depth(Some(MAX_DEPTH))
        .require_git(false)
        .follow_links(false)
        .filter_entry(is_own)
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let path = entry.into_path();
        if Language::for_path(&path).is_none() || !path.is_file() {
            continue;
        }
        if files.len() == MAX_FILES {
            let path = relative(root, &folder).unwrap_or_default();
            skipped.push(SkippedFile { path, reason: format!("it has more than {MAX_FILES} source files") });
            break;
        }
        files.push(path);
    }
    files
}

/// Whether a file or folder holds tests.
fn is_test(name: &str) -> bool {
    const FOLDERS: [&str; 4] = ["test", "tests", "__tests__", "testdata"];
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    FOLDERS.contains(&name)
        || stem == "conftest"
        || stem.starts_with("test_")
        || [".test", ".spec", "_test"].iter().any(|end| stem.ends_with(end))
}

/// The path without `.` and `..`; nothing is looked up, so links stay as they are.
fn normalize(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

/// The bound of files that are read; one more byte, so that the parser can say that a file is too large.
pub(super) const READ_LIMIT: u64 = MAX_SOURCE as u64 + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_told_from_sources_by_their_names() {
        for name in ["test_shop.py", "shop_test.go", "shop.test.js", "cart.spec.ts", "tests", "conftest.py"] {
            assert!(is_test(name), "{name}");
        }
        for name in ["latest.py", "contest.go", "testing.rs", "src"] {
            assert!(!is_test(name), "{name}");
        }
    }

    #[test]
    fn paths_are_normalized_without_looking_them_up() {
        assert_eq!(normalize(Path::new("/app/./a/../b")), Path::new("/app/b"));
        assert_eq!(relative(Path::new("/app"), Path::new("/app/b/c.py")).as_deref(), Some("b/c.py"));
        assert_eq!(relative(Path::new("/app"), Path::new("/other/c.py")), None);
    }
}
