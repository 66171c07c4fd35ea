//! What services tell about themselves beside their spans, as of the start of each.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use faultscope_testkit::{Faultscope, Running, python, wait_until};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{tool, tool_with};

/// A moment on which nothing depends, in seconds since 1970.
const T: u64 = 1_700_000_000;

/// What one that is scraped says: values with times of their own, as exporters of batches give them.
const STOCK: &str = "\
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 100 1699999990000
process_cpu_seconds_total 105 1700000000000
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 52428800 1700000000000
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1699990000 1700000000000
# TYPE queue_length gauge
queue_length{queue=\"in\"} 3 1700000000000
queue_length{queue=\"out\"} 4 1700000000000
";

struct Server {
    tool: Faultscope,
    running: Running,
    address: String,
}

impl Server {
    fn start(more: &[&str]) -> Self {
        let tool = tool();
        let words = ["serve", "--listen", "127.0.0.1:0", "--otlp", "off", "--grpc", "off"];
        let mut running = tool.start(words.iter().chain(more));
        let line = running.wait_for_line("Zipkin and Jaeger clients");
        let address = line.rsplit("http://").next().unwrap().trim().to_owned();
        Self { tool, running, address }
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
}

/// Answers everybody with the same text, for as long as the test runs.
fn scraped() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream: TcpStream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close";
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{STOCK}", STOCK.len());
        }
    });
    port
}

fn attributes(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect()
}

fn resource(service: &str, instance: Option<&str>) -> Value {
    let instance = instance.map(|instance| ("service.instance.id", instance));
    let pairs: Vec<_> = [("service.name", service)].into_iter().chain(instance).collect();
    json!({ "attributes": attributes(&pairs) })
}

fn ns(second: u64) -> String {
    (second * 1_000_000_000).to_string()
}

/// Points at seconds after [`T`], with a label.
fn points(label: (&str, &str), points: &[(i64, f64)]) -> Value {
    let point = |(second, value): &(i64, f64)| {
        let at = T.checked_add_signed(*second).unwrap();
        json!({ "timeUnixNano": ns(at), "asDouble": value, "attributes": attributes(&[label]) })
    };
    points.iter().map(point).collect()
}

fn joined(lists: &[Value]) -> Value {
    lists.iter().flat_map(|list| list.as_array().unwrap().clone()).collect()
}

/// What the SDK for Python sends of a process, with metrics of its own.
fn metrics(instance: &str, megabytes: f64) -> Value {
    let none = ("", "");
    let cpu = joined(&[
        points(("type", "user"), &[(-20, 1.0), (-5, 4.0)]),
        points(("type", "system"), &[(-20, 0.0), (-5, 1.5)]),
    ]);
    let orders = joined(&[
        points(("kind", "pay"), &[(-15, 1.0), (-5, 20.0)]),
        points(("kind", "ask"), &[(-15, 1.0), (-5, 5.0)]),
    ]);
    let wait = |second: i64, count: u32, sum: f64| {
        let at = ns(T.checked_add_signed(second).unwrap());
        json!({ "timeUnixNano": at, "count": count.to_string(), "sum": sum, "bucketCounts": [count.to_string()], "explicitBounds": [] })
    };
    json!({ "resource": resource("Front", Some(instance)), "scopeMetrics": [{ "metrics": [
        { "name": "process.cpu.time", "unit": "s", "sum": { "isMonotonic": true, "aggregationTemporality": 2, "dataPoints": cpu } },
        { "name": "process.memory.usage", "unit": "By", "sum": { "aggregationTemporality": 2,
            "dataPoints": points(none, &[(-20, 1.0), (-5, megabytes * 1_048_576.0), (1, 2.0)]) } },
        { "name": "process.thread.count", "gauge": { "dataPoints": points(none, &[(-5, 7.0)]) } },
        { "name": "db.connections", "gauge": { "dataPoints": points(none, &[(-150, 1.0), (-90, 42.0), (1, 99.0)]) } },
        { "name": "forgotten", "gauge": { "dataPoints": points(none, &[(-121, 1.0)]) } },
        { "name": "orders", "sum": { "isMonotonic": true, "aggregationTemporality": 1, "dataPoints": orders } },
        { "name": "wait", "unit": "ms", "histogram": { "aggregationTemporality": 1, "dataPoints": [wait(-15, 9, 9.0), wait(-5, 4, 50.0)] } },
    ] }] })
}

/// `front-a` asks `stock` and `pay`; of `pay` there are two, and the span does not say which.
fn spans() -> Value {
    let span = |service: &str, instance, id: &str, parent: &str, name: &str| {
        json!({ "resource": resource(service, instance), "scopeSpans": [{ "spans": [{
            "traceId": "0000000000000000000000000000abcd", "spanId": id, "parentSpanId": parent, "name": name, "kind": 2,
            "startTimeUnixNano": ns(T), "endTimeUnixNano": ns(T + 2) }] }] })
    };
    json!({ "resourceSpans": [
        span("front", Some("front-a"), "0000000000000001", "", "GET /order"),
        span("STOCK", None, "0000000000000002", "0000000000000001", "GET /stock"),
        span("pay", None, "0000000000000003", "0000000000000001", "PUT /pay"),
    ] })
}

