//! The store as other crates use it: write, read back, kill, look up, remove.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use faultscope_model::span::{Parentage, Payload, Span, Wire};
use faultscope_model::{InstanceId, NodeId, RunId, SlotId, SpanId, TraceId, TrialId};
use faultscope_store::{
    CampaignMeta, CampaignOptions, Retention, RunRecord, Store, StoreErrorKind, new_campaign_id,
};
use proptest::prelude::*;

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
        payload: None,
    }
}

fn meta(id: &str, started_us: u64) -> CampaignMeta {
    CampaignMeta {
        id: id.parse().unwrap(),
        kind: "test".to_owned(),
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
        sink.record(TrialId(1 + n % 2), SlotId((n % 2) as u16), span(n));
    }
    campaign.flush_blocking().unwrap();
    assert_eq!((sink.recorded(), sink.dropped()), (10_000, 0));

    let reader = campaign.reader().unwrap();
    let even: Vec<Span> = (0..10_000).filter(|n| n % 2 == 0).map(span).collect();
    assert_eq!(reader.spans_of(TrialId(1)).unwrap(), even);
    assert_eq!(reader.spans_of(TrialId(2)).unwrap().len(), 5_000);
    assert_eq!(reader.spans_of(TrialId(3)).unwrap(), []);
    assert_eq!(
        reader.spans_of_trace(span(25).trace).unwrap(),
        (20..30).map(span).collect::<Vec<_>>()
    );
    assert_eq!(
        reader.spans_of_trace(TraceId(3)).unwrap(),
        [],
        "the high half of a trace id counts"
    );

    let edges = reader.edges(None).unwrap();
    assert_eq!(edges.len(), 1);
    let edge = &edges[0];
    assert_eq!((edge.caller.as_str(), edge.callee.as_str()), ("order", "stock"));
    assert_eq!(
        (edge.calls, edge.errors, edge.p50_us, edge.p99_us),
        (10_000, 100, 499, 989)
    );
    let one = &reader.edges(Some(TrialId(2))).unwrap()[0];
    assert_eq!((one.calls, one.errors), (5_000, 0));
}

#[tokio::test]
async fn runs_logs_events_and_report() {
    let (_folder, store) = store();
    let campaign = store.campaign(meta("7f3a-1", 1)).unwrap();
    let ids: Vec<RunId> = (1..=3).map(|n| format!("7f3a.{n}").parse().unwrap()).collect();
    for (n, id) in ids.iter().enumerate().rev() {
        let trial = TrialId(n as u64 + 1);
        let run = RunRecord {
            trial,
            id,
            outcome: "fail",
            started_us: 5,
            duration_us: 6,
            json: "{\"x\":1}",
        };
        campaign.put_run(run).await.unwrap();
    }
    let again = RunRecord {
        trial: TrialId(2),
        id: &ids[1],
        outcome: "pass",
        started_us: 5,
        duration_us: 6,
        json: "{}",
    };
    campaign.put_run(again).await.unwrap();
    campaign
        .put_log(TrialId(1), &"order-2".parse().unwrap(), &"line\n".repeat(200_000))
        .unwrap();
    campaign
        .events()
        .append(9, serde_json::json!({"kind": "note", "text": "x"}))
        .unwrap();
    campaign.put_report(&vec![1, 2]).unwrap();
    campaign.flush().await.unwrap();

    let (found, run) = store.run_by(&ids[1]).unwrap();
    assert_eq!(
        (run.trial, run.outcome.as_str(), run.json.as_str()),
        (TrialId(2), "pass", "{}")
    );
    assert!(found.is_live());
    let reader = found.reader().unwrap();
    let trials: Vec<u64> = reader.runs().unwrap().iter().map(|run| run.trial.0).collect();
    assert_eq!(trials, [1, 2, 3]);
    let logs = reader.logs_of(TrialId(1)).unwrap();
    assert_eq!(
        (
            logs.len(),
            logs[0].text.len(),
            logs[0].instance.to_string().as_str()
        ),
        (1, 256 << 10, "order-2")
    );
    assert_eq!(found.events::<serde_json::Value>(0).unwrap().events[0].at_us, 9);
    assert_eq!(found.report::<Vec<u32>>().unwrap(), Some(vec![1, 2]));
    let missing = store.run_by(&"7f3a.99".parse().unwrap()).unwrap_err();
    assert_eq!(missing.kind, StoreErrorKind::NotFound);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let (_folder, store) = store();
    let options = CampaignOptions {
        queued_spans: 10,
        ..CampaignOptions::default()
    };
    let campaign = store.campaign_with(meta("7f3a-1", 1), options).unwrap();
    let sink = campaign.sink();
    for n in 0..50_000 {
        sink.record(TrialId(1), SlotId(0), span(n));
    }
    campaign.flush_blocking().unwrap();
    assert!(sink.dropped() > 0);
    assert_eq!(sink.recorded() + sink.dropped(), 50_000);
    assert_eq!(campaign.reader().unwrap().span_count().unwrap(), sink.recorded());
    drop(campaign);
    let before = sink.dropped();
    sink.record(TrialId(1), SlotId(0), span(1));
    assert_eq!(sink.dropped(), before + 1, "a sink outlives its campaign");

    let options = CampaignOptions {
        queued_bytes: 1000,
        ..CampaignOptions::default()
    };
    let campaign = store.campaign_with(meta("7f3b-1", 1), options).unwrap();
    let payload = Payload {
        request_body: vec![0; 2000],
        ..Payload::default()
    };
    let large = Span {
        payload: Some(Box::new(payload)),
        ..span(1)
    };
    campaign.sink().record(TrialId(1), SlotId(0), large);
    assert_eq!(campaign.dropped(), 1);
}

