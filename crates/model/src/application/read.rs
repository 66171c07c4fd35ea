//! Reads and checks an application file. Every error names file, line, key and what would be valid.

use std::collections::BTreeSet;
use std::time::Duration;

use indexmap::IndexMap;

use super::locate::Tree;
use super::raw::RawApplication;
use super::{Application, TestBody, TestCase};
use crate::grpc::Descriptors;
use crate::ids::ServiceName;
use crate::yaml::parse_options;

/// No application file is this large; the bound keeps a mistaken path (a log, a dump) from being parsed.
pub(super) const MAX_BYTES: usize = 4 << 20;
/// The deepest nesting, which bounds the stack.
pub(super) const MAX_DEPTH: usize = 64;
/// A longer chain of `extends` is taken for a cycle.
const MAX_EXTENDS: usize = 8;

/// A mistake in an application file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {key}{}{problem}", line.map(|l| format!(":{l}")).unwrap_or_default(), if key.is_empty() { "" } else { ": " })]
pub struct SpecError {
    /// The file as the user named it.
    pub file: String,
    /// From 1; none where the file as a whole is wrong.
    pub line: Option<u64>,
    /// A dotted path such as `services.order.ports`; empty for the file as a whole.
    pub key: String,
    /// What is wrong, as a fragment after the key.
    pub problem: String,
    /// What would be valid.
    pub hint: Option<String>,
}

/// A place in an application file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FilePlace {
    /// The file as the user named it.
    pub file: String,
    /// From 1.
    pub line: Option<u64>,
    /// A dotted path such as `tests.0.steps.1`.
    pub key: String,
}

impl FilePlace {
    /// A mistake at this place.
    pub fn error(&self, problem: impl Into<String>) -> SpecError {
        let Self { file, line, key } = self.clone();
        SpecError { file, line, key, problem: problem.into(), hint: None }
    }
}

/// Loads a file by the file that names it and the path written there; returns its text and a name for messages.
pub type Loader<'a> = &'a dyn Fn(&str, &str) -> Result<(String, String), String>;

impl Application {
    /// Reads and checks an application file; `load(base, path)` loads the files it extends.
    pub fn read(text: &str, file: &str, load: Loader<'_>) -> Result<Self, SpecError> {
        let mut sources = Vec::new();
        let mut raw = parse(text, file)?;
        let mut folder = raw.directory.as_deref().map(|directory| join_folder(file, directory));
        sources.push(Source { file: file.to_owned(), tree: Tree::read(text) });
        while let Some(path) = raw.extends.take() {
            let from = sources.last().map(|s| s.file.clone()).unwrap_or_default();
            let complain = |problem: String| Reader { sources: &sources }.error(&["extends"], problem);
            if sources.len() > MAX_EXTENDS {
                return Err(complain("files extend one another in a circle".into()));
            }
            let (text, name) =
                load(&from, &path).map_err(|e| complain(format!("cannot read `{path}`: {e}")))?;
            let base = parse(&text, &name)?;
            // A directory belongs to the file that names it.
            let below = base.directory.as_deref().map(|directory| join_folder(&name, directory));
            folder = folder.or(below);
            sources.push(Source { file: name, tree: Tree::read(&text) });
            let next = base.extends.clone();
            raw = raw.over(base);
            raw.extends = next;
        }
        let outermost = sources.last().map_or(file, |source| source.file.as_str());
        let folder = folder.unwrap_or_else(|| join_folder(outermost, ""));
        Reader { sources: &sources }.application(raw, folder)
    }

    /// Reads a file that may not extend another.
    pub fn read_alone(text: &str, file: &str) -> Result<Self, SpecError> {
        Self::read(text, file, &|_, _| Err("no other file can be read here".into()))
    }
}

/// A directory as the file names it, seen from where the file is named.
fn join_folder(file: &str, directory: &str) -> String {
    let folder = match file.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
        None => ".",
    };
    match directory {
        "" | "." => folder.to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative => format!("{}/{relative}", folder.trim_end_matches('/')),
    }
}

