//! What comes in over HTTP: every format, and everything that is wrong with bodies.

use std::io::Write;

use faultscope_store::interop::{Limits, otlp, zipkin};
use faultscope_store::serve::{Access, ServeOptions};
use faultscope_store::spans::{SpanReader, SpanStoreOptions};
use serde_json::json;

use crate::server::Server;
use crate::{TODAY, span};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/x-protobuf";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn stored(server: &Server) -> u64 {
    SpanReader::open(server.folder.path(), true).count().unwrap()
}

#[test]
fn zipkin_v2_is_taken_with_and_without_type_empty_compressed_and_as_protobuf() {
    let server = Server::start();
    let list = zipkin::to_json(&[span(0xa, 1, TODAY)]);
    assert_eq!(server.send("POST", "/api/v2/spans", &[], &list).status, 202);
    for body in ["", "[]", " \n"] {
        assert_eq!(server.post("/api/v2/spans", JSON, body).status, 202, "{body:?}");
    }
    let packed = gzip(&zipkin::to_json(&[span(0xb, 1, TODAY)]));
    let headers = [("content-type", "application/json; charset=utf-8"), ("content-encoding", "gzip")];
    assert_eq!(server.send("POST", "/api/v2/spans", &headers, &packed).status, 202);
    let proto = zipkin::to_proto(&[span(0xc, 1, TODAY)]);
    let answer = server.post("/api/v2/spans", PROTOBUF, proto);
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    for id in ["a", "b", "c"] {
        assert_eq!(server.get(&format!("/api/v2/trace/{id}")).json()[0]["name"], "get", "{id}");
    }
}

#[test]
fn zipkin_v1_is_taken_as_json_and_thrift_and_neither_version_for_the_other() {
    let server = Server::start();
    let old = json!([{"traceId": "a", "id": "1", "name": "Get", "timestamp": TODAY, "duration": 5,
        "annotations": [{"timestamp": TODAY, "value": "sr", "endpoint": {"serviceName": "Front"}},
                        {"timestamp": TODAY + 5, "value": "ss", "endpoint": {"serviceName": "Front"}}]}]);
    let new = json!([{"traceId": "b", "id": "1", "name": "get", "localEndpoint": {"serviceName": "x"}}]);
    assert_eq!(server.post("/api/v1/spans", JSON, old.to_string()).status, 202);
    let span = server.get("/api/v2/trace/a").json();
    assert_eq!(
        (&span[0]["kind"], &span[0]["localEndpoint"]["serviceName"]),
        (&json!("SERVER"), &json!("front"))
    );
    let wrong = server.post("/api/v2/spans", JSON, old.to_string());
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    let wrong = server.post("/api/v1/spans", JSON, new.to_string());
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    // A list of one struct: trace id, name, id, and the end of the struct.
    let mut thrift = vec![12, 0, 0, 0, 1];
    thrift.extend([10, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xd]);
    thrift.extend([11, 0, 3, 0, 0, 0, 3, b'g', b'e', b't']);
    thrift.extend([10, 0, 4, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(server.post("/api/v1/spans", "application/x-thrift", &thrift).status, 202);
    assert_eq!(server.get("/api/v2/trace/d").json()[0]["id"], "0000000000000002");
    thrift.truncate(12);
    assert_eq!(server.post("/api/v1/spans", "application/x-thrift", &thrift).status, 400);
}

#[test]
fn otlp_is_answered_in_its_own_language() {
    let server = Server::start();
    let (one, two) = (span(0xa, 1, TODAY), span(0xb, 1, TODAY));
    let answer = server.post("/v1/traces", PROTOBUF, otlp::to_proto(&[one]));
    assert_eq!((answer.status, answer.body.len(), answer.header("content-type")), (200, 0, Some(PROTOBUF)));
    let headers = [("content-type", JSON), ("content-encoding", "gzip")];
    let answer = server.send("POST", "/v1/traces", &headers, &gzip(&otlp::to_json(&[two])));
    assert_eq!((answer.text().as_str(), answer.header("content-type")), ("{}", Some(JSON)));
    assert_eq!(stored(&server), 2);
    // One of two spans has no id.
    let mixed = json!({"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "0000000000000000000000000000000C", "spanId": "00000000000000EE", "name": "ok",
         "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": 1700000000000005000u64, "unknown": 1},
        {"traceId": "0000000000000000000000000000000c", "name": "bad"}]}]}]});
    let partial = server.post("/v1/traces", JSON, mixed.to_string()).json();
    assert_eq!(partial["partialSuccess"]["rejectedSpans"], "1");
    assert!(partial["partialSuccess"]["errorMessage"].as_str().unwrap().contains("1 of 2"));
    assert_eq!(server.get("/api/v2/trace/c").json()[0]["duration"], 5);
    let error = server.post("/v1/traces", JSON, "{nonsense");
    let status: serde_json::Value = serde_json::from_slice(&error.body).unwrap();
    assert_eq!((error.status, &status["code"]), (400, &json!(3)));
    let error = server.post("/v1/traces", PROTOBUF, [0xff, 0xff, 0xff]);
    assert_eq!(
        (error.status, error.header("content-type"), error.body.first()),
        (400, Some(PROTOBUF), Some(&8))
    );
    assert_eq!(server.post("/v1/traces", "text/html", "").status, 415);
    assert_eq!(server.post("/v1/logs", JSON, "{}").status, 404);
}

