//! Services that do not do what they should: the tool names which, and gives their last lines.

use faultscope_testkit::{Fixture, cells, free_port};
use insta::assert_snapshot;

use crate::{published, tool_with};

#[test]
fn a_service_that_dies_at_its_start() {
    let fixture = published(free_port()).replace(
        "  back:\n    command: [\"${faultscope}\", \"cell\", \"--spec\", \"cells.yaml\", \"--service\", \"back\"]",
        "  back:\n    command: [\"sh\", \"-c\", \"echo reading settings; echo no database >&2; exit 4\"]",
    );
    let tool = tool_with(&fixture);
    assert_snapshot!(tool.run(["test"]).shown(), @"
    exit code 5
    --- stdout
    run <run>.1 unresolved (back-1 did not become ready: exited with 4): took <time>
      back-1 exited with 4
      last lines of back-1:
        | reading settings
        | no database
    see the calls with `faultscope runs show <run>.1`
    ");
    assert_snapshot!(tool.run(["up"]).shown(), @"
    exit code 5
    --- stderr
    error: process: cannot start back-1
      because: exited with 4
      | reading settings
      | no database
    ");
}

/// Cells and a service without ports that ends at once, which nobody calls.
fn with_worker(script: &str) -> Fixture {
    let worker = format!("services:\n  worker: {{ command: [\"sh\", \"-c\", \"{script}\"] }}\n");
    published(free_port()).replace("services:\n", &worker)
}

#[test]
fn a_service_that_nobody_needs_and_that_ends_at_once() {
    let tool = tool_with(&with_worker("echo no queue >&2; exit 4"));
    assert_snapshot!(tool.run(["test"]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 pass: 1 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      pass  hello <time>
      worker-1 exited with 4
      last lines of worker-1:
        | no queue
    see the calls with `faultscope runs show <run>.1`
    ");
    let probed = tool.run(["check", "--probe"]).expect(0).stdout;
    let probed: Vec<&str> = probed.lines().skip_while(|line| !line.starts_with("probe:")).skip(1).collect();
    assert_snapshot!(probed[..3].join("\n"), @"
      worker-1 exited with 4
      last lines of worker-1:
        | no queue
    ");
    let json = tool.json(["check", "--probe"], 0);
    assert_eq!(json["probe"]["exits"][0]["reason"], serde_json::json!({ "kind": "exited", "code": 4 }));
    let mut up = tool.start(["up"]);
    up.wait_for_line("warning: worker-1 exited with 4");
    up.wait_for_line("no queue");
    up.interrupt();
    up.wait().expect(0);
}

#[test]
fn a_service_that_ends_without_a_word_and_without_an_error() {
    let tool = tool_with(&with_worker("sleep 0.3"));
    let probed = tool.run(["check", "--probe"]).expect(0).stdout;
    let said: Vec<&str> = probed.lines().filter(|line| line.contains("worker-1")).collect();
    assert_eq!(said, ["  worker-1 exited with 0", "  worker-1 printed nothing"]);
}

#[test]
fn what_a_service_prints_cannot_steer_the_terminal() {
    let tool = tool_with(&with_worker("printf '\\\\033[2Jgone\\\\033]0;title\\\\007\\\\n'; exit 1"));
    let shown = tool.run(["test"]).expect(0).stdout;
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    assert!(shown.contains("    |  [2Jgone ]0;title"), "{shown}");
}

#[test]
fn a_missing_program() {
    let fixture = cells().replace("command: [\"${faultscope}\"", "command: [\"no-such-program\"");
    assert_snapshot!(tool_with(&fixture).run(["test"]).shown(), @"
    exit code 3
    --- stderr
    error: process: cannot start front-1
      because: no such program: `no-such-program`
    ");
}

#[test]
fn a_service_that_never_listens() {
    let fixture = cells()
        .replace("command: [\"${faultscope}\"", "command: [\"sh\", \"-c\", \"echo waiting; sleep 1000\"")
        .replace("ready: { http: /health }", "ready: { http: /health, within: 1s }");
    assert_snapshot!(tool_with(&fixture).run(["test"]).shown(), @"
    exit code 5
    --- stdout
    run <run>.1 unresolved (front-1 did not become ready: not ready within <time>: GET /health on port 8080 refuses connections): took <time>
      front-1 not ready within <time>: GET /health on port 8080 refuses connections
      last lines of front-1:
        | waiting
    see the calls with `faultscope runs show <run>.1`
    ");
}

#[test]
fn a_service_that_ends_during_a_test() {
    let fixture = cells().replace("http://front:8080/hello", "http://front:8080/end");
    let tool = tool_with(&fixture);
    assert_snapshot!(tool.run(["test"]).shown(), @"
    exit code 1
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 1 call seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/end: the connection was closed before an answer
      front-1 exited with 7
      last lines of front-1:
        | front-1 GET /end: crashed
    see the calls with `faultscope runs show <run>.1`
    ");
    assert_snapshot!(tool.run(["runs", "show"]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 1 call seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/end: the connection was closed before an answer
      front-1 exited with 7
      last lines of front-1:
        | front-1 GET /end: crashed

    service map: 2 services, 1 edge
      test
       └─▶ front      1 call   p50 <time>  p99 <time>  1 error

    trace <trace>: 1 call in <time>
      front-1 GET /end <time> <bar> closed by callee

    printed around test-1 -> front-1 GET /end closed by callee
     <time>  front-1 | front-1 GET /end: crashed

    services printed 1 line: see them with --logs
    ");
}

#[test]
fn a_service_that_answers_with_errors() {
    let tool = tool_with(&cells());
    tool.tested(["--delta", "config back.env.BROKEN"], 1);
    assert_snapshot!(tool.run(["runs", "show"]).shown(), @r#"
    exit code 0
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/hello: status 502 != 200
            answer:
            | {"error":"back GET /word: 503 no words today","kind":"call","operation":"GET /hello","service":"front"}
      under config back.env.BROKEN=true

    service map: 3 services, 2 edges
      test
       └─▶ front      1 call   p50 <time>  p99 <time>  1 error
      front
       └─▶ back       1 call   p50 <time>  p99 <time>  1 error

    trace <trace>: 2 calls in <time>
      front-1 GET /hello <time> <bar> 502
      └─ back-1 GET /word <time> <bar> 503

    printed around front-1 -> back-1 GET /word 503
     <time>  back-1 | back-1 GET /word: failed with 503: no words today
     <time>  front-1 | front-1 GET /hello: failed with 502: back GET /word: 503 no words today

    services printed 2 lines: see them with --logs
    "#);
}

#[test]
fn a_mistake_in_a_cells_own_spec() {
    let tool = tool_with(&cells().file("cells.yaml", "version: 1\nservices: { front: { prot: 1 } }\n"));
    let output = tool.run(["test"]).expect(5);
    // Both services die of it; which one is seen first is left to chance.
    assert!(output.stdout.contains("cells.yaml is not a spec"), "{}", output.stdout);
}