fn parse(text: &str, file: &str) -> Result<RawApplication, SpecError> {
    let error =
        |line, key: String, problem, hint| SpecError { file: file.to_owned(), line, key, problem, hint };
    if text.len() > MAX_BYTES {
        return Err(error(None, String::new(), "the file is larger than 4 MiB".into(), None));
    }
    if text.trim().is_empty() {
        let hint = "`faultscope init` writes one from a Compose file or a Procfile".to_owned();
        return Err(error(None, String::new(), "the file is empty".into(), Some(hint)));
    }
    serde_saphyr::from_str_with_options(text, parse_options(MAX_BYTES, MAX_DEPTH, 2)).map_err(|e| {
        let e = e.without_snippet();
        let line = e.location().map(|l| l.line()).filter(|&l| l > 0);
        match e {
            serde_saphyr::Error::SerdeUnknownField { field, expected, .. } => error(
                line,
                field.clone(),
                "unknown key".into(),
                nearest_hint(field, expected.iter().copied()),
            ),
            serde_saphyr::Error::SerdeUnknownVariant { variant, expected, .. } => error(
                line,
                variant.clone(),
                "unknown value".into(),
                nearest_hint(variant, expected.iter().copied()),
            ),
            serde_saphyr::Error::SerdeMissingField { field, .. } => {
                error(line, (*field).to_owned(), "this key is missing".into(), None)
            }
            other => {
                let key = other
                    .location()
                    .map_or_else(String::new, |place| Tree::read(text).key_at(place.line(), place.column()));
                error(line, key, without_place(&one_line(&other.to_string())).to_owned(), None)
            }
        }
    })
}

/// A parser message without the position, which we report ourselves, and without advice on the parser's API.
fn without_place(message: &str) -> &str {
    [" at line ", ", set DuplicateKeyPolicy"]
        .iter()
        .fold(message, |text, cut| text.split_once(cut).map_or(text, |(before, _)| before))
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
}

/// The valid word most similar to a wrong one; none if no word is similar.
pub fn nearest<'a>(wrong: &str, valid: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = valid
        .map(|word| (strsim::damerau_levenshtein(wrong, word), word))
        .filter(|(distance, word)| *distance <= 1 + word.len().max(wrong.len()) / 3)
        .min();
    near.map(|(_, word)| word)
}

/// A hint with the most similar valid word, or with all valid words if none is similar.
pub(crate) fn nearest_hint<'a>(wrong: &str, valid: impl Iterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(word) = nearest(wrong, valid.clone()) {
        return Some(format!("did you mean `{word}`?"));
    }
    let all: Vec<_> = valid.take(24).map(|w| format!("`{w}`")).collect();
    (!all.is_empty()).then(|| format!("valid here: {}", all.join(", ")))
}

struct Source {
    file: String,
    tree: Tree,
}

pub(super) struct Reader<'a> {
    sources: &'a [Source],
}

pub(super) type Names = BTreeSet<ServiceName>;

