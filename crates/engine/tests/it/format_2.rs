//! Campaigns that the last version with format 2 wrote, read by this one.
//!
//! The fixture is what that version left of `debug --boundary` and `resilience` on a shop of two services, with
//! the databases as SQL. One delta makes `order` fail, another keeps it from starting; a repeated call spoils the
//! stock.

use std::fs;
use std::path::{Path, PathBuf};

use faultscope_engine::debug::{self, Document, Verdict};
use faultscope_engine::resilience;
use faultscope_engine::views::{
    Archive, CampaignReport, MetricsWanted, Subject, find_report, list_edges, list_runs, list_traces,
    show_run, show_trace,
};
use faultscope_model::event::Event;
use faultscope_model::outcome::Unresolved;
use faultscope_model::trace::TraceQuery;
use faultscope_model::{Application, CampaignKind, ExitReason, Outcome, Run, Treatment, TrialRole};
use faultscope_store::{FORMAT, Store};
use rusqlite::Connection;

const HOUR_US: u64 = 3_600_000_000;

/// A `.faultscope` folder with both campaigns.
struct Old {
    folder: tempfile::TempDir,
}

impl Old {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let old = Self { folder };
        for name in ["debug", "resilience"] {
            let from = fixture().join(name);
            let meta: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(from.join("campaign.json")).unwrap()).unwrap();
            assert_eq!(meta["format"], 2);
            let to = old.state().join("campaigns").join(meta["id"].as_str().unwrap());
            fs::create_dir_all(&to).unwrap();
            for file in ["campaign.json", "events.jsonl", "report.json"] {
                fs::copy(from.join(file), to.join(file)).unwrap();
            }
            let database = Connection::open(to.join("store.sqlite")).unwrap();
            database.execute_batch(&fs::read_to_string(from.join("store.sql")).unwrap()).unwrap();
        }
        old
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join(".faultscope")
    }

    fn archive(&self) -> Archive {
        Archive::open(&self.state(), Subject::Run).unwrap()
    }

    /// The runs of the campaign of a kind, and how its trials went.
    fn runs(&self, kind: CampaignKind) -> Vec<Run> {
        let listed = list_runs(&self.archive(), 10).unwrap();
        assert_eq!(listed.len(), 2);
        listed.into_iter().find(|listed| listed.campaign.kind == kind).unwrap().runs
    }
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-2")
}

fn of_role(runs: &[Run], role: TrialRole) -> Vec<&Run> {
    runs.iter().filter(|run| run.trial.role == role).collect()
}

#[test]
fn runs_of_a_debug_campaign_are_read() {
    let old = Old::new();
    let runs = old.runs(CampaignKind::Debug);
    assert_eq!(runs.len(), 14);
    let [simplest] = of_role(&runs, TrialRole::CheckSimplest)[..] else { panic!("one check") };
    assert_eq!((&simplest.outcome, &simplest.treatment), (&Outcome::Pass, &Treatment::Nothing));
    let failing = of_role(&runs, TrialRole::CheckFailing);
    assert_eq!(failing.len(), 3);
    for run in failing {
        assert!(matches!(&run.treatment, Treatment::Numbered { numbers } if numbers.len() == 4));
    }
    assert_eq!(of_role(&runs, TrialRole::Boundary).len(), 8);
    let [unresolved, failed] = of_role(&runs, TrialRole::Search)[..] else { panic!("two trials") };
    assert!(matches!(&failed.outcome, Outcome::Fail { .. }), "{:?}", failed.outcome);
    let Outcome::Unresolved { reason } = &unresolved.outcome else { panic!("{:?}", unresolved.outcome) };
    let Unresolved::NotReady { instance, reason } = reason else { panic!("{reason:?}") };
    assert_eq!(instance.to_string(), "order-1");
    assert!(matches!(reason, ExitReason::NotReady { .. }), "{reason:?}");
    assert_eq!(unresolved.evidence.logs[instance], ["no blue without a limit"]);
}

#[test]
fn runs_of_a_resilience_campaign_name_their_perturbations() {
    let runs = Old::new().runs(CampaignKind::Resilience);
    assert_eq!(runs.len(), 14);
    let given: Vec<String> = runs
        .iter()
        .filter(|run| matches!(run.outcome, Outcome::Fail { .. }))
        .flat_map(|run| run.treatment.perturbations())
        .map(ToString::to_string)
        .collect();
    assert!(given.contains(&"duplicate order POST /orders > stock PUT /stock".to_owned()), "{given:?}");
    assert!(given.contains(&"lost_answer order POST /orders > stock PUT /stock".to_owned()), "{given:?}");
    assert!(runs.iter().all(|run| !matches!(run.treatment, Treatment::Numbered { .. })));
    assert!(runs.iter().all(|run| run.perturbed.as_ref().is_some_and(|p| p.test == "order")));
}

#[test]
fn events_are_read() {
    let old = Old::new();
    for campaign in Store::open(old.state()).unwrap().campaigns().unwrap() {
        let log = fs::read_to_string(campaign.folder().join("events.jsonl")).unwrap();
        let events = campaign.events::<Event>(0).unwrap();
        // Which question a trial asked was an event of its own, for resuming alone.
        let gone = log.lines().filter(|line| line.contains("\"kind\":\"question_asked\"")).count();
        assert_eq!(events.skipped, gone, "every other line of {} is read", campaign.meta.id);
        assert_eq!(events.events.len(), log.lines().count() - gone);
    }
}

