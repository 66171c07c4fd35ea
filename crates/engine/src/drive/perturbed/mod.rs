//! Drives a test with perturbed calls and messages, checks invariants afterwards, and judges both.

mod calls;
mod diverged;
mod files;
mod honest;
mod missed;
mod outage;
mod recovery;

pub(crate) use honest::errors_of_test;
pub(crate) use recovery::{Repetition, failing_operations};

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::outcome::{Ending, Signature, TestResult};
use faultscope_model::perturbation::{Event, Perturbation, TargetId};
use faultscope_model::run::{OutageSeen, Perturbed};
use faultscope_model::{Application, Outcome, ServiceName, Span};
use faultscope_platform::{Execution, Place, PlatformError, PlatformErrorKind, Rights};
use regex::Regex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::tests::{report_folder, run_tests};
use crate::error::EngineError;
use crate::trial::{Drive, Driven, JudgeFacts, Live, Refined, failures_of};
use calls::calls_of;
use diverged::diverged;
use files::ProcessFiles;
use honest::{has_met_outage, is_degraded};
use outage::{OutagesDuring, ServicesDisturbed, disturb_before, find_ended};
use recovery::{Attempts, EndWatch, Patience, Recovered, RecoveryRun, has_error_of_test, wait_until_well};

/// Responses are recorded for runs with at most this many perturbations; nobody compares those with more.
const FEW: usize = 4;

/// How long calls that outlive the test may run before invariants are checked.
const QUIET_WITHIN: Duration = Duration::from_secs(2);

/// One test with perturbations, and the invariants to check after it.
#[derive(Debug, Clone)]
pub struct PerturbedTests {
    /// The test.
    pub test: TestCase,
    /// The perturbations; those of calls are also rules of the circumstance, in the same order.
    pub perturbations: Vec<Perturbation>,
    /// Tests that must pass afterwards.
    pub invariants: Vec<TestCase>,
    /// Whether a degraded response is acceptable.
    pub tolerant: bool,
    /// What the test shows without perturbations.
    pub unperturbed: Unperturbed,
    /// Whether a passing test is run once more in the same deployment, to know what to expect of that.
    pub repeats: bool,
}

/// What is known of a test from its runs without perturbations.
#[derive(Debug, Clone, Default)]
pub struct Unperturbed {
    /// What callers see, where that is always the same.
    pub(crate) usual: Arc<HashMap<TargetId, String>>,
    /// Calls of the test itself that end in an error.
    pub(crate) expected: BTreeSet<TargetId>,
    /// Operations of the test itself that end in an error.
    pub(crate) failing: BTreeSet<String>,
    /// What a second run shows.
    pub(crate) repetition: Repetition,
}

/// The calls and messages of a trial, and what was checked after its test.
#[derive(Debug, Default)]
pub struct TrialTrace {
    /// The calls, by start.
    pub(crate) spans: Vec<Span>,
    /// The messages that the test's own process recorded.
    pub(crate) messages: Vec<Event>,
    /// Why the messages cannot be read.
    pub(crate) unreadable: Option<String>,
    /// Durable folders that were empty after the test, by service; only checked without perturbations.
    pub(crate) unused: BTreeSet<(ServiceName, String)>,
    /// Results of the invariants.
    pub(crate) invariants: Vec<TestResult>,
    /// Whether the test got a degraded response.
    pub(crate) degraded: bool,
    /// What became of what was done to services as a whole.
    pub(crate) disturbed: ServicesDisturbed,
    /// Services and hosts outside that other services had called before the test began; looked at without
    /// perturbations only.
    pub(crate) connected: BTreeSet<ServiceName>,
    /// Calls to each service that other services made during the test.
    pub(crate) called: BTreeMap<ServiceName, u32>,
    /// What a second run of the test showed in the same deployment.
    pub(crate) repetition: Repetition,
    /// What the test showed when an outage during it was over.
    pub(crate) recovery: Option<RecoveryRun>,
    /// From the end of what was done to services to the start of the first run that passed.
    pub(crate) recovered_after: Option<Duration>,
}

