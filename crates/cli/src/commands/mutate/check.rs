//! `--check`: compiles or parses mutants with the tools of their languages.
//!
//! The original is checked first. Where that fails already, because a dependency or the tool is missing, nothing is
//! known of the mutant, and it is reported as not checked.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use faultscope_engine::read_text_bounded;
use faultscope_model::Application;
use faultscope_mutate::Language;
use serde::Serialize;

use super::listing::ListedMutant;
use super::sources::READ_LIMIT;

/// What the tool of a language says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Checked {
    /// It accepts the mutant.
    Accepted { tool: String },
    /// It accepts the original, but not the mutant.
    Refused { tool: String, message: String },
    /// It cannot tell.
    Unknown { reason: String },
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted { tool } => write!(f, "accepted by {tool}"),
            Self::Refused { tool, message } => write!(f, "refused by {tool}: {message}"),
            Self::Unknown { reason } => write!(f, "not checked: {reason}"),
        }
    }
}

/// Checks mutants, each on its own.
pub(super) fn check_all(root: &Path, mutants: &mut [ListedMutant]) {
    let mut originals: BTreeMap<String, Option<Checked>> = BTreeMap::new();
    for listed in mutants {
        listed.check = Some(check(root, listed, &mut originals));
    }
}

fn check(root: &Path, listed: &ListedMutant, originals: &mut BTreeMap<String, Option<Checked>>) -> Checked {
    let path = &listed.mutant.path;
    let not_checked = |reason: String| Checked::Unknown { reason };
    let original = match read_text_bounded(&root.join(path), READ_LIMIT) {
        Ok(text) => text,
        Err(error) => return not_checked(error.to_string()),
    };
    let unusable = originals.entry(path.clone()).or_insert_with(|| match check_text(root, path, &original) {
        Checked::Accepted { .. } => None,
        Checked::Refused { tool, message } => {
            Some(not_checked(format!("{tool} refuses the original, too: {message}")))
        }
        other => Some(other),
    });
    if let Some(unusable) = unusable {
        return unusable.clone();
    }
    match listed.mutant.patch.apply(&original) {
        Ok(changed) => check_text(root, path, &changed),
        Err(error) => not_checked(error.to_string()),
    }
}

/// Checks a text as if it were the content of a file of the application.
fn check_text(root: &Path, path: &str, text: &str) -> Checked {
    let not_checked = |reason: String| Checked::Unknown { reason };
    let file = root.join(path);
    let Some(language) = Language::for_path(&file) else {
        return check_application(root, path, text);
    };
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return not_checked(error.to_string()),
    };
    let name = file.file_name().unwrap_or_default();
    let draft = folder.path().join(name);
    if let Err(error) = fs::write(&draft, text) {
        return not_checked(error.to_string());
    }
    let mut command;
    match language {
        Language::Python => {
            command = Command::new("python3");
            command.args(["-m", "py_compile"]).arg(&draft);
        }
        Language::JavaScript => {
            // Whether a file is a module stands in the next `package.json`.
            if let Some(manifest) = find_upwards(root, &file, "package.json") {
                let _ = fs::copy(manifest, folder.path().join("package.json"));
            }
            command = Command::new("node");
            command.arg("--check").arg(&draft);
        }
        Language::TypeScript | Language::Tsx => {
            command = Command::new("tsc");
            command.args(["--noEmit", "--skipLibCheck", "--target", "es2022", "--moduleResolution", "node"]);
            command.arg(&draft);
        }
        Language::Go if find_upwards(root, &file, "go.mod").is_some() => {
            let overlay = folder.path().join("overlay.json");
            let replaced =
                serde_json::json!({ "Replace": { file.to_string_lossy(): draft.to_string_lossy() } });
            if let Err(error) = fs::write(&overlay, replaced.to_string()) {
                return not_checked(error.to_string());
            }
            command = Command::new("go");
            command.args(["build", "-o", "/dev/null", "-overlay"]).arg(&overlay).arg(".");
            command.current_dir(file.parent().unwrap_or(root));
        }
        Language::Go => {
            command = Command::new("gofmt");
            command.args(["-e", "-l"]).arg(&draft);
        }
        Language::Java => {
            command = Command::new("javac");
            command.args(["-proc:none", "-d"]).arg(folder.path());
            if let Some(sources) = source_root(&file, text) {
                command.arg("-sourcepath").arg(sources);
            }
            command.arg(&draft);
        }
        Language::Rust => {
            command = Command::new("rustc");
            command.args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--out-dir"]);
            command.arg(folder.path()).arg(&draft);
        }
        Language::Yaml => return check_application(root, path, text),
    }
    run(command, &draft)
}

fn run(mut command: Command, draft: &Path) -> Checked {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Checked::Unknown { reason: format!("{tool} is not installed") };
        }
        Err(error) => return Checked::Unknown { reason: format!("{tool}: {error}") },
    };
    if output.status.success() {
        return Checked::Accepted { tool };
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    let line =
        said.lines().find(|line| line.to_lowercase().contains("error")).or_else(|| said.lines().next());
    let message = line.unwrap_or("it says nothing").trim().replace(&*draft.to_string_lossy(), "");
    Checked::Refused { tool, message: message.trim_start_matches(':').to_owned() }
}

fn check_application(root: &Path, path: &str, text: &str) -> Checked {
    let tool = "faultscope check".to_owned();
    let file = root.join(path);
    let load = |base: &str, path: &str| {
        let next = Path::new(base).parent().unwrap_or(Path::new("")).join(path);
        let text = read_text_bounded(&next, READ_LIMIT).map_err(|e| e.to_string())?;
        Ok((text, next.to_string_lossy().into_owned()))
    };
    match Application::read(text, &file.to_string_lossy(), &load) {
        Ok(_) => Checked::Accepted { tool },
        Err(error) => Checked::Refused { tool, message: error.to_string() },
    }
}

/// The nearest file of a name, from the folder of a file up to that of the application.
fn find_upwards(root: &Path, file: &Path, name: &str) -> Option<PathBuf> {
    let folders = file.ancestors().skip(1).take_while(|folder| folder.starts_with(root));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The folder that the packages of a Java file begin in.
fn source_root(file: &Path, text: &str) -> Option<PathBuf> {
    let declared = text.lines().find_map(|line| line.trim().strip_prefix("package ")?.strip_suffix(';'));
    let depth = declared.map_or(0, |package| package.split('.').count());
    file.ancestors().nth(depth + 1).map(Path::to_owned)
}
