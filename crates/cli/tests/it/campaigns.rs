//! Several trials in one campaign, and several tools in one folder.

use faultscope_testkit::{cells, left_over, nothing_left, wait_until};
use insta::assert_snapshot;

use crate::tool_with;

#[test]
fn repeated_in_slots() {
    let tool = tool_with(&cells());
    let running = tool.start(["test", "--repeat", "4", "--slots", "2", "--json"]);
    let id = running.id();
    let json = running.wait().expect(0).json();
    nothing_left(id, &tool.folder());
    assert_eq!(json["passed"], 4);
    let runs = json["runs"].as_array().unwrap();
    let mut trials: Vec<_> = runs.iter().map(|r| r["trial"].as_str().unwrap()).collect();
    trials.sort_unstable();
    assert_eq!(trials, ["1", "2", "3", "4"]);
    // The second slot is used at once; how the rest is shared out is left to chance.
    assert!(runs.iter().any(|r| r["slot"] == 1));
    assert!(runs.iter().all(|r| r["cost"]["created"] == 2), "every trial has fresh processes");
}

#[test]
fn repeated_for_people() {
    let tool = tool_with(&cells());
    assert_snapshot!(tool.run(["test", "--repeat", "2", "--failing"]).shown(), @r#"
    exit code 1
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/hello: status 502 != 200
            answer:
            | {"error":"back GET /word: 503 no words today","kind":"call","operation":"GET /hello","service":"front"}
    run <run>.2 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/hello: status 502 != 200
            answer:
            | {"error":"back GET /word: 503 no words today","kind":"call","operation":"GET /hello","service":"front"}
    2 trials: 0 passed, 2 failed, 0 unresolved
    see the calls with `faultscope runs show <run>.1`
    "#);
}

#[test]
fn fail_fast_cancels_the_others() {
    // The first slot fails at once, the second would take a minute.
    let fixture = cells().replace(
        "tests:\n",
        "tests:\n  - { name: slot, run: [\"sh\", \"-c\", \"test ${slot} != 0 || exit 1; sleep 1000\"] }\n",
    );
    let tool = tool_with(&fixture);
    let running =
        tool.start(["test", "--repeat", "6", "--slots", "2", "--fail-fast", "--test", "slot", "--json"]);
    let id = running.id();
    let json = running.wait().expect(1).json();
    nothing_left(id, &tool.folder());
    assert_eq!((&json["failed"], &json["passed"], &json["stopped"]), (&1.into(), &0.into(), &false.into()));
    assert_eq!(json["runs"].as_array().unwrap().len(), 1, "cancelled trials are no runs");
}

#[test]
fn sentinels_notice_a_changed_environment() {
    // It passes once: what it leaves on the machine itself is not part of any circumstance.
    let marks = tempfile::tempdir().unwrap();
    let shared = marks.path().display();
    let test =
        format!("shared: [\"{shared}\"]\ntests:\n  - {{ name: once, run: [mkdir, \"{shared}/mark\"] }}\n");
    let fixture = cells().replace("tests:\n", &test);
    let tool = tool_with(&fixture);
    let output = tool.run(["test", "--repeat", "3", "--sentinel-every", "1", "--test", "once"]);
    let shown = output.shown().replace(&marks.path().display().to_string(), "<marks>");
    assert_snapshot!(shown, @"
    exit code 6
    --- stderr
    warning: <marks> is `shared`: trials can read and change it
    error: the environment changed: a repeated trial gave fail instead of pass
    ");
}

#[test]
fn interrupted() {
    let fixture = cells().replace("tests:\n", "tests:\n  - { name: sleeps, run: [\"sleep\", \"1000\"] }\n");
    let tool = tool_with(&fixture);
    let running = tool.start(["test", "--repeat", "2"]);
    let id = running.id();
    wait_until("the test runs", || left_over(id, &tool.folder()).iter().any(|l| l.contains("sleep 1000")));
    running.interrupt();
    assert_snapshot!(running.wait().shown(), @"
    exit code 130
    --- stdout
    interrupted: what had finished is stored
    ");
    nothing_left(id, &tool.folder());
}

#[test]
fn two_tools_in_one_folder() {
    let tool = tool_with(&cells());
    let both: Vec<_> = (0..2).map(|_| tool.start(["test", "--repeat", "3", "--json"])).collect();
    let ids: Vec<u32> = both.iter().map(|r| r.id()).collect();
    for running in both {
        let json = running.wait().expect(0).json();
        assert_eq!(json["passed"], 3);
        assert!(json["runs"].as_array().unwrap().iter().all(|r| r["evidence"]["spans"] == 2));
    }
    for id in ids {
        nothing_left(id, &tool.folder());
    }
    assert_eq!(tool.json(["runs", "ls"], 0).as_array().unwrap().len(), 2);
}
