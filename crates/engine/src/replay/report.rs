//! The report of a replay: facts only; terminal, JSON and pages show the same.

use std::collections::BTreeMap;

use faultscope_analysis::compare::{Comparison, Difference, Incomparable, Judged, Noise, Place};
use faultscope_model::circumstance::Order;
use faultscope_model::recording::{LeftOut, RecordedRequest, Recording};
use faultscope_model::run::InstanceExit;
use faultscope_model::secrets::{REDACTED, SecretNames};
use faultscope_model::series::GateOutcome;
use faultscope_model::{RunId, Span, TraceId};
use faultscope_store::secrets::Redactor;
use serde::{Deserialize, Serialize};

use super::calls::{CallIndex, CallsSideBySide};
use super::mocks::MockReport;
use crate::drive::{Replay, ReplayedAnswer};
use crate::session::Session;
use crate::trial::FinishedTrial;

/// The result of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// The campaign of the replay.
    pub campaign: String,
    /// The runs, one for each time that the requests were sent.
    pub runs: Vec<RunId>,
    /// The overall verdict.
    pub verdict: ReplayVerdict,
    /// All requests in the order of their start.
    pub requests: Vec<RequestReport>,
    /// Calls from outside that could not be sent again.
    pub left_out: Vec<LeftOut>,
    /// Status, headers and fields that were compared.
    pub compared: usize,
    /// How many of them differ from one replay to the next.
    pub noise: usize,
    /// Where the noise is.
    pub noisy: Vec<NoisyPlaces>,
    /// How late requests were sent.
    pub lag: Lag,
    /// What services used, in the recording and in the replay.
    pub resources: Vec<ResourceRow>,
    /// Orders of concurrent calls that were imposed as recorded.
    #[serde(default)]
    pub orders: Vec<Order>,
    /// Gates that could not impose their order, each with its reason.
    #[serde(default)]
    pub failed_gates: Vec<GateOutcome>,
    /// Instances that ended by themselves during a replay.
    #[serde(default)]
    pub exits: Vec<InstanceExit>,
    /// What was answered from the recording in the place of services that are not deployed.
    #[serde(default)]
    pub mocks: MockReport,
}

/// Collects a report, without secrets.
pub(super) struct ReportBuilder {
    report: ReplayReport,
    redaction: Redaction,
}

/// Hides secrets in what is shown.
struct Redaction {
    names: SecretNames,
    redactor: Redactor,
}

/// The verdict on a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// All answers were the same.
    Reproduced,
    /// Some answers differed.
    Differs,
    /// Some answers could not be compared, and all others were the same.
    NotComparable,
    /// A call to a mocked service had no recorded answer, so no answer shows what it should.
    MockMissed,
}

/// One request of a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestReport {
    /// The recorded trace.
    pub trace: TraceId,
    /// Callee, method and path.
    pub operation: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: RequestVerdict,
    /// What differs, without noise.
    pub differences: Vec<Difference>,
    /// Differences beyond those that are listed.
    pub more: usize,
    /// How long the recorded answer took.
    pub recorded_us: u64,
    /// How long it took in each replay.
    pub replayed_us: Vec<u64>,
    /// The calls that it led to; only for the first requests, and first for those that differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallsSideBySide>,
}

/// The verdict on one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum RequestVerdict {
    /// The same answer.
    Reproduced,
    /// Another answer.
    Differs,
    /// The answers could not be compared.
    NotComparable(Incomparable),
    /// The request was not sent: the replay ended before.
    NotSent,
}

/// Places that differ from one replay to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoisyPlaces {
    /// The operation whose answers have them.
    pub operation: String,
    /// The places, as they are shown.
    pub places: Vec<String>,
}

/// How late requests were sent, over all replays, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lag {
    /// Half of the requests were not later than this.
    pub p50_us: u64,
    /// 99 % were not later.
    pub p99_us: u64,
    /// None was later.
    pub max_us: u64,
    /// Requests that had to wait for the answer to an earlier one, by more than a millisecond.
    pub waited: usize,
}