#[test]
fn metrics_are_kept_with_the_service_they_are_about() {
    let server = Server::start();
    let point = json!({"asDouble": 0.5, "timeUnixNano": "1700000000000000000",
        "attributes": [{"key": "cpu", "value": {"stringValue": "0"}}]});
    let body = json!({"resourceMetrics": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "order"}}]},
        "scopeMetrics": [{"metrics": [{"name": "process.cpu.utilization", "unit": "1", "gauge": {"dataPoints": [point]}}]}]}]});
    assert_eq!(server.post("/v1/metrics", JSON, body.to_string()).text(), "{}");
    let reader = SpanReader::open(server.folder.path(), true);
    let found = reader.points("process.cpu.utilization", Some("order"), (TODAY, TODAY)).unwrap();
    assert_eq!(found.values().next().unwrap(), &[(TODAY, 0.5)]);
}

#[test]
fn invalid_spans_are_reported_and_valid_ones_kept() {
    let server = Server::start();
    let mixed = r#"[{"traceId":"a","id":"1"},{"traceId":"zz","id":"1"},{"id":"1"},{"traceId":"a","id":"2"}]"#;
    let answer = server.post("/api/v2/spans", JSON, mixed);
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("2 of 4 were rejected"), "{}", answer.text());
    assert_eq!(server.get("/api/v2/trace/a").json().as_array().unwrap().len(), 2);
    for (content_type, body, status) in [
        (JSON, "{}", 400),
        (JSON, "nonsense", 400),
        (JSON, r#"[{"traceId":"a""#, 400),
        (JSON, r#"[1, "x", null]"#, 400),
        (JSON, r#"[{"traceId":{"a":1},"id":"1"}]"#, 400),
        (PROTOBUF, "nonsense", 400),
        ("image/png", "[]", 415),
    ] {
        let answer = server.post("/api/v2/spans", content_type, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.text().len() > 10, "{body}");
    }
    let bad_gzip = server.send("POST", "/api/v2/spans", &[("content-encoding", "gzip")], b"not gzip");
    assert_eq!(bad_gzip.status, 400);
    assert_eq!(server.send("POST", "/api/v2/spans", &[("content-encoding", "br")], b"x").status, 415);
    let metrics = server.get("/metrics").json();
    assert_eq!(metrics["counter.faultscope.spans_rejected"], 2 + 3 + 1);
    assert_eq!(metrics["counter.faultscope.spans_stored"], 2);
}

#[test]
fn bodies_are_bounded_before_and_after_decompression() {
    let limits = Limits { body_bytes: 100_000, ..Limits::default() };
    let options = ServeOptions { limits, memory_bytes: 4 << 20, ..ServeOptions::default() };
    let server = Server::with(SpanStoreOptions::default(), options);
    let large = vec![b' '; 200_000];
    assert_eq!(server.post("/api/v2/spans", JSON, &large).status, 413);
    let bomb = gzip(&vec![b' '; 50_000_000]);
    assert!(bomb.len() < 300_000);
    let answer = server.send("POST", "/api/v2/spans", &[("content-encoding", "gzip")], &bomb[..]);
    assert_eq!(answer.status, 413, "{}", answer.text());
    // Sent in pieces of unknown number, it is cut off as well.
    let mut chunked =
        b"POST /api/v2/spans HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..20 {
        chunked.extend(b"2710\r\n");
        chunked.extend(vec![b' '; 10_000]);
        chunked.extend(b"\r\n");
    }
    assert_eq!(server.raw(&chunked).status, 413);
    assert_eq!(server.post("/api/v2/spans", JSON, "[]").status, 202);
    let broken = "POST /api/v2/spans HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n[";
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.write_all(broken.as_bytes()).unwrap();
    drop(stream);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_full_queue_is_reported_and_no_acknowledged_span_is_missing() {
    let store = SpanStoreOptions { queued_spans: 1, ..SpanStoreOptions::default() };
    let server = Server::with(store, ServeOptions::default());
    let (mut taken, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..16u64)
            .map(|sender| {
                let server = &server;
                scope.spawn(move || {
                    let batch: Vec<_> = (0..100).map(|n| span(sender + 1, n + 1, TODAY)).collect();
                    let answers =
                        (0..10).map(|_| server.post("/api/v2/spans", JSON, zipkin::to_json(&batch)));
                    answers
                        .map(|answer| (answer.status, answer.header("retry-after").map(str::to_owned)))
                        .collect()
                })
            })
            .collect();
        for sender in senders {
            let answers: Vec<(u16, Option<String>)> = sender.join().unwrap();
            for (status, again) in answers {
                match status {
                    202 => taken += 1,
                    429 => {
                        assert_eq!(again.as_deref(), Some("1"));
                        refused += 1;
                    }
                    other => panic!("{other}"),
                }
            }
        }
    });
    assert!(refused > 0);
    assert_eq!(stored(&server), taken * 100);
    let metrics = server.get("/metrics").json();
    assert_eq!(metrics["counter.faultscope.spans_refused"], refused * 100);
    assert_eq!(metrics["counter.faultscope.busy"], refused);
    let text = server.get("/prometheus").text();
    assert!(text.contains(&format!("faultscope_spans_refused_total {}", refused * 100)), "{text}");
}

