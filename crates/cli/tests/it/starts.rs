//! A service that does not come up is a failure like any other: what keeps it down is found.

use faultscope_testkit::{Faultscope, cells, nothing_left};
use insta::assert_snapshot;

use crate::tool_with;

/// The cells with eight deltas, where `back` ends at once when two of them come together.
fn strict() -> Faultscope {
    let command = r#"command: ["${faultscope}", "cell", "--spec", "cells.yaml", "--service", "back"]"#;
    let script = "if [ \\\"$MODE-$CACHE\\\" = strict-0 ]; then echo 'starting'; echo 'no cache, but strict'; exit 3; fi; \
                  exec \\\"$0\\\" cell --spec cells.yaml --service back";
    let config = "config: { back: { env.MODE: \"strict\", env.CACHE: \"0\", env.A: \"1\", memory: 64MiB }, \
                  front: { env.B: \"1\", env.C: \"1\", env.D: \"1\" } }";
    tool_with(
        &cells()
            .replace(command, &format!("command: [\"sh\", \"-c\", \"{script}\", \"${{faultscope}}\"]"))
            .replace("config: { back: { env.BROKEN: \"true\", memory: 64MiB } }", config),
    )
}

#[test]
fn what_keeps_a_service_from_coming_up() {
    let tool = strict();
    let words = ["debug", "--quiet", "--slots", "2", "--boundary", "--report", "md=out/report.md"];
    let files = ["--report", "html=out/report.html", "--report", "junit=out/report.xml"];
    let more = ["--bundle", "out/repro.tar.gz"];
    let running = tool.start(words.iter().chain(&files).chain(&more));
    let id = running.id();
    let output = running.wait();
    nothing_left(id, &tool.folder());
    // How many trials it takes, and which of both deltas is left out last, is the search's business.
    let chance = regex::Regex::new(
        r"<run>\.\d+|\d+ trials?, .*|\(without config back.env.\w+\)|\(<size>, \d+ files\)",
    )
    .unwrap();
    assert_snapshot!(chance.replace_all(&output.shown(), "<some>"), @"
    exit code 1
    --- stdout
    failure: service back does not come up: exited with 3
    Minimal cause: 2 of 8 deltas, together
      configuration  config back.env.CACHE: unset -> 0
      configuration  config back.env.MODE: unset -> strict
      Confirmed: failed 13 of 13 times, each of 2 smaller sets did not fail 3 of 3 times; a failure rate of 0.7 or less would have shown with 99 %
    Failing run: <some> (`faultscope runs show <some>`)
    Reproduce with `faultscope test faultscope.yaml --delta 'config back.env.CACHE' --delta 'config back.env.MODE'`
    Where it starts:
      back.env.CACHE: fails at 0 and below, passes from 1
    Evidence: back-1 exited with 3, its last lines:
      | starting
      | no cache, but strict
    Everything comes up in run <some> <some>
    <some>
    Elsewhere with `faultscope repro out/repro.tar.gz` <some>
    ");
    let command = output.stdout.lines().find_map(|line| line.strip_prefix("Reproduce with `")).unwrap();
    let again = tool.pasted(command.trim_end_matches('`')).expect(5).stdout;
    assert!(again.contains("did not become ready: exited with 3"), "{again}");
    for (file, part) in [
        ("out/report.md", "service back does not come up: exited with 3"),
        ("out/report.md", "no cache, but strict"),
        ("out/report.html", "2 of 8 deltas keep service back from coming up"),
        ("out/report.html", "no cache, but strict"),
        ("out/report.xml", "start of back: cause 1"),
    ] {
        assert!(tool.read(file).contains(part), "no `{part}` in {file}:\n{}", tool.read(file));
    }
    let shown = tool.json(["repro", "out/repro.tar.gz"], 1);
    assert_eq!(shown["reproduced"], true);
    assert_eq!(shown["passing"]["outcome"]["kind"], "pass");
}

#[test]
fn an_application_without_tests() {
    let tool = strict();
    let text = tool.read("faultscope.yaml");
    let (before, rest) = text.split_once("tests:\n").unwrap();
    let (_, failing) = rest.split_once("failing:\n").unwrap();
    tool.write("faultscope.yaml", &format!("{before}failing:\n{failing}"));
    let output = tool.run(["debug", "--quiet", "--repeat", "1"]).expect(1).stdout;
    let command = output.lines().find_map(|line| line.strip_prefix("Reproduce with `")).unwrap();
    assert!(command.starts_with("faultscope up "), "{command}");
    let again = tool.pasted(command.trim_end_matches('`')).expect(5).stderr;
    assert!(again.contains("exited with 3") && again.contains("no cache, but strict"), "{again}");
    // Where everything comes up there is nothing to look at.
    tool.write("faultscope.yaml", &format!("{before}failing:\n{}", failing.replace("strict", "lax")));
    let refused = tool.run(["debug", "--quiet"]).expect(3).stderr;
    assert!(refused.contains("the application has no tests"), "{refused}");
}
