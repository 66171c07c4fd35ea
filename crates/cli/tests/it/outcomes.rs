//! `faultscope test`: kinds of tests, and what each outcome looks like.

use faultscope_testkit::{Fixture, cells};
use insta::assert_snapshot;

use crate::tool_with;

/// The cells with other tests.
fn with_tests(tests: &str) -> Fixture {
    cells().replace(
        "tests:\n  - name: hello\n    http: { get: \"http://front:8080/hello\", expect: { status: 200, json: { said: hello world } } }\n",
        &format!("tests:\n{tests}"),
    )
}

#[test]
fn a_passing_test() {
    assert_snapshot!(tool_with(&cells()).run(["test"]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 pass: 1 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      pass  hello <time>
    see the calls with `faultscope runs show <run>.1`
    ");
}

#[test]
fn a_failing_test() {
    let tool = tool_with(&cells());
    assert_snapshot!(tool.run(["test", "--failing"]).shown(), @r#"
    exit code 1
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/hello: status 502 != 200
            answer:
            | {"error":"back GET /word: 503 no words today","kind":"call","operation":"GET /hello","service":"front"}
    see the calls with `faultscope runs show <run>.1`
    "#);
}

#[test]
fn a_trial_that_cannot_be_judged() {
    let fixture = cells().more("  versions: { back: none }\n").replace(
        "  back:\n",
        "  back:\n    versions: { none: { command: [\"sh\", \"-c\", \"echo the disk is on fire; exit 3\"] } }\n",
    );
    let tool = tool_with(&fixture);
    assert_snapshot!(tool.run(["test", "--delta", "version back"]).shown(), @"
    exit code 5
    --- stdout
    run <run>.1 unresolved (back-1 did not become ready: exited with 3): took <time>
      back-1 exited with 3
      last lines of back-1:
        | the disk is on fire
    see the calls with `faultscope runs show <run>.1`
    ");
    assert_snapshot!(tool.run(["runs", "show"]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 unresolved (back-1 did not become ready: exited with 3): took <time>
      back-1 exited with 3
      last lines of back-1:
        | the disk is on fire

    services printed 1 line: see them with --logs
    ");
}

#[test]
fn as_json() {
    let tool = tool_with(&cells());
    let json = tool.json(["test", "--seed", "7"], 0);
    assert_eq!(
        (&json["passed"], &json["failed"], &json["unresolved"], &json["stopped"], &json["seed"]),
        (&1.into(), &0.into(), &0.into(), &false.into(), &7.into())
    );
    let run = &json["runs"][0];
    assert_eq!(run["outcome"], serde_json::json!({ "kind": "pass" }));
    assert_eq!(run["cost"]["created"], 2);
    assert_eq!(run["evidence"]["spans"], 2);
    assert!(
        json["campaign"]
            .as_str()
            .unwrap()
            .starts_with(run["id"].as_str().unwrap().split('.').next().unwrap())
    );

    let json = tool.json(["test", "--failing"], 1);
    assert_eq!(
        json["runs"][0]["outcome"]["signature"],
        serde_json::json!({
            "test": "hello",
            "ending": { "step": 1 },
            "message": "GET http://front:8080/hello: status 502 != 200"
        })
    );
    assert_eq!(json["runs"][0]["circumstance"]["config"]["back"]["env.BROKEN"], "true");
}

#[test]
fn commands_run_inside() {
    let tool = tool_with(&with_tests(
        r#"  - { name: by name, run: ["${faultscope}", "fetch", "http://front:8080/hello"] }
  - { name: by localhost, run: ["${faultscope}", "fetch", "http://localhost:8081/word"] }
  - { name: by address, run: ["${faultscope}", "fetch", "http://127.0.0.1:8081/word"] }
  - { name: environment, run: ["sh", "-c", "echo $GREETING from $(pwd | tail -c 5)"], env: { GREETING: hello }, directory: sub }
  - { name: by signal, run: ["sh", "-c", "kill -9 $$"] }
"#,
    ));
    tool.write("sub/.keep", "");
    assert_snapshot!(tool.run(["test"]).shown(), @"
    exit code 1
    --- stdout
    run <run>.1 fail: 4 of 5 tests passed, 4 calls seen, ready after <time>, took <time>
      pass  by name <time>
      pass  by localhost <time>
      pass  by address <time>
      pass  environment <time>
      FAIL  by signal <time>
            signal 9
    see the calls with `faultscope runs show <run>.1`
    ");
    let run = tool.last_run();
    assert_eq!(run.output("environment"), "hello from /sub\n");
    assert_eq!(run.failed(), ["by signal"]);
}

#[test]
fn nothing_leaves() {
    // Whether it is refused or lost is the platform's choice.
    let line = r#"["${faultscope}", "fetch", "--within", "1s", "http://192.0.2.1/"]"#;
    let run = tool_with(&with_tests(&format!("  - {{ name: outside, run: {line} }}\n"))).tested([""; 0], 1);
    assert_eq!((run.failed(), run.calls()), (vec!["outside"], vec![]));
}

#[test]
fn published_ports_are_found_on_localhost() {
    let curl = |port: u16| format!(r#"["curl", "-sf", "-m", "20", "http://localhost:{port}/hello"]"#);
    let (published, own) = (curl(18080), curl(8080));
    let fixture = with_tests(&format!(
        "  - {{ name: steps, http: {{ get: \"http://localhost:18080/hello\" }} }}\n  \
         - {{ name: curl, run: {published} }}\n  - {{ name: own port, run: {own} }}\n"
    ));
    let fixture = fixture.replace("ports: [8080]", "ports: [8080]\n    publish: { 8080: 18080 }");
    let run = tool_with(&fixture).tested([""; 0], 0);
    assert_eq!(run.failed(), vec![""; 0]);
    let fronts: Vec<_> = run.calls().into_iter().filter(|call| call.contains("front-1 GET")).collect();
    assert_eq!(fronts, ["test-1 -> front-1 GET /hello http1 200 root"; 3]);
}

#[test]
fn a_port_that_a_service_does_not_have_refuses() {
    let fixture =
        with_tests("  - { name: gone, run: [\"curl\", \"-sS\", \"-m\", \"20\", \"http://back:1/\"] }\n");
    let run = tool_with(&fixture).tested([""; 0], 1);
    assert!(run.json.to_string().contains("Failed to connect to back port 1"), "{}", run.json);
}

#[test]
fn traces_of_different_runs_have_different_ids() {
    let tool = tool_with(&cells());
    let ids = [(); 2].map(|()| tool.tested([""; 0], 0).spans_to("front")[0]["trace"].clone());
    assert_ne!(ids[0], ids[1]);
    let shown = tool.run(["traces", "show", "last"]).expect(0).exact();
    let last = ids[1].as_str().unwrap();
    assert!(shown.contains(last), "{last} is not in {shown}");
    assert_eq!(tool.run(["traces", "show", &last[..12]]).expect(0).exact(), shown);
}

/// A test runner that lists and runs its cases as pytest does.
const PYTEST: &str = r#"import sys
cases = ["tests/test_shop.py::test_opens", "tests/test_shop.py::test_sells[two 2]", "--help::x"]
if "--collect-only" in sys.argv:
    print("\n".join(cases) + "\n\n3 tests collected in 0.01s")
elif sys.argv[-1] == cases[1]:
    sys.exit("sold 3 != 2")
elif sys.argv[-1] != cases[0]:
    sys.exit("no such case: " + sys.argv[-1])
"#;

#[test]
fn cases_that_are_listed_run_alone() {
    let tool = tool_with(&with_tests(
        "  - { discover: pytest }\n  - { discover: lines, list: [echo, ends], each: [test, '{case}', '=', ends] }\n",
    ));
    tool.write("pytest.py", PYTEST);
    let checked = tool.run(["check"]).expect(0);
    let listed =
        "discovered-1: 2 cases: tests/test_shop.py::test_opens, tests/test_shop.py::test_sells[two 2]\n";
    assert!(checked.stdout.contains(listed), "{}", checked.stdout);
    assert!(checked.stderr.contains("discovered-1: 1 case skipped"), "{}", checked.stderr);
    assert_snapshot!(tool.run(["test", "--quiet"]).expect(1).shown(), @"
    exit code 1
    --- stdout
    run <run>.1 fail: 2 of 3 tests passed, 0 calls seen, ready after <time>, took <time>
      pass  tests/test_shop.py::test_opens <time>
      FAIL  tests/test_shop.py::test_sells[two 2] <time>
            exit code 1
            | sold 3 != 2
      pass  ends <time>
    see the calls with `faultscope runs show <run>.1`
    --- stderr
    warning: discovered-1: 1 case skipped, because the name would be mistaken for something else
    ");
    let one = tool.run(["test", "--test", "tests/test_shop.py::test_opens"]).expect(0);
    assert!(one.stdout.contains("1 of 1 test passed"), "{}", one.stdout);
    tool.write("pytest.py", "raise SystemExit('tests/test_shop.py: no module named shop')");
    let broken = tool.run(["test"]).expect(3);
    assert!(broken.stderr.contains("no module named shop"), "{}", broken.stderr);
    assert!(tool.run(["check"]).expect(0).stdout.contains("no module named shop"));
}

#[test]
fn chosen_tests() {
    let tool = tool_with(&with_tests(
        "  - { name: good, run: [\"true\"] }\n  - { name: bad, run: [\"false\"] }\n  - { name: fine, run: [\"true\"] }\n",
    ));
    tool.run(["test"]).expect(1);
    let run = tool.tested(["--test", "fine", "--test", "good"], 0);
    let names: Vec<_> =
        run.json["run"]["evidence"]["tests"].as_array().unwrap().iter().map(|t| &t["test"]).collect();
    assert_eq!(names, ["fine", "good"]);
    assert_snapshot!(tool.run(["test", "--test", "god"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no test `god`

    hint: tests: good, bad, fine
    ");
}

#[test]
fn no_tests() {
    assert_snapshot!(tool_with(&with_tests("  []\n")).run(["test"]).exact(), @r#"
    exit code 3
    --- stderr
    error: the application has no tests

    hint: add `tests:` to the file, for example `- { name: up, http: { get: "http://order:8080/health" } }`
    "#);
}

#[test]
fn a_test_that_hangs() {
    let tool = tool_with(&with_tests(
        r#"  - { name: hangs, run: ["sh", "-c", "echo begun; sleep 1000 & sleep 1000"], within: 1s }
  - { name: waits, http: { get: "http://front:8080/slow" }, within: 1s }
  - { name: after it, http: { get: "http://front:8080/hello" } }
"#,
    ));
    assert_snapshot!(tool.run(["test"]).shown(), @"
    exit code 1
    --- stdout
    run <run>.1 fail: 1 of 3 tests passed, 3 calls seen, ready after <time>, took <time>
      FAIL  hangs <time>
            timed out
            | begun
      FAIL  waits <time>
            timed out
      pass  after it <time>
    see the calls with `faultscope runs show <run>.1`
    ");
}
