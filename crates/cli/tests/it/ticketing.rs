//! The sample of 45 services: the demo, and the fault cases of paper 1.

use faultscope_testkit::{Faultscope, nothing_left};
use insta::assert_snapshot;

use crate::tool;

/// The sample in its own folder of the repository, whose campaigns go to a copy.
fn ticketing() -> Faultscope {
    let tool = tool();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps/ticketing");
    for file in [
        "faultscope.yaml",
        "cells.yaml",
        "cases/dd-f1.yaml",
        "cases/dd-f2.yaml",
        "cases/dd-f3.yaml",
        "cases/dd-f4.yaml",
    ] {
        tool.write(file, &std::fs::read_to_string(format!("{source}/{file}")).unwrap());
    }
    tool
}

/// Passes when simplest; when failing, exactly the named test fails.
#[track_caller]
fn case(file: &str, deltas: usize, test: &str) {
    let tool = ticketing();
    let checked = tool.json(["check", file], 0);
    assert_eq!(checked["deltas"].as_array().unwrap().len(), deltas);
    let run = tool.json(["test", file, "--test", test], 0);
    assert_eq!(run["runs"][0]["outcome"]["kind"], "pass");
    let json = tool.json(["test", file, "--failing"], 1);
    let run = &json["runs"][0];
    let tests = run["evidence"]["tests"].as_array().unwrap();
    let failed: Vec<_> =
        tests.iter().filter(|t| !t["failure"].is_null()).map(|t| t["test"].as_str().unwrap()).collect();
    assert_eq!(failed, [test]);
    assert_eq!(run["outcome"]["signature"]["test"], test);
}

#[test]
fn dd_f1_instances() {
    case("cases/dd-f1.yaml", 36, "a locked line refuses cancellations");
}

#[test]
fn dd_f2_configuration() {
    case("cases/dd-f2.yaml", 63, "cancel a ticket with a statement");
}

#[test]
fn dd_f3_sequence() {
    case("cases/dd-f3.yaml", 43, "cancel an ordinary ticket");
}

#[test]
fn dd_f4_sequence_and_instances() {
    case("cases/dd-f4.yaml", 43, "cancel with the recheck on");
}

#[test]
fn demo() {
    let tool = tool();
    let running = tool.start(["demo"]);
    let id = running.id();
    let output = running.wait().expect(0);
    let folder = std::fs::read_dir(tool.temporary()).unwrap().next().unwrap().unwrap().path();
    nothing_left(id, &folder);
    let text = &output.stdout;
    for part in [
        "pass: 34 of 34 tests passed",
        "service map:",
        "Minimal cause: 1 of 36 deltas",
        "instance order-other: 1 -> 3",
        "Evidence: the first call that differs",
        "Reproduce with",
        "--delta 'instance order-other'",
        "What to try next",
        "cases/dd-f3.yaml",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    assert!(text.lines().count() <= 70, "more than two screens:\n{text}");
    assert_snapshot!(output.stderr.lines().next().unwrap().replace(&folder.display().to_string(), "<folder>"), @"A railway's ticketing system of 45 services starts in <folder>");
}

#[test]
fn demo_as_json_into_a_folder() {
    let tool = tool();
    let json = tool.json(["demo", "--into", "sample"], 0);
    let run = &json["run"];
    assert_eq!(run["evidence"]["tests"].as_array().unwrap().len(), 34);
    assert_eq!(run["outcome"]["kind"], "pass");
    assert_eq!(run["evidence"]["spans_dropped"], 0);
    assert_eq!(json["debug"]["verdict"]["kind"], "reduced");
    assert_eq!(json["debug"]["causes"][0]["deltas"][0]["name"], "instance order-other");
    assert!(tool.folder().join("sample/faultscope.yaml").exists());
}
