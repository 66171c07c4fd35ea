//! Exporters as they are installed by their users; none shares code with the tool.

use std::process::Command;

use faultscope_store::secrets::KeyPlace;
use faultscope_store::spans::SpanReader;
use serde_json::json;

use crate::little::{USUAL, Ways, send};
use crate::server::Server;
use crate::{installed, source};

/// Exporters for Zipkin of OpenTelemetry do not say whom a client calls.
const NO_PEER: Ways = Ways { names_the_other_side: false, ..USUAL };

/// A client in Python, with the packages of one of two environments.
fn python(environment: &str, script: &str) -> Command {
    let mut command = Command::new(installed(&format!("{environment}/bin/python")));
    command.arg(source(script));
    command
}

fn node(script: &str) -> Command {
    let mut command = Command::new("node");
    // Modules are looked for beside the script, so it lies where they are installed.
    command.arg(installed(&format!("node/{script}")));
    command
}

fn go() -> Command {
    Command::new(installed("go/client"))
}

fn rust() -> Command {
    Command::new(installed("rust/debug/client"))
}

/// Sends the little trace with one exporter to one address of a fresh server.
#[track_caller]
fn check(mut command: Command, exporter: &str, address: fn(&Server) -> &str, ways: Ways) {
    let server = Server::start(&[]);
    let little = send(command.arg(exporter).arg(address(&server)));
    little.check(&server, ways);
    let links = server.get(&format!("/api/v2/dependencies?endTs={}&lookback=86400000", now_ms())).json();
    assert_eq!(links, json!([{"parent": "front", "child": "stock", "callCount": 1, "errorCount": 1}]));
    let listed = server.tool.json(["services"], 0);
    assert_eq!((&listed[0]["service"], &listed[1]["service"]), (&json!("front"), &json!("stock")));
    assert_eq!(server.figure("counter.faultscope.spans_stored"), 3);
    assert_eq!(server.figure("counter.faultscope.spans_rejected"), 0);
    assert_eq!(server.figure("counter.zipkin_collector.messages_dropped.http"), 0);
}

fn now_ms() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() + 1_000
}

fn zipkin(server: &Server) -> &str {
    &server.zipkin
}

fn otlp(server: &Server) -> &str {
    &server.otlp
}

