//! Trials whose calls and messages are perturbed: what is handed to the test's process, what is looked at
//! after the test, and how all of it is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use faultscope_mesh::MeshReports;
use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::outcome::{Ending, TestResult, normalise};
use faultscope_model::perturbation::{
    Configuration, Event, PERTURBATION_FILE, Perturbation, TRACE_FILE, TargetId, read_trace,
};
use faultscope_model::run::{CallSeen, Perturbed};
use faultscope_model::{CampaignId, Outcome, ServiceName, SlotId, Span, TrialId};
use faultscope_platform::{Execution, Place, PlatformError};
use regex::Regex;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::honest::{errors_of_test, is_degraded};
use crate::missing::missed;
use crate::session::{Session, SlotState};
use crate::testing::{REPORTS, Report, report_folder};
use crate::trial::{TrialEnd, TrialRequest};

/// The largest trace that is read.
const MOST_TRACE: u64 = 256 << 20;

/// Up to so many perturbations it is told what became of each call.
const FEW: usize = 4;

/// How long calls that outlive the test may still run before invariants are looked at.
const QUIET_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// What is done to a trial's calls and messages, and what must hold after it.
#[derive(Debug, Clone, Default)]
pub struct Perturbing {
    /// What is done; those of calls are rules of the circumstance as well, in the same order.
    pub perturbations: Vec<Perturbation>,
    /// What must hold after the test.
    pub invariants: Vec<TestCase>,
    /// Whether a degraded answer is good enough.
    pub tolerant: bool,
    /// Calls of the test itself that end in an error without perturbations, too.
    pub expected: BTreeSet<TargetId>,
}

/// What a perturbed trial showed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The calls, in the order of their start.
    pub(crate) spans: Vec<Span>,
    /// The messages of the test's own process.
    pub(crate) events: Vec<Event>,
    /// Why these cannot be read.
    pub(crate) unreadable: Option<String>,
    /// Durable folders in which nothing was after the test, by service; looked at without perturbations.
    pub(crate) unused: BTreeSet<(ServiceName, String)>,
}

/// The files through which a test's process is perturbed and tells what happened.
#[derive(Debug)]
pub(crate) struct ProcessFiles {
    perturbations: Report,
    trace: Report,
}

/// What was found after the test.
pub(crate) struct Aftermath {
    seen: Seen,
    invariants: Vec<TestResult>,
    degraded: bool,
}

impl ProcessFiles {
    /// Writes the perturbations where a test of this slot finds them.
    pub(crate) fn write(campaign: &CampaignId, slot: SlotId, perturbing: &Perturbing) -> io::Result<Self> {
        let folder = report_folder();
        let file = |name: &str| {
            Report(folder.join(format!("{REPORTS}{}-{campaign}-{}-{name}", std::process::id(), slot.0)))
        };
        let files = Self { perturbations: file("perturb.json"), trace: file("trace.jsonl") };
        files.trace.remove();
        let configuration = Configuration::new(perturbing.perturbations.clone());
        std::fs::write(&files.perturbations.0, serde_json::to_vec(&configuration)?)?;
        Ok(files)
    }

    /// What a command is told.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        let text = |report: &Report| report.0.to_string_lossy().into_owned();
        BTreeMap::from([
            (TRACE_FILE.to_owned(), text(&self.trace)),
            (PERTURBATION_FILE.to_owned(), text(&self.perturbations)),
        ])
    }

    /// What the process told; nothing when it has no adapter.
    fn read(&self) -> Result<Vec<Event>, String> {
        let size = match std::fs::metadata(&self.trace.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found.map_err(|e| e.to_string())?.len(),
        };
        if size > MOST_TRACE {
            return Err(format!("it has {size} bytes, more than {MOST_TRACE}"));
        }
        let bytes = std::fs::read(&self.trace.0).map_err(|e| e.to_string())?;
        let text = String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        read_trace(&text).map(|(_, events)| events).map_err(|e| e.to_string())
    }
}

