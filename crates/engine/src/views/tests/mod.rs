//! Views of a store in a temporary folder.

mod found;
mod joined;
mod reports;
mod series;
mod shown;

use faultscope_model::metrics::{Kind, Metric, Point, Sample, TimeSeries, Values};
use faultscope_model::outcome::{Ending, Failure, TestResult};
use faultscope_model::run::{Cost, Evidence};
use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{
    CampaignKind, Circumstance, InstanceId, Outcome, Run, SlotId, Span, SpanId, TraceId, Treatment, TrialId,
};
use faultscope_store::spans::{SpanStore, SpanStoreOptions};
use faultscope_store::{Campaign, CampaignMeta, RunRecord, Store};
use tempfile::TempDir;

use super::{Archive, Subject};
use crate::sample;

/// A moment on which nothing depends, in microseconds since 1970.
const T: u64 = 1_700_000_000_000_000;

const SECOND: u64 = 1_000_000;

/// A folder with a store.
struct Shelf {
    folder: TempDir,
}

impl Shelf {
    fn new() -> Self {
        let shelf = Self { folder: TempDir::new().unwrap() };
        shelf.store();
        shelf
    }

    fn state(&self) -> std::path::PathBuf {
        self.folder.path().join(".faultscope")
    }

    fn store(&self) -> Store {
        Store::open(self.state()).unwrap()
    }

    fn archive(&self) -> Archive {
        Archive::open(&self.state(), Subject::Run).unwrap()
    }

    /// A campaign of the shop; later ones are newer.
    fn campaign(&self, id: &str, kind: CampaignKind, started_us: u64) -> Campaign {
        self.campaign_of("shop", id, kind, started_us)
    }

    fn campaign_of(&self, application: &str, id: &str, kind: CampaignKind, started_us: u64) -> Campaign {
        let meta = CampaignMeta {
            id: id.parse().unwrap(),
            kind,
            application: application.into(),
            started_us,
            command_line: vec!["faultscope".into(), kind.to_string()],
            seed: 1,
        };
        self.store().campaign(meta).unwrap()
    }

    /// Takes spans and points in, as `serve` does.
    async fn ingest(&self, spans: Vec<ReportedSpan>, points: Vec<Point>) {
        let store = SpanStore::open(self.state(), SpanStoreOptions::default()).unwrap();
        store.put(spans).unwrap().committed().await.unwrap();
        store.put_points(points).unwrap().committed().await.unwrap();
    }
}

fn trial(number: u32) -> TrialId {
    TrialId::chosen(number)
}

/// Stores a run of the tests that are named, of which some fail.
async fn put_run(campaign: &Campaign, number: u32, tests: &[(&str, bool)]) -> Run {
    let result = |(name, fails): &(&str, bool)| TestResult {
        test: (*name).to_owned(),
        took: std::time::Duration::ZERO,
        failure: fails.then(|| Failure::new(Ending::Step(1), "no")),
        output: String::new(),
    };
    let short = campaign.id().as_str().split('-').next().unwrap();
    let run = Run {
        id: format!("{short}.{}", trial(number).name()).parse().unwrap(),
        trial: trial(number),
        slot: SlotId(0),
        treatment: Treatment::Nothing,
        circumstance: Circumstance::default(),
        outcome: Outcome::Pass,
        evidence: Evidence { tests: tests.iter().map(result).collect(), ..Evidence::default() },
        started_us: T,
        cost: Cost::default(),
        seed: 1,
        retries: 0,
        perturbed: None,
        question: None,
    };
    let json = serde_json::to_string(&run).unwrap();
    let record = RunRecord {
        trial: run.trial,
        id: &run.id,
        outcome: run.outcome.word(),
        started_us: T,
        duration_us: 1,
        json: &json,
    };
    campaign.put_run(record).await.unwrap();
    run
}

/// A call to the first instance of a service.
fn call(trace: u128, id: u64, parent: Option<u64>, callee: &str) -> Span {
    Span {
        trace: TraceId(trace),
        id: SpanId(id),
        parent: parent.map(SpanId),
        callee: callee.parse().unwrap(),
        callee_instance: Some(instance(callee)),
        start_us: T + id,
        ..sample::span()
    }
}

fn record(campaign: &Campaign, number: u32, calls: impl IntoIterator<Item = Span>) {
    let sink = campaign.sink();
    calls.into_iter().for_each(|call| sink.record(trial(number), SlotId(0), call));
}

fn instance(service: &str) -> InstanceId {
    InstanceId::new(service.parse().unwrap(), 1)
}

/// What a server reports of a request.
fn served(trace: u128, id: u64, parent: Option<u64>, service: &str) -> ReportedSpan {
    let local = Endpoint { service: Some(service.into()), ..Endpoint::default() };
    ReportedSpan {
        parent: parent.map(SpanId),
        kind: Some(SpanKind::Server),
        name: "get".into(),
        start_us: Some(T),
        duration_us: Some(2 * SECOND),
        local,
        ..ReportedSpan::new(TraceId(trace), SpanId(id))
    }
}

fn sampled(service: &str, at_us: u64, values: &[(Metric, f64)]) -> Sample {
    let values =
        values.iter().fold(Values::default(), |all, (metric, value)| all.with(*metric, Some(*value)));
    Sample { instance: instance(service), at_us, values }
}

/// Points of one series, at seconds around [`T`].
fn points(
    name: &str,
    service: &str,
    kind: Kind,
    about: &[(&str, &str)],
    values: &[(i64, f64)],
) -> Vec<Point> {
    let series = TimeSeries {
        name: name.into(),
        service: service.into(),
        kind,
        unit: String::new(),
        about: about.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    let point = |(second, value): &(i64, f64)| Point {
        series: series.clone(),
        at_us: T.saturating_add_signed(second * 1_000_000),
        value: *value,
    };
    values.iter().map(point).collect()
}
