//! What is looked into beyond the cause: boundaries of numbers, smaller inputs.

use faultscope_testkit::{Faultscope, nothing_left};
use serde_json::Value;

use crate::tool;

const CELLS: &str = r#"
version: 1
services:
  till:
    port: 8080
    settings: { limit: 30 }
    operations:
      "GET /limit":
        steps:
          - fail: { if: "setting.limit >= 121", status: 500, message: "too much" }
          - respond: { body: { ok: true } }
      "GET /warm":
        steps:
          - respond: { body: { ok: true } }
      "POST /orders":
        steps:
          - fail: { if: "setting.limit >= 100 and 13 in default(body.items, [])", status: 500, message: "unlucky" }
          - respond: { status: 201, body: { id: 7 } }
"#;

/// A till whose number the test does not like from 121 on.
fn till(tests: &str, failing: &str) -> Faultscope {
    let tool = tool();
    tool.write("cells.yaml", CELLS);
    let file = format!(
        r#"name: till
services:
  till:
    command: ["${{faultscope}}", "cell", "--spec", "cells.yaml", "--service", "till"]
    ports: [8080]
    ready: {{ http: /health }}
tests:
{tests}
simplest: {{ config: {{ till: {{ env.LIMIT: 30 }} }} }}
{failing}
"#
    );
    tool.write("faultscope.yaml", &file);
    tool
}

const LIMIT: &str =
    r#"  - { name: limit, http: { get: "http://till:8080/limit", expect: { status: 200 } } }"#;

const ORDER: &str = r#"  - name: order
    steps:
      - { get: "http://till:8080/warm?a=1&b=2" }
      - { post: "http://till:8080/orders?c=3", headers: { X-A: b, X-C: d },
          json: { customer: { name: Ann, tags: [x, y] }, items: [1, 2, 3, 13, 4, 5], note: "please hurry" }, expect: { status: 201 } }
      - { get: "http://till:8080/warm" }"#;

const FAILING: &str =
    "failing: { instances: { till: 2 }, config: { till: { env.LIMIT: 300, env.OTHER: x } } }";

#[test]
fn a_number_has_a_boundary() {
    let tool = till(LIMIT, FAILING);
    let reports = ["--report", "html=out.html", "--report", "md=out.md", "--report", "junit=out.xml"];
    let running = tool.start([&["debug", "--boundary", "--slots", "2", "--json"], &reports[..]].concat());
    let id = running.id();
    let report = running.wait().expect(1).json();
    nothing_left(id, &tool.folder());
    let told = "fails from 121, passes at 120 and below";
    for file in ["out.html", "out.md", "out.xml"] {
        assert!(tool.read(file).contains(told), "{file}: {}", tool.read(file));
    }
    assert!(tool.run(["report"]).expect(0).stdout.contains(told), "the stored campaign tells it, too");
    let found = &report["boundaries"][0];
    assert_eq!(
        (&found["delta"], &found["fails"], &found["passes"], &found["sharp"]),
        (&"config till.env.LIMIT".into(), &"121".into(), &"120".into(), &true.into())
    );
    let run = found["failing_run"].as_str().unwrap();
    assert_eq!(
        tool.json(["runs", "show", run], 0)["run"]["circumstance"]["config"]["till"]["env.LIMIT"],
        "121"
    );
}

#[test]
fn steps_are_reduced() {
    let tool = till(ORDER, FAILING);
    let reports = ["--report", "html=out.html", "--report", "md=out.md"];
    let report: Value = tool.json([&["debug", "--input", "--slots", "2"], &reports[..]].concat(), 1);
    let input = &report["input"];
    let bytes = format!("Minimal input: {} of {} bytes", input["bytes"], input["bytes_before"]);
    for file in ["out.html", "out.md"] {
        let text = tool.read(file);
        assert!(text.contains(&bytes) && text.contains("/orders"), "{file}: {text}");
    }
    assert!(input["trials"].as_u64().unwrap() < 40, "{input}");
    assert_eq!(input["ending"]["kind"], "minimal");
    assert_eq!(
        input["text"],
        "- {\"expect\":{\"status\":201},\"json\":{\"items\":[13]},\"post\":\"http://till:8080/orders\"}\n"
    );
    tool.run(["report", "last", "--input", "smallest.yaml"]).expect(0);
    assert_eq!(tool.read("smallest.yaml"), input["text"].as_str().unwrap());
}
