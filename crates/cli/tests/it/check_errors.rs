//! Mistakes in an application file: each names file, line, key and what would be right, and ends with code 3.

use faultscope_testkit::cells;
use insta::assert_snapshot;

use crate::{tool, tool_with};

/// What `check` says of a file, without the exit code, which must be 3.
#[track_caller]
fn complaint(text: &str) -> String {
    let tool = tool_with(&cells().application(text));
    let output = tool.run(["check"]).expect(3);
    assert_eq!(output.stdout, "");
    output.stderr
}

#[test]
fn no_file() {
    assert_snapshot!(tool().run(["check"]).exact(), @"
    exit code 3
    --- stderr
    error: cannot read faultscope.yaml
      because: No such file or directory (os error 2)

    hint: `faultscope init` writes one from a Compose file or a Procfile; `faultscope demo` needs none
    ");
}

#[test]
fn a_folder_without_a_file() {
    let tool = tool();
    tool.write("empty/.keep", "");
    assert_snapshot!(tool.run(["check", "empty"]).exact(), @"
    exit code 3
    --- stderr
    error: cannot read empty/faultscope.yaml
      because: No such file or directory (os error 2)

    hint: `faultscope init` writes one from a Compose file or a Procfile; `faultscope demo` needs none
    ");
}

#[test]
fn an_unreadable_file() {
    let tool = tool();
    std::fs::write(tool.folder().join("faultscope.yaml"), b"name: \xff\xfe").unwrap();
    assert_snapshot!(tool.run(["check"]).exact(), @"
    exit code 3
    --- stderr
    error: cannot read faultscope.yaml
      because: it is not text in UTF-8
    ");
}

#[test]
fn an_empty_file() {
    assert_snapshot!(complaint("\n"), @"
    error: faultscope.yaml: the file is empty

    hint: `faultscope init` writes one from a Compose file or a Procfile
    ");
}

#[test]
fn an_unknown_key_with_a_near_one() {
    assert_snapshot!(complaint("name: x\nservces:\n  one: { command: [a] }\n"), @"
    error: faultscope.yaml:2: servces: unknown key

    hint: did you mean `services`?
    ");
}

#[test]
fn a_mistake_in_the_file_that_is_extended() {
    let tool = tool_with(&cells().replace("ready: { http: /health }", "ready: { htttp: /health }"));
    tool.write("case.yaml", "extends: faultscope.yaml\n");
    assert_snapshot!(tool.run(["check", "case.yaml"]).exact(), @"
    exit code 3
    --- stderr
    error: faultscope.yaml:6: htttp: unknown key

    hint: did you mean `http`?
    ");
}

#[test]
fn extending_a_file_that_is_not_there() {
    assert_snapshot!(complaint("name: x\nextends: other.yaml\n"), @"error: faultscope.yaml:2: extends: cannot read `other.yaml`: No such file or directory (os error 2)");
}

#[test]
fn extending_in_a_circle() {
    let tool = tool_with(&cells().application("extends: other.yaml\n"));
    tool.write("other.yaml", "extends: faultscope.yaml\n");
    assert_snapshot!(tool.run(["check"]).exact(), @"
    exit code 3
    --- stderr
    error: faultscope.yaml:1: extends: files extend one another in a circle
    ");
}

#[test]
fn errors_reach_json_users_too() {
    let output = tool_with(&cells().application("nme: x\n")).run(["check", "--json"]);
    assert_snapshot!(output.exact(), @r#"
    exit code 3
    --- stdout
    {
      "error": {
        "causes": [],
        "exit": 3,
        "hint": "did you mean `name`?",
        "lines": [],
        "message": "faultscope.yaml:1: nme: unknown key"
      }
    }
    --- stderr
    error: faultscope.yaml:1: nme: unknown key

    hint: did you mean `name`?
    "#);
}
