//! Two deployments side by side: `--good` and `--bad`, each an application file, Compose files or a folder.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use faultscope_model::Application;
use faultscope_model::application::{Service, TestBody};
use faultscope_model::compare::{CompareError, compare};
use faultscope_model::import::looks_like_manifest;
use faultscope_model::mount::MountSource;

use faultscope_engine::{MAX_APPLICATION_FILE, read_bounded, read_text_bounded};

use crate::commands::init;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::{FILE_NAME, Project};

/// The most files and bytes that are compared to decide whether two folders are equal.
const MAX_FILES: usize = 5_000;
const MAX_BYTES: u64 = 256 << 20;

/// The options of a comparison.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Comparison {
    /// A deployment that works: an application file, a folder, Compose files (repeat for overrides), or manifests.
    /// Every difference to `--bad` is a delta.
    #[arg(long, value_name = "FILE", requires = "bad", conflicts_with_all = ["file", "folder"])]
    pub(crate) good: Vec<PathBuf>,
    /// A deployment that fails.
    #[arg(long, value_name = "FILE", requires = "good", conflicts_with_all = ["file", "folder"])]
    pub(crate) bad: Vec<PathBuf>,
    /// An application file whose tests are used instead of those of `--bad`.
    #[arg(long = "tests", value_name = "FILE", requires = "bad")]
    pub(crate) tests_from: Option<PathBuf>,
}

impl Comparison {
    /// Whether a comparison was requested.
    pub(crate) fn is_asked_for(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The arguments that request the same comparison again.
    pub(crate) fn words(&self) -> Vec<String> {
        let some = |flag: &'static str, paths: &[PathBuf]| -> Vec<String> {
            paths.iter().flat_map(|p| [flag.to_owned(), p.to_string_lossy().into_owned()]).collect()
        };
        [some("--good", &self.good), some("--bad", &self.bad), some("--tests", self.tests_from.as_slice())]
            .concat()
    }

    /// Reads and merges both sides.
    pub(crate) fn read(&self, printer: &Printer) -> Result<Project, CommandError> {
        let (mut good, mut bad) = (side(&self.good, printer)?, side(&self.bad, printer)?);
        let root = share_a_root(&mut good, &mut bad, &[&self.good[..], &self.bad[..]].concat())?;
        if let Some(file) = &self.tests_from {
            let tests = Project::read(file)?;
            bad.application.tests = prefixed_tests(&tests, &root)?;
            bad.application.failing_test = tests.application.failing_test;
        }
        let refused = |e: CompareError| CommandError::new(Exit::Spec, e.problem.clone()).hint(e.hint);
        let compared = compare(&good.application, &bad.application).map_err(refused)?;
        for note in compared.notes {
            printer.warn(note);
        }
        Ok(Project { application: compared.application, root, files: Vec::new() })
    }
}

/// Reads one side, in whatever format it is.
fn side(paths: &[PathBuf], printer: &Printer) -> Result<Project, CommandError> {
    let [first, ..] = paths else { return Err(CommandError::usage("`--good` and `--bad` go together")) };
    if first.is_dir() && first.join(FILE_NAME).is_file() {
        return Project::read(first);
    }
    let files = if paths.len() == 1 && first.is_dir() { init::find_files(first)? } else { paths.to_vec() };
    if files.len() == 1 && !is_foreign(&files[0]) {
        return Project::read(&files[0]);
    }
    // Both sides keep what collects traces: whether it is there may be the difference.
    let choices = init::Choices { profiles: &[], env_files: &[], keep_tracing: true };
    let imported = init::import(&files, &choices)?;
    for warning in &imported.warnings {
        printer.warn(warning);
    }
    let application = Application::read_alone(&imported.application.to_yaml(), &files[0].to_string_lossy())?;
    let folder = files[0].parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.join(imported.application.directory.as_deref().unwrap_or_default());
    let root = std::fs::canonicalize(&folder)
        .map_err(|e| CommandError::new(Exit::Spec, format!("cannot open {}", folder.display())).because(e))?;
    Ok(Project { application, root, files: Vec::new() })
}

/// Whether a file is Compose, a manifest or a Procfile rather than an application file: by its name, or because it has
/// what only those have.
fn is_foreign(file: &Path) -> bool {
    let name = file.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    if ["compose", "docker-compose", "procfile"].iter().any(|start| name.starts_with(start)) {
        return true;
    }
    // An application file with mistakes is reported as one.
    let text = read_text_bounded(file, MAX_APPLICATION_FILE).unwrap_or_default();
    looks_like_compose(&text) || looks_like_manifest(&text)
}

fn looks_like_compose(text: &str) -> bool {
    let ours = ["extends:", "tests:", "failing:", "simplest:"];
    let has = |start: &str| text.lines().any(|line| line.starts_with(start));
    let image = || {
        text.lines().any(|line| {
            let key = line.trim_start();
            line.starts_with(' ') && (key.starts_with("image:") || key.starts_with("build:"))
        })
    };
    let top_level = ["version:", "volumes:", "networks:", "secrets:", "configs:"];
    has("services:") && !ours.iter().any(|key| has(key)) && (image() || top_level.iter().any(|key| has(key)))
}

