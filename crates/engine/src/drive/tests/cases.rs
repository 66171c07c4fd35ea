//! Finds the test cases that a command lists, so that each can run alone.
//!
//! The output of a command is not trusted: names are bounded, never passed to a shell, and those that a test
//! runner would take for an option are skipped.

use std::collections::BTreeSet;
use std::time::Duration;

use faultscope_model::application::{Expansion, ReportFormat, TestBody, TestCase, TestCommand};
use faultscope_model::units::ByteSize;
use faultscope_model::{Application, SlotId};
use faultscope_platform::{
    Execution, Exit, Place, Platform, PlatformError, PlatformErrorKind, Rights, SlotSpec,
};
use tokio_util::sync::CancellationToken;

use crate::session::SessionOptions;

use super::{REPORTS, Report, junit, read_bounded, report_folder};

/// The most cases of one list.
const MAX_CASES: usize = 20_000;
/// The longest name of a case.
const MAX_NAME: usize = 1_000;
/// The shortest time limit of a list command: it may have to build the tests first.
const LIST_WITHIN: Duration = Duration::from_secs(600);
/// The most bytes of a list: twenty thousand names of eight hundred characters.
const MAX_LIST: usize = 16 << 20;
/// The most characters of a failed list command's output.
const SHOWN: usize = 2_000;

/// Why test cases cannot be found.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The command cannot be started.
    #[error("test `{test}`: cannot start `{program}`, which lists its cases")]
    Start {
        /// The name of the test.
        test: String,
        /// The first word of its command.
        program: String,
        /// The cause.
        source: Box<PlatformError>,
    },
    /// There is no slot to run it in.
    #[error("test `{test}`: the command that lists its cases cannot run in a slot")]
    Slot {
        /// The name of the test.
        test: String,
        /// The cause.
        source: Box<PlatformError>,
    },
    /// The command failed.
    #[error("test `{test}`: the command that lists its cases ended with {ending}: {said}")]
    Failed {
        /// The name of the test.
        test: String,
        /// Its exit code, or a signal.
        ending: String,
        /// The end of its output.
        said: String,
    },
    /// The command takes too long.
    #[error("test `{test}`: the command that lists its cases took longer than {} s", within.as_secs())]
    Late {
        /// The name of the test.
        test: String,
        /// The time limit.
        within: Duration,
    },
    /// Its output or report cannot be parsed.
    #[error("test `{test}`: the cases in the output of its command cannot be read: {problem}")]
    Unreadable {
        /// The name of the test.
        test: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There are no cases.
    #[error("test `{test}`: the command that lists its cases printed none")]
    None {
        /// The name of the test.
        test: String,
    },
}

/// The cases of one test of the application file.
#[derive(Debug, Clone, PartialEq)]
pub struct Cases {
    /// The name of the test in the file.
    pub test: String,
    /// The cases, each a test with a command.
    pub cases: Vec<TestCase>,
    /// How many cases were skipped because of their names.
    pub left_out: usize,
}

/// Replaces tests that list their cases by one test for each case; returns what was found.
///
/// The commands that list them are as foreign as the tests themselves, so they run in a slot: without a network, and
/// gone when the tool is. The slot is that of a trial in which nothing was deployed.
pub async fn find_cases(
    application: &mut Application,
    platform: &dyn Platform,
    options: &SessionOptions,
) -> Result<Vec<Cases>, CaseError> {
    let lists = |test: &&TestCase| matches!(test.body, TestBody::Discover { each: Some(_), .. });
    let Some(first) = application.tests.iter().find(lists) else {
        return Ok(Vec::new());
    };
    let in_slot =
        |test: &str, e: PlatformError| CaseError::Slot { test: test.to_owned(), source: Box::new(e) };
    let test = first.name.clone();
    let spec = lister_slot(application, options);
    platform.open_slot(&spec).await.map_err(|e| in_slot(&test, e))?;
    let program = options.program.to_string_lossy().into_owned();
    let lister = Lister { platform, slot: spec.id, expansion: &Expansion { program, slot: spec.id } };
    let found = replace_lists(application, &lister).await;
    let closed = platform.close_slot(spec.id).await;
    let found = found?;
    closed.map_err(|e| in_slot(&test, e))?;
    Ok(found)
}

/// A slot that no trial has.
fn lister_slot(application: &Application, options: &SessionOptions) -> SlotSpec {
    let started = crate::session::now_us();
    SlotSpec {
        id: SlotId(u16::MAX),
        label: format!("list-{}-{started:x}", std::process::id()),
        application: options.root.clone(),
        state: options.state.clone(),
        // Lists are made of what the user has, without waiting for what tests need.
        setup: None,
        template: String::new(),
        program: options.program.clone(),
        log_limit: ByteSize(0),
        authority: None,
        control: None,
        home: options.home.clone(),
        shared: application.shared.iter().filter_map(|path| options.find_shared(path)).collect(),
    }
}

