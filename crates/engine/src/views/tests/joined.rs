//! Metrics beside the spans they belong to, as of the start of each.

use faultscope_model::metrics::{Kind, Metric, Point};
use faultscope_model::{CampaignKind, SlotId};
use serde_json::{Value, json};

use super::{SECOND, Shelf, T, call, points, put_run, record, sampled, served, trial};
use crate::views::{MetricsWanted, Missing, RunView, TraceView, UseSource, show_run, show_trace};

fn wanted(usage: bool, series: &[&str]) -> MetricsWanted {
    MetricsWanted { usage, series: series.iter().map(|name| name.parse().unwrap()).collect() }
}

/// What the SDK for Python sends of a process, with metrics of its own.
fn process(instance: &str, megabytes: f64) -> Vec<Point> {
    let own = ("service.instance.id", instance);
    let cpu = |kind| [own, ("type", kind)];
    let orders = |kind| [own, ("kind", kind)];
    let memory = [(-20, 1.0), (-5, megabytes * 1_048_576.0), (1, 2.0)];
    [
        points("process.cpu.time", "Front", Kind::Counter, &cpu("user"), &[(-20, 1.0), (-5, 4.0)]),
        points("process.cpu.time", "Front", Kind::Counter, &cpu("system"), &[(-20, 0.0), (-5, 1.5)]),
        points("process.memory.usage", "Front", Kind::Gauge, &[own], &memory),
        points("process.thread.count", "Front", Kind::Gauge, &[own], &[(-5, 7.0)]),
        points("db.connections", "Front", Kind::Gauge, &[own], &[(-150, 1.0), (-90, 42.0), (1, 99.0)]),
        points("forgotten", "Front", Kind::Gauge, &[own], &[(-121, 1.0)]),
        points("orders", "Front", Kind::Delta, &orders("pay"), &[(-15, 1.0), (-5, 20.0)]),
        points("orders", "Front", Kind::Delta, &orders("ask"), &[(-15, 1.0), (-5, 5.0)]),
    ]
    .concat()
}

/// `front-a` asks `stock` and `pay`; of `pay` there are two, and the span does not say which.
async fn sent() -> Shelf {
    let shelf = Shelf::new();
    let mut front = served(0xabcd, 1, None, "front");
    front.tags.push(("service.instance.id".into(), "front-a".into()));
    let spans = vec![front, served(0xabcd, 2, Some(1), "STOCK"), served(0xabcd, 3, Some(1), "pay")];
    let scraped = [("service.instance.id", "127.0.0.1:9")];
    let stock = [
        points("process_cpu_seconds_total", "stock", Kind::Counter, &scraped, &[(-10, 100.0), (0, 105.0)]),
        points("process_resident_memory_bytes", "stock", Kind::Gauge, &scraped, &[(0, 52_428_800.0)]),
    ];
    let pay = ["one", "two"].map(|name| {
        points("process.thread.count", "pay", Kind::Gauge, &[("service.instance.id", name)], &[(-5, 3.0)])
    });
    let all = [process("front-a", 40.0), process("front-b", 80.0), stock.concat(), pay.concat()];
    shelf.ingest(spans, all.concat()).await;
    shelf
}

async fn trace_with(metrics: &MetricsWanted) -> TraceView {
    show_trace(&sent().await.archive(), "abcd", false, metrics).unwrap()
}

