//! The sample in four languages, whose services are traced by the clients of others. `./test.sh todo` builds it.

use std::path::Path;
use std::process::Command;

use faultscope_testkit::{Faultscope, free_port};
use insta::assert_snapshot;
use regex::Regex;
use serde::Deserialize;

use crate::tool;

const EXPECTED: &str = include_str!("../../../../apps/todo/cases/expected.yaml");
/// Repeated once less often than by default, since the answers are known.
const CONFIDENCE: &str = "0.9";

/// A case as `cases/expected.yaml` has it.
#[derive(Debug, Deserialize)]
struct Case {
    case: String,
    file: String,
    deltas: u64,
    causes: Vec<Vec<String>>,
}

/// A copy of the built sample, so that tests have campaigns and keys of their own.
fn todo() -> Faultscope {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("todo");
    assert!(built.join("faultscope.yaml").exists(), "`./test.sh todo` builds it into {}", built.display());
    let tool = tool();
    let mut copy = Command::new("cp");
    copy.arg("--archive");
    for entry in std::fs::read_dir(&built).unwrap() {
        let entry = entry.unwrap();
        // Campaigns of others, and what the build remembers.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            copy.arg(entry.path());
        }
    }
    assert!(copy.arg(tool.folder()).status().unwrap().success());
    tool
}

/// The cause that `debug` finds must be one of those that are known.
#[track_caller]
fn debugged(name: &str) {
    let cases: Vec<Case> = serde_saphyr::from_str(EXPECTED).unwrap();
    let case = cases.into_iter().find(|case| case.case == name).unwrap();
    let tool = todo();
    let file = format!("cases/{}", case.file);
    let words = ["debug", &file, "--only", "--slots", "2", "--confidence", CONFIDENCE, "--json"];
    let report = tool.run(words).json();
    assert_eq!(report["deltas"], case.deltas, "{report:#}");
    let mut found: Vec<_> = report["causes"][0]["deltas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|delta| delta["name"].as_str().unwrap().to_owned())
        .collect();
    found.sort();
    assert!(case.causes.contains(&found), "{found:?} in {report:#}");
}

#[test]
#[ignore = "run by ./test.sh todo"]
fn spans_of_five_tracers_are_one_tree() {
    let tool = todo();
    let run = tool.tested([] as [&str; 0], 0);
    assert_eq!(run.json["run"]["evidence"]["tests"].as_array().unwrap().len(), 11);
    let login = run.spans_to("frontend").into_iter().find(|call| call["path"] == "/api/login").unwrap();
    let trace = login["trace"].as_str().unwrap();
    let shown = tool.run(["runs", "show", "--trace", trace]).shown();
    let tree = shown.split("\n\n").next().unwrap().replace("  * ", "    ");
    assert_snapshot!(tree, @"
    exit code 0
    --- stdout
    trace <trace>: 15 spans in <time>
        test-1 ─▶ frontend-1 POST /api/login <time> <bar> 200
        └─ frontend POST <time> <bar> 200
           ├─ frontend POST -> auth <time> <bar> 200
           │  └─ frontend-1 ─▶ auth-1 POST /login <time> <bar> 200
           │     └─ auth post <time> <bar>
           │        └─ auth find user <time> <bar>
           │           └─ auth http/get <time> <bar>
           │              └─ auth-1 ─▶ users-1 GET /users/alan <time> <bar> 200
           │                 └─ users get <time> <bar>
           └─ frontend GET -> todos <time> <bar> 200
              └─ frontend-1 ─▶ todos-1 GET /todos <time> <bar> 200
                 └─ todos get /todos <time> <bar> 200
                    ├─ todos load todos <time> <bar>
                    └─ todos write audit log <time> <bar>
                       └─ log-processor process entry <time> <bar>
    ");
}

#[test]
#[ignore = "run by ./test.sh todo"]
fn instances_keep_lists_of_their_own() {
    debugged("stale list");
}

#[test]
#[ignore = "run by ./test.sh todo"]
fn a_secret_was_rotated_in_two_of_three_services() {
    debugged("rotated secret");
}

#[test]
#[ignore = "run by ./test.sh todo"]
fn the_workload_meets_no_surprise() {
    let tool = todo();
    let mut running = tool.start(["up", "--publish-from", &free_port().to_string()]);
    let line = running.wait_for_line("^frontend ");
    let address = Regex::new(r"127\.0\.0\.1:\d+").unwrap().find(&line).unwrap().as_str().to_owned();
    let words = ["--seconds", "3", "--users", "3", "--seed", "7", "--url"];
    let workload =
        Command::new(tool.folder().join("workload")).args(words).arg(format!("http://{address}")).output();
    let workload = workload.unwrap();
    let printed = String::from_utf8_lossy(&workload.stdout);
    assert!(workload.status.success(), "{printed}{}", String::from_utf8_lossy(&workload.stderr));
    assert!(printed.contains("seed 7") && printed.contains("create"), "{printed}");
    running.interrupt();
    running.wait().expect(0);
}
