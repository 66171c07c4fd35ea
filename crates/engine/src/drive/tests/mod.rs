//! Runs the tests of an application in a slot.
//!
//! A test is a command, a list of steps, or cases that a runner reports. The results are judged elsewhere.

mod cases;
mod excerpt;
mod junit;
mod steps;

pub use cases::{CaseError, Cases, find_cases};

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_mesh::MeshSlot;
use faultscope_model::application::{Expansion, TestBody, TestCase, TestCommand, TestInput};
use faultscope_model::event::Event;
use faultscope_model::outcome::{Ending, Failure, TestResult};
use faultscope_model::{Application, SlotId};
use faultscope_platform::{
    Execution, Exit, MeshPlace, Place, Platform, PlatformError, PlatformErrorKind, Rights,
};
use faultscope_store::Campaign;
use regex::Regex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bounded_file;
use crate::error::EngineError;
use crate::trial::{Drive, Driven, Live};

/// The most bytes of each output of a test.
const OUTPUT_LIMIT: usize = 64 << 10;
/// The largest report that is read.
const REPORT_LIMIT: u64 = 16 << 20;

/// The prefix of all reports; the tool's process id follows.
pub(in crate::drive) const REPORTS: &str = "faultscope-report-";

/// Drives an application with its tests, in order.
#[derive(Debug, Clone)]
pub struct Tests {
    cases: Vec<TestCase>,
    judged: Option<String>,
}

impl Tests {
    /// These tests.
    pub fn new(cases: Vec<TestCase>) -> Arc<Self> {
        Self::judged_by(cases, None)
    }

    /// These tests, of which only the named one decides; all do when none is named.
    pub fn judged_by(cases: Vec<TestCase>, judged: Option<String>) -> Arc<Self> {
        Arc::new(Self { cases, judged })
    }
}

#[async_trait]
impl Drive for Tests {
    fn question(&self) -> serde_json::Value {
        match &self.judged {
            None => serde_json::json!({ "tests": self.cases }),
            Some(judged) => serde_json::json!({ "tests": self.cases, "judged": judged }),
        }
    }

    fn judged_test(&self) -> Option<&str> {
        self.judged.as_deref()
    }

    fn n_tests(&self) -> usize {
        self.cases.len()
    }

    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError> {
        let tests = run_tests(live, &self.cases, BTreeMap::new(), cancel).await?;
        Ok(Driven { tests, ..Driven::default() })
    }
}

/// Runs tests one after another, with additional environment for commands; stops between two if cancelled.
pub(super) async fn run_tests(
    live: &Live<'_>,
    tests: &[TestCase],
    env: BTreeMap<String, String>,
    cancel: &CancellationToken,
) -> Result<Vec<TestResult>, EngineError> {
    let Live { session, lease, trial, .. } = *live;
    let bed = TestBed {
        application: &session.application,
        platform: &session.platform,
        mesh: live.mesh(),
        slot: lease.id(),
        root: &session.options.root,
        expansion: &lease.expansion,
        campaign: session.campaign.id().as_str(),
        store: &session.campaign,
        env,
    };
    let mut results = Vec::new();
    for test in tests {
        session.events.emit(Event::TestStarted { trial, test: test.name.clone() });
        let one = tokio::select! {
            one = bed.run(test, cancel) => one?,
            () = cancel.cancelled() => break,
        };
        for result in &one {
            session.events.emit(Event::TestFinished {
                trial,
                test: result.test.clone(),
                passed: result.failure.is_none(),
                took: result.took,
            });
        }
        results.extend(one);
    }
    Ok(results)
}

/// What tests need to run.
struct TestBed<'a> {
    application: &'a Application,
    platform: &'a Arc<dyn Platform>,
    mesh: Option<&'a MeshSlot>,
    slot: SlotId,
    /// The folder of the application file.
    root: &'a Path,
    expansion: &'a Expansion,
    /// The name of the campaign, so that reports of several tools do not collide.
    campaign: &'a str,
    /// Knows what messages of gRPC are made of.
    store: &'a Campaign,
    /// Additional environment of commands.
    env: BTreeMap<String, String>,
}

