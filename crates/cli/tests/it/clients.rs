//! Real clients and servers through the mesh: what they see is right, and so is what the mesh saw.

use faultscope_testkit::{Fixture, files, grpc, node, python, websocket};

use crate::tool_with;

const NOTHING: [&str; 0] = [];

#[test]
fn python_urllib_and_http_client() {
    let run = tool_with(&python()).tested(NOTHING, 0);
    assert_eq!(run.output("urllib and http.client"), "kept one connection\n");
    assert_eq!(run.output("curl"), r#"{"item": "pear", "left": 5, "by": "stock-1"}"#);
    let calls = run.calls();
    // A step, urllib, three times http.client, an upload, curl; every one but the upload asks `stock`.
    assert_eq!(calls.len(), 13, "{calls:#?}");
    assert_eq!(
        calls[..2],
        [
            "test-1 -> order-1 GET /orders/apple http1 200 root",
            "order-1 -> stock-1 GET /stock/apple http1 200 propagated"
        ]
    );
    let upload = run.spans().iter().find(|s| s["method"] == "POST").unwrap();
    assert_eq!((&upload["request_bytes"], &upload["status"]), (&300_000.into(), &201.into()));
    assert!(run.spans().iter().all(|s| s["error"].is_null()), "{calls:#?}");
}

#[test]
fn node_keeps_connections() {
    let run = tool_with(&node()).tested(["--test", "kept connections"], 0);
    assert_eq!(
        run.calls(),
        [
            "test-1 -> gateway-1 GET / http1 200 root",
            "gateway-1 -> price-1 GET /price http1 200 propagated",
            "test-1 -> gateway-1 GET / http1 200 root",
            "gateway-1 -> price-1 GET /price http1 200 propagated",
        ]
    );
}

#[test]
fn node_http2() {
    let run = tool_with(&node()).tested(["--test", "http2"], 0);
    assert_eq!(run.output("http2"), "/a 0, /b 0, /c 0, /d 0, /large 200000\n");
    assert_eq!(
        run.sorted_calls(),
        [
            "test-1 -> price-1 GET /a http2 200 root",
            "test-1 -> price-1 GET /b http2 200 root",
            "test-1 -> price-1 GET /c http2 200 root",
            "test-1 -> price-1 GET /d http2 200 root",
            "test-1 -> price-1 POST /large http2 200 root",
        ]
    );
    let large = run.spans().iter().find(|s| s["path"] == "/large").unwrap();
    assert_eq!(large["request_bytes"], 200_000);
}

#[test]
fn go_grpc_unary_and_stream() {
    let run = tool_with(&grpc(env!("CARGO_TARGET_TMPDIR"))).tested(NOTHING, 0);
    assert_eq!(
        run.output("unary and stream"),
        "check SERVING\ncheck SERVING\ncheck SERVING\ncheck NotFound\nwatch SERVING\nwatch NOT_SERVING\nwatch SERVING\n\
         end of the stream: EOF\n"
    );
    let check = "test-1 -> health-1 POST /grpc.health.v1.Health/Check http2 200";
    assert_eq!(
        run.calls(),
        [
            format!("{check} grpc 0 root"),
            format!("{check} grpc 0 root"),
            format!("{check} grpc 0 root"),
            format!("{check} grpc 5 root"),
            format!("{check} grpc 5 root"),
            "test-1 -> health-1 POST /grpc.health.v1.Health/Watch http2 200 grpc 0 root".into(),
        ]
    );
    assert!(run.spans()[4]["request_bytes"].as_u64().unwrap() > 1_000_000);
    // The server describes its messages, so that fields have names.
    let messages =
        |place: usize, side: &str| run.spans()[place]["payload"]["decoded"][side]["messages"].clone();
    assert_eq!(messages(0, "request").to_string(), r#"[{"service":"shop"}]"#);
    assert_eq!(messages(0, "response").to_string(), r#"[{"status":"SERVING"}]"#);
    assert_eq!(
        messages(5, "response").to_string(),
        r#"[{"status":"SERVING"},{"status":"NOT_SERVING"},{"status":"SERVING"}]"#
    );
    assert_eq!(run.spans()[4]["payload"]["decoded"]["request"]["cut"], true);
}

#[test]
fn steps_call_a_real_grpc_server_that_describes_itself() {
    let steps = r#"{ name: unary and stream, steps: [
      { grpc: "health:50051/grpc.health.v1.Health/Check", json: { service: shop }, expect: { json: { status: SERVING } } },
      { grpc: "health:50051/grpc.health.v1.Health/Check", json: { service: nobody }, expect: { code: NOT_FOUND, message: unknown } },
      { grpc: "health:50051/grpc.health.v1.Health/Watch", json: { service: shop }, expect: { json: { 1.status: NOT_SERVING }, absent: ["3"] } },
    ] }"#;
    let fixture = grpc(env!("CARGO_TARGET_TMPDIR"))
        .replace("[50051]", "[50051], ready: { grpc: shop }")
        .replace(r#"{ name: unary and stream, run: ["./grpc", "client"] }"#, steps);
    let check = "test-1 -> health-1 POST /grpc.health.v1.Health/Check http2 200";
    assert_eq!(
        tool_with(&fixture).tested(NOTHING, 0).calls(),
        [
            format!("{check} grpc 0 root"),
            format!("{check} grpc 5 root"),
            "test-1 -> health-1 POST /grpc.health.v1.Health/Watch http2 200 grpc 0 root".into(),
        ],
        "readiness and reflection are no calls"
    );
}

#[test]
fn a_websocket() {
    let run = tool_with(&websocket()).tested(NOTHING, 0);
    assert_eq!(run.output("talk"), "three messages came back\n");
    assert_eq!(run.calls(), ["test-1 -> echo-1 GET /talk websocket 101 root"]);
    let span = &run.spans()[0];
    assert!(span["request_bytes"].as_u64().unwrap() > 40_000, "{span}");
    assert!(span["response_bytes"].as_u64().unwrap() > 40_000, "{span}");
}

/// The file server with a test that runs a line of shell.
fn with_line(line: &str) -> Fixture {
    files().more(&format!("tests:\n  - {{ name: curl, run: [\"sh\", \"-c\", \"{line}\"] }}\n"))
}

/// What a line with curl in it printed, and the calls that the mesh saw.
#[track_caller]
fn curled(line: &str) -> (String, Vec<String>) {
    let run = tool_with(&with_line(line)).tested(NOTHING, 0);
    (run.output("curl").to_owned(), run.calls())
}

#[test]
fn curl_http_1_0() {
    let (printed, calls) = curled("curl -sS -m 30 --http1.0 http://files:8000/small");
    assert_eq!(printed, "small text");
    assert_eq!(calls, ["test-1 -> files-1 GET /small http1 200 root"]);
}

#[test]
fn curl_head_and_range() {
    let (printed, calls) = curled(
        "curl -sS -m 30 -I http://files:8000/small -o /dev/null -w '%{http_code} %{size_download} %header{content-length}'",
    );
    assert_eq!(printed, "200 0 10");
    assert_eq!(calls, ["test-1 -> files-1 HEAD /small http1 200 root"]);
    let (printed, calls) = curled("curl -sS -m 30 -r 6-9 http://files:8000/small -w ' %{http_code}'");
    assert_eq!(printed, "text 206");
    assert_eq!(calls, ["test-1 -> files-1 GET /small http1 206 root"]);
}

#[test]
fn curl_expects_100_continue() {
    let upload = "head -c 3000000 /dev/zero > large && curl -sS -m 30 -H 'Expect: 100-continue' --expect100-timeout 20 -T large http://files:8000/up";
    let (printed, calls) = curled(upload);
    assert_eq!(printed, "3000000 bytes\n");
    assert_eq!(calls, ["test-1 -> files-1 PUT /up http1 200 root"]);
}

#[test]
fn curl_refused_before_its_upload() {
    // Whoever expects 100-continue may be refused without sending anything.
    let (printed, calls) = curled(
        "curl -sS -m 30 -o /dev/null -w '%{http_code} %{size_upload}' -H 'Expect: 100-continue' --expect100-timeout 20 -T /etc/passwd http://files:8000/refused",
    );
    assert_eq!(printed, "413 0");
    assert_eq!(calls, ["test-1 -> files-1 PUT /refused http1 413 root"]);
}

#[test]
fn curl_uploads_in_chunks() {
    let upload = "head -c 300000 /dev/zero | curl -sS -m 30 -H 'Expect:' -T - http://files:8000/up";
    let (printed, calls) = curled(upload);
    assert_eq!(printed, "300000 bytes in chunks\n");
    assert_eq!(calls, ["test-1 -> files-1 PUT /up http1 200 root"]);
}

#[test]
fn curl_keeps_a_connection_for_several() {
    let urls = "http://files:8000/small http://files:8000/nowhere http://files:8000/small";
    let (printed, calls) = curled(&format!("curl -sS -m 30 -w '|%{{num_connects}} ' {urls}"));
    assert_eq!(printed, "small text|1 no such file|0 small text|0 ");
    assert_eq!(calls.len(), 3);
}

#[test]
fn curl_http2_with_prior_knowledge() {
    let fixture = node().replace(
        "tests:\n",
        "tests:\n  - { name: curl, run: [\"curl\", \"-sS\", \"--http2-prior-knowledge\", \"-d\", \"abc\", \"-w\", \" %{http_version}\", \"http://price:3002/x\"] }\n",
    );
    let run = tool_with(&fixture).tested(["--test", "curl"], 0);
    assert_eq!(run.output("curl"), r#"{"price":7,"bytes":3,"path":"/x"} 2"#);
    assert_eq!(run.calls(), ["test-1 -> price-1 POST /x http2 200 root"]);
}