/// Moves both sides below one folder: the same one, or the nearest that contains both. Services whose folders have
/// the same files then use those of the bad side, so that a mere copy is no difference.
fn share_a_root(good: &mut Project, bad: &mut Project, named: &[PathBuf]) -> Result<PathBuf, CommandError> {
    if good.root == bad.root {
        return Ok(bad.root.clone());
    }
    let common: PathBuf = good
        .root
        .components()
        .zip(bad.root.components())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect();
    let depth = common.components().filter(|part| matches!(part, Component::Normal(_))).count();
    if depth < 2 {
        let message = format!("{} and {} share no folder", good.root.display(), bad.root.display());
        return Err(CommandError::usage(message).hint("put both below one folder of their own"));
    }
    let ignored: Vec<PathBuf> = named.iter().filter_map(|p| std::fs::canonicalize(p).ok()).collect();
    for project in [&mut *good, &mut *bad] {
        let prefix = prefix_of(&project.root, &common);
        for service in project.application.services.values_mut() {
            move_service(service, &prefix);
        }
        project.application.tests = prefixed_tests(project, &common)?;
        let Application { setup, bundle, .. } = &mut project.application;
        for command in [setup.as_mut(), bundle.restore.as_mut()].into_iter().flatten() {
            let script = ["sh", "-c", "cd \"$0\" && exec \"$@\"", prefix.as_str()].map(str::to_owned);
            command.splice(0..0, script);
        }
    }
    for (name, service) in &mut good.application.services {
        let Some(other) = bad.application.services.get(name) else { continue };
        let (own, theirs) = (common.join(&service.directory), common.join(&other.directory));
        let placed_alike = own.strip_prefix(&good.root).ok() == theirs.strip_prefix(&bad.root).ok();
        if placed_alike && same_files(&own, &theirs, &ignored) {
            service.directory.clone_from(&other.directory);
        }
    }
    Ok(common)
}

fn prefix_of(root: &Path, common: &Path) -> String {
    root.strip_prefix(common).unwrap_or(Path::new("")).to_string_lossy().into_owned()
}

fn below(prefix: &str, directory: &str) -> String {
    Path::new(prefix).join(directory).to_string_lossy().trim_end_matches('/').to_owned()
}

fn move_service(service: &mut Service, prefix: &str) {
    service.directory = below(prefix, &service.directory);
    for mount in &mut service.mounts {
        if let MountSource::Path(path) = &mut mount.source {
            *path = below(prefix, path);
        }
    }
    for version in service.versions.values_mut() {
        if let Some(directory) = &mut version.directory {
            *directory = below(prefix, directory);
        }
    }
}

/// The tests of a project, adapted to another root.
fn prefixed_tests(
    project: &Project,
    root: &Path,
) -> Result<Vec<faultscope_model::application::TestCase>, CommandError> {
    let Ok(inner) = project.root.strip_prefix(root) else {
        let message = format!("the tests in {} lie outside of {}", project.root.display(), root.display());
        return Err(
            CommandError::usage(message).hint("put them below the folder that holds both deployments")
        );
    };
    let prefix = inner.to_string_lossy();
    let mut tests = project.application.tests.clone();
    for test in &mut tests {
        if let Some(input) = &mut test.input {
            input.file = below(&prefix, &input.file);
        }
        match &mut test.body {
            TestBody::Command(command) | TestBody::Discover { command, .. } => {
                command.directory = below(&prefix, &command.directory);
            }
            TestBody::Steps(_) => {}
        }
    }
    Ok(tests)
}

/// Whether two folders contain the same files, apart from the named ones. Folders that are too large to compare
/// count as different: a superfluous delta costs trials, a missing one hides the cause.
fn same_files(a: &Path, b: &Path, ignored: &[PathBuf]) -> bool {
    let mut left = MAX_BYTES;
    match (listing(a, ignored, &mut left), listing(b, ignored, &mut left)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

fn listing(root: &Path, ignored: &[PathBuf], left: &mut u64) -> Option<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).ok()? {
            let entry = entry.ok()?;
            let path = entry.path();
            let name = entry.file_name();
            if ignored.contains(&path) || name == ".faultscope" || name == ".git" {
                continue;
            }
            let meta = std::fs::symlink_metadata(&path).ok()?;
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let content = if meta.is_file() {
                *left = left.checked_sub(meta.len())?;
                read_bounded(&path, meta.len()).ok()?
            } else {
                std::fs::read_link(&path).ok()?.to_string_lossy().into_owned().into_bytes()
            };
            // Contents are compared; of a large file only its digest is kept.
            let kept = if content.len() > 4096 { digest(&content) } else { content };
            found.insert(path.strip_prefix(root).ok()?.to_owned(), kept);
            if found.len() > MAX_FILES {
                return None;
            }
        }
    }
    Some(found)
}

fn digest(content: &[u8]) -> Vec<u8> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    [hasher.finish().to_le_bytes(), (content.len() as u64).to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compose_files_are_known_by_what_they_have() {
        assert!(looks_like_compose("version: '3'\nservices:\n  a:\n    command: x\n"));
        assert!(looks_like_compose("name: shop\nservices:\n  a:\n    image: a:1\n"));
        assert!(!looks_like_compose("name: shop\nservices:\n  a: { command: [a], ports: [80] }\n"));
        assert!(!looks_like_compose("services:\n  a:\n    build: .\ntests: []\n"));
        assert!(!looks_like_compose("tests:\n  - { name: t, run: [t] }\n"));
    }
}
