//! Gates: a caller that waits for each answer cannot be made to take another order, which is said.

use faultscope_testkit::{Fixture, cells};
use insta::assert_snapshot;

use crate::tool_with;

const CALLS: [&str; 3] = ["back GET /word", "front GET /hello", "log POST /third"];

/// The cells with `desk` and `log`, and a test that lets `desk` make its three calls.
fn desk(handling: &str, order: [usize; 3]) -> Fixture {
    let service = |name: &str, port: u16| {
        format!(
            "  {name}: {{ command: [\"${{faultscope}}\", cell, --spec, cells.yaml, --service, {name}], \
             ports: [{port}], ready: {{ http: /health }} }}\n"
        )
    };
    let order: Vec<String> = order.iter().map(|&n| format!("\"{}\"", CALLS[n])).collect();
    cells()
        .replace("tests:\n", &format!("{}{}tests:\n", service("desk", 8082), service("log", 8083)))
        .replace("failing:", &format!("  - {{ name: desk, http: {{ post: \"http://desk:8082/{handling}\" }} }}\nfailing:"))
        .replace("failing:\n  instances: { back: 3 }\n  config: { back: { env.BROKEN: \"true\", memory: 64MiB } }\n",
            &format!("gate_wait: 1s\nfailing:\n  sequence: [ {{ from: desk, in: \"POST /{handling}\", order: [ {} ] }} ]\n", order.join(", ")))
}

#[test]
fn a_synchronous_caller_is_unresolved() {
    let tool = tool_with(&desk("in-turn", [2, 1, 0]));
    let output = tool.run(["test", "--failing", "--test", "desk"]);
    assert_snapshot!(output.shown(), @"
    exit code 5
    --- stdout
    run <run>.1 unresolved (the order of desk POST /in-turn could not be imposed: the calls are not concurrent: log POST /third, front GET /hello came only after the response to another one): 1 of 1 test passed, 5 calls seen, ready after <time>, took <time>
      pass  desk <time>
    see the calls with `faultscope runs show <run>.1`
    ");
    assert_snapshot!(tool.run(["runs", "show", "--traces", "0"]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 unresolved (the order of desk POST /in-turn could not be imposed: the calls are not concurrent: log POST /third, front GET /hello came only after the response to another one): 1 of 1 test passed, 5 calls seen, ready after <time>, took <time>
      pass  desk <time>
      order of desk POST /in-turn: the calls are not concurrent: log POST /third, front GET /hello came only after the response to another one

    service map: 5 services, 5 edges
      test
       └─▶ desk       1 call   p50 <time>  p99 <time>
      desk
       ├─▶ back       1 call   p50 <time>  p99 <time>
       ├─▶ front      1 call   p50 <time>  p99 <time>
       └─▶ log        1 call   p50 <time>  p99 <time>
      front
       └─▶ back       1 call   p50 <time>  p99 <time>
    ");
}

#[test]
fn the_order_of_the_campaign_is_in_the_command_that_reproduces() {
    // `desk` makes its calls at once. The file gives only the failing order, and the cause is another delta.
    let fixture = desk("at-once", [2, 1, 0]).more("  config: { back: { env.BROKEN: \"true\" } }\n");
    let tool = tool_with(&fixture);
    let words = ["debug", "--test", "hello", "--only", "--flaky", "off"];
    let report = tool.json(words, 1);
    assert_eq!(report["causes"][0]["deltas"][0]["name"], "config back.env.BROKEN", "{report:#}");
    assert!(report.get("orders").is_none(), "no trial ran `desk`, so no order was seen: {report:#}");

    let report = tool.json(["debug", "--test", "desk", "--flaky", "off"], 1);
    let order = report["orders"][0]["order"].as_array().unwrap();
    assert_eq!(order.len(), 3);
    let command = report["causes"][0]["reproduce"].as_str().unwrap();
    let calls: Vec<&str> = order.iter().map(|call| call.as_str().unwrap()).collect();
    let option = format!("--order 'desk POST /at-once: {}'", calls.join(", "));
    assert!(command.contains(&option), "{command}");
    tool.pasted(command).expect(1);
    let sequence = &tool.last_run().json["run"]["circumstance"]["sequence"][0]["order"];
    assert_eq!(sequence, &report["orders"][0]["order"], "the same order as in the campaign");

    for (wrong, why) in [
        (
            "front GET /hello: back GET /word, log POST /third",
            "the file has no `sequence` for front GET /hello",
        ),
        ("desk POST /at-once: back GET /word, log POST /third", "is not an order of the calls of its series"),
        ("desk", "`desk` is not an order of calls"),
    ] {
        let refused = tool.run(["test", "--order", wrong]).expect(2).stderr;
        assert!(refused.contains(why), "{refused}");
    }
}