impl Reader<'_> {
    /// Whether the file extends another.
    pub(super) fn extends(&self) -> bool {
        self.sources.len() > 1
    }

    pub(super) fn error(&self, path: &[&str], problem: impl Into<String>) -> SpecError {
        // Among merged files the one that contains most of the path is the one to fix; the first wins a tie.
        let mut best: Option<(usize, &str, Option<u64>)> = None;
        for source in self.sources {
            let (found, line) = source.tree.line(path);
            if best.is_none_or(|(most, ..)| found > most) {
                best = Some((found, &source.file, line));
            }
        }
        let (_, file, line) = best.unwrap_or_default();
        SpecError { file: file.to_owned(), line, key: path.join("."), problem: problem.into(), hint: None }
    }

    pub(super) fn place(&self, path: &[&str]) -> FilePlace {
        let SpecError { file, line, key, .. } = self.error(path, "");
        FilePlace { file, line, key }
    }

    pub(super) fn service(&self, path: &[&str], name: &str, known: &Names) -> Result<ServiceName, SpecError> {
        if let Some(found) = known.get(name) {
            return Ok(found.clone());
        }
        let hint = nearest_hint(name, known.iter().map(ServiceName::as_str));
        Err(SpecError { hint, ..self.error(path, format!("there is no service `{name}`")) })
    }

    fn application(&self, raw: RawApplication, folder: String) -> Result<Application, SpecError> {
        // Tests of a single process, such as those of actors, need no service. A comparison may borrow the tests.
        let has_tests = raw.tests.iter().flatten().next().is_some();
        if raw.services.is_empty() && !has_tests {
            return Err(self.error(&["services"], "an application has at least one service"));
        }
        let mut names = Names::new();
        for name in raw.services.keys() {
            let parsed: ServiceName =
                name.parse().map_err(|e| self.error(&["services", name], format!("{e}")))?;
            if name == ServiceName::TEST || name == "localhost" {
                return Err(self.error(&["services", name], "this name stands for the test itself"));
            }
            names.insert(parsed);
        }
        let externals = self.externals(raw.external.unwrap_or_default(), &names)?;
        let callees: Names =
            names.iter().chain(externals.iter().map(|external| &external.service)).cloned().collect();
        let mut services = IndexMap::new();
        for (name, service) in &raw.services {
            let service = self.one_service(name, service, &names, &externals)?;
            services.insert(self.service(&["services", name], name, &names)?, service);
        }
        self.no_circle(&services)?;
        let mut tests: Vec<TestCase> = Vec::new();
        for (index, test) in raw.tests.unwrap_or_default().into_iter().enumerate() {
            let test = self.test(index, test)?;
            if tests.iter().any(|t| t.name == test.name) {
                let at = index.to_string();
                return Err(
                    self.error(&["tests", &at, "name"], format!("two tests are called `{}`", test.name))
                );
            }
            tests.push(test);
        }
        if let Some(name) = &raw.test
            && !tests.iter().any(|t| &t.name == name)
            && !tests.iter().any(|t| matches!(t.body, TestBody::Discover { .. }))
        {
            let hint = nearest_hint(name, tests.iter().map(|t| t.name.as_str()));
            return Err(SpecError { hint, ..self.error(&["test"], format!("there is no test `{name}`")) });
        }
        let simplest = self.circumstance("simplest", raw.simplest.unwrap_or_default(), &services, &names)?;
        let failing = match raw.failing {
            Some(failing) => self.circumstance("failing", failing, &services, &names)?,
            None => simplest.clone(),
        };
        let application = Application {
            name: raw.name.unwrap_or_else(|| "application".into()),
            folder,
            services,
            setup: raw.setup.filter(|s| !s.is_empty()),
            reset: raw.reset.unwrap_or_default(),
            isolation: raw.isolation.unwrap_or_default(),
            externals,
            tests,
            invariants: self.invariants(raw.invariants.unwrap_or_default())?,
            resilience: self.resilience(raw.resilience.unwrap_or_default())?,
            failing_test: raw.test,
            simplest,
            failing,
            links: raw.links.unwrap_or_default(),
            constraints: self.constraints(raw.constraints.unwrap_or_default())?,
            record: raw
                .record
                .unwrap_or_default()
                .read(&callees)
                .map_err(|problem| self.error(&["record"], problem))?,
            bundle: self.bundle(raw.bundle.unwrap_or_default())?,
            protos: self.protos(raw.protos.unwrap_or_default())?,
            descriptors: Descriptors::default(),
            shared: self.shared(raw.shared.unwrap_or_default())?,
            watch: self.watch(raw.watch.unwrap_or_default(), &names)?,
            gate_wait: raw.gate_wait.unwrap_or(Duration::from_secs(2)),
        };
        for (index, link) in application.links.iter().enumerate() {
            if !(0.0..=1.0).contains(&link.loss) {
                return Err(
                    self.error(&["links", &index.to_string(), "loss"], "a share lies between 0 and 1")
                );
            }
        }
        self.steps_lead_somewhere(&application)?;
        // Constraints name deltas, which exist only once the circumstances are known.
        if let Err(problem) = application.space() {
            return Err(SpecError {
                hint: problem.hint,
                ..self.error(&["constraints", &problem.index.to_string()], problem.problem)
            });
        }
        Ok(application)
    }
}

pub(super) fn one_line_regex(error: &regex::Error) -> String {
    let text = error.to_string();
    format!("not a regular expression: {}", text.lines().last().unwrap_or_default().trim())
}