impl TestBed<'_> {
    /// Runs one test; a discovered one may have several results.
    async fn run(
        &self,
        test: &TestCase,
        cancel: &CancellationToken,
    ) -> Result<Vec<TestResult>, PlatformError> {
        // A simulated platform has no calls: it determines the outcome by the name of the test.
        if self.platform.capabilities().mesh == MeshPlace::Nowhere {
            let command = TestCommand {
                run: vec![test.name.clone()],
                env: Default::default(),
                directory: String::new(),
            };
            return Ok(vec![self.command(test, &command, cancel).await?]);
        }
        match &test.body {
            TestBody::Command(command) => {
                let (command, _copy) = match &test.input {
                    Some(input) => self.with_input(command, input).map_err(|e| {
                        let kind = PlatformErrorKind::Infrastructure;
                        PlatformError::new(kind, self.platform.name(), "write a smaller input").because(e)
                    })?,
                    None => (command.clone(), None),
                };
                Ok(vec![self.command(test, &command, cancel).await?])
            }
            TestBody::Steps(list) => {
                let started = Instant::now();
                let Some(mesh) = self.mesh else {
                    return Ok(vec![failed(
                        test,
                        Ending::Step(1),
                        "this platform has no mesh to call through",
                        started,
                    )]);
                };
                let client = steps::Client {
                    application: self.application,
                    mesh,
                    expansion: self.expansion,
                    platform: self.platform.as_ref(),
                    slot: self.slot,
                    store: self.store,
                };
                let outcome = tokio::time::timeout(test.within, client.run(list)).await;
                Ok(vec![match outcome {
                    Err(_) => failed(test, Ending::TimedOut, "", started),
                    Ok(Ok(output)) => {
                        TestResult { test: test.name.clone(), failure: None, took: started.elapsed(), output }
                    }
                    Ok(Err(broken)) => {
                        let unfilled = Some(broken.unfilled).filter(|text| *text != broken.message);
                        let failure = Failure::new(Ending::Step(broken.number), broken.message);
                        TestResult {
                            test: test.name.clone(),
                            failure: Some(Failure {
                                status: broken.status,
                                grpc_status: broken.code.map(|code| code.0),
                                unfilled,
                                since_us: Some(broken.since_us),
                                ..failure
                            }),
                            took: started.elapsed(),
                            output: broken.answer,
                        }
                    }
                }])
            }
            TestBody::Discover { each: Some(_), .. } => self.each(test, cancel).await,
            TestBody::Discover { command, case, .. } => {
                let results = self.discover(test, command, cancel).await?;
                Ok(match case {
                    None => self.named(test, results),
                    Some(case) => only(test, case, results),
                })
            }
        }
    }

    async fn command(
        &self,
        test: &TestCase,
        command: &TestCommand,
        cancel: &CancellationToken,
    ) -> Result<TestResult, PlatformError> {
        let exit = self.exec(test, command, cancel).await?;
        Ok(TestResult {
            test: test.name.clone(),
            failure: self.failure_of(&exit),
            took: exit.took,
            output: both_outputs(&exit),
        })
    }

    /// The command with the path of its input: the file itself, or a copy of the reduced text.
    fn with_input(
        &self,
        command: &TestCommand,
        input: &TestInput,
    ) -> io::Result<(TestCommand, Option<Report>)> {
        let own = self.root.join(&input.file);
        let copy = match &input.instead {
            None => None,
            Some(text) => {
                let end = own.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
                let (tool, slot) = (std::process::id(), self.slot.0);
                let name = format!("{REPORTS}{tool}-{}-{slot}-input{end}", self.campaign);
                let folder = report_folder(self.platform.as_ref(), self.slot).map_err(io::Error::other)?;
                let copy = Report(folder.join(name));
                std::fs::write(&copy.0, text.as_bytes())?;
                Some(copy)
            }
        };
        let path = copy.as_ref().map_or(&own, |copy| &copy.0).to_string_lossy().into_owned();
        let mut command = command.clone();
        for text in command.run.iter_mut().chain(command.env.values_mut()) {
            *text = text.replace("{input}", &path);
        }
        Ok((command, copy))
    }

    /// Runs cases that were not listed before, one after the other.
    async fn each(
        &self,
        test: &TestCase,
        cancel: &CancellationToken,
    ) -> Result<Vec<TestResult>, PlatformError> {
        let started = Instant::now();
        let mut results = Vec::new();
        let lister =
            cases::Lister { platform: self.platform.as_ref(), slot: self.slot, expansion: self.expansion };
        match cases::list(test, &lister).await {
            Err(error) => results.push(failed(test, Ending::Case, &error.to_string(), started)),
            Ok(found) => {
                for case in &found.cases {
                    if let TestBody::Command(command) = &case.body {
                        results.push(self.command(case, command, cancel).await?);
                    }
                }
            }
        }
        Ok(results)
    }

    /// Renames cases so that each can be requested alone.
    fn named(&self, test: &TestCase, mut results: Vec<TestResult>) -> Vec<TestResult> {
        if self.application.tests.iter().filter(|test| test.runs_all_cases()).count() > 1 {
            let cases = results.iter_mut().filter(|result| result.test != test.name);
            cases.for_each(|result| result.test = format!("{}: {}", test.name, result.test));
        }
        results
    }

    async fn discover(
        &self,
        test: &TestCase,
        command: &TestCommand,
        cancel: &CancellationToken,
    ) -> Result<Vec<TestResult>, PlatformError> {
        let name = format!("{REPORTS}{}-{}-{}.xml", std::process::id(), self.campaign, self.slot.0);
        let report = Report(report_folder(self.platform.as_ref(), self.slot)?.join(name));
        // A report of an earlier trial must not be taken for this one's.
        report.remove();
        let out = report.0.to_string_lossy();
        let run = command.run.iter().map(|arg| arg.replace("{out}", &out)).collect();
        let exit = self.exec(test, &TestCommand { run, ..command.clone() }, cancel).await?;
        let cases = match read_bounded(&report.0).await {
            Ok(text) => junit::parse(&text),
            Err(problem) => Err(problem),
        };
        let whole = |message: String| TestResult {
            test: test.name.clone(),
            failure: Some(Failure::new(ending_of(&exit).unwrap_or(Ending::Case), message)),
            took: exit.took,
            output: both_outputs(&exit),
        };
        Ok(match cases {
            // The runner itself failed, before or beside its cases.
            Err(problem) => vec![whole(format!("no report: {problem}\n{}", both_outputs(&exit)))],
            Ok(cases) if cases.is_empty() => vec![whole("the report has no test case".into())],
            Ok(cases) if exit.timed_out => {
                let mut results: Vec<_> = cases.into_iter().map(junit::Case::into_result).collect();
                results.push(whole("the test runner took too long".into()));
                results
            }
            Ok(cases) => cases.into_iter().map(junit::Case::into_result).collect(),
        })
    }

    fn failure_of(&self, exit: &Exit) -> Option<Failure> {
        let ending = ending_of(exit)?;
        // The pattern was checked when the file was read.
        let blame = Regex::new(&self.application.resilience.blame).ok();
        let told = excerpt::failure_excerpt(&exit.stdout, &exit.stderr, blame.as_ref());
        let said = || if exit.stderr.trim().is_empty() { exit.stdout.clone() } else { exit.stderr.clone() };
        Some(Failure::new(ending, told.unwrap_or_else(said)))
    }

    async fn exec(
        &self,
        test: &TestCase,
        command: &TestCommand,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let mut env = command.env.clone();
        env.values_mut().for_each(|value| *value = self.expansion.expand(value));
        env.extend(self.env.clone());
        let run = Execution {
            command: command.run.iter().map(|arg| self.expansion.expand(arg)).collect(),
            env,
            directory: command.directory.clone(),
            within: test.within,
            output_limit: OUTPUT_LIMIT,
            place: Place::Test,
            rights: Rights::Service,
        };
        match self.platform.exec(self.slot, &run, cancel).await {
            // A missing program fails its test with the message of a shell, and the others continue.
            Err(error) if error.kind == PlatformErrorKind::BadPlan => Ok(not_started(&error)),
            other => other,
        }
    }
}

