//! Tests by subject; the contracts of Zipkin's storage and pages restated in our words.

mod bodies;
mod contract;
mod damage;
mod jaeger;
mod metrics;
mod otlp;
mod properties;
mod queries;
mod real_traces;
mod zipkin_v1;
mod zipkin_v2;

use faultscope_model::trace::ReportedSpan;

use super::{Decoded, Limits, zipkin};

/// The spans of a Zipkin v2 JSON list.
fn spans(json: &str) -> Vec<ReportedSpan> {
    let Decoded { items, rejected, .. } = zipkin::v2_json(json.as_bytes(), &Limits::default()).unwrap();
    assert_eq!(rejected, [], "{json}");
    items
}

/// One span of Zipkin v2 JSON, with `traceId` 1 and `id` 2 unless it says otherwise.
fn span(fields: &str) -> ReportedSpan {
    let mut json = serde_json::json!({ "traceId": "1", "id": "2" });
    let more: serde_json::Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
    for (key, value) in more.as_object().unwrap() {
        json[key] = value.clone();
    }
    spans(&format!("[{json}]")).remove(0)
}
