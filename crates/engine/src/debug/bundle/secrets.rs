//! Which secrets a bundle holds. It is handed on, so people should know each of them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use faultscope_model::secrets::{SecretNames, redact_bytes};
use faultscope_model::{Application, Circumstance};

use super::files::Files;

/// Larger files are data, and named as not looked into.
const MAX_SEARCHED: u64 = 8 << 20;

/// Bytes that show whether a file is text, as git does it.
const BEGINNING: usize = 8_000;

/// Settings: whatever stands behind a name is its value. In programs it may be an expression.
const SETTINGS: [&str; 14] = [
    "yaml",
    "yml",
    "json",
    "env",
    "properties",
    "conf",
    "cfg",
    "ini",
    "toml",
    "xml",
    "sql",
    "sh",
    "txt",
    "md",
];

/// A place in a bundle that looks like a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretPlace {
    /// The file, by its name in the bundle.
    pub file: PathBuf,
    /// The line, from 1; none if the file is too large to be searched.
    pub line: Option<usize>,
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file.display()),
            None => write!(f, "{} (too large to be searched)", self.file.display()),
        }
    }
}

/// Settings of services and tests that look like secrets, by name.
pub fn secrets(application: &Application) -> Vec<String> {
    let names = SecretNames::new(&application.record.secrets);
    let mut found = BTreeSet::new();
    let mut look = |owner: &str, name: &str, value: &str| {
        if names.redact_setting(name, value) != value {
            found.insert(format!("{owner}.{}", name.trim_start_matches("env.")));
        }
    };
    for (service, spec) in &application.services {
        let versions = spec.versions.values().flat_map(|version| &version.env);
        spec.env.iter().chain(versions).for_each(|(name, value)| look(service.as_str(), name, value));
    }
    for circumstance in [&application.simplest, &application.failing] {
        for (service, items) in &circumstance.config {
            items.iter().for_each(|(name, value)| look(service.as_str(), name, value));
        }
    }
    found.into_iter().collect()
}

/// The places of secrets in a text.
pub(super) fn search_text(file: &Path, text: &[u8], names: &SecretNames) -> Vec<SecretPlace> {
    if text[..text.len().min(BEGINNING)].contains(&0) {
        return Vec::new();
    }
    let extension = file.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    let is_settings = extension.is_none_or(|end| SETTINGS.contains(&end.as_str()));
    let mut lines = BTreeSet::new();
    redact_bytes(text, names, &mut |secret| {
        // Secrets are parts of the text.
        let at = (secret.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        let is_literal = at > 0 && b"\"'`".contains(&text[at - 1]);
        let is_shaped = redact_bytes(secret, names, &mut |_| {}).is_some();
        if is_settings || is_literal || is_shaped {
            lines.insert(1 + text[..at].iter().filter(|byte| **byte == b'\n').count());
        }
    });
    lines.into_iter().map(|line| SecretPlace { file: file.to_owned(), line: Some(line) }).collect()
}

/// The places of secrets in files of an application.
pub(super) fn search_files(root: &Path, files: &Files, names: &SecretNames) -> Vec<SecretPlace> {
    let mut found = Vec::new();
    for (name, bytes) in files {
        if *bytes > MAX_SEARCHED {
            found.push(SecretPlace { file: name.clone(), line: None });
        } else if let Ok(text) = fs::read(root.join(name)) {
            found.extend(search_text(name, &text, names));
        }
    }
    found
}

/// A circumstance of a stored run with the secrets that were redacted when it was stored. `ends` are those it lies
/// between; the first one that has such a value gives it.
pub fn restore_settings(
    stored: &Circumstance,
    names: &SecretNames,
    ends: [&Circumstance; 2],
) -> Circumstance {
    let mut restored = stored.clone();
    for (service, items) in &mut restored.config {
        for (key, value) in items {
            let originals = ends.iter().filter_map(|end| end.config.get(service)?.get(key));
            let mut fitting = originals.filter(|original| names.redact_setting("", original) == *value);
            if let Some(original) = fitting.next() {
                value.clone_from(original);
            }
        }
    }
    restored
}
