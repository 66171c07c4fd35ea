//! Metrics: what instances used, what they told when asked, what services sent.

use std::io::Write;
use std::process::{Command, Stdio};

use faultscope_testkit::{Faultscope, cells};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::{tool, tool_with};

/// A service that works when asked to, and tells how often it did.
const BURNER: &str = r#"
import http.server, time
count = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global count
        kind = "text/plain"
        if self.path == "/work":
            until, count = time.process_time() + 0.3, count + 1
            while time.process_time() < until: pass
            text = "x" * 1000
        elif self.path == "/metrics":
            kind = "text/plain; version=0.0.4"
            text = f'''# TYPE work_total counter
work_total{{kind="hard"}} {count}
# TYPE work_seconds histogram
work_seconds_bucket{{le="0.1"}} 0
work_seconds_bucket{{le="+Inf"}} {count}
work_seconds_sum {count * 0.3}
work_seconds_count {count}
broken line here
'''
        else:
            text = "ok"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("", int(__import__("os").environ.get("PORT", "8080"))), Handler)
print("up", server.server_address[1], flush=True)
server.serve_forever()
"#;

const APPLICATION: &str = r#"
name: burner
services:
  burner:
    command: ["python3", "burner.py"]
    ports: [8080]
    ready: { http: /health }
    metrics: { path: /metrics }
tests:
  - { name: work, http: { get: "http://burner:8080/work" } }
simplest: { config: { burner: { memory: 256MiB } } }
"#;

fn burner() -> Faultscope {
    let tool = tool();
    tool.write("burner.py", BURNER);
    tool.write("faultscope.yaml", APPLICATION);
    tool
}

fn of<'v>(list: &'v Value, name: &str) -> &'v Value {
    let found = list.as_array().unwrap().iter().find(|entry| entry["name"] == name);
    found.unwrap_or_else(|| panic!("there is no `{name}` in {list:#}"))
}

#[test]
fn a_run_shows_the_usage_of_its_instances() {
    let tool = burner();
    let run = tool.tested([] as [&str; 0], 0);
    let used = &run.json["metrics"][0];
    assert_eq!(used["instance"], "burner-1");
    assert!(used["samples"].as_u64().unwrap() >= 2, "{used}");
    assert!(used["cpu_seconds"].as_f64().is_some_and(|cpu| (0.2..10.0).contains(&cpu)), "{used}");
    let memory = used["memory_peak"].as_f64().unwrap();
    assert!(memory > 1e6 && memory <= f64::from(256 << 20), "{used}");
    assert_eq!(used["memory_limit"], f64::from(256 << 20));
    assert!(used["threads_peak"].as_f64().is_some_and(|threads| threads >= 1.0), "{used}");
    assert!(used["network_sent"].as_f64().is_some_and(|bytes| bytes >= 1000.0), "{used}");
    assert_eq!(used["restarts"], 0.0);

    let shown = tool.run(["runs", "show", "--metrics"]).expect(0).stdout;
    let line = shown.lines().find(|line| line.starts_with("  burner-1  cpu ")).expect("a line");
    assert!(line.contains("% of 256MiB)") && line.contains("threads"), "{line}");
    let call = shown.lines().find(|line| line.contains("GET /work")).expect("a call");
    assert!(call.ends_with(" before]") && call.contains(" threads, "), "{call}");
    let json = tool.json(["runs", "show", "--metrics"], 0);
    assert_eq!(json["used"][0]["instance"], "burner-1");
    assert!(json["used"][0]["values"]["threads"].as_f64().is_some_and(|threads| threads >= 1.0), "{json:#}");

    let trace = run.json["spans"][0]["trace"].as_str().unwrap();
    let drawn = tool.run(["traces", "show", trace, "--metrics"]).expect(0).stdout;
    assert!(drawn.contains(" threads, ") && drawn.contains(" before]"), "{drawn}");

    // A service that reports spans is listed with what it used last.
    let span = json!([{ "traceId": "000000000000000a", "id": "000000000000000b", "name": "get", "kind": "SERVER",
        "timestamp": 1_000_000, "duration": 5, "localEndpoint": { "serviceName": "burner" } }]);
    tool.write("spans.json", &span.to_string());
    tool.run(["traces", "import", "spans.json"]).expect(0);
    let listed = tool.run(["services"]).expect(0).stdout;
    assert!(listed.contains("used last") && listed.contains("1 instance, "), "{listed}");
    assert_eq!(tool.json(["services"], 0)[0]["metrics"][0]["instance"], "burner-1");
}