#[test]
fn reports_are_read() {
    let old = Old::new();
    let store = Store::open(old.state()).unwrap();
    for campaign in store.campaigns().unwrap() {
        match find_report(&store, campaign.meta.id.as_str()).unwrap() {
            CampaignReport::Debug(document) => {
                let Document { report, course, .. } = *document;
                assert_eq!(report.verdict, Verdict::Reduced);
                assert_eq!(report.causes[0].deltas[0].name, "config order.env.LIMIT");
                assert_eq!(
                    report.boundaries[0].describe(),
                    "order.env.LIMIT: fails at 19 and below, passes from 20"
                );
                let sizes: Vec<usize> = course.bars.iter().map(|bar| bar.deltas).take(7).collect();
                assert_eq!(sizes, [0, 4, 4, 4, 2, 1, 1], "how large each trial's set was");
            }
            CampaignReport::Resilience(report) => {
                assert_eq!(report.verdict, resilience::Verdict::Defects);
                assert_eq!(report.tests[0].defects.len(), 2);
            }
            CampaignReport::Replay(_) => panic!("format 2 knew no replays"),
        }
    }
}

#[test]
fn calls_and_traces_are_read() {
    let old = Old::new();
    let archive = old.archive();
    let campaigns = Store::open(old.state()).unwrap().campaigns().unwrap();
    let short = |kind| {
        let campaign = campaigns.iter().find(|campaign| campaign.meta.kind == kind).unwrap();
        campaign.meta.id.as_str().split('-').next().unwrap().to_owned()
    };
    let wanted = format!("{}.check-simplest", short(CampaignKind::Debug));
    let view = show_run(&archive, &wanted, &MetricsWanted::default()).unwrap();
    let calls: Vec<String> =
        view.spans.iter().map(|span| format!("{} {}", span.callee, span.operation())).collect();
    assert_eq!(calls, ["order POST /orders", "stock PUT /stock"]);
    let lost =
        show_run(&archive, &format!("{}.2", short(CampaignKind::Resilience)), &MetricsWanted::default());
    let errors: Vec<String> =
        lost.unwrap().spans.iter().filter_map(|span| Some(span.error.as_ref()?.to_string())).collect();
    assert_eq!(errors, ["closed by callee", "answer lost by a rule"]);

    let end_us = campaigns[0].meta.started_us + HOUR_US;
    let query = TraceQuery { end_us, lookback_us: 2 * HOUR_US, limit: 100, ..TraceQuery::default() };
    let listed = list_traces(&archive, &query).unwrap();
    assert!(listed.traces.len() >= 10, "{}", listed.traces.len());
    let trace = show_trace(&archive, &listed.traces[0].id, false, &MetricsWanted::default()).unwrap();
    assert_eq!(trace.spans.len(), listed.traces[0].spans);
    let edges = list_edges(&archive, end_us, 2 * HOUR_US).unwrap();
    assert!(edges.iter().any(|edge| (edge.parent.as_str(), edge.child.as_str()) == ("order", "stock")));
}

#[test]
fn a_campaign_is_brought_up_once() {
    let old = Old::new();
    let before = old.runs(CampaignKind::Debug);
    for campaign in Store::open(old.state()).unwrap().campaigns().unwrap() {
        let database = Connection::open(campaign.folder().join("store.sqlite")).unwrap();
        let found: u32 = database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(found, FORMAT);
    }
    assert_eq!(old.runs(CampaignKind::Debug), before);
}

#[test]
fn what_was_plain_is_sealed_when_it_is_first_read() {
    let old = Old::new();
    // A log line, a value of the circumstance, a path, the command line.
    let values = ["no blue without a limit", "LIMIT", "/orders", "--boundary"];
    let holds = |value: &str| {
        let campaigns = fs::read_dir(old.state().join("campaigns")).unwrap();
        let files = campaigns.flat_map(|campaign| fs::read_dir(campaign.unwrap().path()).unwrap());
        files
            .map(|file| fs::read(file.unwrap().path()).unwrap())
            .any(|bytes| bytes.windows(value.len()).any(|window| window == value.as_bytes()))
    };
    assert!(values.iter().all(|value| holds(value)));
    let before = old.runs(CampaignKind::Debug);
    // As if it had been killed before its last step.
    for campaign in Store::open(old.state()).unwrap().campaigns().unwrap() {
        let path = campaign.folder().join("campaign.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(&format!("\"format\": {FORMAT}"), "\"format\": 2")).unwrap();
        fs::write(campaign.folder().join("events.tmp1234"), "a torn copy of LIMIT").unwrap();
    }
    assert_eq!(old.runs(CampaignKind::Debug), before);
    for campaign in Store::open(old.state()).unwrap().campaigns().unwrap() {
        assert!(campaign.events::<Event>(0).unwrap().events.len() > 10);
        assert!(campaign.meta.command_line.len() > 1);
    }
    let left: Vec<_> = values.iter().filter(|value| holds(value)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_unfinished_campaign_of_format_2_is_not_gone_on_with() {
    let old = Old::new();
    let store = Store::open(old.state()).unwrap();
    let text = fs::read_to_string(fixture().join("faultscope.yaml")).unwrap();
    let application = Application::read_alone(&text, "faultscope.yaml").unwrap();
    let refused = debug::unfinished(&store, &application, None).unwrap_err().to_string();
    assert!(refused.ends_with("there is no unfinished debug campaign of `shop`"), "{refused}");
}
