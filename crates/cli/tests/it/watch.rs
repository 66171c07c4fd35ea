//! `watch` over what services sent.

use std::time::{SystemTime, UNIX_EPOCH};

use faultscope_testkit::Faultscope;
use serde_json::{Value, json};

use crate::tool;

/// Five minutes of spans of one service, two per second, the last of them this many milliseconds slower.
fn import(tool: &Faultscope, slower_ms: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let start = u64::try_from(now.as_micros()).unwrap() - 310_000_000;
    let spans: Vec<Value> = (0..600u64)
        .map(|number| {
            // 10 to 29 ms, in an order without a pattern.
            let usual = 10_000 + (number * 7919 % 1009) * 19;
            let added = if number >= 560 { 1000 * slower_ms } else { 0 };
            json!({
                "traceId": format!("{:016x}", 0xa000 + number), "id": format!("{:016x}", 1 + number), "kind": "SERVER",
                "name": "get /todos", "timestamp": start + number * 500_000, "duration": usual + added,
                "localEndpoint": { "serviceName": "todos" },
            })
        })
        .collect();
    tool.write("spans.json", &Value::from(spans).to_string());
    tool.run(["traces", "import", "spans.json"]).expect(0);
}

#[test]
fn a_slow_service_is_found_with_its_traces_and_triggers_a_command() {
    let tool = tool();
    import(&tool, 400);
    let found = tool.json(["watch", "--exec", "printf '%s' \"$FAULTSCOPE_SERVICE\" > alarm"], 1);
    let anomaly = &found["incidents"][0]["anomalies"][0];
    assert_eq!((&anomaly["service"], &anomaly["metric"]), (&"todos".into(), &"latency".into()), "{found:#}");
    assert_eq!(anomaly["kind"], "spike");
    let traces: Vec<&str> = anomaly["traces"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let slow = |trace: &&str| u64::from_str_radix(trace, 16).is_ok_and(|id| id >= 0xa000 + 560);
    // The window of the paper also has the call before; the slowest comes first.
    assert!(traces.len() > 1 && slow(&traces[0]), "{traces:?}");
    assert_eq!(tool.read("alarm"), "todos");
    let shown = tool.run(["watch"]).expect(1).stdout;
    assert!(shown.contains("in latency by get /todos of the todos service. Trace"), "{shown}");
    // The paper's detectors by name, and limits that do not belong together.
    let sigma = tool.json(["watch", "--detector", "sigma", "--sigma", "5", "--window", "50"], 1);
    assert_eq!(sigma["incidents"][0]["anomalies"][0]["detector"], "sigma-limit");
    tool.run(["watch", "--detector", "sigma", "--above", "3"]).expect(2);
    tool.run(["watch", "--webhook", "http://example.com/"]).expect(2);
}

#[test]
fn a_healthy_service_is_silent() {
    let tool = tool();
    import(&tool, 0);
    let found = tool.json(["watch"], 0);
    assert_eq!(found["incidents"].as_array().unwrap().len(), 0, "{found:#}");
    assert_eq!(found["counts"]["calls"], 600);
    assert_eq!(tool.json(["watch", "--service", "other"], 0)["counts"]["series"], 0);
}

#[test]
fn following_sees_what_was_stored_and_ends_in_time() {
    let tool = tool();
    import(&tool, 400);
    let lines = tool.run(["watch", "--follow", "--for", "1s", "--every", "300ms", "--json"]).expect(1).stdout;
    let incidents: Vec<Value> = lines
        .lines()
        .filter(|line| line.starts_with("{\"from_us\""))
        .filter_map(|l| serde_json::from_str(l).ok())
        .collect();
    assert_eq!(incidents.len(), 1, "{lines}");
}
