//! `faultscope runs` and `clean`: what is stored, and what goes.

use faultscope_testkit::{cells, python};
use insta::assert_snapshot;

use crate::{tool, tool_with};

#[test]
fn the_folder_is_a_word_or_an_option() {
    let tool = tool_with(&cells());
    for file in ["faultscope.yaml", "cells.yaml"] {
        tool.write(&format!("shop/{file}"), &tool.read(file));
        std::fs::remove_file(tool.folder().join(file)).unwrap();
    }
    tool.run(["test", "--folder", "shop"]).expect(0);
    tool.run(["test", "shop"]).expect(0);
    tool.run(["check", "--folder", "shop/faultscope.yaml"]).expect(0);
    let listed = |words: &[&str]| tool.json(words.iter().copied(), 0).as_array().map(Vec::len);
    assert_eq!(listed(&["runs", "ls", "--folder", "shop"]), Some(2));
    assert_eq!(listed(&["runs", "ls", "shop"]), Some(2));
    for words in [&["services"][..], &["deps"], &["traces", "ls"], &["metrics", "ls"]] {
        let (word, option) = ([words, &["shop"]].concat(), [words, &["--folder", "shop"]].concat());
        // Ages may differ.
        let lines = |words: Vec<&str>| tool.run(words).expect(0).stdout.lines().count();
        assert_eq!(lines(word), lines(option), "{words:?}");
    }
    tool.run(["resilience", "--folder", "shop", "hello", "--kinds", "error"]).expect(0);
    let both = tool.run(["test", "shop", "--folder", "shop"]).expect(2).stderr;
    assert!(both.contains("cannot be used with"), "{both}");
    let elsewhere = tool.run(["clean", "--folder", "shop", "--keep", "0"]).expect(0).stdout;
    assert!(elsewhere.ends_with("and 3 campaigns\n"), "{elsewhere}");
}

#[test]
fn logs_are_shown_beside_the_calls_and_pages_by_their_text() {
    let program = r#"
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        print("no column price", file=sys.stderr, flush=True)
        page = b"<!DOCTYPE html>\n<html><head><title>Oops</title></head><body><h1>no such column</h1></body></html>"
        self.send_response(500)
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
print("listening", flush=True)
http.server.HTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"#;
    let fixture = python().file("page.py", program).application(
        r#"name: page
services:
  page: { command: ["python3", "page.py"], ports: [8080] }
tests:
  - { name: page, http: { get: "http://page:8080/" } }
"#,
    );
    let tool = tool_with(&fixture);
    let tested = tool.run(["test"]).expect(1).stdout;
    assert!(tested.contains("| Oops\n") && tested.contains("| no such column\n"), "{tested}");
    let shown = tool.run(["runs", "show"]).expect(0).stdout;
    let around = shown.split("printed around ").nth(1).expect("an excerpt");
    assert!(around.starts_with("test-1 -> page-1 GET / 500\n"), "{around}");
    assert!(around.contains("page-1 | no column price"), "{around}");
    let all = tool.run(["runs", "show", "--logs"]).expect(0).stdout;
    let rows: Vec<&str> = all.split("logs and calls\n").nth(1).expect("a time line").lines().collect();
    let texts: Vec<&str> =
        rows.iter().filter_map(|row| row.trim().split_once("  ").map(|(_, text)| text)).collect();
    assert_eq!(texts, ["page-1 | listening", "-> test-1 -> page-1 GET / 500", "page-1 | no column price"]);
    let bodies = tool.run(["runs", "show", "--bodies"]).expect(0).stdout;
    let (_, calls) = bodies.split_once("calls and bodies\n").expect("calls with their bodies");
    assert!(calls.lines().nth(1).is_some_and(|line| line.trim() == "< Oops no such column"), "{calls}");
    let json = tool.json(["runs", "show"], 0);
    assert_eq!(json["logs"][0]["lines"][1]["text"], "no column price");
}

/// What services print arrives through pipes of their own, so that lines of the same moment come in any order.
fn with_sorted_log(shown: &str) -> String {
    let mut lines: Vec<&str> = shown.lines().collect();
    let is_log = |line: &&str| line.starts_with(" <time>  ") && line.contains(" | ");
    let first = lines.iter().position(is_log).unwrap_or(lines.len());
    let end = first + lines[first..].iter().take_while(|line| is_log(line)).count();
    lines[first..end].sort_unstable();
    lines.join("\n")
}

