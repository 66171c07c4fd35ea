//! Tests by subject, on spans written as short lines.

mod assembly;
mod dependencies;
mod mesh_call;
mod properties;

use super::{Endpoint, ReportedSpan, SpanKind};
use crate::ids::{SpanId, TraceId};

/// One span from its stored form, with trace 1 and id 2 unless it says otherwise.
fn span(fields: &str) -> ReportedSpan {
    let mut json = serde_json::json!({ "trace": "1", "id": "2" });
    let more: serde_json::Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
    for (key, value) in more.as_object().unwrap() {
        json[key] = value.clone();
    }
    let mut span: ReportedSpan = serde_json::from_value(json).unwrap();
    span.normalize();
    span
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