/// What a service used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceRow {
    /// The service.
    pub service: String,
    /// While the recording was made.
    pub recorded: Option<Usage>,
    /// In the replay, on average.
    pub replayed: Option<Usage>,
    /// By time, while the recording was made.
    #[serde(default)]
    pub recorded_curve: Vec<UsagePoint>,
    /// By time, in the first replay.
    #[serde(default)]
    pub replayed_curve: Vec<UsagePoint>,
}

/// What all instances of a service used at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UsagePoint {
    /// Milliseconds after the first sample.
    pub after_ms: u64,
    /// CPU, in cores.
    pub cores: f64,
    /// The working set, in bytes.
    pub memory_bytes: f64,
}

/// CPU and memory of all instances of a service.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time per request from outside in that time, whatever it was, in milliseconds.
    pub cpu_ms: f64,
    /// The largest working set, in bytes.
    pub memory_bytes: f64,
}

/// One request with its comparison.
pub(super) struct Compared<'a> {
    pub(super) request: &'a RecordedRequest,
    pub(super) comparison: Comparison,
    pub(super) judged: Judged,
    pub(super) replayed: Vec<&'a ReplayedAnswer>,
}

/// Requests whose calls are kept: what a person looks at, and a bound for reports of thousands of requests.
const MAX_WITH_CALLS: usize = 50;

/// A wait that nobody notices.
const UNNOTICED_US: u64 = 1000;

impl ReportBuilder {
    pub(super) fn new(session: &Session, recording: &Recording, finished: &[FinishedTrial]) -> Self {
        let all = finished.iter().flat_map(|trial| &trial.replayed);
        let mut lags: Vec<u64> = all.clone().map(|answer| answer.lag_us).collect();
        lags.sort_unstable();
        let part =
            |share: usize| lags.get(lags.len() * share / 100).or(lags.last()).copied().unwrap_or_default();
        let waited = all.filter(|answer| answer.waited_us > UNNOTICED_US).count();
        let report = ReplayReport {
            campaign: session.id().to_string(),
            runs: finished.iter().map(|trial| trial.run.id.clone()).collect(),
            verdict: ReplayVerdict::Reproduced,
            requests: Vec::new(),
            left_out: recording.left_out.clone(),
            compared: 0,
            noise: 0,
            noisy: Vec::new(),
            lag: Lag { p50_us: part(50), p99_us: part(99), max_us: part(100), waited },
            resources: Vec::new(),
            orders: finished.first().map(|trial| trial.run.circumstance.sequence.clone()).unwrap_or_default(),
            failed_gates: finished
                .iter()
                .flat_map(|trial| &trial.run.evidence.gates)
                .map(|gate| gate.outcome.clone())
                .filter(|outcome| *outcome != GateOutcome::Completed)
                .collect(),
            exits: finished.iter().flat_map(|trial| trial.run.evidence.exits.clone()).collect(),
            mocks: MockReport::default(),
        };
        let redaction = Redaction {
            names: SecretNames::new(&session.application().record.secrets),
            redactor: session.campaign().redactor().clone(),
        };
        let logs = finished.iter().filter_map(|trial| trial.mocked.as_ref());
        let mocks = MockReport::collect(logs, |text| redaction.show(text));
        Self { report: ReplayReport { mocks, ..report }, redaction }
    }

    pub(super) fn add(&mut self, compared: Compared<'_>) {
        let Compared { request, comparison, judged, replayed } = compared;
        let verdict = match comparison.incomparable {
            _ if !judged.differences.is_empty() => RequestVerdict::Differs,
            Some(reason) => RequestVerdict::NotComparable(reason),
            None => RequestVerdict::Reproduced,
        };
        self.report.compared += comparison.compared;
        self.report.noise += judged.noise;
        let differences = judged.differences.into_iter().map(|difference| self.redaction.hide(difference));
        self.report.requests.push(RequestReport {
            trace: request.trace,
            verdict,
            differences: differences.collect(),
            more: comparison.more,
            recorded_us: request.duration_us,
            replayed_us: replayed.iter().map(|answer| answer.duration_us).collect(),
            calls: None,
            operation: self.redaction.show(&request.operation()),
        });
    }

