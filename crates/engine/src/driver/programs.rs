//! Digests of the programs that an application runs, so that a resumed campaign notices that one has changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use faultscope_model::Application;
use faultscope_model::application::TestBody;
use faultscope_model::digest::Digest;

/// Of larger files size and time of the last change count: reading them would delay every campaign.
const MAX_READ: u64 = 64 << 20;

/// How the names of these foundations begin.
pub(super) const PROGRAM: &str = "the program `";

/// The files that the commands of an application name, by name: `the program `order.py` of order`. Programs that are
/// found by `PATH`, such as interpreters, are not among them: they belong to the machine.
pub(super) fn digest_programs(application: &Application, root: &Path) -> BTreeMap<String, String> {
    let mut digests = BTreeMap::new();
    let mut add = |owner: &str, directory: &str, words: &mut dyn Iterator<Item = &String>| {
        for word in words {
            if let Some(digest) = named_file(root, directory, word).as_deref().and_then(digest_file) {
                digests.insert(format!("{PROGRAM}{word}` of {owner}"), digest);
            }
        }
    };
    for (name, service) in &application.services {
        let words = service.entrypoint.iter().flatten().chain(&service.command);
        add(name.as_str(), &service.directory, &mut words.into_iter());
        for (version, spec) in &service.versions {
            let directory = spec.directory.as_deref().unwrap_or(&service.directory);
            let words = spec.entrypoint.iter().chain(&spec.command).flatten();
            add(&format!("{name} {version}"), directory, &mut words.into_iter());
        }
    }
    add("`setup`", "", &mut application.setup.iter().flatten());
    for test in &application.tests {
        if let TestBody::Command(command) | TestBody::Discover { command, .. } = &test.body {
            add(&format!("test {}", test.name), &command.directory, &mut command.run.iter());
        }
    }
    digests
}

/// The regular file that a word of a command names; none if it names none.
fn named_file(root: &Path, directory: &str, word: &str) -> Option<PathBuf> {
    // Options, and words that `PATH` decides about.
    let may_be_file = !word.is_empty() && !word.starts_with('-') && word.contains(['/', '.']);
    let path = root.join(directory).join(word);
    (may_be_file && fs::metadata(&path).is_ok_and(|meta| meta.is_file())).then_some(path)
}

fn digest_file(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    if meta.len() > MAX_READ {
        return Some(Digest::hash_json(&(meta.len(), meta.modified().ok())).to_string());
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_READ).read_to_end(&mut bytes).ok()?;
    Some(Digest::hash_bytes(&bytes).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        for name in ["src/order.py", "pay.sh", "notes.txt"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let text = "name: shop\nservices: { order: { command: [python3, -u, order.py, --port=80], directory: src } }\ntests: [ { name: pay, run: [./pay.sh, missing.sh] } ]\n";
        let application = Application::read_alone(text, "f").unwrap();
        let before = digest_programs(&application, folder.path());
        let names: Vec<_> = before.keys().map(String::as_str).collect();
        assert_eq!(names, ["the program `./pay.sh` of test pay", "the program `order.py` of order"]);
        assert_eq!(digest_programs(&application, folder.path()), before);
        fs::write(folder.path().join("src/order.py"), "other").unwrap();
        fs::write(folder.path().join("notes.txt"), "other").unwrap();
        let after = digest_programs(&application, folder.path());
        let changed: Vec<_> = before.keys().filter(|name| before[*name] != after[*name]).collect();
        assert_eq!(changed, ["the program `order.py` of order"]);
    }
}