#[test]
fn what_services_tell_stands_beside_their_spans() {
    let target = format!("http://127.0.0.1:{}/metrics=stock", scraped());
    let server = Server::start(&["--scrape", &target, "--scrape-every", "100ms"]);
    server.post("/v1/traces", &spans());
    let pay = |instance| {
        json!({ "resource": resource("pay", Some(instance)), "scopeMetrics": [{ "metrics": [
            { "name": "process.thread.count", "gauge": { "dataPoints": points(("", ""), &[(-5, 3.0)]) } } ] }] })
    };
    let all = [metrics("front-a", 40.0), metrics("front-b", 80.0), pay("one"), pay("two")];
    server.post("/v1/metrics", &json!({ "resourceMetrics": all }));
    let tool = &server.tool;
    let of = |more: &[&str]| tool.json(["traces", "show", "abcd"].iter().chain(more), 0);
    wait_until("it is scraped", || !of(&["--metrics"])[1]["metrics"].is_null());

    // One of each kind: a gauge, growth, a histogram, a label, one of ours, and one that is too old.
    let wanted = [
        "--metrics",
        "--metric",
        "db.connections",
        "--metric",
        "orders",
        "--metric",
        "wait",
        "--metric",
        "queue_length{queue=out}",
        "--metric",
        "forgotten",
    ];
    let shown = tool.run(["traces", "show", "abcd"].iter().chain(&wanted));
    assert_snapshot!(shown.exact(), @"
    exit code 0
    --- stdout
    trace 000000000000abcd: 3 spans in 2.0s
        front GET /order         2.0s  ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬  [0.30 cores, 40MiB, 7 threads, exported 5.0s before] [db.connections 42, 1m30s before] [orders kind=ask 0.5/s, kind=pay 2/s, 5.0s before] [wait 12.5ms mean at 0.4/s, 5.0s before]
        ├─ STOCK GET /stock      2.0s  ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬  [0.50 cores, 50MiB, exported 0us before] [queue_length 4, 0us before]
      * └─ pay PUT /pay          2.0s  ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬

      * critical path, mostly: pay PUT /pay 2.0s (100 %)
    --- stderr
    no instance of front, pay, stock exported `forgotten` within two minutes before these spans; `faultscope metrics ls` lists all metrics
    ");
    let stock = &of(&["--metrics", "--metric", "process_start_time_seconds"])[1]["metrics"];
    assert_eq!((&stock["cpu_cores"], &stock["values"]["start_time"]), (&json!(0.5), &json!(1_699_990_000.0)));
    assert_eq!(stock["series"][0]["value"], 1_699_990_000.0);
    // Without the flags it is what Zipkin would say.
    assert!(of(&[]).as_array().unwrap().iter().all(|span| span.get("metrics").is_none()));

    assert_snapshot!(tool.run(["traces", "show", "abcd", "--metric", "orders{kind"]).exact(), @"
    exit code 2
    --- stderr
    error: invalid value 'orders{kind' for '--metric <NAME>': it reads like `orders` or `orders{kind=pay,region=eu}`

    For more information, try '--help'.
    ");
    server.running.interrupt();
    server.running.wait().expect(0);
}

/// A service that sends metrics by OTLP before it answers, under names that are not those of its slot.
const SENDER: &str = r#"
import http.server, json, os, time, urllib.request
jobs = 0
def send():
    point = {"timeUnixNano": str(time.time_ns()), "asInt": str(jobs)}
    text = lambda key, value: {"key": key, "value": {"stringValue": value}}
    body = {"resourceMetrics": [{"resource": {"attributes": [text("service.name", "Unknown"), text("service.instance.id", "x")]},
        "scopeMetrics": [{"metrics": [{"name": "jobs", "gauge": {"dataPoints": [point]}}, {"name": ""}]}]}]}
    request = urllib.request.Request(os.environ["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"], json.dumps(body).encode(), {"content-type": "application/json"})
    answer = json.load(urllib.request.urlopen(request, timeout=10))
    assert answer["partialSuccess"]["rejectedDataPoints"] == "1", answer
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        global jobs
        jobs += 1
        send()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"#;

#[test]
fn instances_send_metrics_to_their_slot() {
    let fixture = python().file("sender.py", SENDER).application(
        r#"
name: sending
services:
  sender: { command: ["python3", "sender.py"], ports: [8080], ready: { tcp: 8080 } }
tests:
  - { name: first, http: { get: "http://sender:8080/first", expect: { status: 200 } } }
  - { name: second, http: { get: "http://sender:8080/second", expect: { status: 200 } } }
"#,
    );
    let tool = tool_with(&fixture);
    tool.tested([] as [&str; 0], 0);
    let told = tool.json(["metrics", "show", "jobs", "--run", "last"], 0);
    assert_eq!((&told[0]["service"], &told[0]["instance"]), (&json!("sender"), &json!("sender-1")));
    assert_eq!((&told[0]["source"], told.as_array().unwrap().len()), (&json!("told"), 1));
    let values: Vec<_> = told[0]["points"].as_array().unwrap().iter().map(|point| &point[1]).collect();
    assert_eq!(values, [1.0, 2.0]);
    // Nothing was told before the first call, and once before the second.
    let run = tool.json(["runs", "show", "--metric", "jobs"], 0);
    let [used] = &run["used"].as_array().unwrap()[..] else { panic!("{run:#}") };
    assert_eq!(used["series"][0]["value"], 1.0);
    let second = run["spans"].as_array().unwrap().iter().find(|span| span["path"] == "/second").unwrap();
    assert_eq!(used["span"], second["id"]);
    let shown = tool.run(["runs", "show", "--metrics", "--metric", "jobs"]).expect(0).stdout;
    let call = shown.lines().find(|line| line.contains("GET /second")).expect("a call");
    assert!(call.contains(" threads, ") && call.contains("[jobs 1, "), "{call}");
    // What goes to the collector is no call of the application.
    assert_eq!(run["spans"].as_array().unwrap().len(), 2);
}
