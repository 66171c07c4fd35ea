//! What another Jaeger answers.

use faultscope_model::SpanId;
use faultscope_model::trace::SpanKind;
use serde_json::json;

use crate::interop::{Limits, jaeger, otlp};

/// An answer as Jaeger 1.x gives it, somewhat shortened.
fn answer() -> serde_json::Value {
    json!({"data": [{"traceID": "463ac35c9f6413ad48485a3953bb6124", "spans": [
        {"traceID": "463ac35c9f6413ad48485a3953bb6124", "spanID": "00000000000000aa", "operationName": "GET /pay",
         "references": [], "startTime": 1_700_000_000_000_000u64, "duration": 200, "flags": 1,
         "tags": [{"key": "span.kind", "type": "string", "value": "client"}, {"key": "peer.service", "type": "string", "value": "stock"},
                  {"key": "http.status_code", "type": "int64", "value": 500}, {"key": "retry", "type": "bool", "value": false}],
         "logs": [], "processID": "p1", "warnings": null},
        {"traceID": "463ac35c9f6413ad48485a3953bb6124", "spanID": "bb", "operationName": "PUT",
         "references": [{"refType": "FOLLOWS_FROM", "traceID": "463ac35c9f6413ad48485a3953bb6124", "spanID": "cc"},
                        {"refType": "CHILD_OF", "traceID": "99", "spanID": "dd"},
                        {"refType": "CHILD_OF", "traceID": "463ac35c9f6413ad48485a3953bb6124", "spanID": "00000000000000aa"}],
         "startTime": 1_700_000_000_000_010u64, "duration": 0,
         "tags": [{"key": "span.kind", "type": "string", "value": "server"}, {"key": "error", "type": "bool", "value": true},
                  {"key": "otel.status_description", "type": "string", "value": "out of stock"}],
         "logs": [{"timestamp": 1_700_000_000_000_020u64, "fields": [{"key": "event", "type": "string", "value": "cache miss"}]},
                  {"timestamp": 1_700_000_000_000_030u64, "fields": [{"key": "event", "type": "string", "value": "exception"}, {"key": "exception.type", "type": "string", "value": "Timeout"}]}],
         "processID": "p2"}],
      "processes": {"p1": {"serviceName": "Front", "tags": []},
                    "p2": {"serviceName": "stock", "tags": [{"key": "ip", "type": "string", "value": "10.0.0.2"}, {"key": "hostname", "type": "string", "value": "h"}]}},
      "warnings": null}], "total": 0, "limit": 0, "offset": 0, "errors": null})
}

#[test]
fn the_older_answer_is_read() {
    let decoded = jaeger::read_v1(answer().to_string().as_bytes(), &Limits::default()).unwrap();
    assert_eq!(decoded.rejected, []);
    let [client, served] = &decoded.items[..] else { panic!("{decoded:#?}") };
    assert_eq!((client.id, client.parent, client.kind), (SpanId(0xaa), None, Some(SpanKind::Client)));
    assert_eq!((client.name.as_str(), client.local.service.as_deref()), ("GET /pay", Some("Front")));
    assert_eq!((client.start_us, client.duration_us), (Some(1_700_000_000_000_000), Some(200)));
    assert_eq!(client.remote.service.as_deref(), Some("stock"));
    assert_eq!(
        (client.tag("http.status_code"), client.tag("retry"), client.failed),
        (Some("500"), Some("false"), false)
    );
    assert_eq!((served.parent, served.duration_us, served.failed), (Some(SpanId(0xaa)), Some(1), true));
    assert_eq!((served.tag("error"), served.tag("hostname")), (Some("out of stock"), Some("h")));
    assert_eq!(served.local.ipv4, Some("10.0.0.2".parse().unwrap()));
    let texts: Vec<_> = served.annotations.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["cache miss", r#""exception":{"exception.type":"Timeout"}"#]);
}

#[test]
fn one_bad_span_leaves_the_others_alone() {
    let mut answer = answer();
    answer["data"][0]["spans"][0]["spanID"] = json!("nonsense");
    answer["data"][0]["spans"].as_array_mut().unwrap().push(json!({"traceID": 5}));
    let decoded = jaeger::read_v1(answer.to_string().as_bytes(), &Limits::default()).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (1, 2));
    for nothing in [r#"{"data":null}"#, r#"{"data":[]}"#, r#"{"data":[{"spans":null}]}"#] {
        assert_eq!(jaeger::read_v1(nothing.as_bytes(), &Limits::default()).unwrap().items, []);
    }
    for wrong in ["", "[]", "<html>", r#"{"data":5}"#] {
        assert!(jaeger::read_v1(wrong.as_bytes(), &Limits::default()).is_err(), "{wrong}");
    }
    let few = Limits { items: 1, ..Limits::default() };
    assert_eq!(jaeger::read_v1(answer.to_string().as_bytes(), &few).unwrap_err().status(), 413);
}

#[test]
fn the_older_format_is_decoded_alike() {
    let read = jaeger::read_v1(answer().to_string().as_bytes(), &Limits::default()).unwrap().items;
    let told = jaeger::read_v1(&jaeger::v1_traces(&[&read[..]]), &Limits::default()).unwrap().items;
    for (one, other) in read.iter().zip(&told) {
        assert_eq!(
            (one.id, one.parent, one.kind, one.failed),
            (other.id, other.parent, other.kind, other.failed)
        );
        assert_eq!((&one.local, &one.annotations[..0]), (&other.local, &other.annotations[..0]));
        assert_eq!(
            (one.start_us, one.duration_us, one.tag("error")),
            (other.start_us, other.duration_us, other.tag("error"))
        );
    }
}

#[test]
fn collectors_say_what_they_did_not_take() {
    assert_eq!(otlp::partial_success(&[]), (0, String::new()));
    assert_eq!(otlp::partial_success(&[10, 7, 8, 3, 18, 3, b'w', b'h', b'y']), (3, "why".to_owned()));
    assert_eq!(otlp::partial_success(b"nonsense"), (0, String::new()));
}