fn grpc(server: &Server) -> &str {
    &server.grpc
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_python_otlp_http() {
    check(python("python", "python/otel.py"), "otlp-http", otlp, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_python_otlp_grpc() {
    check(python("python", "python/otel.py"), "otlp-grpc", grpc, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_python_zipkin_json() {
    // It writes events as JSON.
    let ways = Ways { event: r#"{"cache miss": {}}"#, ..NO_PEER };
    check(python("python", "python/otel.py"), "zipkin-json", zipkin, ways);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_python_zipkin_protobuf() {
    let ways = Ways { event: r#"{"cache miss": {}}"#, ..NO_PEER };
    check(python("python-old", "python/otel.py"), "zipkin-proto", zipkin, ways);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_python_metrics_over_http_and_grpc() {
    for (exporter, address) in [("otlp-http", otlp as fn(&Server) -> &str), ("otlp-grpc", grpc)] {
        let server = Server::start(&[]);
        let mut command = python("python", "python/metrics.py");
        let output = command.arg(exporter).arg(address(&server)).output().unwrap();
        assert!(output.status.success(), "{exporter}: {output:?}");
        let key = KeyPlace::at(server.tool.data().join("faultscope/secrets.key"));
        let reader = SpanReader::open(&server.tool.folder().join(".faultscope"), true).with_key(key);
        let value = |name: &str| {
            let found = reader.points(name, Some("front"), (0, u64::MAX)).unwrap();
            let points: Vec<_> = found.into_values().flatten().map(|(_, value)| value).collect();
            assert!(!points.is_empty(), "{exporter}: no {name}");
            // A last export at the end repeats them.
            assert!(points.iter().all(|value| *value == points[0]), "{exporter}: {name} {points:?}");
            points[0]
        };
        assert_eq!((value("orders"), value("process.memory.usage")), (3.0, 4096.0), "{exporter}");
        assert!(server.figure("counter.faultscope.points_stored") > 2, "{exporter}");
    }
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_python_traces_and_metrics_are_joined() {
    for (exporter, address) in [("otlp-http", otlp as fn(&Server) -> &str), ("otlp-grpc", grpc)] {
        let server = Server::start(&[]);
        let mut command = python("python", "python/both.py");
        let output = command.arg(exporter).arg(address(&server)).output().unwrap();
        assert!(output.status.success(), "{exporter}: {output:?}");
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let trace = said["trace"].as_str().unwrap();
        let wanted = ["--metrics", "--metric", "orders", "--metric", "wait"];
        let spans = server.tool.json(["traces", "show", trace].iter().chain(&wanted), 0);
        let known = &spans[0]["metrics"];
        assert_eq!(known["instance"], "627cc493-f310-47de-96bd-71410b7dec09", "{exporter}: {known:#}");
        assert_eq!((&known["source"], &known["values"]["threads"]), (&json!("told"), &json!(7.0)));
        assert_eq!(known["values"]["memory.resident"], f64::from(40 << 20));
        assert!(known["cpu_cores"].as_f64().is_some_and(|cores| cores > 0.0), "{exporter}: {known:#}");
        // Growth since the report before tells no sum.
        let sum = if exporter == "otlp-http" { json!(1.5) } else { json!(null) };
        assert_eq!(known["values"].get("cpu.seconds").cloned().unwrap_or_default(), sum, "{exporter}");
        let [orders, wait] = &known["series"].as_array().unwrap()[..] else { panic!("{known:#}") };
        assert!(orders["per_second"].as_f64().is_some_and(|speed| speed > 0.0), "{exporter}: {orders}");
        assert_eq!(orders["labels"]["kind"], "pay", "{exporter}");
        let mean = wait["mean"].as_f64();
        assert!(mean.is_some_and(|mean| (mean - 12.5).abs() < 1e-6), "{exporter}: {wait}");
        let shown = server.tool.run(["traces", "show", trace].iter().chain(&wanted)).expect(0).stdout;
        for part in ["40MiB, 7 threads, exported ", " before]", "[wait 12.5ms mean at "] {
            assert!(shown.contains(part), "{exporter}: {shown}");
        }
    }
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn py_zipkin_v1_json() {
    check(python("python", "python/zipkin_v2.py"), "v1-json", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn py_zipkin_v2_json() {
    check(python("python", "python/zipkin_v2.py"), "v2-json", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn py_zipkin_v2_protobuf() {
    check(python("python", "python/zipkin_v2.py"), "v2-proto", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn py_zipkin_0_11_thrift() {
    check(python("python-old", "python-old/zipkin_thrift.py"), "thrift", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_js_otlp_protobuf() {
    check(node("otel.js"), "otlp-proto", otlp, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_js_otlp_json() {
    check(node("otel.js"), "otlp-json", otlp, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_js_otlp_grpc() {
    check(node("otel.js"), "otlp-grpc", grpc, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_js_zipkin() {
    check(node("otel.js"), "zipkin", zipkin, NO_PEER);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn zipkin_js_v1() {
    check(node("zipkin.js"), "v1", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn zipkin_js_v2_shares_ids_without_saying_so() {
    check(node("zipkin.js"), "v2", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn zipkin_go_json() {
    check(go(), "zipkin-json", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn zipkin_go_protobuf() {
    check(go(), "zipkin-proto", zipkin, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_go_otlp_http() {
    check(go(), "otlp-http", otlp, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_go_otlp_grpc() {
    check(go(), "otlp-grpc", grpc, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_rust_otlp_http() {
    check(rust(), "otlp-http", otlp, USUAL);
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn opentelemetry_rust_otlp_grpc() {
    check(rust(), "otlp-grpc", grpc, USUAL);
}
