//! `faultscope capture`: the failing circumstance as a recorded run shows it.

use faultscope_testkit::Faultscope;
use insta::assert_snapshot;

use crate::tool;

const CELLS: &str = r#"
version: 1
services:
  desk:
    port: 8080
    operations:
      "POST /book/{id}":
        steps:
          - concurrently:
              - [ { call: { service: slow, path: /s } } ]
              - [ { sleep: 100ms }, { call: { service: quick, path: /q } } ]
          - respond: { body: { ok: true } }
  slow:
    port: 8081
    operations:
      "GET /s":
        steps:
          - sleep: 1s
          - respond: { body: { ok: true } }
  quick:
    port: 8082
    operations:
      "GET /q":
        steps:
          - respond: { body: { ok: true } }
"#;

/// A desk that makes two calls at once, the first of which takes longer; the second comes a little later, so
/// that their order is not left to chance.
fn desk() -> Faultscope {
    let tool = tool();
    tool.write("cells.yaml", CELLS);
    tool.write(
        "desk.proto",
        "syntax = \"proto3\";\nservice Desk { rpc Book(Order) returns (Order); }\nmessage Order {}\n",
    );
    let service = |name: &str, port: u16| {
        format!(
            "  {name}:\n    command: [\"${{faultscope}}\", \"cell\", \"--spec\", \"cells.yaml\", \"--service\", \"{name}\"]\n    \
             ports: [{port}]\n    ready: {{ http: /health }}\n"
        )
    };
    let services = [service("desk", 8080), service("slow", 8081), service("quick", 8082)].concat();
    let file = format!(
        "# my desk\nname: desk\nservices:\n{services}failing: {{ nodes: 2 }}   # guessed\n\n# what must work\ntests:\n  \
         - {{ name: book, http: {{ post: \"http://desk:8080/book/17\", expect: {{ status: 200 }} }} }}\nprotos: [desk.proto]\n"
    );
    tool.write("faultscope.yaml", &file);
    tool
}

#[test]
fn orders_of_a_recorded_run() {
    let tool = desk();
    tool.tested(["--set", "instances.quick=3", "--set", "config.slow.memory=256MiB"], 0);
    assert_snapshot!(tool.run(["capture", "--from-run", "last"]).shown(), @r#"
    exit code 0
    --- stdout
    failing:
      nodes: 2
      instances: { quick: 3 }
      config:
        slow: { memory: "256MiB" }
      sequence:
        - { from: desk, in: "POST /book/{id}", order: ["quick GET /q", "slow GET /s"] }
    --- stderr
    from run <run>.1
    4 deltas; `--write` puts it into faultscope.yaml
    "#);
    let before = tool.read("faultscope.yaml");
    let told = tool.json(["capture", "--from-run", "last", "--write"], 0);
    assert_eq!(told["deltas"], 4);
    let after = tool.read("faultscope.yaml");
    let (kept, _) = before.split_once("failing:").unwrap();
    assert!(after.starts_with(kept), "{after}");
    assert!(after.ends_with(before.split_once("# guessed\n").unwrap().1), "{after}");
    assert_eq!(tool.json(["check"], 0)["deltas"].as_array().unwrap().len(), 4);
    tool.run(["capture", "--from-run", "last", "--write"]).expect(0);
    assert_eq!(tool.read("faultscope.yaml"), after, "twice is once");
}

#[test]
fn orders_of_a_trace() {
    let tool = desk();
    let run = tool.tested::<&str>([], 0);
    let trace = run.spans()[0]["trace"].as_str().unwrap().to_owned();
    let told = tool.json(["capture", "--from-trace", &trace, "--replace"], 0);
    assert_eq!(
        told["failing"]["sequence"],
        serde_json::json!([{ "from": "desk", "in": "POST /book/{id}", "order": ["quick GET /q", "slow GET /s"] }])
    );
    assert_eq!(told["failing"]["nodes"], 1, "what was guessed is forgotten");
}

#[test]
fn what_cannot_be_captured() {
    let tool = desk();
    assert_snapshot!(tool.run(["capture", "--from-run", "last"]).exact(), @"
    exit code 2
    --- stderr
    error: there are no runs at <folder>/.faultscope

    hint: runs lie beside the application file: name its folder, or run `faultscope test` first
    ");
    tool.run(["capture"]).expect(2);
}