#[test]
fn instances_are_asked_for_their_own_metrics() {
    let tool = burner();
    tool.run(["test"]).expect(0);
    let listed = tool.json(["metrics", "ls"], 0);
    let cpu = of(&listed, "cpu.seconds");
    assert_eq!((&cpu["service"], &cpu["source"]), (&json!("burner"), &json!("measured")));
    assert_eq!((&cpu["kind"], &cpu["unit"]), (&json!("counter"), &json!("s")));
    let work = of(&listed, "work_total");
    assert_eq!(
        (&work["source"], &work["kind"], &work["last"]),
        (&json!("told"), &json!("counter"), &json!(1.0))
    );
    assert_eq!(of(&listed, "work_seconds.bucket")["series"], 1);
    assert_eq!(of(&listed, "work_seconds.count")["last"], 1.0);

    let shown = tool.json(["metrics", "show", "work_total", "--run", "last"], 0);
    let line = &shown[0];
    assert_eq!((&line["instance"], &line["labels"]["kind"]), (&json!("burner-1"), &json!("hard")));
    let points = line["points"].as_array().unwrap();
    assert!(points.len() >= 2 && points[0][1] == 0.0, "before the work and after it: {points:?}");
    let drawn = tool.run(["metrics", "show", "memory.working_set", "--service", "burner"]).expect(0).stdout;
    assert!(drawn.contains("  burner-1  ") && drawn.contains("MiB, last "), "{drawn}");
    let drawn = tool.run(["metrics", "show", "work_total"]).expect(0).stdout;
    assert!(drawn.contains("burner-1 kind=hard") && drawn.contains(", grew by 1"), "{drawn}");

    // The last that was told before a call stands beside it.
    let shown = tool.run(["runs", "show", "--metric", "work_total", "--metric", "threads"]).expect(0).stdout;
    let call = shown.lines().find(|line| line.contains("GET /work")).expect("a call");
    assert!(call.contains("[work_total ") && call.contains("[threads "), "{call}");
    let used = &tool.json(["runs", "show", "--metric", "work_total"], 0)["used"][0];
    assert_eq!((&used["instance"], &used["values"]), (&json!("burner-1"), &Value::Null));
    let told = &used["series"][0];
    assert_eq!((&told["value"], &told["labels"]["kind"]), (&json!(0.0), &json!("hard")));
    let trace = tool.last_run().json["spans"][0]["trace"].as_str().unwrap().to_owned();
    let spans = tool.json(["traces", "show", &trace, "--metric", "work_total"], 0);
    assert_eq!(spans[0]["metrics"]["series"][0]["value"], 0.0);

    // Nothing that asks for metrics is a call of the application.
    assert!(tool.last_run().json["spans"].as_array().unwrap().iter().all(|span| span["path"] == "/work"));
}

