//! Runs, traces, services and edges as they are shown.

use faultscope_model::metrics::Metric;
use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind, TraceQuery};
use faultscope_model::{CampaignKind, Span};
use serde_json::{Value, json};

use super::{SECOND, Shelf, T, call, put_run, record, sampled, served, trial};
use crate::views::{
    Archive, MetricsWanted, RunTests, ViewError, group_by_caller, list_edges, list_runs, list_services,
    list_traces, show_run, show_run_trace, show_trace,
};

/// A run in which the test asks the front, and the front asks the back in vain.
async fn asked() -> Shelf {
    let shelf = Shelf::new();
    let campaign = shelf.campaign("aa11-1", CampaignKind::Test, 1);
    let failing = Span { status: Some(503), ..call(0xab, 2, Some(1), "back") };
    record(&campaign, 1, [call(0xab, 1, None, "front"), failing, call(0xcd, 3, None, "back")]);
    put_run(&campaign, 1, &[("hello", true), ("again", false)]).await;
    shelf
}

fn nothing() -> MetricsWanted {
    MetricsWanted::default()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn campaigns_are_listed_with_their_runs_newest_first() {
    let shelf = asked().await;
    drop(shelf.campaign("bb22-1", CampaignKind::Debug, 2));
    let listed = list_runs(&shelf.archive(), 10).unwrap();
    let shown: Vec<_> = listed.iter().map(|one| (one.campaign.id.as_str(), one.runs.len())).collect();
    assert_eq!(shown, [("bb22-1", 0), ("aa11-1", 1)]);
    assert_eq!(list_runs(&shelf.archive(), 1).unwrap().len(), 1);
    assert_eq!(keys(&serde_json::to_value(&listed[1]).unwrap()), ["campaign", "runs"]);
    let tests = RunTests::count(&listed[1].runs[0]);
    assert_eq!((tests.all, tests.passed(), tests.failed), (2, 1, vec!["hello".to_owned()]));
}

#[tokio::test]
async fn a_run_has_its_map_its_calls_and_their_trees() {
    let view = show_run(&asked().await.archive(), "aa", &nothing()).unwrap();
    let edges: Vec<_> = view
        .map
        .iter()
        .map(|edge| (edge.caller.as_str(), edge.callee.as_str(), edge.calls, edge.errors))
        .collect();
    assert_eq!(edges, [("test", "back", 2, 1), ("test", "front", 1, 0)]);
    let depths: Vec<_> =
        view.trees.iter().map(|tree| tree.rows.iter().map(|row| row.depth).collect::<Vec<_>>()).collect();
    assert_eq!(depths, [vec![0, 1], vec![0]], "the failing trace comes first");
    // What programs read has these fields, and no others.
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(keys(&json), ["logs", "map", "metrics", "reported", "run", "spans"]);
    assert_eq!(view.missing, crate::views::Missing::default());
}

#[tokio::test]
async fn one_trace_of_a_run_with_or_without_reports() {
    let shelf = asked().await;
    let trace = format!("{:032x}", 0xab);
    let shown = |wanted: &str| show_run_trace(&shelf.archive(), "last", wanted, &nothing());
    let calls = shown(&trace).unwrap();
    assert_eq!((calls.spans.len(), calls.trees.len(), calls.waterfalls.len()), (2, 1, 0));
    let error = shown("zz").unwrap_err();
    assert_eq!(error.to_string(), "the run has no trace `zz`");

    // The front reports its side of the same trace, in this trial and in another one.
    let store = shelf.store();
    let campaign = store.resume(&"aa11-1".parse().unwrap(), Default::default()).unwrap();
    for number in [1, 2] {
        let span = served(0xab, 10 + u64::from(number), Some(1), "front");
        let instance = Some(super::instance("front"));
        assert!(
            campaign
                .sink()
                .report(trial(number), faultscope_model::SlotId(0), instance, vec![span], None)
                .await
        );
    }
    let joined = shown(&trace).unwrap();
    let [waterfall] = &joined.waterfalls[..] else { panic!("{joined:#?}") };
    let labels: Vec<_> = waterfall.rows.iter().map(|row| row.span.as_ref().unwrap().label.as_str()).collect();
    assert_eq!(labels, ["test-1 ─▶ front-1 GET /", "front get", "test-1 ─▶ back-1 GET /"]);
    assert_eq!((waterfall.spans, waterfall.failed), (3, 1));
}

fn of_last_day() -> TraceQuery {
    TraceQuery { end_us: T + SECOND, lookback_us: 86_400 * SECOND, limit: 10, ..TraceQuery::default() }
}

/// The order asks the stock, whose clock is an hour behind, and waits for half a second before.
fn reported() -> Vec<ReportedSpan> {
    let address = |last: u8| Some(std::net::IpAddr::from([10, 0, 0, last]));
    let order = ReportedSpan {
        kind: Some(SpanKind::Client),
        remote: Endpoint { service: Some("stock".into()), ..Endpoint::default() },
        local: Endpoint { service: Some("order".into()), ipv4: address(1), ..Endpoint::default() },
        ..served(0xab, 1, None, "order")
    };
    let stock = ReportedSpan {
        start_us: Some(T - 3600 * SECOND),
        duration_us: Some(SECOND),
        local: Endpoint { service: Some("stock".into()), ipv4: address(2), ..Endpoint::default() },
        tags: vec![("http.status_code".into(), "503".into()), ("error".into(), "no \u{1b}[31mstock".into())],
        ..served(0xab, 2, Some(1), "stock")
    };
    vec![order, stock]
}

#[tokio::test]
async fn traces_are_listed_in_one_line_each() {
    let shelf = Shelf::new();
    let list = list_traces(&shelf.archive(), &of_last_day()).unwrap();
    assert!(list.traces.is_empty() && !list.any_sent);
    shelf.ingest(reported(), Vec::new()).await;
    let list = list_traces(&shelf.archive(), &of_last_day()).unwrap();
    assert_eq!(
        serde_json::to_value(&list).unwrap(),
        json!([{ "id": "00000000000000ab", "start_us": T, "duration_us": 3602 * SECOND, "root": "order get -> stock",
            "spans": 2, "services": 2, "errors": 1 }])
    );
    let narrow = TraceQuery { service: Some("nobody".into()), ..of_last_day() };
    let list = list_traces(&shelf.archive(), &narrow).unwrap();
    assert!(list.traces.is_empty() && list.any_sent, "it is the search that finds nothing");
}

#[tokio::test]
async fn a_rare_service_is_found_behind_many_traces_of_others() {
    let shelf = Shelf::new();
    let calls = ReportedSpan {
        kind: Some(SpanKind::Client),
        remote: Endpoint { service: Some("silent".into()), ..Endpoint::default() },
        ..served(1, 1, None, "rare")
    };
    let others = (2..10_100).map(|trace| served(trace, 1, None, "other"));
    let newest = |span: ReportedSpan| ReportedSpan { start_us: span.start_us.map(|at| at + 1000), ..span };
    shelf.ingest([calls].into_iter().chain(others.map(newest)).collect(), Vec::new()).await;
    let archive = shelf.archive();
    let find = |query: TraceQuery| -> Vec<String> {
        list_traces(&archive, &query).unwrap().traces.into_iter().map(|trace| trace.id).collect()
    };
    let of = |service: &str| TraceQuery { service: Some(service.into()), limit: 5, ..of_last_day() };
    // One that reports, and one that only others report about.
    for service in ["rare", "silent"] {
        assert_eq!(find(of(service)), ["0000000000000001"], "{service}");
    }
    assert_eq!(find(of("other")).len(), 5);
    assert_eq!(find(TraceQuery { name: Some("nothing".into()), ..of("rare") }), [] as [String; 0]);
}

#[tokio::test]
async fn a_trace_is_drawn_with_its_clocks_corrected() {
    let shelf = Shelf::new();
    shelf.ingest(reported(), Vec::new()).await;
    let view = show_trace(&shelf.archive(), "last", false, &nothing()).unwrap();
    let waterfall = &view.waterfall;
    assert_eq!((waterfall.spans, waterfall.failed, waterfall.duration_us), (2, 1, 2 * SECOND));
    let stock = waterfall.rows[1].span.as_ref().unwrap();
    assert_eq!((waterfall.rows[1].depth, waterfall.rows[1].is_last), (1, true));
    assert_eq!(stock.time_us, Some((SECOND / 2, SECOND * 3 / 2)), "in the middle of the client's time");
    assert!(stock.is_shifted && stock.is_critical);
    assert_eq!((stock.status.as_str(), stock.error.as_deref()), ("503", Some("no \u{1b}[31mstock")));
    let shares: Vec<_> = waterfall.slowest.iter().map(|span| (span.label.as_str(), span.share)).collect();
    assert_eq!(shares, [("order get -> stock", 0.5), ("stock get", 0.5)]);

    let raw = show_trace(&shelf.archive(), "last", true, &nothing()).unwrap().waterfall;
    assert_eq!((raw.duration_us, raw.rows[1].span.as_ref().unwrap().is_shifted), (3602 * SECOND, false));
    let json: Value = serde_json::from_slice(&view.to_zipkin().unwrap()).unwrap();
    assert_eq!((&json[0]["id"], json[0].get("metrics")), (&json!("0000000000000001"), None));
}

#[tokio::test]
async fn a_root_that_nobody_reported_has_its_place() {
    let shelf = Shelf::new();
    shelf.ingest(vec![served(0xab, 2, Some(1), "a"), served(0xab, 3, Some(1), "b")], Vec::new()).await;
    let rows = show_trace(&shelf.archive(), "last", false, &nothing()).unwrap().waterfall.rows;
    let shown: Vec<_> = rows.iter().map(|row| (row.depth, row.is_last, row.span.is_some())).collect();
    assert_eq!(shown, [(0, true, false), (1, false, true), (1, true, true)]);
}

#[tokio::test]
async fn services_are_listed_with_what_they_used_last() {
    let shelf = Shelf::new();
    shelf.ingest(reported(), Vec::new()).await;
    let campaign = shelf.campaign("aa11-1", CampaignKind::Test, 1);
    let cpu = |seconds: u64, cores: f64| {
        let values = [(Metric::CpuSeconds, cores), (Metric::MemoryResident, 5.0)];
        sampled("Order", T + seconds * SECOND, &values)
    };
    // What was measured long before is over.
    let ended = sampled("gone", T - 100 * SECOND, &[(Metric::Threads, 1.0)]);
    let samples = [cpu(0, 1.0), cpu(2, 2.0), ended];
    campaign.samples().write(trial(1), faultscope_model::SlotId(0), &samples, &[]).unwrap();
    let listed = list_services(&shelf.archive()).unwrap();
    let names: Vec<_> = listed.iter().map(|line| (line.service.as_str(), line.calls.len())).collect();
    assert_eq!(names, [("order", 1), ("stock", 0)]);
    let used = listed[0].total_use().unwrap();
    assert_eq!(
        (used.instances, used.cores, used.memory, used.at_us),
        (1, Some(0.5), Some(5.0), T + 2 * SECOND)
    );
    assert_eq!(listed[1].total_use(), None);
    let json = serde_json::to_value(&listed).unwrap();
    assert_eq!(keys(&json[0]), ["calls", "metrics", "operations", "service"]);
    assert_eq!((&json[0]["metrics"][0]["instance"], json[1].get("metrics")), (&json!("Order-1"), None));
}

#[tokio::test]
async fn edges_of_traces_have_shares_and_rates() {
    let shelf = Shelf::new();
    shelf.ingest(reported(), Vec::new()).await;
    let edges = list_edges(&shelf.archive(), T + SECOND, 86_400 * SECOND).unwrap();
    let groups = group_by_caller(&edges);
    assert_eq!((groups.len(), groups[0].caller, groups[0].edges[0].child.as_str()), (1, "order", "stock"));
    assert_eq!((edges[0].call_count, edges[0].error_share), (1, 1.0));
    assert!(list_edges(&shelf.archive(), T - SECOND, SECOND).unwrap().is_empty(), "in no other time");
}

#[test]
fn looking_makes_no_folder() {
    let folder = tempfile::TempDir::new().unwrap();
    let state = folder.path().join(".faultscope");
    assert!(matches!(Archive::open(&state, crate::views::Subject::Span), Err(ViewError::NoStore { .. })));
    assert!(!state.exists());
    std::fs::create_dir(&state).unwrap();
    let archive = Archive::open(&state, crate::views::Subject::Span).unwrap();
    assert!(list_traces(&archive, &of_last_day()).unwrap().traces.is_empty());
    assert!(!state.join("campaigns").exists(), "a folder of nothing but spans has no campaigns");
}