#[tokio::test]
async fn what_instances_used_is_joined_as_of_the_start() {
    let view = trace_with(&wanted(true, &[])).await;
    let [Some(front), Some(stock), None] = &view.known[..] else { panic!("{:#?}", view.known) };
    assert_eq!((front.instance.as_deref(), front.source), (Some("front-a"), Some(UseSource::Reported)));
    let used = front.used.unwrap();
    assert_eq!((used.age_us, used.values.get(Metric::MemoryResident)), (5 * SECOND, Some(41_943_040.0)));
    assert!((used.cpu_cores.unwrap() - 0.3).abs() < 1e-9, "{used:?}");
    assert_eq!((stock.used.unwrap().age_us, stock.used.unwrap().cpu_cores), (0, Some(0.5)));
    assert_eq!(view.missing.series, [""; 0]);
    // The drawing has the same beside its rows.
    let drawn: Vec<_> =
        view.waterfall.rows.iter().map(|row| row.span.as_ref().unwrap().known.clone()).collect();
    assert_eq!(drawn, view.known);

    let json: Value = serde_json::from_slice(&view.to_zipkin().unwrap()).unwrap();
    let metrics = &json[0]["metrics"];
    assert_eq!((&metrics["instance"], &metrics["source"]), (&json!("front-a"), &json!("told")));
    assert_eq!(
        metrics["values"],
        json!({ "cpu.seconds": 5.5, "memory.resident": 41_943_040.0, "threads": 7.0 })
    );
    assert_eq!(json[2].get("metrics"), None);
}

#[tokio::test]
async fn series_are_joined_by_name_and_label() {
    let view = trace_with(&wanted(false, &["db.connections", "orders{kind=pay}"])).await;
    let [Some(front), None, None] = &view.known[..] else { panic!("{:#?}", view.known) };
    assert_eq!((front.source, front.used), (None, None), "what it used was not asked for");
    let [connections, orders] = &front.series[..] else { panic!("{front:#?}") };
    assert_eq!((connections.value, connections.age_us), (Some(42.0), 90 * SECOND));
    assert_eq!((orders.per_second, orders.value, orders.labels["kind"].as_str()), (Some(2.0), None, "pay"));
    let missing =
        Missing { services: ["front", "pay", "stock"].map(str::to_owned).into(), ..Missing::default() };
    assert_eq!(view.missing, missing);
}

#[tokio::test]
async fn what_is_too_old_or_unknown_is_missing() {
    let view = trace_with(&wanted(true, &["forgotten", "threads"])).await;
    assert_eq!((view.missing.usage, &view.missing.series[..]), (false, &["forgotten".to_owned()][..]));
    // Nothing is looked up where nothing is wanted.
    let view = trace_with(&wanted(false, &[])).await;
    assert_eq!((view.known.iter().flatten().count(), view.missing), (0, Missing::default()));
}

/// A run of two calls; before the second one the callee told something, and the platform measured it.
async fn run_with(metrics: &MetricsWanted) -> RunView {
    let shelf = Shelf::new();
    let campaign = shelf.campaign("aa11-1", CampaignKind::Test, 1);
    let late = faultscope_model::Span { start_us: T + 10 * SECOND, ..call(2, 2, None, "sender") };
    record(&campaign, 1, [call(1, 1, None, "sender"), late]);
    let jobs = points("jobs", "sender", Kind::Gauge, &[("service.instance.id", "sender-1")], &[(8, 1.0)]);
    let sample = sampled("sender", T + 9 * SECOND, &[(Metric::Threads, 4.0)]);
    campaign.samples().write(trial(1), SlotId(0), &[sample], &jobs).unwrap();
    put_run(&campaign, 1, &[]).await;
    show_run(&shelf.archive(), "last", metrics).unwrap()
}

#[tokio::test]
async fn calls_of_a_run_have_what_was_known_before_them() {
    let view = run_with(&wanted(true, &["jobs", "nothing"])).await;
    let [used] = &view.used[..] else { panic!("{:#?}", view.used) };
    assert_eq!((used.span, used.known.source), (view.spans[1].id, Some(UseSource::Measured)));
    assert_eq!((used.known.series[0].value, used.known.series[0].age_us), (Some(1.0), 2 * SECOND));
    assert_eq!(view.missing.series, ["nothing"]);
    let beside: Vec<_> = view.trees.iter().map(|tree| tree.rows[0].known.is_some()).collect();
    assert_eq!(beside, [false, true]);
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!(
        (&json["used"][0]["instance"], &json["used"][0]["values"]["threads"]),
        (&json!("sender-1"), &json!(4.0))
    );
    assert_eq!(view.metrics[0].threads_peak, Some(4.0));
}
