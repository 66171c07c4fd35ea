//! Tests by subject; the contracts of Zipkin's storage and pages restated in our words.

mod assembly;
mod bodies;
mod contract;
mod damage;
mod jaeger;
mod links;
mod mesh;
mod metrics;
mod otlp;
mod properties;
mod queries;
mod real_traces;
mod zipkin_v1;
mod zipkin_v2;

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};

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

/// Spans of trace `a`, one per line: `id parent kind local>remote words`.
///
/// `-` stands for nothing. Words: `shared`, `error`, `@START`, `+DURATION`, `ip=4`.
fn lines(text: &str) -> Vec<ReportedSpan> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(line).collect()
}

fn line(text: &str) -> ReportedSpan {
    let mut words = text.split_whitespace();
    let mut word = || words.next().unwrap_or("-");
    let id = |text: &str| SpanId(u64::from_str_radix(text, 16).unwrap());
    let name = |text: &str| Some(text.to_owned()).filter(|text| text != "-" && !text.is_empty());
    let mut span = ReportedSpan::new(TraceId(0xa), id(word()));
    span.parent = name(word()).map(|text| id(&text));
    span.kind = match word() {
        "client" => Some(SpanKind::Client),
        "server" => Some(SpanKind::Server),
        "producer" => Some(SpanKind::Producer),
        "consumer" => Some(SpanKind::Consumer),
        "-" => None,
        other => panic!("{other} is no kind"),
    };
    let endpoints = word();
    let (local, remote) = endpoints.split_once('>').unwrap_or((endpoints, "-"));
    span.local = Endpoint { service: name(local), ..Endpoint::default() };
    span.remote = Endpoint { service: name(remote), ..Endpoint::default() };
    for word in words {
        match word {
            "shared" => span.shared = true,
            "error" => span.tags.push(("error".to_owned(), String::new())),
            "annotated-error" => span.annotations.push((1, "error".to_owned())),
            _ if word.starts_with('@') => span.start_us = Some(word[1..].parse().unwrap()),
            _ if word.starts_with('+') => span.duration_us = Some(word[1..].parse().unwrap()),
            _ if word.starts_with("ip=") => {
                span.local.ipv4 = Some(format!("10.0.0.{}", &word[3..]).parse().unwrap());
            }
            other => panic!("{other} is no word"),
        }
    }
    span
}
