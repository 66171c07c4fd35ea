//! The store as other crates use it: write, read back, kill, look up, remove.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use faultscope_model::log::{InstanceLog, LogLine};
use faultscope_model::span::{Parentage, Payload, Span, Wire};
use faultscope_model::{CampaignKind, InstanceId, NodeId, RunId, SlotId, SpanId, TraceId, TrialId};
use faultscope_store::secrets::{KeyPlace, SecretOptions};
use faultscope_store::{CampaignMeta, CampaignOptions, RunRecord, Store};

mod at_rest;
mod folder;
mod round_trip;
mod secrets;
mod upkeep;

/// A plain span, the `n`th of its campaign; ten make a trace.
fn span(n: u64) -> Span {
    Span {
        trace: TraceId(u128::from(n / 10 + 1) << 70 | u128::from(n / 10 + 1)),
        id: SpanId(n + 1),
        parent: (!n.is_multiple_of(10)).then_some(SpanId(n)),
        parentage: Parentage::Propagated,
        caller: InstanceId::new("order".parse().unwrap(), 1 + (n % 3) as u32),
        caller_node: NodeId(0),
        callee: "stock".parse().unwrap(),
        callee_instance: Some(InstanceId::new("stock".parse().unwrap(), 2)),
        callee_node: NodeId(1),
        port: 8081,
        wire: Wire::Http1,
        method: "GET".to_owned(),
        path: format!("/items/{}", n % 50),
        start_us: 1_700_000_000_000_000 + n * 100,
        duration_us: n % 1000,
        first_byte_us: Some(40),
        request_bytes: 0,
        response_bytes: 512,
        status: Some(if n.is_multiple_of(100) { 503 } else { 200 }),
        grpc_status: None,
        error: None,
        rules: Vec::new(),
        target: None,
        extent: Default::default(),
        payload: None,
    }
}

fn meta(id: &str, started_us: u64) -> CampaignMeta {
    CampaignMeta {
        id: id.parse().unwrap(),
        kind: CampaignKind::Test,
        application: "shop".to_owned(),
        started_us,
        command_line: vec!["faultscope".to_owned(), "test".to_owned()],
        seed: u64::MAX,
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join(".faultscope")).unwrap();
    (folder, store)
}

#[test]
fn ten_thousand_spans_come_back() {
    let (_folder, store) = store();
    let campaign = store.campaign(meta("7f3a-1", 1)).unwrap();
    let sink = campaign.sink();
    // Two trials at once, as two slots write them.
    for n in 0..10_000 {
        sink.record(TrialId::chosen(1 + (n % 2) as u32), SlotId((n % 2) as u16), span(n));
    }
    campaign.flush_blocking().unwrap();
    assert_eq!((sink.recorded(), sink.dropped()), (10_000, 0));

    let reader = campaign.reader().unwrap();
    let even: Vec<Span> = (0..10_000).filter(|n| n % 2 == 0).map(span).collect();
    assert_eq!(reader.spans_of(TrialId::chosen(1)).unwrap(), even);
    assert_eq!(reader.spans_of(TrialId::chosen(2)).unwrap().len(), 5_000);
    assert_eq!(reader.spans_of(TrialId::chosen(3)).unwrap(), []);
    assert_eq!(reader.spans_of_trace(span(25).trace).unwrap(), (20..30).map(span).collect::<Vec<_>>());
    assert_eq!(reader.spans_of_trace(TraceId(3)).unwrap(), [], "the high half of a trace id counts");

    let edges = reader.edges(None).unwrap();
    assert_eq!(edges.len(), 1);
    let edge = &edges[0];
    assert_eq!((edge.caller.as_str(), edge.callee.as_str()), ("order", "stock"));
    assert_eq!((edge.calls, edge.errors, edge.p50_us, edge.p99_us), (10_000, 100, 499, 989));
    let one = &reader.edges(Some(TrialId::chosen(2))).unwrap()[0];
    assert_eq!((one.calls, one.errors), (5_000, 0));
}