#[test]
fn says_what_is_not_there() {
    let tool = tool_with(&cells());
    tool.run(["metrics", "ls"]).expect(2);
    tool.run(["test"]).expect(0);
    tool.run(["metrics", "show", "cpu"]).expect(2);
    assert_snapshot!(tool.run(["metrics", "ls", "--service", "nobody"]).exact(), @"
    exit code 0
    --- stdout
    no metrics were found
    --- stderr
    looked back 24h; use --since to look further. `faultscope test` and `up` measure, `serve` accepts metrics
    ");
    let listed = tool.run(["metrics", "ls", "--service", "front"]).expect(0).stdout;
    let first: Vec<_> = listed.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert!(first.contains(&"threads") && first.contains(&"start_time"), "{listed}");
}

#[test]
fn the_store_takes_metrics_in_and_asks_for_them() {
    let tool = burner();
    // A service that nobody deployed, on a port that the kernel chooses.
    let mut service = Command::new("python3")
        .arg("burner.py")
        .current_dir(tool.folder())
        .env("PORT", "0")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut heard = String::new();
    let out = service.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut heard).unwrap();
    let port = heard.trim().strip_prefix("up ").unwrap();
    let target = format!("http://127.0.0.1:{port}/metrics=burner");
    let mut serving = tool.start([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--otlp",
        "off",
        "--grpc",
        "off",
        "--scrape",
        &target,
        "--scrape",
        "http://127.0.0.1:1/metrics=nobody",
        "--scrape-every",
        "100ms",
    ]);
    let line = serving.wait_for_line("^Zipkin and Jaeger clients: ");
    let address = line.trim().rsplit_once(' ').unwrap().1.to_owned();

    let point = json!([{ "timeUnixNano": now_ns(), "asInt": "42",
        "attributes": [{ "key": "pool", "value": { "stringValue": "main" } }] }]);
    let histogram = json!([{ "timeUnixNano": now_ns(), "count": "3", "sum": 6.0,
        "bucketCounts": ["1", "2"], "explicitBounds": [2.0] }]);
    let resource = json!({ "attributes": [
        { "key": "service.name", "value": { "stringValue": "pay" } },
        { "key": "service.instance.id", "value": { "stringValue": "pay-7" } },
    ] });
    let body = json!({ "resourceMetrics": [{ "resource": resource, "scopeMetrics": [{ "metrics": [
        { "name": "db.connections", "unit": "{connection}", "gauge": { "dataPoints": point } },
        { "name": "latency", "unit": "s", "histogram": { "aggregationTemporality": 2, "dataPoints": histogram } },
    ] }] }] });
    let mut curl = Command::new("curl")
        .args(["-sS", "--fail", "-H", "content-type: application/json", "--data-binary", "@-"])
        .arg(format!("{address}/v1/metrics"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    curl.stdin.take().unwrap().write_all(body.to_string().as_bytes()).unwrap();
    assert!(curl.wait().unwrap().success());

    // Asked for ten times a second: it is there when the second answer has been written.
    let listed = std::iter::repeat_with(|| tool.json(["metrics", "ls", "--service", "burner"], 0))
        .take(200)
        .find(|list| list.as_array().unwrap().iter().any(|entry| entry["points"].as_u64() > Some(1)))
        .expect("the service is asked for its metrics");
    assert_eq!(of(&listed, "work_total")["source"], "sent");
    assert_eq!(of(&listed, "up")["last"], 1.0);
    let sent = tool.json(["metrics", "ls", "--service", "pay"], 0);
    assert_eq!(of(&sent, "db.connections")["last"], 42.0);
    assert_eq!(of(&sent, "latency.bucket")["last"], 1.0);
    assert_eq!(of(&sent, "latency.count")["kind"], "counter");
    assert_eq!(of(&tool.json(["metrics", "ls", "--service", "nobody"], 0), "up")["last"], 0.0);
    let shown = tool.json(["metrics", "show", "db.connections"], 0);
    assert_eq!((&shown[0]["instance"], &shown[0]["labels"]["pool"]), (&json!("pay-7"), &json!("main")));

    serving.interrupt();
    let talk = serving.wait().expect(0).stderr;
    assert_eq!(talk.matches("cannot scrape the metrics of nobody").count(), 1, "{talk}");
    service.kill().unwrap();
    service.wait().unwrap();
}

fn now_ns() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_nanos().to_string()
}