impl TrialTrace {
    /// All results beside those of the test itself.
    pub(crate) fn results_mut(&mut self) -> impl Iterator<Item = &mut TestResult> {
        let recovery = self.recovery.iter_mut().flat_map(|run| run.results.iter_mut());
        self.invariants.iter_mut().chain(recovery)
    }
}

#[async_trait]
impl Drive for PerturbedTests {
    fn question(&self) -> serde_json::Value {
        // What the baselines showed is not part of what is asked, nor is a limit that follows from how long they
        // took: a resumed campaign measures them again.
        let test = TestCase { within: Duration::ZERO, ..self.test.clone() };
        serde_json::json!({
            "tests": [test],
            "perturbations": self.perturbations,
            "invariants": self.invariants,
            "tolerant": self.tolerant,
        })
    }

    fn n_tests(&self) -> usize {
        1
    }

    fn names_calls(&self) -> bool {
        true
    }

    async fn drive(&self, live: &Live<'_>, cancel: &CancellationToken) -> Result<Driven, EngineError> {
        let session = live.session;
        let slot = live.lease.id();
        let folder = report_folder(session.platform.as_ref(), slot)?;
        let files = ProcessFiles::write(&folder, session.id(), slot, &self.perturbations).map_err(|e| {
            let kind = PlatformErrorKind::Infrastructure;
            PlatformError::new(kind, session.platform.name(), "write the perturbations").because(e)
        })?;
        let mut trace = TrialTrace::default();
        if let Some(mesh) = live.mesh().filter(|_| self.perturbations.is_empty()) {
            trace.connected = mesh.called().into_iter().map(|(_, callee)| callee).collect();
        }
        let mut ends = EndWatch::new(live);
        trace.disturbed = disturb_before(live, &self.perturbations, cancel).await;
        let tests = self.run_disturbed(live, &files, &mut trace, &mut ends, cancel).await?;
        if !cancel.is_cancelled() {
            self.look_around(live, &files, &tests, &mut trace, &mut ends, cancel).await?;
        }
        if !cancel.is_cancelled() {
            self.run_again(live, &files, &tests, &mut trace, &mut ends, cancel).await?;
        }
        Ok(Driven { tests, trace: Some(Box::new(trace)), ..Driven::default() })
    }

    fn refine(&self, facts: &JudgeFacts<'_>, judged: Outcome) -> Refined {
        let Some(trace) = &facts.driven.trace else {
            return Refined { outcome: judged, perturbed: None };
        };
        let broken = failures_of(&self.invariants, &trace.invariants).into_iter().next();
        let shown = match (judged, broken) {
            (Outcome::Fail { .. } | Outcome::Pass, Some(signature)) => Outcome::Fail { signature },
            (Outcome::Fail { .. }, None) if trace.degraded => Outcome::Pass,
            (judged, _) => judged,
        };
        let first_passed = facts.driven.tests.iter().all(|result| result.failure.is_none());
        let recovered =
            trace.recovery.as_ref().map(|run| run.judge(first_passed, self.unperturbed.repetition));
        let shown = match (shown, &recovered) {
            (Outcome::Pass, Some(Recovered::Broken(result))) => match self.signature_of(result) {
                Some(signature) => describe_broken(signature, trace),
                None => Outcome::Pass,
            },
            // What was done before the test was over when it began.
            (Outcome::Fail { signature }, _) if self.is_before_test() && !trace.disturbed.done.is_empty() => {
                describe_broken(signature, trace)
            }
            (shown, _) => shown,
        };
        let ended = find_ended(&self.test.name, &trace.disturbed, facts.exits);
        let shown = match (shown, ended) {
            (Outcome::Pass, Some(signature)) => Outcome::Fail { signature },
            // That a service ended says more than how a test noticed it.
            (Outcome::Fail { .. }, Some(signature)) if self.is_of_services() => Outcome::Fail { signature },
            (shown, _) => shown,
        };
        let left_behind = match recovered {
            Some(Recovered::Unclear(result)) => self.signature_of(&result),
            _ => None,
        };
        let results = if trace.degraded { &[] } else { facts.driven.tests.as_slice() };
        let blamed = match &shown {
            Outcome::Fail { .. } => self.blamed(facts.application, results, trace),
            _ => Vec::new(),
        };
        let missed = missed::missed(self, facts.circumstance, facts.reports, trace);
        let outcome = missed::unresolved(trace, &missed).unwrap_or_else(|| shown.clone());
        let few = self.perturbations.len() <= FEW;
        let perturbed = Perturbed {
            test: self.test.name.clone(),
            calls: if few { calls_of(&trace.spans) } else { Vec::new() },
            shown: (outcome != shown).then_some(shown),
            missed,
            blamed,
            diverged: diverged(&trace.spans, &self.unperturbed.usual),
            degraded: trace.degraded,
            invariants: trace.invariants.clone(),
            outages: self.list_outages(trace, &facts.reports.unrefused),
            left_behind,
        };
        Refined { outcome, perturbed: Some(Box::new(perturbed)) }
    }
}