impl Session {
    /// Carries out a trial, and again for as long as it fails, up to so many times. What failed before is
    /// stored under names of its own.
    pub(crate) async fn tried(
        &self,
        slot: SlotId,
        mut request: TrialRequest,
        must_fail: u32,
        cancel: &CancellationToken,
    ) -> Result<TrialEnd, EngineError> {
        let trial = request.trial;
        for _ in 1..must_fail {
            request.trial = TrialId::again(self.next_again());
            match self.trial(slot, &request, cancel).await? {
                TrialEnd::Finished(run) if matches!(run.outcome, Outcome::Fail { .. }) => {
                    self.take_seen(request.trial);
                }
                TrialEnd::Finished(mut run) => {
                    // The one that counts bears the number that the search knows.
                    let seen = self.take_seen(request.trial).unwrap_or_default();
                    self.leave_seen(trial, seen);
                    (run.trial, run.id) = (trial, self.run_id(trial)?);
                    self.store(&run).await?;
                    return Ok(TrialEnd::Finished(run));
                }
                TrialEnd::Cancelled => return Ok(TrialEnd::Cancelled),
            }
        }
        request.trial = trial;
        self.trial(slot, &request, cancel).await
    }

    /// Looks at what a perturbed test left: its process's trace, and what must hold.
    pub(crate) async fn look_after(
        &self,
        slot: &SlotState,
        request: &TrialRequest,
        perturbing: &Perturbing,
        files: ProcessFiles,
        results: &[TestResult],
        cancel: &CancellationToken,
    ) -> Result<Aftermath, PlatformError> {
        if let Some(mesh) = &slot.mesh {
            mesh.quiet(QUIET_WITHIN).await;
            mesh.calm();
        }
        let mut seen = Seen { spans: slot.recorder.take_kept(), ..Seen::default() };
        match files.read() {
            Ok(events) => seen.events = events,
            Err(problem) => seen.unreadable = Some(problem),
        }
        if slot.mesh.is_some() && perturbing.perturbations.is_empty() {
            seen.unused = self.unused_folders(slot, cancel).await;
        }
        let errors = errors_of_test(&seen.spans);
        let was_told = errors.difference(&perturbing.expected).next().is_some();
        let failed: Vec<&TestResult> = results.iter().filter(|result| result.failure.is_some()).collect();
        let degraded = perturbing.tolerant
            && !failed.is_empty()
            && failed.iter().all(|result| is_degraded(&request.tests, result, was_told));
        let mut invariants = Vec::new();
        if failed.is_empty() || degraded {
            invariants = self.run_tests(slot, &perturbing.invariants, None, request.trial, cancel).await?;
        }
        Ok(Aftermath { seen, invariants, degraded })
    }

