//! What the mesh sees and what services report of one request join in one tree.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use faultscope_testkit::{Fixture, free_port, python};
use insta::assert_snapshot;
use serde_json::Value;

use crate::tool_with;

/// Two services that report spans by hand: `front` as Zipkin JSON, `back` as OTLP JSON, with a clock that is an
/// hour behind. Reports are sent before the answer, so that none can be missing when the test ends.
const SERVICE: &str = r#"
import http.server, json, os, random, time, urllib.request
name, behind = os.environ["NAME"], int(os.environ.get("BEHIND", "0"))
def report(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=10).read()
def zipkin(spans):
    report(os.environ["ZIPKIN_ENDPOINT"], [dict(traceId=t, id=i, parentId=p, kind=k, name=n, timestamp=s, duration=d,
        localEndpoint={"serviceName": name}, tags={"http.request.header.authorization": "Bearer QSECRET-1234"}) for t, i, p, k, n, s, d in spans])
def otlp(spans):
    kinds = {"SERVER": 2, "CLIENT": 3}
    report(os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], {"resourceSpans": [{"resource": {"attributes": [
        {"key": "service.name", "value": {"stringValue": os.environ["OTEL_SERVICE_NAME"]}}]}, "scopeSpans": [{"spans": [
        dict(traceId=t, spanId=i, parentSpanId=p, kind=kinds[k], name=n, startTimeUnixNano=str(s * 1000),
        endTimeUnixNano=str((s + d) * 1000)) for t, i, p, k, n, s, d in spans]}]}]})
def now(): return int(time.time() * 1e6) - behind * 1000000
def new(): return "%016x" % random.getrandbits(64)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        started, spans, own = now(), [], new()
        _, trace, parent, _ = self.headers["traceparent"].split("-")
        if name == "front":
            called, client = now(), new()
            context = {"traceparent": f"00-{trace}-{client}-01"}
            urllib.request.urlopen(urllib.request.Request("http://back:8081/word", None, context), timeout=10).read()
            spans.append((trace, client, own, "CLIENT", "ask for a word", called, now() - called + 1))
        spans.append((trace, own, parent, "SERVER", "answer", started, now() - started + 1))
        (zipkin if name == "front" else otlp)(spans)
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")
http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
"#;

fn reporting() -> Fixture {
    python().file("reporting.py", SERVICE).application(
        r#"
name: reporting
services:
  front: { command: ["python3", "reporting.py"], ports: [8080], env: { NAME: front, PORT: "8080" }, ready: { tcp: 8080 } }
  back: { command: ["python3", "reporting.py"], ports: [8081], env: { NAME: back, PORT: "8081", BEHIND: "3600" }, ready: { tcp: 8081 } }
tests:
  - { name: hello, http: { get: "http://front:8080/hello", expect: { status: 200 } } }
"#,
    )
}

fn get(port: u16, path: &str) -> Value {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Each span as "service name", with that of its parent.
fn parents(spans: &Value) -> Vec<String> {
    let label = |span: &Value| {
        let seen = if span["tags"]["faultscope.wire"].is_null() { "" } else { "mesh " };
        format!(
            "{seen}{} {}",
            span["localEndpoint"]["serviceName"].as_str().unwrap(),
            span["name"].as_str().unwrap()
        )
    };
    let spans = spans.as_array().unwrap();
    let by_id: BTreeMap<_, _> =
        spans.iter().map(|span| (span["id"].as_str().unwrap(), label(span))).collect();
    let parent = |span: &Value| {
        span["parentId"].as_str().map_or("-", |id| by_id.get(id).map_or("?", |s| s)).to_owned()
    };
    let mut all: Vec<_> = spans.iter().map(|span| format!("{} < {}", label(span), parent(span))).collect();
    all.sort();
    all
}

const TREE: [&str; 5] = [
    "back answer < mesh front get",
    "front answer < mesh test get",
    "front ask for a word < front answer",
    "mesh front get < front ask for a word",
    "mesh test get < -",
];

#[test]
fn calls_and_reported_spans_are_one_tree() {
    let tool = tool_with(&reporting());
    let run = tool.tested([] as [&str; 0], 0);
    let trace = run.spans_to("front")[0]["trace"].as_str().unwrap().to_owned();
    assert_eq!(run.json["reported"].as_array().unwrap().len(), 3);
    let shown = tool.run(["runs", "show", "--trace", &trace]).shown();
    // What the critical path is depends on how quick each of them was.
    let tree = shown.split("\n\n").next().unwrap().replace("  * ", "    ");
    assert_snapshot!(tree, @"
    exit code 0
    --- stdout
    trace <trace>: 5 spans in <time>
        test-1 ─▶ front-1 GET /hello <time> <bar> 200
        └─ front answer <time> <bar>
           └─ front ask for a word <time> <bar>
              └─ front-1 ─▶ back-1 GET /word <time> <bar> 200
                 └─ back answer <time> <bar>
    ");
    let spans = tool.json(["traces", "show", &trace], 0);
    assert_eq!(parents(&spans), TREE);
    // Raw times are kept: the one whose clock is behind starts an hour before everyone else.
    let start = |name: &str| {
        let is_it = |s: &&Value| s["localEndpoint"]["serviceName"] == name && s["name"] == "answer";
        spans.as_array().unwrap().iter().find(is_it).unwrap()["timestamp"].as_u64().unwrap()
    };
    assert!(start("front") - start("back") > 3_500_000_000);
    assert!(!spans.to_string().contains("QSECRET") && spans.to_string().contains("[redacted]"));

    let listed = tool.json(["traces", "ls"], 0);
    assert_eq!((&listed[0]["id"], &listed[0]["spans"]), (&trace.clone().into(), &5.into()));
    let deps = tool.json(["deps"], 0);
    let ways: Vec<_> = deps
        .as_array()
        .unwrap()
        .iter()
        .map(|e| format!("{} {} {}", e["parent"], e["child"], e["callCount"]))
        .collect();
    assert_eq!(ways, [r#""front" "back" 1"#, r#""test" "front" 1"#]);

    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let mut server = tool.start(["serve", "--listen", &listen, "--otlp", "off", "--grpc", "off"]);
    server.wait_for_line("Zipkin and Jaeger clients");
    assert_eq!(parents(&get(port, &format!("/api/v2/trace/{trace}"))), TREE);
    let jaeger = get(port, &format!("/api/traces/{trace}"));
    assert_eq!(jaeger["data"][0]["spans"].as_array().unwrap().len(), 5);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let links = get(port, &format!("/api/v2/dependencies?endTs={now}"));
    assert_eq!(links.as_array().unwrap().len(), 2, "{links}");
    server.interrupt();
    server.wait().expect(0);
}