impl PerturbedTests {
    /// Runs the test after what was done to services before it, with the outages that begin during it.
    async fn run_disturbed(
        &self,
        live: &Live<'_>,
        files: &ProcessFiles,
        trace: &mut TrialTrace,
        ends: &mut EndWatch,
        cancel: &CancellationToken,
    ) -> Result<Vec<TestResult>, EngineError> {
        let test = std::slice::from_ref(&self.test);
        let recovery = live.application().resilience.outage.recovery;
        let deadline = trace.disturbed.over.map(|over| over + recovery);
        let patience = match self.unperturbed.repetition {
            _ if !self.is_of_services() => Patience::Whole,
            Repetition::Passes => Patience::Repeat,
            _ => Patience::Connected,
        };
        if let Some(deadline) = deadline {
            wait_until_well(live, &trace.disturbed.services(), deadline, patience, ends, cancel).await;
        }
        let during = OutagesDuring::arm(live, &self.perturbations);
        let mut attempts = deadline.filter(|_| patience == Patience::Repeat).map(Attempts::until);
        let tests = loop {
            let (started, over) = (Instant::now(), CancellationToken::new());
            let running = async {
                let tests = run_tests(live, test, files.env(), cancel).await;
                over.cancel();
                tests
            };
            let (tests, ()) = tokio::join!(running, during.run(&over, &mut trace.disturbed, cancel));
            let tests = tests?;
            if tests.iter().all(|result| result.failure.is_none()) {
                trace.recovered_after = deadline.map(|deadline| started + recovery - deadline);
                break tests;
            }
            let is_last = match &mut attempts {
                Some(attempts) if !during.is_any_done(&trace.disturbed) => !attempts.next(ends, cancel).await,
                _ => true,
            };
            if is_last {
                break tests;
            }
        };
        trace.called = during.disarm();
        if during.is_any_done(&trace.disturbed)
            && let Some(over) = trace.disturbed.over
        {
            let services = trace.disturbed.services();
            wait_until_well(live, &services, over + recovery, patience, ends, cancel).await;
        }
        Ok(tests)
    }