#[tokio::test]
async fn runs_logs_events_and_report() {
    let (_folder, store) = store();
    let campaign = store.campaign(meta("7f3a-1", 1)).unwrap();
    let ids: Vec<RunId> = (1..=3).map(|n| format!("7f3a.{n}").parse().unwrap()).collect();
    for (n, id) in ids.iter().enumerate().rev() {
        let trial = TrialId::chosen(n as u32 + 1);
        let run = RunRecord { trial, id, outcome: "fail", started_us: 5, duration_us: 6, json: "{\"x\":1}" };
        campaign.put_run(run).await.unwrap();
    }
    let again = RunRecord {
        trial: TrialId::chosen(2),
        id: &ids[1],
        outcome: "pass",
        started_us: 5,
        duration_us: 6,
        json: "{}",
    };
    campaign.put_run(again).await.unwrap();
    let line = |at_us| LogLine { at_us, text: "line".into() };
    let log = InstanceLog {
        instance: "order-2".parse().unwrap(),
        lines: (1..=200_000).map(line).collect(),
        dropped: 1,
    };
    campaign.put_log(TrialId::chosen(1), log.clone()).unwrap();
    campaign.events().append(9, serde_json::json!({"kind": "note", "text": "x"})).unwrap();
    campaign.put_report(&vec![1, 2]).unwrap();
    campaign.flush().await.unwrap();

    let found = store.find_campaign("7f3a").unwrap();
    let reader = found.reader().unwrap();
    let run = reader.run(&ids[1]).unwrap().unwrap();
    assert_eq!((run.trial, run.outcome.as_str(), run.json.as_str()), (TrialId::chosen(2), "pass", "{}"));
    assert!(found.is_live());
    let trials: Vec<u32> = reader.runs().unwrap().iter().map(|run| run.trial.number).collect();
    assert_eq!(trials, [1, 2, 3]);
    let logs = reader.logs_of(TrialId::chosen(1)).unwrap();
    let [kept] = &logs[..] else { panic!("{} logs", logs.len()) };
    assert_eq!(kept.instance, log.instance);
    assert!(kept.bytes() <= 257 << 10 && kept.lines.len() > 50_000, "the end of a long log is kept");
    assert_eq!(kept.lines.last(), log.lines.last());
    assert_eq!(kept.dropped + kept.lines.len() as u64, 200_001);
    assert_eq!(found.events::<serde_json::Value>(0).unwrap().events[0].at_us, 9);
    assert_eq!(found.report::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
    assert_eq!(reader.run(&"7f3a.99".parse().unwrap()).unwrap(), None);
}

#[tokio::test]
async fn a_trial_is_forgotten_and_its_neighbours_stay() {
    let (folder, store) = store();
    let key = Some(KeyPlace::at(folder.path().join("secrets.key")));
    let secrets = SecretOptions { key, ..SecretOptions::default() };
    let options = CampaignOptions { secrets, ..CampaignOptions::default() };
    let campaign = store.campaign_with(meta("aa11-1", 1), options).unwrap();
    let (spoiled, other) = (TrialId::chosen(1), TrialId::chosen(2));
    let record = |trial, n: u64| {
        let mut span = span(n);
        let secret = ("Authorization".to_owned(), format!("Bearer {n}-very-secret"));
        span.payload = Some(Box::new(Payload { request_headers: vec![secret], ..Payload::default() }));
        campaign.sink().record(trial, SlotId(0), span);
    };
    // One part is committed when it is forgotten, another waits in the same batch.
    (0..50).for_each(|n| record(if n % 2 == 0 { spoiled } else { other }, n));
    let instance = "a-1".parse().unwrap();
    campaign.put_log(spoiled, InstanceLog { instance, lines: Vec::new(), dropped: 3 }).unwrap();
    campaign.flush().await.unwrap();
    (50..100).for_each(|n| record(if n % 2 == 0 { spoiled } else { other }, n));
    campaign.forget(spoiled, u64::MAX).await.unwrap();
    record(spoiled, 100);
    campaign.flush().await.unwrap();
    let reader = campaign.reader().unwrap();
    let ids = |trial| reader.spans_of(trial).unwrap().into_iter().map(|span| span.id.0).collect::<Vec<_>>();
    assert_eq!(ids(spoiled), [span(100).id.0]);
    assert_eq!(ids(other), (0..100).filter(|n| n % 2 == 1).map(|n| span(n).id.0).collect::<Vec<_>>());
    assert_eq!(reader.span_count().unwrap(), 51);
    assert!(reader.logs_of(spoiled).unwrap().is_empty());
    let database = rusqlite::Connection::open(campaign.folder().join("store.sqlite")).unwrap();
    let sealed: u32 = database.query_row("SELECT count(*) FROM secrets", [], |row| row.get(0)).unwrap();
    assert_eq!(sealed, 51, "secrets go with their calls");
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (_folder, store) = store();
    let options = CampaignOptions { queued_spans: 10, ..CampaignOptions::default() };
    let campaign = store.campaign_with(meta("7f3a-1", 1), options).unwrap();
    let sink = campaign.sink();
    for n in 0..50_000 {
        sink.record(TrialId::chosen(1), SlotId(0), span(n));
    }
    campaign.flush_blocking().unwrap();
    assert!(sink.dropped() > 0);
    assert_eq!(sink.recorded() + sink.dropped(), 50_000);
    assert_eq!(campaign.reader().unwrap().span_count().unwrap(), sink.recorded());
    drop(campaign);
    let before = sink.dropped();
    sink.record(TrialId::chosen(1), SlotId(0), span(1));
    assert_eq!(sink.dropped(), before + 1, "a sink outlives its campaign");

    let options = CampaignOptions { queued_bytes: 1000, ..CampaignOptions::default() };
    let campaign = store.campaign_with(meta("7f3b-1", 1), options).unwrap();
    let payload = Payload { request_body: vec![0; 2000], ..Payload::default() };
    let large = Span { payload: Some(Box::new(payload)), ..span(1) };
    campaign.sink().record(TrialId::chosen(1), SlotId(0), large);
    assert_eq!(campaign.dropped(), 1);
}

/// Not a test by itself: the child that [`flushed_spans_survive_a_kill`] starts and kills.
#[test]
#[ignore = "started by another test"]
fn child_that_writes_until_killed() {
    let folder =
        std::env::var("FAULTSCOPE_TEST_FOLDER").expect("another test starts this one and names a folder");
    let folder = Path::new(&folder);
    let campaign = Store::open(folder.join(".faultscope")).unwrap().campaign(meta("dead-1", 1)).unwrap();
    let sink = campaign.sink();
    // It ends by itself in the end, should nobody live to kill it.
    for n in 0..5_000_000 {
        sink.record(TrialId::chosen(1), SlotId(0), span(n));
        if n % 700 == 699 {
            campaign.flush_blocking().unwrap();
            campaign.events().append(n + 1, "flushed").unwrap();
        }
    }
}

#[test]
fn flushed_spans_survive_a_kill() {
    let (folder, store) = store();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_until_killed", "--ignored"])
        .env("FAULTSCOPE_TEST_FOLDER", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let flushed = || {
        let campaign = store.find_campaign("dead").ok()?;
        Some(campaign.events::<String>(0).ok()?.events.last()?.at_us)
    };
    // Reading works while the child writes.
    while flushed().is_none_or(|n| n < 5_000) {
        assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let campaign = store.find_campaign("dead").unwrap();
    assert!(campaign.is_live());
    assert!(campaign.reader().unwrap().span_count().unwrap() >= 5_000);
    child.kill().unwrap();
    child.wait().unwrap();

    let promised = flushed().unwrap();
    assert!(!campaign.is_live());
    let spans = campaign.reader().unwrap().spans_of(TrialId::chosen(1)).unwrap();
    assert!(spans.len() as u64 >= promised, "{} of {promised}", spans.len());
    assert!(spans.iter().zip(0..).all(|(found, n)| *found == span(n)));
}
