//! The engine as benchmarks use it: the one place that opens sessions and runs campaigns.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::debug::{self, DebugOptions, DebugReport};
use faultscope_engine::resilience::{self, ResilienceOptions, TestReport, Verdict};
use faultscope_engine::testing::{run_trial, run_trials};
use faultscope_engine::{EngineError, Session, SessionOptions, Tests, TrialRequest};
use faultscope_model::application::IsolationChoice;
use faultscope_model::perturbation::Perturbation;
use faultscope_model::{Application, CampaignKind, Circumstance, Outcome, Treatment};
use faultscope_platform::memory::{MemoryPlatform, Simulation};
use faultscope_platform::process::{ProcessOptions, ProcessPlatform, WantedIsolation};
use faultscope_platform::{Capabilities, Platform};
use tokio_util::sync::CancellationToken;

use crate::bench::Host;
use crate::error::{BenchError, BenchErrorKind};

/// Reads an application file, and returns the folder of the outermost file that it extends: paths are relative to it.
pub(crate) fn read_application(file: &Path) -> Result<(Application, PathBuf), BenchError> {
    let broken =
        |path: &Path| BenchError::environment(format!("the sample cannot be read: {}", path.display()));
    let text = std::fs::read_to_string(file).map_err(|e| broken(file).because(e))?;
    let outermost = RefCell::new(file.to_owned());
    let load = |base: &str, path: &str| {
        let next = Path::new(base).parent().unwrap_or(Path::new("")).join(path);
        let text = std::fs::read_to_string(&next).map_err(|e| e.to_string())?;
        outermost.replace(next.clone());
        Ok((text, next.to_string_lossy().into_owned()))
    };
    let mut application = Application::read(&text, &file.to_string_lossy(), &load)?;
    let outermost = outermost.into_inner();
    let root = outermost.parent().unwrap_or(Path::new("."));
    let root = std::fs::canonicalize(root).map_err(|e| broken(root).because(e))?;
    faultscope_engine::load_protos(&mut application, &root)?;
    Ok((application, root))
}

/// A session with an application on some slots.
pub(crate) struct Campaign {
    session: Arc<Session>,
    stop: CancellationToken,
}

/// The answer of `debug`.
pub(crate) struct Debugged {
    /// The verdict as in JSON.
    pub(crate) verdict: String,
    pub(crate) summary: String,
    /// The causes by names of deltas, sorted.
    pub(crate) causes: Vec<Vec<String>>,
    pub(crate) none_left: bool,
    pub(crate) deltas: usize,
    pub(crate) finished: usize,
    pub(crate) cancelled: usize,
    pub(crate) took: Duration,
}

/// The result of `resilience` for the one test of an application.
pub(crate) struct Perturbed {
    /// Whether its verdict matches what was found.
    pub(crate) judged: bool,
    /// Every failing set of perturbations by name, sorted.
    pub(crate) found: Vec<Vec<String>>,
    pub(crate) defects: usize,
    /// Calls that the test makes.
    pub(crate) calls: usize,
    /// Trials beside the baseline.
    pub(crate) trials: usize,
    /// Number of sets of one and two perturbations.
    pub(crate) sets: usize,
    pub(crate) took: Duration,
}

/// Options of a campaign.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CampaignOptions {
    pub(crate) slots: u16,
    pub(crate) seed: u64,
}

impl Campaign {
    /// Opens a session with real processes; notes how they are isolated.
    pub(crate) async fn on_processes(
        host: &Host<'_>,
        application: Application,
        root: &Path,
        options: CampaignOptions,
    ) -> Result<(Self, Capabilities), BenchError> {
        let isolation = match application.isolation {
            IsolationChoice::Auto => WantedIsolation::Auto,
            IsolationChoice::Netns => WantedIsolation::Netns,
            IsolationChoice::Ports => WantedIsolation::Ports,
        };
        let program = host.program.clone();
        let state = Some(root.join(".faultscope"));
        let platform = Arc::new(ProcessPlatform::new(ProcessOptions { isolation, program, state })?);
        let capabilities = platform.capabilities();
        Ok((Self::open(host, application, root, platform, options).await?, capabilities))
    }

    /// Opens a session on the simulated platform.
    pub(crate) async fn simulated(
        host: &Host<'_>,
        application: Application,
        root: &Path,
        simulation: Simulation,
        options: CampaignOptions,
    ) -> Result<Self, BenchError> {
        let platform = Arc::new(MemoryPlatform::new(simulation));
        Self::open(host, application, root, platform, options).await
    }

    async fn open(
        host: &Host<'_>,
        application: Application,
        root: &Path,
        platform: Arc<dyn Platform>,
        chosen: CampaignOptions,
    ) -> Result<Self, BenchError> {
        let mut options = SessionOptions::new(CampaignKind::Bench, root.to_owned(), host.program.clone());
        options.slots = chosen.slots;
        options.seed = chosen.seed;
        options.command_line = std::env::args().collect();
        let session = Arc::new(Session::open(application, platform, options).await?);
        Ok(Self { session, stop: host.stop.clone() })
    }

