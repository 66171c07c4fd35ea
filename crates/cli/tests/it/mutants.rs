//! `faultscope mutate` and `faults`.

use std::process::Command;

use faultscope_testkit::Faultscope;

use crate::tool;

const PROGRAM: &str = r#"import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = b"hello"
        self.send_response(200)
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)


http.server.HTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"#;

const APPLICATION: &str = r#"# One service.
name: page
services:
  page: { command: ["python3", "page.py"], ports: [8080] }
tests:
  - { name: page, http: { get: "http://page:8080/", expect: { body: hello } } }
"#;

fn page() -> Faultscope {
    let tool = tool();
    tool.write("page.py", PROGRAM).write("faultscope.yaml", APPLICATION);
    tool
}

fn mutant_of(tool: &Faultscope, operator: &str) -> String {
    let listed = tool.json(["mutate", "ls", "--operator", operator], 0);
    listed["mutants"][0]["id"].as_str().unwrap().to_owned()
}

fn git(tool: &Faultscope, words: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"];
    let status = Command::new("git").current_dir(tool.folder()).args(identity).args(words).output().unwrap();
    assert!(status.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&status.stderr));
}

#[test]
fn mutants_are_listed_and_shown() {
    let tool = page();
    let listed = tool.run(["mutate", "ls"]).expect(0).stdout;
    assert!(listed.contains("M1 consistent-delay") && listed.contains("page.py:6"), "{listed}");
    let id = mutant_of(&tool, "M1");
    let shown = tool.run(["mutate", "show", &id, "--check"]).expect(0).stdout;
    for part in
        ["+import time\n", "+        time.sleep(0.2)\n", "accepted by python3", "RR-12", "\"kind\":\"delay\""]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let unknown = tool.run(["mutate", "show", "m1-ffffffffff"]).expect(2).stderr;
    assert!(unknown.contains("there is no mutant `m1-ffffffffff`"), "{unknown}");
    let added = tool.json(["mutate", "ls", "--operator", "M10", "--check"], 0);
    assert_eq!(added["mutants"][0]["check"]["accepted"]["tool"], "faultscope check", "{added}");
}

#[test]
fn a_copy_is_changed_and_the_original_is_not() {
    let tool = page();
    let id = mutant_of(&tool, "M3");
    let into = tool.temporary().join("copy");
    let into = into.to_str().unwrap();
    tool.run(["mutate", "apply", &id, "--into", into]).expect(0);
    assert_eq!(tool.read("page.py"), PROGRAM);
    let copied = std::fs::read_to_string(format!("{into}/page.py")).unwrap();
    assert!(copied.contains("injected abort"), "{copied}");
    tool.run(["mutate", "apply", &id, "--into", into]).expect(2);
    tool.run(["mutate", "revert", into]).expect(0);
    assert_eq!(std::fs::read_to_string(format!("{into}/page.py")).unwrap(), PROGRAM);
    tool.run(["mutate", "revert", into]).expect(2);
}

#[test]
fn in_place_needs_a_committed_file_and_can_be_taken_back() {
    let tool = page();
    let id = mutant_of(&tool, "M1");
    git(&tool, &["init", "-q"]);
    let refused = tool.run(["mutate", "apply", &id, "--in-place"]).expect(2).stderr;
    assert!(refused.contains("page.py has changes that are not committed"), "{refused}");
    git(&tool, &["add", "page.py", "faultscope.yaml"]);
    git(&tool, &["commit", "-qm", "page"]);
    tool.run(["mutate", "apply", &id, "--in-place"]).expect(0);
    assert!(tool.read("page.py").contains("time.sleep(0.2)"));
    let second = tool.run(["mutate", "apply", &id, "--in-place"]).expect(2).stderr;
    assert!(second.contains("not committed") || second.contains("no mutant"), "{second}");
    tool.run(["mutate", "revert"]).expect(0);
    assert_eq!(tool.read("page.py"), PROGRAM);
}

#[test]
fn the_score_says_what_the_tests_do_not_notice() {
    let tool = page();
    let words = ["mutate", "score", "--operator", "M1", "--operator", "M3"];
    let score = tool.json(words, 1);
    assert_eq!((&score["killed"], &score["survived"]), (&1.into(), &1.into()), "{score}");
    assert_eq!(tool.read("page.py"), PROGRAM);
    let again = tool.json([&words[..], &["--resume"]].concat(), 1);
    assert_eq!(again["killed"], 1, "{again}");
    let budget = tool.json(["mutate", "score", "--operator", "M3", "--budget", "1"], 0);
    assert_eq!(budget["killed"], 1, "{budget}");
}

#[test]
fn faults_name_their_operators() {
    let tool = tool();
    let shown = tool.run(["faults", "show", "rr-12"]).expect(0).stdout;
    assert!(shown.contains("M1 consistent-delay"), "{shown}");
    assert_eq!(tool.json(["faults", "ls"], 0).as_array().map(Vec::len), Some(39));
    assert!(tool.run(["faults", "show", "RR-26"]).expect(2).stderr.contains("did you mean"));
}
