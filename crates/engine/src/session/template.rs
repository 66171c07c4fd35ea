//! The name of the template that `setup` fills: the same name means the same result.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use faultscope_model::Application;
use faultscope_model::digest::Digest;

/// Folders of the tool and of version control, which `setup` has no reason to read.
const LEFT_OUT: [&str; 3] = [".faultscope", ".git", ".hg"];

/// Names the template by its command and by every file below the application's folder, since `setup` may read
/// any of them. Sizes and times stand for contents: reading them all would cost seconds for each command if
/// a folder contains dependencies. The change time cannot be set by users, so an edit always shows.
pub(super) fn template_name(application: &Application, root: &Path) -> String {
    let Some(setup) = &application.setup else { return String::from("none") };
    let mut files: Vec<(String, [i64; 6])> = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if LEFT_OUT.iter().any(|left_out| name == *left_out) {
                continue;
            }
            // Links are not followed: their targets are visited themselves, or lie outside.
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            if meta.is_dir() {
                open.push(path.clone());
            }
            let inside = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.push((inside, stamp(&meta)));
        }
    }
    files.sort();
    Digest::hash_json(&(setup, files)).to_string()
}

/// Folders that builds and installations fill; they follow from the other files.
const DERIVED: [&str; 5] = ["node_modules", "target", "__pycache__", ".venv", "vendor"];
/// Of larger files only the size counts, and of more files only the first ones.
const MAX_READ: u64 = 1 << 20;
const MAX_FILES: usize = 20_000;

/// Stands for the content of the application's folder, on any machine.
pub(crate) fn files_digest(root: &Path) -> String {
    let mut files: Vec<(String, u64, Option<Digest>)> = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(&folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let is_named = |names: &[&str]| names.iter().any(|other| name == *other);
            let Ok(meta) = entry.metadata() else { continue };
            if is_named(&LEFT_OUT) || is_named(&DERIVED) || files.len() >= MAX_FILES {
                continue;
            }
            let path = entry.path();
            if meta.is_dir() {
                open.push(path);
            } else if meta.is_file() {
                let content = (meta.len() <= MAX_READ).then(|| fs::read(&path).ok()).flatten();
                let inside = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                files.push((inside, meta.len(), content.map(|bytes| Digest::hash_bytes(&bytes))));
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Digest::hash_json(&files).to_string()
}

fn stamp(meta: &Metadata) -> [i64; 6] {
    let mode = i64::from(meta.mode());
    if meta.is_dir() {
        // The content of a folder counts, not its times, which change with every temporary file.
        return [mode, 0, 0, 0, 0, 0];
    }
    let size = i64::try_from(meta.len()).unwrap_or(i64::MAX);
    [mode, size, meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_anywhere_below_the_folder_makes_another_template() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("scripts/deep")).unwrap();
        fs::create_dir_all(root.join(".faultscope")).unwrap();
        fs::write(root.join("scripts/deep/seed.py"), "print(1)").unwrap();
        let read = |setup: &str| {
            let text = format!("name: x\nservices: {{ a: {{ command: [a] }} }}\n{setup}");
            Application::read_alone(&text, "x.yaml").unwrap()
        };
        let application = read("setup: [python3, scripts/deep/seed.py]\n");
        let name = || template_name(&application, root);
        let before = name();
        assert_eq!(name(), before);
        fs::write(root.join(".faultscope/log"), "noise").unwrap();
        assert_eq!(name(), before, "what the tool writes itself does not count");
        fs::write(root.join("scripts/deep/seed.py"), "print(22)").unwrap();
        let edited = name();
        assert_ne!(edited, before);
        fs::write(root.join("scripts/data.csv"), "").unwrap();
        assert_ne!(name(), edited);
        let other = read("setup: [python3, scripts/other.py]\n");
        assert_ne!(template_name(&other, root), name());
        assert_eq!(template_name(&read(""), root), "none");
    }
}