    pub(crate) fn application(&self) -> &Application {
        self.session.application()
    }

    /// Deploys a circumstance, runs its tests if wanted, and returns the time until everything was ready.
    pub(crate) async fn deploy(
        &self,
        circumstance: Circumstance,
        with_tests: bool,
    ) -> Result<Duration, BenchError> {
        let tests = if with_tests { self.application().tests.clone() } else { Vec::new() };
        let run = run_trial(&self.session, request(circumstance, Tests::new(tests)), &self.stop).await?;
        match run {
            Some(run) if run.outcome == Outcome::Pass => Ok(run.cost.deploy),
            Some(run) => {
                let message = format!("the sample did not start: {:?}", run.outcome);
                Err(BenchError::new(BenchErrorKind::Unresolved, message))
            }
            None => Err(BenchError::interrupted()),
        }
    }

    /// Runs all tests in the simplest circumstance this many times, on all slots, and counts passing trials.
    pub(crate) async fn count_passing(&self, trials: usize) -> Result<usize, BenchError> {
        let tests = Tests::new(self.application().tests.clone());
        let requests = vec![request(self.application().simplest.clone(), tests); trials];
        let done = run_trials(&self.session, requests, false, &self.stop).await?;
        Ok(done.runs.iter().filter(|run| run.outcome == Outcome::Pass).count())
    }

    /// Reduces the failure: all causes or one, all tests or only the failing one.
    pub(crate) async fn debug(&self, all: bool, only_failing_test: bool) -> Result<Debugged, BenchError> {
        let chosen = DebugOptions { all, only_failing_test, ..DebugOptions::default() };
        let report = debug::debug(&self.session, &chosen, &self.stop).await?;
        self.check_running()?;
        Ok(Debugged::from_report(&report))
    }

    /// Perturbs the first test.
    pub(crate) async fn perturb(&self) -> Result<Perturbed, BenchError> {
        let options = ResilienceOptions { most_together: 2, ..ResilienceOptions::default() };
        let report = resilience::resilience(&self.session, &options, &self.stop).await?;
        self.check_running()?;
        let test = report.tests.first().ok_or_else(|| BenchError::internal("a report without its test"))?;
        Ok(Perturbed::from_report(test))
    }

    fn check_running(&self) -> Result<(), BenchError> {
        if self.stop.is_cancelled() { Err(BenchError::interrupted()) } else { Ok(()) }
    }

    /// Closes the session before returning the measurement: what it started must be gone either way.
    pub(crate) async fn close_with<T>(self, measured: Result<T, BenchError>) -> Result<T, BenchError> {
        let closed = match Arc::try_unwrap(self.session) {
            Ok(session) => session.close("measured").await.map_err(BenchError::from),
            Err(_) => Err(EngineError::Internal("the session is still in use".into()).into()),
        };
        let measured = measured?;
        closed.map(|()| measured)
    }
}

fn request(circumstance: Circumstance, tests: Arc<Tests>) -> TrialRequest {
    TrialRequest { treatment: Treatment::Nothing, circumstance, drive: tests, wanted: None }
}

impl Debugged {
    fn from_report(report: &DebugReport) -> Self {
        let named = |cause: &debug::FoundCause| {
            let mut names: Vec<_> = cause.deltas.iter().map(|delta| delta.name.clone()).collect();
            names.sort();
            names
        };
        let verdict = serde_json::to_value(&report.verdict).unwrap_or_default();
        Self {
            verdict: verdict["kind"].as_str().unwrap_or_default().to_owned(),
            summary: report.summary(),
            causes: report.causes.iter().map(named).collect(),
            none_left: report.none_left,
            deltas: report.deltas,
            finished: report.trials.finished,
            cancelled: report.trials.cancelled,
            took: report.took,
        }
    }
}

impl Perturbed {
    fn from_report(test: &TestReport) -> Self {
        let names = |set: &Vec<Perturbation>| {
            let mut names: Vec<_> = set.iter().map(ToString::to_string).collect();
            names.sort();
            names
        };
        let sets =
            test.defects.iter().flat_map(|defect| std::iter::once(&defect.perturbations).chain(&defect.also));
        let mut found: Vec<_> = sets.map(names).collect();
        found.sort();
        let expected = if found.is_empty() { Verdict::Clean } else { Verdict::Defects };
        Self {
            judged: test.verdict == expected,
            found,
            defects: test.defects.len(),
            calls: test.seen,
            trials: test.trials.all() - test.trials.baseline,
            sets: test.candidates.values().sum::<usize>() + test.trials.changing + test.trials.pruned,
            took: test.took,
        }
    }
}
