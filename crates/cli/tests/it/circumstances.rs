//! Under which circumstance: settings, deltas, instances, nodes, limits, versions.

use faultscope_testkit::cells;
use insta::assert_snapshot;

use crate::tool_with;

#[test]
fn single_settings() {
    let tool = tool_with(&cells());
    let run = tool.tested(["--set", "config.front.env.GREETING=bye"], 1);
    assert_eq!(run.output("hello"), r#"{"by":"back-1","said":"bye world"}"#);
    assert_eq!(run.json["run"]["circumstance"]["config"]["front"]["env.GREETING"], "bye");
    assert_snapshot!(tool.run(["runs", "show", "--traces", "0"]).shown(), @r#"
    exit code 0
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/hello: said: `bye world` does not match `hello world`
            answer:
            | {"by":"back-1","said":"bye world"}
      under config front.env.GREETING=bye

    service map: 3 services, 2 edges
      test
       └─▶ front      1 call   p50 <time>  p99 <time>
      front
       └─▶ back       1 call   p50 <time>  p99 <time>
    "#);
}

#[test]
fn settings_that_cannot_be() {
    let tool = tool_with(&cells());
    for setting in ["instances.back=-1", "nodes=x", "config.back.memroy=1MiB", "back=2"] {
        let output = tool.run(["test", "--set", setting]).expect(2);
        assert!(output.stderr.contains("is not a setting"), "{}", output.stderr);
    }
    assert_snapshot!(tool.run(["test", "--set", "instances.bcak=2"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no service `bcak`

    hint: did you mean `back`?
    ");
    assert_snapshot!(tool.run(["test", "--set", "config.back.memory=lots"]).exact(), @"
    exit code 2
    --- stderr
    error: back: `lots` cannot be its memory
    ");
}

#[test]
fn single_deltas() {
    let tool = tool_with(&cells());
    let run = tool.tested(["--delta", "instance back", "--delta", "config back.memory"], 0);
    assert_eq!(
        run.json["run"]["treatment"],
        serde_json::json!({ "kind": "deltas", "deltas": ["config back.memory", "instance back"] })
    );
    assert_eq!(run.json["run"]["cost"]["created"], 4);
    tool.tested(["--delta", "config back.env.BROKEN"], 1);
    assert_snapshot!(tool.run(["test", "--delta", "instance bak"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no delta `instance bak`

    hint: did you mean `instance back`? `faultscope check` lists all deltas
    ");
}

#[test]
fn a_memory_limit_kills_and_is_named() {
    let fixture = cells().replace(
        "failing:",
        "  - { name: heap, http: { get: \"http://front:8080/heap\", expect: { json: { took: \"64\" } } } }\nfailing:",
    );
    let tool = tool_with(&fixture);
    tool.tested(["--test", "heap"], 0);
    let run = tool.tested(["--test", "heap", "--set", "config.back.memory=32MiB"], 1);
    assert_eq!(
        run.json["run"]["evidence"]["exits"],
        serde_json::json!([{ "instance": "back-1", "reason": { "kind": "out_of_memory" } }])
    );
    assert_snapshot!(tool.run(["runs", "show"]).shown(), @r#"
    exit code 0
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  heap <time>
            step 1
            | GET http://front:8080/heap: status 502
            answer:
            | {"error":"back GET /heap: connection closed before message completed","kind":"call","operation":"GET /heap","service":"front"}
      back-1 killed: out of memory
      back-1 printed nothing
      under config back.memory=32MiB

    service map: 3 services, 2 edges
      test
       └─▶ front      1 call   p50 <time>  p99 <time>  1 error
      front
       └─▶ back       1 call   p50 <time>  p99 <time>  1 error

    trace <trace>: 2 calls in <time>
      front-1 GET /heap <time> <bar> 502
      └─ back-1 GET /heap <time> <bar> closed by callee

    printed around front-1 -> back-1 GET /heap closed by callee
     <time>  front-1 | front-1 GET /heap: failed with 502: back GET /heap: connection closed before message completed

    services printed 1 line: see them with --logs
    "#);
}

#[test]
fn what_is_recorded() {
    let tool = tool_with(&cells());
    let run = tool.tested(["--record", "timing"], 0);
    assert!(run.spans().iter().all(|s| s["payload"].is_null()));
    let run = tool.tested(["--record", "headers"], 0);
    let payload = &run.spans_to("back")[0]["payload"];
    assert!(payload["request_headers"].to_string().contains("traceparent"));
    assert_eq!(payload["response_body"], "");
    let run = tool.tested(["--record", "bodies"], 0);
    assert_ne!(run.spans_to("back")[0]["payload"]["response_body"], "");
}
