//! Spans are handed on to collectors made of OpenTelemetry's own messages.

use faultscope_testkit::wait_until;
use serde_json::{Value, json};

use crate::http::get;
use crate::peers::{Peer, collector};
use crate::server::Server;

const START: u64 = 1_700_000_000_000_000;

/// So many spans of one service.
fn spans(count: u64) -> Value {
    let span = |n: u64| {
        json!({"traceId": "a", "id": format!("{:x}", n + 1), "name": "work", "timestamp": START, "duration": 5,
               "localEndpoint": {"serviceName": "front"}})
    };
    (0..count).map(span).collect()
}

fn seen(peer: &Peer) -> Value {
    get(&peer.url, "/").json()
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn everything_arrives_as_it_was_sent() {
    for protocol in ["http", "grpc"] {
        let (peer, url) = collector(protocol, "");
        let server = Server::start(&["--forward", &url, "--forward-header", "x-token: secret-enough"]);
        server.put(&json!([
            {"traceId": "463ac35c9f6413ad48485a3953bb6124", "id": "1", "kind": "CLIENT", "name": "get /pay",
             "timestamp": START, "duration": 200_000, "localEndpoint": {"serviceName": "front"},
             "remoteEndpoint": {"serviceName": "stock"},
             "annotations": [{"timestamp": START + 5, "value": "wire send"}], "tags": {"http.path": "/pay"}},
            {"traceId": "463ac35c9f6413ad48485a3953bb6124", "id": "2", "parentId": "1", "kind": "SERVER",
             "name": "put", "timestamp": START + 10, "duration": 7, "localEndpoint": {"serviceName": "stock"},
             "tags": {"error": "out of stock"}},
        ]));
        server.wait_for("counter.faultscope.forward_sent", 2);
        let seen = seen(&peer);
        assert_eq!((&seen["requests"], &seen["headers"][0]["x-token"]), (&json!(1), &json!("secret-enough")));
        let (client, served) = (&seen["spans"][0], &seen["spans"][1]);
        assert_eq!(
            *client,
            json!({"service": "front", "trace": "463ac35c9f6413ad48485a3953bb6124", "id": "0000000000000001",
                "parent": "", "name": "get /pay", "kind": 3, "start": START * 1000, "end": (START + 200_000) * 1000,
                "error": [0, ""], "events": [[(START + 5) * 1000, "wire send"]],
                "attributes": {"http.path": "/pay", "peer.service": "stock"}}),
            "{protocol}"
        );
        assert_eq!((&served["parent"], &served["service"]), (&client["id"], &json!("stock")));
        // What Zipkin's clients say in the tag stays there; that it failed is told as OTLP does.
        assert_eq!((&served["kind"], &served["error"]), (&json!(2), &json!([2, ""])), "{protocol}");
        assert_eq!(served["attributes"]["error"], "out of stock");
        let (_, output) = server.stop();
        assert!(output.stderr.contains("2 spans forwarded"), "{}", output.stderr);
    }
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn what_is_not_taken_now_is_sent_again() {
    for (protocol, answers) in [("http", "503,429+1,502"), ("grpc", "503,429")] {
        let (peer, url) = collector(protocol, answers);
        let server = Server::start(&["--forward", &url]);
        server.put(&spans(30));
        server.wait_for("counter.faultscope.forward_sent", 30);
        let tries = answers.split(',').count() as u64;
        assert_eq!(server.figure("counter.faultscope.forward_retries"), tries, "{protocol}");
        assert_eq!(server.figure("counter.faultscope.forward_dropped"), 0);
        let seen = seen(&peer);
        assert_eq!((&seen["requests"], seen["spans"].as_array().unwrap().len()), (&json!(tries + 1), 30));
    }
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn what_is_refused_is_counted_and_not_sent_again() {
    for protocol in ["http", "grpc"] {
        let (peer, url) = collector(protocol, "400,partial");
        let server = Server::start(&["--forward", &url]);
        server.put(&spans(4));
        server.wait_for("counter.faultscope.forward_dropped", 4);
        server.put(&spans(5));
        server.wait_for("counter.faultscope.forward_sent", 4);
        assert_eq!(server.figure("counter.faultscope.forward_dropped"), 5, "{protocol}");
        assert_eq!(server.figure("counter.faultscope.forward_retries"), 0, "{protocol}");
        assert_eq!(seen(&peer)["requests"], 2);
        // Here they are all kept.
        assert_eq!(server.figure("counter.faultscope.spans_stored"), 9);
    }
}

/// The other side takes the connection and never answers: senders are answered all the same, the queue stays
/// within its bound, and what does not fit is counted.
#[test]
#[ignore = "run by ./test.sh exporters"]
fn a_silent_collector_holds_nobody_up() {
    let (peer, url) = collector("http", "hang,hang,hang,hang,hang,hang");
    let server = Server::start(&["--forward", &url, "--forward-queue", "1000"]);
    for _ in 0..20 {
        server.put(&spans(200));
    }
    assert_eq!(server.figure("counter.faultscope.spans_stored"), 4_000);
    assert_eq!(server.figure("gauge.faultscope.forward_waiting"), 1_000);
    assert_eq!(server.figure("counter.faultscope.forward_dropped"), 3_000);
    wait_until("a request", || seen(&peer)["requests"].as_u64().is_some_and(|n| n > 0));
    let (_, output) = server.stop();
    assert!(output.stderr.contains("4000 spans not forwarded, but stored here"), "{}", output.stderr);
}