#[test]
fn a_token_is_asked_for_and_strangers_pages_are_not_let_in() {
    let access =
        Access { token: Some("secret-secret-secret".into()), origins: vec!["https://ui.example".into()] };
    let server =
        Server::with(SpanStoreOptions::default(), ServeOptions { access, ..ServeOptions::default() });
    let with = |headers: &[(&str, &str)]| server.send("GET", "/api/v2/services", headers, b"");
    assert_eq!(with(&[]).status, 401);
    assert_eq!(with(&[("authorization", "Bearer wrong")]).status, 401);
    assert_eq!(with(&[("authorization", "Bearer secret-secret-secret")]).status, 200);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.post("/api/v2/spans", JSON, "[]").status, 401);
    let good = [("authorization", "Bearer secret-secret-secret"), ("origin", "https://ui.example")];
    assert_eq!(with(&good).header("access-control-allow-origin"), Some("https://ui.example"));
    assert_eq!(with(&[good[0], ("origin", "https://evil.example")]).status, 403);
    let preflight = server.send("OPTIONS", "/api/v2/spans", &[good[1]], b"");
    assert_eq!(
        (preflight.status, preflight.header("access-control-allow-methods")),
        (204, Some("GET, POST"))
    );
    let open = Server::start();
    let rebound = b"GET /api/v2/services HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n";
    assert_eq!(open.raw(rebound).status, 403);
}

#[test]
#[expect(clippy::print_stderr, reason = "what was left out must be said")]
fn the_real_traces_come_back_whole() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zipkin");
    let Ok(files) = std::fs::read_dir(&folder) else {
        eprintln!("LEFT OUT: the ten real traces are not here ({})", folder.display());
        return;
    };
    let server = Server::start();
    for file in files {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let sent: Vec<serde_json::Value> = serde_json::from_slice(&bytes).unwrap();
        let answer = server.post("/api/v2/spans", JSON, &bytes);
        assert_eq!(answer.status, 202, "{}", answer.text());
        let id = sent[0]["traceId"].as_str().unwrap();
        let got = server.get(&format!("/api/v2/trace/{id}")).json();
        assert_eq!(got.as_array().unwrap().len(), sent.len(), "{id}");
    }
}
