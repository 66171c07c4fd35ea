//! Tests that were discovered: what the tool prints to show their failure again works as it is printed.

use faultscope_testkit::{Faultscope, cells};
use serde_json::Value;

use crate::tool_with;

/// A runner of two cases, of which one does not like what `back` says. It lists them, runs one of them, or
/// writes a report of both, as it is asked.
const RUNNER: &str = r#"import sys, urllib.request
suite, asked = sys.argv[1], sys.argv[2]
cases = {"opens": "w", "sells[two 2]": "world"}
def broken(case):
    word = urllib.request.urlopen("http://front:8080/hello").read().decode()
    return cases[case] not in word
if asked == "list":
    print("\n".join(sys.argv[3].replace("{}", case) for case in cases))
elif asked == "report":
    tell = lambda case: '<failure message="no ' + cases[case] + '"/>' if broken(case) else ""
    text = "".join('<testcase classname="' + suite + '" name="' + case + '">' + tell(case) + "</testcase>" for case in cases)
    open(sys.argv[3], "w").write("<testsuite>" + text + "</testsuite>")
else:
    case = next(case for case in cases if asked.endswith(case))
    sys.exit("no " + cases[case] if broken(case) else 0)
"#;

/// The cells, where `back` says another word with one of three deltas, and these tests.
fn shop(tests: &str) -> Faultscope {
    let file = cells().replace(
        "config: { back: { env.BROKEN: \"true\", memory: 64MiB } }",
        "config: { back: { env.WORD: wold, memory: 64MiB } }",
    );
    let tool = tool_with(&file);
    let text = tool.read("faultscope.yaml");
    let (before, rest) = text.split_once("tests:\n").unwrap();
    let (_, failing) = rest.split_once("failing:\n").unwrap();
    tool.write("faultscope.yaml", &format!("{before}tests:\n{tests}failing:\n{failing}"));
    tool.write("runner.py", RUNNER);
    tool
}

fn failed(run: &Value) -> Vec<&str> {
    let tests = run["evidence"]["tests"].as_array().unwrap();
    tests.iter().filter(|t| !t["failure"].is_null()).map(|t| t["test"].as_str().unwrap()).collect()
}

/// Debugs, and pastes what it printed; gives the name of the failing test.
fn shown_again(tool: &Faultscope, words: &[&str]) -> String {
    let output = tool.run(["debug", "--quiet", "--repeat", "1"].iter().chain(words)).expect(1).stdout;
    assert!(output.contains("Minimal cause: 1 of 3 deltas"), "{output}");
    let command = output.lines().find_map(|line| line.strip_prefix("Reproduce with `")).unwrap();
    let again = tool.pasted(&format!("{} --json", command.trim_end_matches('`'))).expect(1).json();
    let run = &again["runs"][0];
    let tests = run["evidence"]["tests"].as_array().unwrap();
    assert_eq!(tests.len(), 1, "only the failing one: {tests:?}");
    let report = tool.json(["report", "--format", "json"], 0);
    assert_eq!(failed(run), [report["report"]["signature"]["test"].as_str().unwrap()]);
    failed(run)[0].to_owned()
}

#[test]
fn listed_and_reported_cases_are_shown_again() {
    let listed = |kind: &str, form: &str| {
        format!(
            "  - {{ discover: {kind}, list: [python3, runner.py, a, list, '{form}'], each: [python3, runner.py, a, '{{case}}'] }}\n"
        )
    };
    let all = [
        (listed("pytest", "tests/shop.py::{}"), "tests/shop.py::sells[two 2]"),
        (
            "  - { discover: junit, run: [python3, runner.py, shop, report, '{out}'] }\n".to_owned(),
            "shop.sells[two 2]",
        ),
    ];
    for (tests, name) in all {
        assert_eq!(shown_again(&shop(&tests), &[]), name);
    }
}

#[test]
fn one_case_of_several_suites() {
    let suite = |name: &str| {
        format!(
            "  - {{ name: {name}, discover: junit, run: [python3, runner.py, shop, report, '{{out}}'], failure: 'no .' }}\n"
        )
    };
    let tool = shop(&(suite("one") + &suite("two")));
    // Both suites have the case, so that it needs the name of its suite, and two of them fail.
    let both = tool.run(["debug", "--quiet", "--repeat", "1"]).expect(5).stdout;
    assert!(
        both.contains(
            "more than one test fails with all deltas: one: shop.sells[two 2], two: shop.sells[two 2]"
        ),
        "{both}"
    );
    let hint = "Look at one of them alone with `faultscope debug --quiet --repeat 1 --test 'one: shop.sells[two 2]' --only`";
    assert!(both.contains(hint), "{both}");
    let words = ["--test", "one: shop.sells[two 2]", "--only", "--bundle", "out/repro.tar.gz"];
    assert_eq!(shown_again(&tool, &words), "one: shop.sells[two 2]");
    let shown = tool.json(["repro", "out/repro.tar.gz"], 1);
    assert_eq!(shown["manifest"]["signature"]["message"], "no w", "the suite's pattern holds for its cases");
    // What is no case fails with the names of those that are.
    let wrong = tool.run(["test", "--test", "two: shop.closes"]).expect(1).stdout;
    assert!(
        wrong.contains("the report has no case `shop.closes`, but shop.opens, shop.sells[two 2]"),
        "{wrong}"
    );
    let refused = tool.run(["test", "--test", "three: shop.opens"]).expect(2).stderr;
    assert!(refused.contains("there is no test `three: shop.opens`"), "{refused}");
}

#[test]
fn defects_of_discovered_tests_are_shown_again() {
    // The runner says what it was told, which would be an honest failure unless none is allowed.
    let run = "[python3, runner.py, a, '{case}']";
    let all = [
        format!("  - {{ discover: lines, list: [echo, opens], each: {run}, degraded: '' }}\n"),
        "  - { discover: junit, run: [python3, runner.py, shop, report, '{out}'], degraded: '' }\n"
            .to_owned(),
    ];
    for tests in all {
        let tool = shop(&tests);
        let report = tool.json(["resilience", "--kinds", "error", "--together", "1"], 1);
        let defect = &report["tests"][0]["defects"][0];
        let command = defect["reproduce"].as_str().unwrap();
        let again = tool.pasted(&format!("{command} --json")).expect(1).json();
        assert!(!failed(&again).is_empty(), "{command}: {again}");
    }
}
