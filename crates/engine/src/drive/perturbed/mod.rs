//! Drives a test with perturbed calls and messages, checks invariants afterwards, and judges both.

mod calls;
mod diverged;
mod files;
mod honest;
mod missed;
mod outage;

pub(crate) use honest::errors_of_test;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::outcome::{Ending, TestResult};
use faultscope_model::perturbation::{Event, Perturbation, TargetId};
use faultscope_model::run::Perturbed;
use faultscope_model::{Application, Outcome, ServiceName, Span};
use faultscope_platform::{Execution, Place, PlatformError, PlatformErrorKind};
use regex::Regex;
use tokio_util::sync::CancellationToken;

use super::tests::run_tests;
use crate::error::EngineError;
use crate::trial::{Drive, Driven, JudgeFacts, Live, Refined, failures_of};
use calls::calls_of;
use diverged::diverged;
use files::ProcessFiles;
use honest::is_degraded;
use outage::{ServicesDisturbed, disturb_services, ended_because};

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
}

/// What is known of a test from its runs without perturbations.
#[derive(Debug, Clone, Default)]
pub struct Unperturbed {
    /// What callers see, where that is always the same.
    pub(crate) usual: Arc<HashMap<TargetId, String>>,
    /// Calls of the test itself that end in an error.
    pub(crate) expected: BTreeSet<TargetId>,
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
        let files = ProcessFiles::write(session.id(), live.lease.id(), &self.perturbations).map_err(|e| {
            let kind = PlatformErrorKind::Infrastructure;
            PlatformError::new(kind, session.platform.name(), "write the perturbations").because(e)
        })?;
        let mut trace = TrialTrace::default();
        if let Some(mesh) = live.mesh().filter(|_| self.perturbations.is_empty()) {
            trace.connected = mesh.called().into_iter().map(|(_, callee)| callee).collect();
        }
        trace.disturbed = disturb_services(live, &self.perturbations, cancel).await;
        let tests = run_tests(live, std::slice::from_ref(&self.test), files.env(), cancel).await?;
        if !cancel.is_cancelled() {
            self.look_around(live, &files, &tests, &mut trace, cancel).await?;
        }
        Ok(Driven { tests, trace: Some(Box::new(trace)) })
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
        let ended = ended_because(&self.test.name, &trace.disturbed, facts.exits);
        let shown = match (shown, ended) {
            (Outcome::Pass, Some(signature)) => Outcome::Fail { signature },
            (shown, _) => shown,
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
        };
        Refined { outcome, perturbed: Some(Box::new(perturbed)) }
    }
}

impl PerturbedTests {
    /// Reads the trace of the test's process and checks the invariants.
    async fn look_around(
        &self,
        live: &Live<'_>,
        files: &ProcessFiles,
        results: &[TestResult],
        trace: &mut TrialTrace,
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
        let got_error = errors.difference(&self.unperturbed.expected).next().is_some();
        let failed: Vec<&TestResult> = results.iter().filter(|result| result.failure.is_some()).collect();
        trace.degraded = self.tolerant
            && !failed.is_empty()
            && failed.iter().all(|result| is_degraded(std::slice::from_ref(&self.test), result, got_error));
        if failed.is_empty() || trace.degraded {
            trace.invariants = run_tests(live, &self.invariants, BTreeMap::new(), cancel).await?;
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
            };
            let listed = live.session.platform.exec(live.lease.id(), &run, cancel).await;
            if listed.is_ok_and(|exit| exit.code == Some(0) && exit.stdout.trim().is_empty()) {
                unused.insert((name.clone(), folder.clone()));
            }
        }
    }
    unused
}
