//! Services with a real SDK in a slot: they find its collector by their environment alone.

use faultscope_testkit::{Faultscope, python};
use insta::assert_snapshot;

use crate::{installed, source};

#[test]
#[ignore = "run by ./test.sh exporters"]
fn services_with_an_sdk_report_to_their_slot() {
    let (program, script) = (installed("python/bin/python"), source("python/service.py"));
    let command = format!("[{program:?}, {script:?}]");
    let fixture = python().application(&format!(
        r#"
name: traced
services:
  front: {{ command: {command}, ports: [8080], env: {{ EXPORTER: zipkin, PORT: "8080", BEHIND: "http://back:8081/word" }}, ready: {{ tcp: 8080 }} }}
  back: {{ command: {command}, ports: [8081], env: {{ EXPORTER: otlp, PORT: "8081" }}, ready: {{ tcp: 8081 }} }}
tests:
  - {{ name: hello, http: {{ get: "http://front:8080/hello", expect: {{ status: 200 }} }} }}
"#
    ));
    let tool = Faultscope::with(env!("CARGO_BIN_EXE_faultscope"), &fixture);
    let run = tool.tested([] as [&str; 0], 0);
    let trace = run.spans_to("front")[0]["trace"].as_str().unwrap().to_owned();
    let shown = tool.run(["runs", "show", "--trace", &trace]).shown();
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
    let told = tool.json(["metrics", "show", "greetings", "--run", "last"], 0);
    let mut lines: Vec<_> = told.as_array().unwrap().iter().collect();
    lines.sort_by_key(|line| line["instance"].to_string());
    let [back, front] = &lines[..] else { panic!("{told:#}") };
    for (line, instance) in [(back, "back-1"), (front, "front-1")] {
        assert_eq!((line["instance"].as_str(), line["kind"].as_str()), (Some(instance), Some("counter")));
        assert_eq!(line["points"][0][1], 1.0, "{told:#}");
    }
}