    pub(super) fn add_unanswered(&mut self, request: &RecordedRequest) {
        self.report.requests.push(RequestReport {
            trace: request.trace,
            operation: self.redaction.show(&request.operation()),
            verdict: RequestVerdict::NotSent,
            differences: Vec::new(),
            more: 0,
            recorded_us: request.duration_us,
            replayed_us: Vec::new(),
            calls: None,
        });
    }

    /// Adds the calls behind the first requests, and first of all behind those that differ.
    pub(super) fn add_calls(&mut self, recording: &Recording, recorded: &[Span], replayed: &[Span]) {
        let (recorded, replayed) = (CallIndex::new(recorded), CallIndex::new(replayed));
        let mut wanted: Vec<usize> = (0..self.report.requests.len()).collect();
        wanted.sort_by_key(|&index| self.report.requests[index].verdict == RequestVerdict::Reproduced);
        let show = |text: &str| self.redaction.show(text);
        for index in wanted.into_iter().take(MAX_WITH_CALLS) {
            self.report.requests[index].calls = Some(CallsSideBySide {
                recorded: recorded.below(recording.requests[index].span, &show),
                replayed: replayed.made_by(&Replay::caller_of(index), &show),
            });
        }
    }

    pub(super) fn finish(self, noise: &Noise) -> ReplayReport {
        let Self { mut report, redaction } = self;
        let noisy = noise.places().iter().map(|(operation, places)| NoisyPlaces {
            operation: redaction.show(operation),
            places: places.iter().map(ToString::to_string).collect(),
        });
        report.noisy = noisy.collect();
        report.verdict = if report.mocks.missed > 0 {
            ReplayVerdict::MockMissed
        } else if report.count(|verdict| *verdict == RequestVerdict::Differs) > 0 {
            ReplayVerdict::Differs
        } else if report.count(|verdict| *verdict != RequestVerdict::Reproduced) > 0
            || !report.left_out.is_empty()
            || report.requests.is_empty()
        {
            ReplayVerdict::NotComparable
        } else {
            ReplayVerdict::Reproduced
        };
        report
    }
}

impl ReplayReport {
    /// The number of requests with a verdict.
    pub fn count(&self, wanted: impl Fn(&RequestVerdict) -> bool) -> usize {
        self.requests.iter().filter(|request| wanted(&request.verdict)).count()
    }

    /// The median duration of each operation, in the recording and in the replay.
    pub fn latencies(&self) -> Vec<(String, usize, u64, u64)> {
        let mut by_operation: BTreeMap<&str, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
        for request in &self.requests {
            let (recorded, replayed) = by_operation.entry(&request.operation).or_default();
            recorded.push(request.recorded_us);
            replayed.extend(&request.replayed_us);
        }
        let row = |(operation, (mut recorded, mut replayed)): (&str, (Vec<u64>, Vec<u64>))| {
            let count = recorded.len();
            (operation.to_owned(), count, median(&mut recorded), median(&mut replayed))
        };
        by_operation.into_iter().map(row).collect()
    }
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

impl Redaction {
    fn hide(&self, mut difference: Difference) -> Difference {
        for value in [&mut difference.recorded, &mut difference.replayed].into_iter().flatten() {
            let is_secret = match &difference.place {
                Place::Field(path) => path
                    .name()
                    .is_some_and(|name| self.names.is_secret_field(name, value.trim_matches('"').as_bytes())),
                Place::Header(name) => self.names.is_secret_header(name, value.as_bytes()),
                Place::Status | Place::Body => false,
            };
            *value = if is_secret { REDACTED.to_owned() } else { self.show(value) };
        }
        difference
    }

    fn show(&self, text: &str) -> String {
        self.redactor.text(text).unwrap_or_else(|| text.to_owned())
    }
}