#[test]
fn campaigns_are_found_by_prefix_and_removed_by_age() {
    let (_folder, store) = store();
    for (id, started) in [("aa11-1", 3), ("aa22-1", 1), ("bb33-1", 2)] {
        let mut campaign = store.campaign(meta(id, started)).unwrap();
        campaign.keep(id == "aa22-1").unwrap();
    }
    let ids = |store: &Store| -> Vec<String> {
        store
            .campaigns()
            .unwrap()
            .iter()
            .map(|campaign| campaign.meta.id.to_string())
            .collect()
    };
    assert_eq!(ids(&store), ["aa11-1", "bb33-1", "aa22-1"]);
    assert_eq!(store.campaign_by("bb").unwrap().meta, meta("bb33-1", 2));
    for (prefix, kind) in [
        ("aa", StoreErrorKind::Ambiguous),
        ("cc", StoreErrorKind::NotFound),
        ("", StoreErrorKind::Invalid),
        ("../x", StoreErrorKind::Invalid),
    ] {
        assert_eq!(store.campaign_by(prefix).unwrap_err().kind, kind, "{prefix}");
    }
    let ambiguous = store.campaign_by("aa").unwrap_err();
    assert_eq!(ambiguous.source.to_string(), "`aa` may be `aa11-1`, `aa22-1`");
    assert_eq!(
        store.campaign(meta("aa11-1", 9)).unwrap_err().kind,
        StoreErrorKind::InUse
    );

    let live = store.campaign(meta("cc44-1", 0)).unwrap();
    assert_eq!(store.remove(live.id()).unwrap_err().kind, StoreErrorKind::InUse);
    let removed = store
        .retain(Retention {
            most_campaigns: Some(2),
            ..Retention::default()
        })
        .unwrap();
    assert_eq!(
        removed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["bb33-1", "aa11-1"]
    );
    assert_eq!(ids(&store), ["aa22-1", "cc44-1"], "kept and living ones stay");
    drop(live);
    store.remove(&"aa22-1".parse().unwrap()).unwrap();
    assert_eq!(ids(&store), ["cc44-1"]);
}