    /// Runs the test once more: after an outage during it, or to know what to expect of that.
    async fn run_again(
        &self,
        live: &Live<'_>,
        files: &ProcessFiles,
        first: &[TestResult],
        trace: &mut TrialTrace,
        ends: &mut EndWatch,
        cancel: &CancellationToken,
    ) -> Result<(), EngineError> {
        let was_away =
            trace.disturbed.outages.iter().any(|o| o.perturbation.target.any_call_number().is_some());
        let is_broken = trace.invariants.iter().any(|result| result.failure.is_some());
        let first_passed = first.iter().all(|result| result.failure.is_none());
        if was_away && !is_broken && (first_passed || trace.degraded) {
            let over = trace.disturbed.over.unwrap_or_else(Instant::now);
            let mut attempts = Attempts::until(over + live.application().resilience.outage.recovery);
            loop {
                let started = Instant::now();
                let run = self.try_again(live, files, cancel).await?;
                if run.passed() {
                    trace.recovered_after = Some(started - over);
                }
                let may_repeat = self.unperturbed.repetition == Repetition::Passes;
                let is_done = run.passed() || !may_repeat || !attempts.next(ends, cancel).await;
                // Each attempt may add to what the outage left half done, so the first one that fails without an error says
                // what that is.
                let adds_up = !run.passed()
                    && !run.got_error
                    && trace.recovery.as_ref().is_some_and(|earlier| !earlier.got_error);
                if !adds_up {
                    trace.recovery = Some(run);
                }
                if is_done {
                    break;
                }
            }
        } else if self.repeats && first_passed && !(trace.called.is_empty() && trace.connected.is_empty()) {
            let run = self.try_again(live, files, cancel).await?;
            trace.repetition = Repetition::judge(&run.results, run.got_error);
        }
        Ok(())
    }

    /// One more run of the test, with nothing done to its calls.
    async fn try_again(
        &self,
        live: &Live<'_>,
        files: &ProcessFiles,
        cancel: &CancellationToken,
    ) -> Result<RecoveryRun, EngineError> {
        live.lease.recorder.keep(true);
        let results = run_tests(live, std::slice::from_ref(&self.test), files.env(), cancel).await?;
        if let Some(mesh) = live.mesh() {
            mesh.quiet(QUIET_WITHIN).await;
        }
        let spans = live.lease.recorder.take_kept();
        Ok(RecoveryRun { results, got_error: has_error_of_test(&spans, &self.unperturbed.failing) })
    }

    /// Whether nothing is done but to services as a whole.
    fn is_of_services(&self) -> bool {
        let is_of_service = |p: &Perturbation| p.target.is_whole() || p.target.any_call_number().is_some();
        !self.perturbations.is_empty() && self.perturbations.iter().all(is_of_service)
    }

    /// Whether all that is done is done to services as a whole, before the test.
    fn is_before_test(&self) -> bool {
        !self.perturbations.is_empty() && self.perturbations.iter().all(|p| p.target.is_whole())
    }

    fn signature_of(&self, result: &TestResult) -> Option<Signature> {
        let tests = std::slice::from_ref(&self.test);
        failures_of(tests, std::slice::from_ref(result)).into_iter().next()
    }

    fn list_outages(&self, trace: &TrialTrace, unrefused: &BTreeSet<ServiceName>) -> Vec<OutageSeen> {
        let list = |outage: &OutageSeen| OutageSeen {
            accepted: outage
                .perturbation
                .target
                .receiver()
                .is_some_and(|name| unrefused.iter().any(|u| u.as_str() == name)),
            recovered_after: trace.recovered_after,
            ..outage.clone()
        };
        trace.disturbed.outages.iter().map(list).collect()
    }

