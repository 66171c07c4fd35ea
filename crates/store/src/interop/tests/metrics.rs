//! OTLP metrics.

use serde_json::{Value, json};

use crate::interop::otlp::{MetricValue, Temporality, metrics_json, metrics_proto};
use crate::interop::{Batch, Limits, otlp::MetricPoint};

fn read(metrics: &Value) -> Batch<MetricPoint> {
    let resource = json!({ "attributes": [{ "key": "service.name", "value": { "stringValue": "order" } }] });
    let body =
        json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [{ "metrics": metrics }] }] });
    metrics_json(body.to_string().as_bytes(), &Limits::default()).unwrap()
}

#[test]
fn all_kinds_are_read() {
    let time = json!("2000000");
    let attributes = json!([{ "key": "state", "value": { "stringValue": "idle" } }]);
    let point = |extra: Value| {
        let mut point =
            json!({ "timeUnixNano": time, "startTimeUnixNano": "1000000", "attributes": attributes });
        for (key, value) in extra.as_object().unwrap() {
            point[key] = value.clone();
        }
        json!([point])
    };
    let batch = read(&json!([
        { "name": "a", "unit": "By", "gauge": { "dataPoints": point(json!({ "asInt": "7" })) } },
        { "name": "b", "sum": { "dataPoints": point(json!({ "asDouble": 1.5 })), "isMonotonic": true,
            "aggregationTemporality": 2 } },
        { "name": "c", "histogram": { "aggregationTemporality": 1, "dataPoints": point(json!({ "count": "3", "sum": 6,
            "min": 1, "max": 3, "bucketCounts": ["1", "2"], "explicitBounds": [2] })) } },
        { "name": "d", "exponentialHistogram": { "dataPoints": point(json!({ "count": 2, "scale": 1,
            "positive": { "offset": 2, "bucketCounts": ["1", 1] } })) } },
        { "name": "e", "summary": { "dataPoints": point(json!({ "count": "4", "sum": 8,
            "quantileValues": [{ "quantile": 0.5, "value": 2 }] })) } },
        { "name": "gone", "gauge": { "dataPoints": point(json!({ "flags": 1 })) } },
        { "name": "", "gauge": { "dataPoints": point(json!({ "asInt": 1 })) } },
        { "name": "bad", "gauge": { "dataPoints": 7 } },
        { "name": "future", "cloud": {} },
    ]));
    assert_eq!((batch.items.len(), batch.n_rejected), (5, 2));
    let values: Vec<_> = batch.items.iter().map(|point| point.value.clone()).collect();
    let (delta, unknown) = (Temporality::Delta, Temporality::Unknown);
    assert_eq!(
        values,
        [
            MetricValue::Gauge(7.0),
            MetricValue::Sum { value: 1.5, monotonic: true, temporality: Temporality::Cumulative },
            MetricValue::Histogram {
                count: 3,
                sum: Some(6.0),
                min: Some(1.0),
                max: Some(3.0),
                buckets: vec![(2.0, 1)],
                temporality: delta
            },
            MetricValue::Histogram {
                count: 2,
                sum: None,
                min: None,
                max: None,
                buckets: vec![(4.0, 2)],
                temporality: unknown
            },
            MetricValue::Summary { count: 4, sum: 8.0, quantiles: vec![(0.5, 2.0)] },
        ]
    );
    let first = &batch.items[0];
    assert_eq!((first.name.as_ref(), first.unit.as_ref()), ("a", "By"));
    assert_eq!((first.start_us, first.time_us), (Some(1_000), 2_000));
    assert_eq!(first.attributes, [("state".to_owned(), "idle".to_owned())]);
    assert_eq!(first.resource.as_ref(), [("service.name".to_owned(), "order".to_owned())]);
}

#[test]
fn protobuf_is_read() {
    // Gauge `m` with one point: time 2 ms, int 7 (sfixed64, field 6).
    let point = [&[0x19][..], &2_000_000u64.to_le_bytes(), &[0x31], &7i64.to_le_bytes()].concat();
    let wrap = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8][..], bytes].concat();
    let metric = [wrap(0x0a, b"m"), wrap(0x2a, &wrap(0x0a, &point))].concat();
    let body = wrap(0x0a, &wrap(0x12, &[wrap(0x12, &metric), wrap(0x12, &[0x0a, 1, 0xff])].concat()));
    let batch = metrics_proto(&body, &Limits::default()).unwrap();
    assert_eq!((batch.items.len(), batch.n_rejected), (1, 1));
    assert_eq!((batch.items[0].time_us, &batch.items[0].value), (2_000, &MetricValue::Gauge(7.0)));
    assert!(metrics_proto(&body[..body.len() - 1], &Limits::default()).is_err());
}

#[test]
fn points_are_bounded() {
    let points: Vec<_> = (0..11).map(|n| json!({ "asInt": n })).collect();
    let body = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics":
        [{ "name": "m", "gauge": { "dataPoints": points } }] }] }] });
    let limits = Limits { items: 10, ..Limits::default() };
    assert_eq!(metrics_json(body.to_string().as_bytes(), &limits).unwrap_err().status(), 413);
}