#[test]
fn damage_is_an_error_of_its_kind() {
    let (folder, store) = store();
    drop(store.campaign(meta("aa11-1", 1)).unwrap());
    let campaign = folder.path().join(".faultscope/campaigns/aa11-1");
    let kind_of = |file: &str, text: &str| {
        let path = campaign.join(file);
        let before = std::fs::read(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        let found = store
            .campaign_by("aa")
            .and_then(|c| c.reader())
            .map(|_| ())
            .map_err(|error| error.kind);
        std::fs::write(&path, before).unwrap();
        found
    };
    assert_eq!(
        kind_of("campaign.json", "{\"format\": 99}"),
        Err(StoreErrorKind::Newer)
    );
    assert_eq!(
        kind_of("campaign.json", "{\"format\": 1}"),
        Err(StoreErrorKind::Damaged)
    );
    assert_eq!(kind_of("campaign.json", "nonsense"), Err(StoreErrorKind::Damaged));
    assert_eq!(
        kind_of("store.sqlite", &"not a database ".repeat(100)),
        Err(StoreErrorKind::Damaged)
    );
    assert_eq!(kind_of("store.sqlite", ""), Err(StoreErrorKind::Damaged));
    assert_eq!(kind_of("events.jsonl", "x"), Ok(()));
    assert!(store.campaigns().unwrap().len() == 1);

    std::fs::write(folder.path().join("file"), "x").unwrap();
    assert_eq!(
        Store::open(folder.path().join("file")).unwrap_err().kind,
        StoreErrorKind::Damaged
    );
    assert_eq!(
        Store::open(folder.path().join("no/such")).unwrap_err().kind,
        StoreErrorKind::NotFound
    );
}

/// Not a test by itself: the child that [`flushed_spans_survive_a_kill`] starts and kills.
#[test]
#[ignore = "started by another test"]
fn child_that_writes_until_killed() {
    let Ok(folder) = std::env::var("FAULTSCOPE_TEST_FOLDER") else {
        return;
    };
    let folder = Path::new(&folder);
    let campaign = Store::open(folder.join(".faultscope"))
        .unwrap()
        .campaign(meta("dead-1", 1))
        .unwrap();
    let sink = campaign.sink();
    // It ends by itself in the end, should nobody live to kill it.
    for n in 0..5_000_000 {
        sink.record(TrialId(1), SlotId(0), span(n));
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
        let campaign = store.campaign_by("dead").ok()?;
        Some(campaign.events::<String>(0).ok()?.events.last()?.at_us)
    };
    // Reading works while the child writes.
    while flushed().is_none_or(|n| n < 5_000) {
        assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let campaign = store.campaign_by("dead").unwrap();
    assert!(campaign.is_live());
    assert!(campaign.reader().unwrap().span_count().unwrap() >= 5_000);
    child.kill().unwrap();
    child.wait().unwrap();

    let promised = flushed().unwrap();
    assert!(!campaign.is_live());
    let spans = campaign.reader().unwrap().spans_of(TrialId(1)).unwrap();
    assert!(spans.len() as u64 >= promised, "{} of {promised}", spans.len());
    assert!(spans.iter().zip(0..).all(|(found, n)| *found == span(n)));
}

#[test]
fn two_processes_get_different_ids() {
    let ids: std::collections::BTreeSet<String> = (0..1000).map(|n| new_campaign_id(n).to_string()).collect();
    assert_eq!(ids.len(), 1000);
    assert!(
        ids.iter()
            .all(|id| id.split('-').next().is_some_and(|short| short.len() == 4))
    );
}

fn any_span() -> impl Strategy<Value = Span> {
    let name = || "[a-z][a-z0-9_.-]{0,62}".prop_map(|text: String| text.parse().unwrap());
    let instance =
        move || (name(), any::<u32>()).prop_map(|(service, ordinal)| InstanceId::new(service, ordinal));
    let wire = prop::sample::select(vec![
        Wire::Http1,
        Wire::Http2,
        Wire::WebSocket,
        Wire::Tcp,
        Wire::Tls,
    ]);
    let parentage = prop::sample::select(vec![
        Parentage::Root,
        Parentage::Propagated,
        Parentage::Inferred,
        Parentage::Unknown,
    ]);
    let headers = || prop::collection::vec((any::<String>(), any::<String>()), 0..3);
    let body = || prop::collection::vec(any::<u8>(), 0..20);
    let payload = prop::option::of((headers(), headers(), body(), body()).prop_map(|parts| {
        let (request_headers, response_headers, request_body, response_body) = parts;
        Box::new(Payload {
            request_headers,
            response_headers,
            request_body,
            response_body,
        })
    }));
    let ids = (
        any::<u128>(),
        any::<u64>(),
        prop::option::of(any::<u64>()),
        parentage,
    );
    let ends = (
        instance(),
        any::<u16>(),
        name(),
        prop::option::of(instance()),
        any::<u16>(),
        any::<u16>(),
    );
    let words = (
        wire,
        any::<String>(),
        any::<String>(),
        prop::option::of(any::<String>()),
    );
    let times = (
        any::<u64>(),
        any::<u64>(),
        prop::option::of(any::<u64>()),
        any::<u64>(),
        any::<u64>(),
    );
    let ending = (
        prop::option::of(any::<u16>()),
        prop::option::of(any::<u16>()),
        prop::collection::vec(any::<u32>(), 0..4),
    );
    (ids, ends, words, times, ending, payload).prop_map(|(ids, ends, words, times, ending, payload)| Span {
        trace: TraceId(ids.0),
        id: SpanId(ids.1),
        parent: ids.2.map(SpanId),
        parentage: ids.3,
        caller: ends.0,
        caller_node: NodeId(ends.1),
        callee: ends.2,
        callee_instance: ends.3,
        callee_node: NodeId(ends.4),
        port: ends.5,
        wire: words.0,
        method: words.1,
        path: words.2,
        start_us: times.0,
        duration_us: times.1,
        first_byte_us: times.2,
        request_bytes: times.3,
        response_bytes: times.4,
        status: ending.0,
        grpc_status: ending.1,
        error: words.3,
        rules: ending.2,
        payload,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_span_comes_back_as_it_was(mut spans in prop::collection::vec(any_span(), 1..10), trial: u64) {
        let (_folder, store) = store();
        let campaign = store.campaign(meta("aa11-1", 1)).unwrap();
        for span in &spans {
            campaign.sink().record(TrialId(trial), SlotId(u16::MAX), span.clone());
        }
        campaign.flush_blocking().unwrap();
        spans.sort_by_key(|span| (span.start_us, span.id));
        let reader = campaign.reader().unwrap();
        prop_assert_eq!(&reader.spans_of(TrialId(trial)).unwrap(), &spans);
        let first = &spans[0];
        prop_assert!(reader.spans_of_trace(first.trace).unwrap().contains(first));
    }
}