#[test]
fn lists_and_shows() {
    let tool = tool_with(&cells());
    tool.run(["test"]).expect(0);
    tool.run(["test", "--failing"]).expect(1);
    assert_snapshot!(tool.run(["runs", "ls"]).shown(), @"
    exit code 0
    --- stdout
    run     purpose  application  when     deltas  outcome  tests  calls  took   failed
    <run>.1  test     cells        <ago>  3       fail     0/1    2 <time>  hello
    <run>.1  test     cells        <ago>          pass     1/1    2 <time>
    ");
    assert_snapshot!(tool.run(["runs", "ls", "--limit", "1"]).shown(), @"
    exit code 0
    --- stdout
    run     purpose  application  when     deltas  outcome  tests  calls  took   failed
    <run>.1  test     cells        <ago>  3       fail     0/1    2 <time>  hello
    ");
    assert_snapshot!(with_sorted_log(&tool.run(["runs", "show"]).shown()), @r#"
    exit code 0
    --- stdout
    run <run>.1 fail: 0 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      FAIL  hello <time>
            step 1
            | GET http://front:8080/hello: status 502 != 200
            answer:
            | {"error":"back GET /word: 503 no words today","kind":"call","operation":"GET /hello","service":"front"}
      under instances back=3, config back.env.BROKEN=true, config back.memory=64MiB

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
    let listed = tool.json(["runs", "ls"], 0);
    let first = listed[1]["runs"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(listed[1]["campaign"]["kind"], "test");
    assert_snapshot!(tool.run(["runs", "show", &first]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 pass: 1 of 1 test passed, 2 calls seen, ready after <time>, took <time>
      pass  hello <time>

    service map: 3 services, 2 edges
      test
       └─▶ front      1 call   p50 <time>  p99 <time>
      front
       └─▶ back       1 call   p50 <time>  p99 <time>

    trace <trace>: 2 calls in <time>
      front-1 GET /hello <time> <bar> 200
      └─ back-1 GET /word <time> <bar> 200
    ");
}

#[test]
fn shows_one_trace() {
    let tool = tool_with(
        &cells()
            .replace("failing:", "  - { name: again, http: { get: \"http://back:8081/word\" } }\nfailing:"),
    );
    let run = tool.tested([] as [&str; 0], 0);
    let trace = run.spans_to("front")[0]["trace"].as_str().unwrap().to_owned();
    assert_snapshot!(tool.run(["runs", "show", "--trace", &trace[..8]]).shown(), @"
    exit code 0
    --- stdout

    trace <trace>: 2 calls in <time>
      front-1 GET /hello <time> <bar> 200
      └─ back-1 GET /word <time> <bar> 200
    ");
}

#[test]
fn nothing_stored() {
    let tool = tool();
    assert_snapshot!(tool.run(["runs", "ls"]).exact(), @"
    exit code 2
    --- stderr
    error: there are no runs at ./.faultscope

    hint: runs lie beside the application file: name its folder, or run `faultscope test` first
    ");
    tool.write("faultscope.yaml", "services: { a: { command: [a] } }");
    tool.write(".faultscope/.keep", "");
    assert_snapshot!(tool.run(["runs", "ls"]).exact(), @"
    exit code 0
    --- stdout
    no runs yet
    ");
    assert_snapshot!(tool.run(["runs", "show", "beef.1"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no run `beef.1`

    hint: `faultscope runs ls` lists them
    ");
}

#[test]
fn cleans() {
    let tool = tool_with(&cells());
    for _ in 0..3 {
        tool.run(["test"]).expect(0);
    }
    let newest = tool.last_run().json["run"]["id"].clone();
    let oldest = tool.json(["runs", "ls"], 0)[2]["runs"][0]["id"].as_str().unwrap().to_owned();
    tool.run(["runs", "keep", &oldest]).expect(0);
    // What other dead tools have left on this machine goes as well, so the numbers are not ours to know.
    let output = tool.run(["clean"]).expect(0).stdout;
    assert!(output.starts_with("removed ") && output.ends_with("and 0 campaigns\n"), "{output}");
    let json = tool.json(["clean", "--keep", "1"], 0);
    assert_eq!(json["campaigns"].as_array().unwrap().len(), 2);
    let ids = || -> Vec<serde_json::Value> {
        let listed = tool.json(["runs", "ls"], 0);
        listed.as_array().unwrap().iter().map(|campaign| campaign["runs"][0]["id"].clone()).collect()
    };
    assert_eq!(ids(), [oldest.as_str()], "the kept one counts, and it is never the one that goes");
    tool.run(["test"]).expect(0);
    tool.json(["clean", "--keep-for", "0s", "--keep-bytes", "1B"], 0);
    assert_eq!(ids(), [oldest.as_str()]);
    tool.run(["runs", "keep", "--off", &oldest]).expect(0);
    tool.json(["clean", "--keep-for", "0s"], 0);
    assert_eq!(ids(), [""; 0]);
    assert_ne!(newest, oldest.as_str());
}
