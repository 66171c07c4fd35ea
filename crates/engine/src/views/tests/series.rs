//! Metrics over time.

use faultscope_model::metrics::{Kind, Metric};
use faultscope_model::{CampaignKind, SlotId};
use serde_json::json;

use super::{SECOND, Shelf, T, points, put_run, sampled, trial};
use crate::views::{MetricScope, MetricSource, list_metrics, show_metric};

fn everything() -> MetricScope {
    MetricScope::default()
}

/// What a platform measured, what the order told in a trial, and what the stock sent by itself.
async fn measured() -> Shelf {
    let shelf = Shelf::new();
    let campaign = shelf.campaign("aa11-1", CampaignKind::Test, 1);
    // Two processes of one name, one after the other: their counters start anew.
    let cpu = |second: u64, started: f64, cores: f64| {
        let values = [(Metric::CpuSeconds, cores), (Metric::StartTime, started)];
        sampled("order", T + second * SECOND, &values)
    };
    let samples = [cpu(0, 1.0, 10.0), cpu(2, 1.0, 11.0), cpu(4, 2.0, 0.0), cpu(5, 2.0, 3.0)];
    let about = [("kind", "pay"), ("service.instance.id", "order-1"), ("telemetry.sdk.name", "otel")];
    let told = points("orders", "order", Kind::Gauge, &about, &[(0, 4.0), (3, 2.0)]);
    campaign.samples().write(trial(1), SlotId(0), &samples, &told).unwrap();
    put_run(&campaign, 1, &[]).await;
    shelf.ingest(Vec::new(), points("queue", "stock", Kind::Gauge, &[], &[(-60, 1.0), (0, 7.0)])).await;
    shelf
}

#[tokio::test]
async fn listed_by_service_with_where_they_come_from() {
    let shelf = measured().await;
    let listed = list_metrics(&shelf.archive(), &everything()).unwrap();
    let lines: Vec<_> = listed
        .iter()
        .map(|line| (line.service.as_str(), line.name.as_str(), line.source, line.points, line.last))
        .collect();
    assert_eq!(
        lines,
        [
            ("order", "cpu.seconds", MetricSource::Measured, 4, 3.0),
            ("order", "orders", MetricSource::Reported, 2, 2.0),
            ("order", "start_time", MetricSource::Measured, 4, 2.0),
            ("stock", "queue", MetricSource::Sent, 2, 7.0),
        ]
    );
    let json = serde_json::to_value(&listed[1]).unwrap();
    assert_eq!(
        json,
        json!({ "service": "order", "name": "orders", "kind": "gauge", "unit": "", "source": "told", "series": 1,
            "points": 2, "last_us": T + 3 * SECOND, "last": 2.0 })
    );
}

#[tokio::test]
async fn counters_are_drawn_as_growth_within_each_process() {
    let shelf = measured().await;
    let found = show_metric(&shelf.archive(), "cpu.seconds", &everything()).unwrap();
    let [cpu] = &found[..] else { panic!("{found:?}") };
    let drawn = cpu.draw(false);
    let rates: Vec<_> = drawn.points.iter().map(|(_, rate)| *rate).collect();
    assert_eq!((rates, drawn.grown, cpu.rate_unit()), (vec![0.5, 3.0], Some(4.0), ""));
    let raw = cpu.draw(true);
    let range = raw.range.unwrap();
    assert_eq!((range.low, range.high, range.last, raw.grown), (0.0, 11.0, 3.0, None));
    // Of a counter that was read once nothing can be drawn but its value.
    let scope = MetricScope { from_us: T + 5 * SECOND, ..everything() };
    let once = &show_metric(&shelf.archive(), "cpu.seconds", &scope).unwrap()[0];
    assert_eq!((once.draw(false).range, once.draw(true).points.len()), (None, 1));
}

#[tokio::test]
async fn a_series_is_named_by_its_instance_and_labels() {
    let shelf = measured().await;
    let found = show_metric(&shelf.archive(), "orders", &everything()).unwrap();
    assert_eq!((found.len(), found[0].label().as_str()), (1, "order-1 kind=pay"));
    let sent = show_metric(&shelf.archive(), "queue", &everything()).unwrap();
    assert_eq!((sent[0].label().as_str(), sent[0].points.len()), ("stock", 2));
}

#[tokio::test]
async fn one_series_of_several_campaigns_is_one_line() {
    let shelf = measured().await;
    let later = shelf.campaign("bb22-1", CampaignKind::Test, 2);
    let cpu = sampled("order", T + 60 * SECOND, &[(Metric::CpuSeconds, 1.0)]);
    later.samples().write(trial(1), SlotId(0), &[cpu], &[]).unwrap();
    let found = show_metric(&shelf.archive(), "cpu.seconds", &everything()).unwrap();
    assert_eq!((found.len(), found[0].points.len()), (1, 5));
    assert!(found[0].points.is_sorted_by_key(|(at_us, _)| *at_us));
    // The younger campaign's points are another process, which grew by nothing that anybody saw.
    assert_eq!(found[0].draw(false).grown, Some(4.0));
}

#[tokio::test]
async fn only_what_was_asked_for() {
    let shelf = measured().await;
    let names = |scope: &MetricScope| -> Vec<String> {
        list_metrics(&shelf.archive(), scope).unwrap().into_iter().map(|line| line.name).collect()
    };
    let scope = |change: fn(&mut MetricScope)| {
        let mut scope = everything();
        change(&mut scope);
        scope
    };
    assert_eq!(names(&scope(|scope| scope.service = Some("stock".into()))), ["queue"]);
    assert_eq!(names(&scope(|scope| scope.service = Some("nobody".into()))), [""; 0]);
    assert_eq!(names(&scope(|scope| scope.instance = Some("order-2".into()))), [""; 0]);
    let of_run = scope(|scope| scope.run = Some("last".into()));
    assert_eq!(names(&of_run), ["cpu.seconds", "orders", "start_time"], "what was sent belongs to no run");
    let lately = MetricScope { from_us: T + SECOND, ..everything() };
    let line = &list_metrics(&shelf.archive(), &lately).unwrap()[0];
    assert_eq!((line.name.as_str(), line.points), ("cpu.seconds", 3));
    let error = show_metric(&shelf.archive(), "cpu", &everything()).unwrap_err();
    assert_eq!(error.to_string(), "there is no metric `cpu` here");
}
