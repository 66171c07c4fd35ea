//! `faultscope debug`: causes of a real application, bad input, and everything that may come in between.

use std::collections::BTreeSet;
use std::path::PathBuf;

use faultscope_store::Store;
use faultscope_store::secrets::KeyPlace;
use faultscope_testkit::{Faultscope, Fixture, cells, left_over, no_process_left, nothing_left, wait_until};
use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::tool_with;

/// The cells with 16 deltas, of which one is the cause.
fn decoys() -> Fixture {
    let items = |names: std::ops::RangeInclusive<u32>| {
        names.map(|n| format!("env.D{n}: \"{n}\"")).collect::<Vec<_>>().join(", ")
    };
    cells().replace(
        "config: { back: { env.BROKEN: \"true\", memory: 64MiB } }",
        &format!(
            "config: {{ back: {{ env.BROKEN: \"true\", memory: 64MiB, {} }}, front: {{ {} }} }}",
            items(1..=6),
            items(7..=13)
        ),
    )
}

/// A file outside of every circumstance that a test leaves its marks in, removed at the end.
struct Marks(PathBuf);

impl Marks {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/faultscope-test-{}-{name}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        Self(path)
    }

    /// The application with a second test that leaves a mark, and hangs when it is the n-th.
    fn hang_at(&self, n: usize, fixture: &Fixture) -> Fixture {
        let path = self.0.display();
        let script = format!("echo x >> {path}; test $(wc -l < {path}) -ne {n} || sleep 1000");
        let test = format!(
            "  - {{ name: marks, run: [\"sh\", \"-c\", \"{script}\"] }}\nshared: [\"{path}\"]\nfailing:"
        );
        fixture.clone().replace("failing:", &test)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn wait_for_hang(tool: &Faultscope, id: u32) {
    // The shell around it has the same words, but not in the first place.
    let hangs = |line: &String| {
        line.starts_with("process ")
            && line.ends_with(" sleep 1000 ")
            && line.split(' ').nth(2) == Some("sleep")
    };
    wait_until("the test hangs", || left_over(id, &tool.folder()).iter().any(hangs));
}

fn names(deltas: &Value) -> Vec<&str> {
    deltas.as_array().unwrap().iter().map(|d| d["name"].as_str().unwrap()).collect()
}

/// The sets of all trials of the search that began in the only campaign, from its event log.
fn started(tool: &Faultscope) -> Vec<String> {
    let key = KeyPlace::at(tool.data().join("faultscope/secrets.key"));
    let store = Store::open(tool.folder().join(".faultscope")).unwrap().with_key(key);
    let campaigns = store.campaigns().unwrap();
    assert_eq!(campaigns.len(), 1, "it goes on in the same folder");
    let events = campaigns[0].events::<Value>(0).unwrap().events;
    events
        .into_iter()
        .map(|logged| logged.event)
        .filter(|e| e["kind"] == "trial_started" && e["trial"].as_str().unwrap().parse::<u32>().is_ok())
        .map(|e| e["treatment"].to_string())
        .collect()
}

#[test]
fn the_cause_and_how_to_see_it_again() {
    let tool = tool_with(&cells());
    let running = tool.start(["debug", "--quiet"]);
    let id = running.id();
    // How many trials it takes is the search's business.
    let shown = running.wait().shown();
    let shown = regex::Regex::new(r"<run>\.(confirm-)?\d+|\b\d+ trials")
        .unwrap()
        .replace_all(&shown, "<some>")
        .into_owned();
    // Both lines are there, and which of two services is read first is chance.
    let (printed, shown): (Vec<&str>, Vec<&str>) = shown.lines().partition(|line| line.contains("-1 | "));
    let why = "back-1 | back-1 GET /word: failed with 503: no words today";
    assert!(printed.len() == 2 && printed.iter().any(|line| line.ends_with(why)), "{printed:?}");
    assert_snapshot!(shown.join("\n"), @r#"
    exit code 1
    --- stdout
    failure: hello: step 1: GET http://front:8080/hello: status 502 != 200
    Minimal cause: 1 of 3 deltas
      configuration  config back.env.BROKEN: unset -> true
      Confirmed: failed 13 of 13 times, without it 3 of 3 did not; a failure rate of 0.7 or less would have shown with 99 %
    Failing run: <some> (`faultscope runs show <some>`)
    Reproduce with `faultscope test faultscope.yaml --delta 'config back.env.BROKEN' --test hello`
    Evidence: the first call that differs from run <some> (without config back.env.BROKEN):
      failing  front-1 -> back-1 GET /word: 503 {"error":"no words today","kind":"failed","operation":"GET /word","service":"back"}
      passing  front-1 -> back-1 GET /word: 200 {"by":"back-1","word":"world"}
      then     test-1 -> front-1 GET /hello: 502 {"error":"back GET /word: 503 no words today","kind":"call","operation":"GET /hello","service":"front"}
    <some>, 14 confirmations, 4 start-up checks, <time>
    For another machine: `faultscope report <campaign> --bundle repro.tar.gz` (<size>, 5 files), there `faultscope repro repro.tar.gz`
    "#);
    nothing_left(id, &tool.folder());
    // What services printed is part of the evidence in every form.
    for (format, heading) in [
        ("md", "Printed meanwhile, and not when it passes:"),
        ("html", "printed meanwhile, and not when it passes"),
        ("junit", "printed: "),
        ("json", "\"printed\""),
    ] {
        let report = tool.run(["report", "--format", format]).expect(0).stdout;
        let (_, evidence) =
            report.split_once(heading).unwrap_or_else(|| panic!("no `{heading}` in\n{report}"));
        assert!(evidence.contains("failed with 503: no words today"), "{format}: {evidence}");
    }
    // It holds the application's files, and a copy of `.faultscope` must not.
    tool.run(["report", "--bundle", "out/repro.tar.gz"]).expect(0);
    let written = std::fs::read(tool.folder().join("out/repro.tar.gz")).unwrap();
    assert!(written.starts_with(&[0x1f, 0x8b]), "it is written as an archive");
    let campaigns = tool.folder().join(".faultscope/campaigns");
    let kept = std::fs::read_dir(campaigns).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> =
        kept.map(|folder| folder.join("repro.tar.gz.sealed")).filter(|file| file.exists()).collect();
    let [kept] = &kept[..] else { panic!("one campaign keeps a bundle: {kept:?}") };
    assert!(!std::fs::read(kept).unwrap().windows(8).any(|bytes| bytes == &written[..8]), "it is sealed");
    assert!(tool.read(".faultscope/costs.json").contains("config back.env.BROKEN"), "costs are remembered");
    let listed = tool.run(["runs", "ls"]).expect(0).shown();
    let names = ["check-simplest", "check-failing", "check-failing-2", "check-failing-3", "1"];
    for name in names {
        assert!(listed.contains(&format!("\n<run>.{name} ")), "no {name} in\n{listed}");
    }
    let shown = tool.run(["runs", "show", "last"]).expect(0).stdout;
    assert!(shown.starts_with("reduced 3 deltas to 1 in "), "{shown}");
    assert!(shown.contains("under config back.env.BROKEN=true\n"), "the minimal failing run: {shown}");
    assert_snapshot!(tool.run(["test", "--delta", "config back.env.BROKEM"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no delta `config back.env.BROKEM`

    hint: did you mean `config back.env.BROKEN`? `faultscope check` lists all deltas
    ");
    assert_snapshot!(tool.run(["test", "--set", "instances.bakc=2"]).exact(), @"
    exit code 2
    --- stderr
    error: there is no service `bakc`

    hint: did you mean `back`?
    ");
}

#[test]
fn killed_and_resumed() {
    let marks = Marks::new("killed");
    let tool = tool_with(&marks.hang_at(5, &decoys()));
    let running = tool.start(["debug", "--quiet", "--flaky", "off"]);
    let id = running.id();
    wait_for_hang(&tool, id);
    running.kill();
    assert_eq!(running.wait().code, None);
    no_process_left(id);
    let before = started(&tool);
    assert_eq!(before.len(), 3, "after two checks two trials ended, and one ran");
    let report = tool.json(["debug", "--flaky", "off", "--resume"], 1);
    assert_eq!(names(&report["causes"][0]["deltas"]), ["config back.env.BROKEN"]);
    assert_eq!(report["trials"]["earlier"], 2);
    let all = started(&tool);
    let different: BTreeSet<_> = all.iter().collect();
    assert!(all.len() - different.len() <= 1, "at most the trial that ran is repeated: {all:?}");
    let again = tool.run(["debug", "--flaky", "off", "--resume"]);
    assert_snapshot!(again.exact(), @"
    exit code 2
    --- stderr
    error: the campaign cannot be resumed: there is no unfinished debug campaign of `cells`

    hint: leave `--resume` out to start anew; `faultscope runs ls` lists campaigns
    ");
}

#[test]
fn a_budget_and_the_way_on() {
    let tool = tool_with(&decoys());
    let words = ["debug", "--quiet", "--repeat", "1", "--budget", "2 trials", "--budget", "10m"];
    let output = tool.run(words).expect(7).stdout;
    assert!(output.contains("the budget is used up at "), "{output}");
    assert!(output.contains("Smallest failing set so far: "), "{output}");
    assert!(output.contains("Proven: "), "{output}");
    let resume = output.lines().find_map(|line| line.strip_prefix("Go on with `faultscope ")).unwrap();
    let resume = resume.split('`').next().unwrap();
    let changed = tool.run(resume.split(' ').chain(["--all"])).expect(2).stderr;
    assert!(changed.contains("the option `all` has changed"), "{changed}");
    let report = tool.json(resume.split(' '), 1);
    assert_eq!(names(&report["causes"][0]["deltas"]), ["config back.env.BROKEN"]);
    assert_eq!(report["trials"]["earlier"], 2);
    for wrong in ["30", "soon", "x trials"] {
        let refused = tool.run(["debug", "--budget", wrong]).expect(2).stderr;
        assert!(refused.contains("is neither a time nor a number of trials"), "{refused}");
    }
}

#[test]
fn interrupted_and_resumed() {
    let marks = Marks::new("interrupted");
    let tool = tool_with(&marks.hang_at(4, &decoys()));
    let running = tool.start(["debug", "--quiet", "--flaky", "off"]);
    let id = running.id();
    wait_for_hang(&tool, id);
    running.interrupt();
    let output = running.wait();
    nothing_left(id, &tool.folder());
    let text = &output.expect(130).stdout;
    assert!(text.contains("--resume="), "{text}");
    let report = tool.json(["debug", "--flaky", "off", "--resume", "--slots", "2"], 1);
    assert_eq!(names(&report["causes"][0]["deltas"]), ["config back.env.BROKEN"]);
}

#[test]
fn all_causes() {
    let both = cells().replace(
        "  - name: hello\n    http: { get: \"http://front:8080/hello\", expect: { status: 200, json: { said: hello world } } }",
        "  - name: hello\n    failure: \"does not match\"\n    http: { get: \"http://front:8080/hello\", expect: { json: { said: hello world } } }",
    );
    let both = both.replace(
        "config: { back: { env.BROKEN: \"true\", memory: 64MiB } }",
        "config: { back: { env.WORD: \"moon\", memory: 64MiB }, front: { env.GREETING: \"bye\", env.D: \"1\" } }",
    );
    let tool = tool_with(&both);
    let text = tool.run(["debug", "--all", "--quiet", "--slots", "2"]).expect(1).stdout;
    assert!(text.contains("2 causes; any of them alone makes the test fail:"), "{text}");
    for cause in ["config back.env.WORD: unset -> moon", "config front.env.GREETING: unset -> bye"] {
        assert!(text.contains(cause), "{text}");
    }
    assert!(text.contains("No cause is left: with all other deltas together the test passes"), "{text}");
}

#[test]
fn a_slot_that_dies_in_mid_trial() {
    // The first try hangs until its slot dies; it is no evidence, and the next one passes.
    let marks = Marks::new("dies");
    let tool = tool_with(&marks.hang_at(1, &cells()));
    let running = tool.start(["test", "--json"]);
    let id = running.id();
    wait_for_hang(&tool, id);
    let agent = left_over(id, &tool.folder()).into_iter().find(|line| line.contains("launch agent")).unwrap();
    let pid = agent.split(' ').nth(1).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let json = running.wait().expect(0).json();
    assert_eq!((&json["passed"], &json["runs"][0]["retries"]), (&1.into(), &1.into()));
    nothing_left(id, &tool.folder());
}

#[test]
fn the_environment_changes() {
    // From the sixth trial on another test fails, whatever the circumstance.
    let marks = Marks::new("changes");
    let path = marks.0.display();
    let script = format!("echo x >> {path}; test $(wc -l < {path}) -lt 6");
    let test = format!(
        "  - {{ name: machine, run: [\"sh\", \"-c\", \"{script}\"] }}\nshared: [\"{path}\"]\nfailing:"
    );
    let tool = tool_with(&decoys().replace("failing:", &test));
    let words = ["debug", "--quiet", "--flaky", "off", "--sentinel-every", "1"];
    assert_snapshot!(tool.run(words).exact().replace(&path.to_string(), "<marks>"), @"
    exit code 6
    --- stderr
    warning: <marks> is `shared`: trials can read and change it
    error: the environment changed: a repeated trial gave unresolved instead of pass
    ");
    let refused = tool.run(["debug", "--flaky", "off", "--resume"]).expect(2).stderr;
    assert!(refused.contains("the environment changed during it"), "{refused}");
}

#[test]
fn bad_input() {
    let complaint = |fixture: &Fixture, words: &[&str]| tool_with(fixture).run(words.iter().copied()).exact();
    let text = "name: x\nservices:\n  a: { command: [a] }\n";
    assert_snapshot!(complaint(&cells().application(text), &["debug"]), @r#"
    exit code 3
    --- stderr
    error: the application has no tests

    hint: add `tests:` to the file, for example `- { name: up, http: { get: "http://order:8080/health" } }`
    "#);
    let text = "name: x\nservices:\n  a: { command: [a] }\ntests:\n  - { name: t, run: [\"true\"] }\n";
    assert_snapshot!(complaint(&cells().application(text), &["debug"]), @"
    exit code 3
    --- stderr
    error: simplest and failing circumstance are the same, so there is nothing to search

    hint: write what is different when the test fails, for example
      failing: { instances: { order: 3 }, config: { order: { memory: 64MiB } } }
    ");
    assert_snapshot!(complaint(&cells(), &["debug", "--test", "helo"]), @"
    exit code 2
    --- stderr
    error: there is no test `helo`

    hint: tests: hello
    ");
    assert_snapshot!(complaint(&cells().replace("instances: { back: 3 }", "instances: { bakc: 3 }"), &["debug"]), @"
    exit code 3
    --- stderr
    error: faultscope.yaml:15: failing.instances.bakc: there is no service `bakc`

    hint: did you mean `back`?
    ");
    let against = "constraints:\n  - { not: [\"instance back\", \"config back.memory\"] }\n";
    assert_snapshot!(complaint(&cells().more(against), &["debug"]), @"
    exit code 3
    --- stderr
    error: faultscope.yaml:18: constraints.0: the failing circumstance itself breaks it: instance back and config back.memory exclude one another
    ");
    assert_snapshot!(complaint(&cells(), &["debug", "--all", "--strategy", "ddmin"]), @"
    exit code 2
    --- stderr
    error: only the strategy `bayes` looks for all causes

    hint: leave `--all` or `--strategy` out
    ");
    assert_snapshot!(complaint(&cells(), &["debug", "--resume"]), @"
    exit code 2
    --- stderr
    error: the campaign cannot be resumed: there is no unfinished debug campaign of `cells`

    hint: leave `--resume` out to start anew; `faultscope runs ls` lists campaigns
    ");
    assert_snapshot!(complaint(&cells(), &["debug", "--resume=beef"]), @"
    exit code 2
    --- stderr
    error: the campaign cannot be resumed: there is no campaign `beef`

    hint: leave `--resume` out to start anew; `faultscope runs ls` lists campaigns
    ");
    assert_snapshot!(complaint(&cells(), &["debug", "--flaky", "2"]), @"
    exit code 2
    --- stderr
    error: invalid value '2' for '--flaky <auto|off|RATE>': a rate lies between 0.01 and 1

    For more information, try '--help'.
    ");
}

#[test]
fn ends_that_are_not_as_they_should_be() {
    let with = |more: &str| cells().replace("failing:", &format!("{more}\nfailing:"));
    let debugged = |fixture: &Fixture| tool_with(fixture).run(["debug", "--quiet", "--flaky", "off"]).shown();
    // No failing test: nothing fails with all deltas.
    assert_snapshot!(debugged(&cells().replace("env.BROKEN: \"true\", ", "")), @"
    exit code 5
    --- stdout
    the test does not fail with all deltas: it is flaky, or a dimension is missing
    See what passed with `faultscope runs show <run>.check-failing`
    0 trials, 2 start-up checks, <time>
    ");
    // Two failing tests.
    let second = "  - { name: again, http: { get: \"http://front:8080/hello\" } }";
    assert_snapshot!(debugged(&with(second)), @"
    exit code 5
    --- stdout
    more than one test fails with all deltas: hello, again
    Look at one of them alone with `faultscope debug --quiet --flaky off --test hello --only`
    0 trials, 2 start-up checks, <time>
    ");
    // A test that never passes.
    let never = cells().replace("json: { said: hello world }", "json: { said: good bye }");
    assert_snapshot!(debugged(&never.replace("env.BROKEN: \"true\", ", "")), @"
    exit code 8
    --- stdout
    failure: hello: step 1: GET http://front:8080/hello: said: `hello world` does not match `good bye`
    the test fails already in the simplest circumstance: look inside the service
    See its calls with `faultscope runs show <run>.check-simplest`
    0 trials, 2 start-up checks, <time>
    ");
}