/// The file of a report; removed when this is dropped.
#[derive(Debug)]
pub(in crate::drive) struct Report(pub(in crate::drive) PathBuf);

impl Report {
    pub(in crate::drive) fn remove(&self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The folder that a test sees under the same path, unlike its application, `/tmp` and the tool's folder, which are
/// mounted over. Also removes what killed tools have left in it, where it is that of the machine.
#[expect(
    clippy::result_large_err,
    reason = "errors of platforms are rare and carry what people need to read"
)]
pub(in crate::drive) fn report_folder(
    platform: &dyn Platform,
    slot: SlotId,
) -> Result<PathBuf, PlatformError> {
    let folder = platform.exchange_folder(slot)?;
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|n| n.strip_prefix(REPORTS)).and_then(|n| n.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(folder)
}

/// The result of the only case that counts; fails if the report does not have it.
fn only(test: &TestCase, case: &str, mut results: Vec<TestResult>) -> Vec<TestResult> {
    const SHOWN: usize = 20;
    let mut known: Vec<String> = results.iter().take(SHOWN).map(|result| result.test.clone()).collect();
    if results.len() > SHOWN {
        known.push("...".into());
    }
    let took = results.iter().map(|result| result.took).sum();
    // If the runner itself failed, that is the result of every case.
    let broke = results
        .iter()
        .any(|result| !matches!(result.failure, None | Some(Failure { ending: Ending::Case, .. })));
    if broke && !results.iter().any(|result| result.test == case) {
        return results;
    }
    results.retain(|result| result.test == case);
    if results.is_empty() {
        let message = format!("the report has no case `{case}`, but {}", known.join(", "));
        let failure = Some(Failure::new(Ending::Case, message));
        return vec![TestResult { test: test.name.clone(), failure, took, output: String::new() }];
    }
    results.iter_mut().for_each(|result| result.test.clone_from(&test.name));
    results
}