    /// Reads the trace of the test's process and checks the invariants.
    async fn look_around(
        &self,
        live: &Live<'_>,
        files: &ProcessFiles,
        results: &[TestResult],
        trace: &mut TrialTrace,
        ends: &mut EndWatch,
        cancel: &CancellationToken,
    ) -> Result<(), EngineError> {
        if let Some(mesh) = live.mesh() {
            mesh.quiet(QUIET_WITHIN).await;
            mesh.calm();
        }
        trace.spans = live.lease.recorder.take_kept();
        // Not by what services said of themselves: answers of all runs are compared, and it may be known only later.
        let descriptors = &live.session.application().descriptors;
        trace.spans.iter_mut().for_each(|span| span.decode_bodies(descriptors));
        match files.read_messages() {
            Ok(messages) => trace.messages = messages,
            Err(problem) => trace.unreadable = Some(problem),
        }
        if live.mesh().is_some() && self.perturbations.is_empty() {
            trace.unused = find_unused_folders(live, cancel).await;
        }
        let errors = errors_of_test(&trace.spans);
        let got_error = errors.difference(&self.unperturbed.expected).next().is_some()
            || has_met_outage(&trace.spans, &trace.disturbed.were_away());
        let failed: Vec<&TestResult> = results.iter().filter(|result| result.failure.is_some()).collect();
        trace.degraded = self.tolerant
            && !failed.is_empty()
            && failed.iter().all(|result| is_degraded(std::slice::from_ref(&self.test), result, got_error));
        if failed.is_empty() || trace.degraded {
            let recovery = live.application().resilience.outage.recovery;
            let mut attempts = trace.disturbed.over.map(|over| Attempts::until(over + recovery));
            loop {
                trace.invariants = run_tests(live, &self.invariants, BTreeMap::new(), cancel).await?;
                let is_broken = trace.invariants.iter().any(|result| result.failure.is_some());
                // Who answers them may still be getting over an outage.
                let is_last = match &mut attempts {
                    Some(attempts) if is_broken => !attempts.next(ends, cancel).await,
                    _ => true,
                };
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Who is to blame for failures: by the adapter, by the message, or the callee of the failing step.
    fn blamed(&self, application: &Application, results: &[TestResult], trace: &TrialTrace) -> Vec<String> {
        let mut blamed: Vec<String> = Vec::new();
        let mut add = |name: String| {
            if !blamed.contains(&name) {
                blamed.push(name);
            }
        };
        for event in &trace.messages {
            if let Event::Blame { actor, .. } = event {
                add(actor.clone());
            }
        }
        // The pattern was checked when the file was read.
        let pattern = Regex::new(&application.resilience.blame).ok();
        for result in results.iter().chain(&trace.invariants) {
            let Some(failure) = &result.failure else { continue };
            for text in [&failure.message, &result.output] {
                let found = pattern.iter().flat_map(|pattern| pattern.captures_iter(text));
                found.filter_map(|groups| groups.get(1)).for_each(|name| add(name.as_str().to_owned()));
            }
            let mut tests = std::iter::once(&self.test).chain(&self.invariants);
            let body = tests.find(|test| test.name == result.test).map(|test| &test.body);
            if let (Some(TestBody::Steps(steps)), Ending::Step(number)) = (body, failure.ending)
                && let Some(step) = steps.iter().find(|step| step.number == number)
                && let Ok(uri) = step.url.parse::<http::Uri>()
                && let Ok((callee, _)) =
                    application.callee(uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80))
            {
                add(callee.to_string());
            }
        }
        blamed
    }
}

/// The failure of a test that does not pass after what was done to services was over.
fn describe_broken(signature: Signature, trace: &TrialTrace) -> Outcome {
    let message = format!("does not work again after {}: {}", trace.disturbed.describe(), signature.message);
    Outcome::Fail { signature: Signature { message, ..signature } }
}

/// Durable folders that are empty. If that cannot be determined, nothing is reported.
async fn find_unused_folders(live: &Live<'_>, cancel: &CancellationToken) -> BTreeSet<(ServiceName, String)> {
    let mut unused = BTreeSet::new();
    for (name, service) in &live.application().services {
        for folder in &service.durable {
            let Ok(instance) = format!("{name}-1").parse() else { continue };
            let run = Execution {
                command: ["ls", "-A", "--", folder].map(str::to_owned).into(),
                env: BTreeMap::new(),
                directory: service.directory.clone(),
                within: QUIET_WITHIN,
                output_limit: 1 << 10,
                place: Place::Instance(instance),
                rights: Rights::Service,
            };
            let listed = live.session.platform.exec(live.lease.id(), &run, cancel).await;
            if listed.is_ok_and(|exit| exit.code == Some(0) && exit.stdout.trim().is_empty()) {
                unused.insert((name.clone(), folder.clone()));
            }
        }
    }
    unused
}