/// Where commands that list test cases run.
pub(super) struct Lister<'a> {
    pub(super) platform: &'a dyn Platform,
    pub(super) slot: SlotId,
    pub(super) expansion: &'a Expansion,
}

async fn replace_lists(application: &mut Application, lister: &Lister<'_>) -> Result<Vec<Cases>, CaseError> {
    let (mut tests, mut found) = (Vec::new(), Vec::new());
    let mut names: BTreeSet<String> = application.tests.iter().map(|test| test.name.clone()).collect();
    for test in std::mem::take(&mut application.tests) {
        if !matches!(test.body, TestBody::Discover { each: Some(_), .. }) {
            tests.push(test);
            continue;
        }
        let mut cases = list(&test, lister).await?;
        for case in &mut cases.cases {
            // A name must mean one test, but two lists may contain the same.
            if !names.insert(case.name.clone()) {
                case.name = format!("{}: {}", test.name, case.name);
                names.insert(case.name.clone());
            }
        }
        tests.extend(cases.cases.iter().cloned());
        found.push(cases);
    }
    application.tests = tests;
    Ok(found)
}

/// A listed case.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ListedCase {
    case: String,
    class: String,
    name: String,
}

/// The cases that a test's command lists.
pub(super) async fn list(test: &TestCase, lister: &Lister<'_>) -> Result<Cases, CaseError> {
    let TestBody::Discover { format, command, each: Some(each), .. } = &test.body else {
        return Ok(Cases { test: test.name.clone(), cases: Vec::new(), left_out: 0 });
    };
    let listed = match format {
        ReportFormat::Junit => reported(test, command, lister).await?,
        _ => lines(*format, &lister.run(test, command).await?),
    };
    let (mut cases, mut left_out, mut seen) = (Vec::new(), 0, BTreeSet::new());
    for case in listed.into_iter().take(MAX_CASES) {
        if !is_harmless(&case.case) || !is_harmless(&case.name) {
            left_out += 1;
        } else if seen.insert(case.case.clone()) {
            let fill = |word: &String| {
                // One pass, so that a name that looks like a placeholder stays a name.
                let mut filled = String::new();
                let mut rest = word.as_str();
                while let Some(at) = rest.find('{') {
                    filled.push_str(&rest[..at]);
                    rest = &rest[at..];
                    let placeholders =
                        [("{case}", &case.case), ("{class}", &case.class), ("{name}", &case.name)];
                    match placeholders.iter().find(|(name, _)| rest.starts_with(name)) {
                        Some((name, value)) => {
                            filled.push_str(value);
                            rest = &rest[name.len()..];
                        }
                        None => {
                            filled.push('{');
                            rest = &rest[1..];
                        }
                    }
                }
                filled + rest
            };
            let run = each.iter().map(fill).collect();
            let body = TestBody::Command(TestCommand { run, ..command.clone() });
            cases.push(TestCase { name: case.case.clone(), body, ..test.clone() });
        }
    }
    if cases.is_empty() {
        return Err(CaseError::None { test: test.name.clone() });
    }
    Ok(Cases { test: test.name.clone(), cases, left_out })
}

/// Whether a name can be passed to a test runner: it is not an option, contains no placeholders or
/// control characters, and is not too long.
fn is_harmless(name: &str) -> bool {
    !name.starts_with('-')
        && !name.contains("${")
        && !name.chars().any(char::is_control)
        && name.len() <= MAX_NAME
}

/// The cases in the output of a command.
fn lines(format: ReportFormat, text: &str) -> Vec<ListedCase> {
    let case = |line: &str| match format {
        // `module::name: test`; benchmarks and the summary are not tests.
        ReportFormat::Cargo => line.strip_suffix(": test").map(str::to_owned),
        // `folder/file.py::Class::name[values]`; the summary and errors are not cases.
        ReportFormat::Pytest => {
            let noise = line.starts_with([' ', '=', '<']) || line.starts_with("ERROR ");
            (line.contains("::") && !noise).then(|| line.to_owned())
        }
        ReportFormat::Lines => (!line.is_empty() && !line.starts_with('#')).then(|| line.to_owned()),
        ReportFormat::Junit => None,
    };
    let listed = |case: String| {
        let (class, name) = case.rsplit_once("::").unwrap_or(("", &case));
        ListedCase { class: class.to_owned(), name: name.to_owned(), case }
    };
    text.lines().filter_map(|line| case(line.trim_end())).map(listed).collect()
}

