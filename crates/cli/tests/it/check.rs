//! `faultscope check`: what a file says, and what a probe finds.

use std::os::unix::fs::PermissionsExt;

use faultscope_testkit::{cells, python};
use insta::assert_snapshot;

use crate::tool_with;

#[test]
fn lists_every_delta() {
    let fixture = cells().replace(
        "failing:",
        "links: [ { latency: 5ms } ]
constraints: [ { if: config back.memory, then: instance back } ]
failing:
  nodes: 2
",
    );
    let tool = tool_with(&fixture);
    assert_snapshot!(tool.run(["check"]).exact(), @"
    exit code 0
    --- stdout
    cells: 2 services, 1 test, 4 deltas between simplest and failing
    rank  dimension      delta                   from   to     cost
    1     node           node                    1      2      50ms
    2     instance       instance back           1      3      100ms
    3     configuration  config back.memory      unset  64MiB  60ms
    4     configuration  config back.env.BROKEN  unset  true   60ms
    ");
}

#[test]
fn lists_pairs_of_a_sequence() {
    let fixture = cells().more(
        r#"  sequence: [ { from: front, in: "GET /hello", order: [ "back GET /word", "back GET /heap", "back GET /word#2" ] } ]
"#,
    );
    assert_snapshot!(tool_with(&fixture).run(["check"]).exact(), @"
    exit code 0
    --- stdout
    cells: 2 services, 1 test, 6 deltas between simplest and failing
    rank  dimension      delta                                                         from                    to                    cost
    1     instance       instance back                                                 1                       3                     100ms
    2     sequence       sequence front GET /hello: back GET /word / back GET /word#2  back GET /word#2 first  back GET /word first  0us
    3     sequence       sequence front GET /hello: back GET /heap / back GET /word#2  back GET /word#2 first  back GET /heap first  0us
    4     sequence       sequence front GET /hello: back GET /heap / back GET /word    back GET /heap first    back GET /word first  0us
    5     configuration  config back.memory                                            unset                   64MiB                 60ms
    6     configuration  config back.env.BROKEN                                        unset                   true                  60ms
    ");
}

#[test]
fn without_a_failing_circumstance() {
    let fixture = cells().application("services: { one: { command: [\"true\"] } }\n");
    assert_snapshot!(tool_with(&fixture).run(["check"]).exact(), @"
    exit code 0
    --- stdout
    application: 1 service, 0 tests, 0 deltas between simplest and failing
    no `failing:` circumstance yet, so there is nothing to reduce
    ");
}

#[test]
fn takes_a_folder_or_a_file_and_what_it_extends() {
    let tool = tool_with(&cells());
    tool.write("cases/one.yaml", "extends: ../faultscope.yaml\nfailing: { instances: { front: 2 } }\n");
    assert_snapshot!(tool.run(["check", "cases/one.yaml"]).exact(), @"
    exit code 0
    --- stdout
    cells: 2 services, 1 test, 1 delta between simplest and failing
    rank  dimension  delta           from  to  cost
    1     instance   instance front  1     2   50ms
    ");
    let folder = tool.folder().display().to_string();
    assert_eq!(tool.run(["check", &folder]).expect(0).stdout, tool.run(["check"]).expect(0).stdout);
}

#[test]
fn as_json() {
    let json = tool_with(&cells()).json(["check"], 0);
    assert_eq!(json["application"], "cells");
    assert_eq!((json["services"].as_u64(), json["tests"].as_u64()), (Some(2), Some(1)));
    let names: Vec<_> =
        json["deltas"].as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["instance back", "config back.env.BROKEN", "config back.memory"]);
    assert_snapshot!(pretty(&json["deltas"][0]), @r#"
    {
      "cost": 0.1,
      "dimension": "instance",
      "from": "1",
      "name": "instance back",
      "rank": 1,
      "to": "3"
    }
    "#);
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[test]
fn probe_of_services_that_hand_on_context() {
    let output = tool_with(&cells()).run(["check", "--probe"]);
    assert_snapshot!(output.shown(), @"
    exit code 0
    --- stdout
    cells: 2 services, 1 test, 3 deltas between simplest and failing
    rank  dimension      delta                   from   to     cost
    1     instance       instance back           1      3 <time>
    2     configuration  config back.memory      unset  64MiB <time>
    3     configuration  config back.env.BROKEN  unset  true <time>

    probe: 2 calls seen, outcome pass
    every service that makes calls propagates trace context (1 service)
    see them with `faultscope runs show <run>.1`
    ");
}

#[test]
fn probe_names_a_service_that_drops_context() {
    let fixture = python().replace("STOCK_URL:", "PROPAGATE: no, STOCK_URL:");
    let tool = tool_with(&fixture);
    let json = tool.json(["check", "--probe"], 0);
    // One for the step, one for urllib, three for http.client, one for curl.
    assert_eq!(json["probe"]["not_propagating"], serde_json::json!({ "order": 6 }));
    assert_eq!(json["probe"]["propagating"], serde_json::json!([]));
    assert_snapshot!(tool.run(["check", "--probe"]).shown(), @"
    exit code 0
    --- stdout
    shop: 2 services, 3 tests, 0 deltas between simplest and failing
    no `failing:` circumstance yet, so there is nothing to reduce

    probe: 13 calls seen, outcome pass
    order does not propagate trace context in 6 calls: the mesh infers the request behind each, which works only while one is in flight
    see them with `faultscope runs show <run>.1`
    ");
}

#[test]
fn probe_of_a_failing_application() {
    let fixture = cells().replace("said: hello world", "said: good night");
    assert_snapshot!(tool_with(&fixture).run(["check", "--probe"]).shown(), @"
    exit code 1
    --- stdout
    cells: 2 services, 1 test, 3 deltas between simplest and failing
    rank  dimension      delta                   from   to     cost
    1     instance       instance back           1      3 <time>
    2     configuration  config back.memory      unset  64MiB <time>
    3     configuration  config back.env.BROKEN  unset  true <time>

    probe: 2 calls seen, outcome fail
    every service that makes calls propagates trace context (1 service)
    see them with `faultscope runs show <run>.1`
    ");
}

#[test]
fn says_what_this_machine_lacks() {
    let fixture = cells().application(
        r#"services:
  one: { command: ["no-such-program"] }
  two: { command: ["./serve.sh"], directory: nowhere }
  three: { image: "redis:7", ports: [6379] }
  four: { command: ["sh", "-c", "true"], versions: { new: { command: ["./missing"] } } }
  five: { image: "mysql:8", command: ["--transaction-isolation=READ-COMMITTED"] }
tests:
  - { name: hurl, run: ["no-such-tool"] }
"#,
    );
    assert_snapshot!(tool_with(&fixture).run(["check"]).exact(), @"
    exit code 0
    --- stdout
    application: 5 services, 1 test, 0 deltas between simplest and failing
    no `failing:` circumstance yet, so there is nothing to reduce
    warning: one: `no-such-program` is not installed on this machine
    warning: two: there is no folder `nowhere`
    warning: four, version new: there is no executable file `./missing`
    warning: five: `command` begins with the option `--transaction-isolation=READ-COMMITTED`; write the program before it, or use --platform docker
    warning: three: has no `command`, so it runs on Docker only
    warning: test `hurl`: `no-such-tool` is not installed on this machine
    ");
}

#[test]
fn all_services_without_a_command_are_named_before_anything_starts() {
    let fixture = cells().application(
        "services: { web: { image: \"a:1\", ports: [80] }, db: { image: \"b:1\" }, off: { image: \"c:1\" } }
simplest: { instances: { off: 0 } }
failing: { instances: { off: 0 } }
tests: [ { name: home, http: { get: \"http://web/\" } } ]
",
    );
    assert_snapshot!(tool_with(&fixture).run(["test"]).exact(), @"
    exit code 3
    --- stderr
    error: no `command` for web, db, so processes cannot be started

    hint: give each the command that starts it on this machine, or use --platform docker, which runs images
    ");
}

#[test]
fn programs_among_temporary_files_are_not_there_in_trials() {
    let elsewhere = tempfile::tempdir_in("/tmp").unwrap();
    let program = elsewhere.path().join("serve");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, folder) = (program.display(), elsewhere.path().display());
    let file = format!(
        "services: {{ web: {{ command: [\"{program}\"], ports: [80] }} }}
tests: [ {{ name: home, http: {{ get: \"http://web/\" }} }} ]
"
    );
    let tool = tool_with(&cells().application(&file));
    let checked = tool.run(["check"]).expect(0).stdout;
    assert!(checked.contains("warning: web: trials do not see `/tmp` of this machine"), "{checked}");
    let refused = tool.run(["test", "--isolation", "netns"]).expect(3).stderr;
    assert!(refused.contains("`; trials do not see `/tmp` of this machine: "), "{refused}");
    tool.write("faultscope.yaml", &format!("shared: [\"{folder}\"]\n{file}"));
    let shared = tool.run(["check"]).expect(0).stdout;
    assert!(!shared.contains("do not see"), "{shared}");
}

#[test]
fn services_that_are_only_built_run_nowhere() {
    let fixture = cells().application(
        "services: { web: { build: ./web, ports: [80] }, worker: { build: ./worker }, db: { image: \"b:1\" } }
tests: [ { name: home, http: { get: \"http://web/\" } } ]
",
    );
    let tool = tool_with(&fixture);
    assert_snapshot!(tool.run(["check"]).exact(), @"
    exit code 0
    --- stdout
    application: 3 services, 1 test, 0 deltas between simplest and failing
    no `failing:` circumstance yet, so there is nothing to reduce
    warning: db: has no `command`, so it runs on Docker only
    warning: web, worker: have only `build`, which no platform runs; add a `command` or an `image`
    ");
    assert_snapshot!(tool.run(["test", "--platform", "docker"]).exact(), @"
    exit code 3
    --- stderr
    error: no `image` for web, worker, so containers cannot be started

    hint: images are not built here: build them, for example with `docker compose build`, and give each its name under `image`
    ");
}
