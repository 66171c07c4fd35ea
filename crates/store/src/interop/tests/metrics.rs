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

#[test]
fn labels_are_short_and_few() {
    let long = "ä".repeat(20_000);
    let attributes: Vec<_> =
        (0..90).map(|n| json!({ "key": format!("{n}"), "value": { "stringValue": long } })).collect();
    let point = json!({ "timeUnixNano": "2000", "asInt": "1", "attributes": attributes });
    let batch = read(&json!([{ "name": long, "gauge": { "dataPoints": [point] } }]));
    let point = &batch.items[0];
    assert_eq!(point.name.len(), 1024);
    assert_eq!(point.attributes.len(), 7, "eight KiB");
    assert!(point.attributes.iter().all(|(_, value)| value.len() == 1024));
    assert!((8_000..20_000).contains(&batch.bytes), "{}", batch.bytes);
}

#[test]
fn empty_points_are_counted_before_they_are_decoded() {
    let limits = Limits { items: 100, ..Limits::default() };
    // Two bytes each: field 1 of a gauge, without content.
    let points = |n: usize| {
        let gauge = [0x0a, 0x00].repeat(n);
        let mut metric = vec![0x0a, 1, b'm', 0x2a];
        prost::encode_length_delimiter(gauge.len(), &mut metric).unwrap();
        metric.extend(gauge);
        let mut body = metric;
        for number in [0x12, 0x12, 0x0a] {
            let mut outer = vec![number];
            prost::encode_length_delimiter(body.len(), &mut outer).unwrap();
            outer.extend(body);
            body = outer;
        }
        metrics_proto(&body, &limits)
    };
    assert_eq!(points(90).unwrap().n_rejected, 0);
    assert_eq!(points(5_000).unwrap().n_rejected, 1);
    let text = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"m","gauge":{{"dataPoints":[{}]}}}}]}}]}}]}}"#,
        ["{}"; 5_000].join(",")
    );
    assert_eq!(metrics_json(text.as_bytes(), &limits).unwrap().n_rejected, 1);
}

#[test]
fn what_is_decoded_is_bounded() {
    use crate::interop::{DecodeError, SpanFormat};
    let limits = Limits { decoded_bytes: 100_000, ..Limits::default() };
    let spans: Vec<_> =
        (1..=100).map(|n| json!({ "traceId": format!("{n:032x}"), "spanId": format!("{n:016x}") })).collect();
    let resource = json!({ "attributes": [{ "key": "k", "value": { "stringValue": "x".repeat(5_000) } }] });
    let body = json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": [{ "spans": spans }] }] });
    let decoded = SpanFormat::OtlpJson.decode(body.to_string().as_bytes(), &limits);
    assert!(matches!(decoded, Err(DecodeError::TooLarge { limit: 100_000, .. })), "{decoded:?}");
    let spans: Vec<_> = (1..=100)
        .map(|n| json!({ "traceId": "1", "id": format!("{n}"), "tags": { "k": "x".repeat(2_000) } }))
        .collect();
    let decoded = SpanFormat::ZipkinV2Json.decode(json!(spans).to_string().as_bytes(), &limits);
    assert!(matches!(decoded, Err(DecodeError::TooLarge { limit: 100_000, .. })));
}