/// The cases in the report that a command writes.
async fn reported(
    test: &TestCase,
    command: &TestCommand,
    lister: &Lister<'_>,
) -> Result<Vec<ListedCase>, CaseError> {
    let name = format!("{REPORTS}{}-cases-{:x}.xml", std::process::id(), hash(&test.name));
    let folder = report_folder(lister.platform, lister.slot)
        .map_err(|e| CaseError::Slot { test: test.name.clone(), source: Box::new(e) })?;
    let report = Report(folder.join(name));
    report.remove();
    let out = report.0.to_string_lossy();
    let run_words = command.run.iter().map(|word| word.replace("{out}", &out)).collect();
    let ended = lister.run(test, &TestCommand { run: run_words, ..command.clone() }).await;
    let cases = match read_bounded(&report.0).await {
        Ok(text) => junit::parse(&text),
        Err(problem) => Err(problem),
    };
    match (cases, ended) {
        // A report has its cases even if some of them fail.
        (Ok(cases), Ok(_) | Err(CaseError::Failed { .. })) => {
            let listed = |case: junit::Case| ListedCase {
                case: case.name().to_owned(),
                class: case.parts.0,
                name: case.parts.1,
            };
            Ok(cases.into_iter().map(listed).collect())
        }
        (_, Err(error)) => Err(error),
        (Err(problem), Ok(_)) => Err(CaseError::Unreadable { test: test.name.clone(), problem }),
    }
}

fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Lister<'_> {
    /// Runs a list command; returns its output.
    async fn run(&self, test: &TestCase, command: &TestCommand) -> Result<String, CaseError> {
        let name = || test.name.clone();
        let Some(program) = command.run.first() else {
            return Err(CaseError::None { test: name() });
        };
        let expand = |text: &String| self.expansion.expand(text);
        let within = test.within.max(LIST_WITHIN);
        let run = Execution {
            command: command.run.iter().map(expand).collect(),
            env: command.env.iter().map(|(key, value)| (key.clone(), expand(value))).collect(),
            directory: command.directory.clone(),
            within,
            // The first half of it is kept as it is, so that a list that fits is whole.
            output_limit: 2 * (MAX_LIST + 1),
            place: Place::Test,
            rights: Rights::Service,
        };
        let exit = self.platform.exec(self.slot, &run, &CancellationToken::new()).await;
        let Exit { code, timed_out, stdout, stderr, .. } = exit.map_err(|error| match error.kind {
            PlatformErrorKind::BadPlan => {
                CaseError::Start { test: name(), program: program.clone(), source: Box::new(error) }
            }
            _ => CaseError::Slot { test: name(), source: Box::new(error) },
        })?;
        if timed_out {
            return Err(CaseError::Late { test: name(), within });
        }
        if stdout.len() > MAX_LIST {
            let problem = format!("it has more than {MAX_LIST} bytes");
            return Err(CaseError::Unreadable { test: name(), problem });
        }
        if code != Some(0) {
            let ending = code.map_or("a signal".to_owned(), |code| format!("code {code}"));
            let said = if stderr.trim().is_empty() { &stdout } else { &stderr };
            let skip = said.trim().chars().count().saturating_sub(SHOWN);
            let said = said.trim().chars().skip(skip).collect();
            return Err(CaseError::Failed { test: name(), ending, said });
        }
        Ok(stdout)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(format: ReportFormat, text: &str) -> Vec<String> {
        lines(format, text).into_iter().map(|listed| listed.case).collect()
    }

    #[test]
    fn lists_are_read_as_runners_print_them() {
        let cargo = "tests::pays_once: test\ntests::slow: benchmark\nsrc/lib.rs - add (line 3): test\n\n2 tests, 1 benchmark\n";
        assert_eq!(names(ReportFormat::Cargo, cargo), ["tests::pays_once", "src/lib.rs - add (line 3)"]);
        let pytest = "tests/test_pay.py::test_once\ntests/test_pay.py::TestBig::test_many[a b-1]\n\n\
                      =========== warnings ==========\n  x::y\nERROR tests/test_bad.py - No::such\n\
                      2 tests collected in 0.01s\n";
        let cases = ["tests/test_pay.py::test_once", "tests/test_pay.py::TestBig::test_many[a b-1]"];
        assert_eq!(names(ReportFormat::Pytest, pytest), cases);
        assert_eq!(names(ReportFormat::Lines, "a\n\n# no\nb c\r\n"), ["a", "b c"]);
    }

    #[test]
    fn names_that_could_do_harm_are_not_taken() {
        for name in ["--help", "-x", "a\u{1b}[2J", "${faultscope}", &"x".repeat(MAX_NAME + 1)] {
            assert!(!is_harmless(name), "{name}");
        }
        assert!(is_harmless("tests/test_pay.py::test_many[{case} $x; rm -rf /]"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(?s).{0,300}") {
            for format in [ReportFormat::Cargo, ReportFormat::Pytest, ReportFormat::Lines] {
                lines(format, &text);
            }
        }
    }
}