fn failed(test: &TestCase, ending: Ending, message: &str, started: Instant) -> TestResult {
    let failure = Some(Failure::new(ending, message));
    TestResult { test: test.name.clone(), failure, took: started.elapsed(), output: String::new() }
}

fn not_started(error: &PlatformError) -> Exit {
    let cause = std::error::Error::source(error).map(|c| format!(": {c}")).unwrap_or_default();
    Exit {
        code: Some(127),
        signal: None,
        timed_out: false,
        stdout: String::new(),
        stderr: format!("{error}{cause}"),
        took: Duration::ZERO,
    }
}

fn ending_of(exit: &Exit) -> Option<Ending> {
    match exit {
        Exit { timed_out: true, .. } => Some(Ending::TimedOut),
        Exit { code: Some(0), .. } => None,
        Exit { code: Some(code), .. } => Some(Ending::Code(*code)),
        Exit { signal, .. } => Some(Ending::Signal(signal.unwrap_or_default())),
    }
}

fn both_outputs(exit: &Exit) -> String {
    match (exit.stdout.trim().is_empty(), exit.stderr.trim().is_empty()) {
        (_, true) => exit.stdout.clone(),
        (true, _) => exit.stderr.clone(),
        _ => format!("{}\n{}", exit.stdout.trim_end(), exit.stderr),
    }
}

async fn read_bounded(path: &Path) -> Result<String, String> {
    let path = path.to_owned();
    // The test chose what stands there, so it may be anything.
    let read = tokio::task::spawn_blocking(move || bounded_file::read_bounded(&path, REPORT_LIMIT));
    let bytes = read.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The longest a single step may take beside its test's own limit, unless the step says otherwise.
pub(in crate::drive) const STEP_WITHIN: Duration = Duration::from_secs(60);