    /// Durable folders in which nothing is. Where that cannot be found out, nothing is said.
    async fn unused_folders(
        &self,
        slot: &SlotState,
        cancel: &CancellationToken,
    ) -> BTreeSet<(ServiceName, String)> {
        let mut unused = BTreeSet::new();
        for (name, service) in &self.application.services {
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
                let listed = self.platform.exec(slot.id, &run, cancel).await;
                if listed.is_ok_and(|exit| exit.code == Some(0) && exit.stdout.trim().is_empty()) {
                    unused.insert((name.clone(), folder.clone()));
                }
            }
        }
        unused
    }

    /// Judges a perturbed trial, given what its test showed.
    pub(crate) fn perturbed(
        &self,
        request: &TrialRequest,
        perturbing: &Perturbing,
        after: Aftermath,
        reports: &MeshReports,
        results: &[TestResult],
        outcome: Outcome,
    ) -> (Outcome, Perturbed) {
        let Aftermath { seen, invariants, degraded } = after;
        let broken = self.failures(&perturbing.invariants, &invariants).into_iter().next();
        let shown = match (outcome, broken) {
            (Outcome::Fail { .. } | Outcome::Pass, Some(signature)) => Outcome::Fail { signature },
            (Outcome::Fail { .. }, None) if degraded => Outcome::Pass,
            (outcome, _) => outcome,
        };
        let blamed = match &shown {
            Outcome::Fail { .. } if degraded => {
                self.blamed(&perturbing.invariants, &invariants, &seen.events)
            }
            Outcome::Fail { .. } => {
                let tests: Vec<TestCase> =
                    request.tests.iter().chain(&perturbing.invariants).cloned().collect();
                let results: Vec<TestResult> = results.iter().chain(&invariants).cloned().collect();
                self.blamed(&tests, &results, &seen.events)
            }
            _ => Vec::new(),
        };
        let missed = missed(request, perturbing, reports, &seen);
        let outcome = match (&seen.unreadable, missed.first()) {
            (Some(problem), _) => Outcome::Unresolved {
                reason: format!("the trace of the test's process cannot be read: {problem}"),
            },
            (None, Some(first)) => {
                let more = match missed.len() {
                    1 => String::new(),
                    n => format!(", and {} more", n - 1),
                };
                Outcome::Unresolved {
                    reason: format!("not applied: {} ({}){more}", first.perturbation, first.why),
                }
            }
            (None, None) => shown.clone(),
        };
        let few = perturbing.perturbations.len() <= FEW;
        let perturbed = Perturbed {
            test: request.tests.first().map(|test| test.name.clone()).unwrap_or_default(),
            calls: if few { calls_of(&seen.spans) } else { Vec::new() },
            asked: perturbing.perturbations.clone(),
            shown: (outcome != shown).then_some(shown),
            missed,
            blamed,
            degraded,
            invariants,
        };
        self.leave_seen(request.trial, seen);
        (outcome, perturbed)
    }

    /// Whom failures blame: the adapter knows it, the message names it, or it is the callee of the step.
    fn blamed(&self, tests: &[TestCase], results: &[TestResult], events: &[Event]) -> Vec<String> {
        let mut blamed: Vec<String> = Vec::new();
        let mut add = |name: String| {
            if !blamed.contains(&name) {
                blamed.push(name);
            }
        };
        for event in events {
            if let Event::Blame { actor, .. } = event {
                add(actor.clone());
            }
        }
        // The pattern was checked when the file was read.
        let pattern = Regex::new(&self.application.resilience.blame).ok();
        for result in results {
            let Some(failure) = &result.failure else { continue };
            for text in [&failure.message, &result.output] {
                let found = pattern.iter().flat_map(|pattern| pattern.captures_iter(text));
                found.filter_map(|groups| groups.get(1)).for_each(|name| add(name.as_str().to_owned()));
            }
            let body = tests.iter().find(|test| test.name == result.test).map(|test| &test.body);
            if let (Some(TestBody::Steps(steps)), Ending::Step(number)) = (body, failure.ending)
                && let Some(step) = steps.iter().find(|step| step.number == number)
                && let Ok(uri) = step.url.parse::<http::Uri>()
                && let Ok((callee, _)) =
                    self.application.callee(uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80))
            {
                add(callee.to_string());
            }
        }
        blamed
    }
}

/// What callers saw of the calls that the test led to, in the order of their first attempts.
pub(crate) fn calls_of(spans: &[Span]) -> Vec<CallSeen> {
    let mut calls: Vec<CallSeen> = Vec::new();
    let mut places: BTreeMap<&TargetId, usize> = BTreeMap::new();
    for span in spans {
        let Some(target) = span.target.as_ref().filter(|target| target.is_of_test()) else { continue };
        let (answer, good) = (answer_of(span), !span.failed());
        let next = calls.len();
        let place = *places.entry(target).or_insert(next);
        if place == next {
            let bytes = span.response_bytes;
            calls.push(CallSeen { target: target.clone(), answer, good, attempts: 1, bytes });
        } else {
            let call = &mut calls[place];
            (call.answer, call.good, call.bytes) = (answer, good, span.response_bytes);
            call.attempts += 1;
        }
    }
    calls
}

/// What a caller saw, in words that are the same in the next run: ids and times in a body do not count.
fn answer_of(span: &Span) -> String {
    let mut words: Vec<String> = Vec::new();
    words.extend(span.status.map(|status| status.to_string()));
    words.extend(span.grpc_status.map(|status| format!("grpc {status}")));
    words.extend(span.error.as_ref().map(ToString::to_string));
    match span.payload.as_ref().filter(|_| span.error.is_none()) {
        Some(payload) => {
            let mut hasher = DefaultHasher::new();
            normalise(&String::from_utf8_lossy(&payload.response_body)).hash(&mut hasher);
            words.push(format!("{:08x}", hasher.finish() as u32));
        }
        None => words.push(format!("{} bytes", span.response_bytes)),
    }
    words.join(" ")
}
