//! Kept apart by namespaces, by ports, without rights; and nothing stays when the tool is killed.

use faultscope_testkit::{cells, free_port, left_over, no_process_left, nothing_left, python, wait_until};

use insta::assert_snapshot;

use crate::{published, tool_with};

#[test]
fn by_namespaces() {
    let tool = tool_with(&cells());
    let run = tool.tested(["--isolation", "netns"], 0);
    assert_eq!(
        run.calls(),
        ["test-1 -> front-1 GET /hello http1 200 root", "front-1 -> back-1 GET /word http1 200 propagated"]
    );
}

#[test]
fn by_ports() {
    // Cells find one another by `<SERVICE>_URL`, which this isolation sets.
    let told = |service: &str| format!("\"{service}\", \"--port\", \"${{port}}\"]");
    let fixture = cells().replace("\"front\"]", &told("front")).replace("\"back\"]", &told("back"));
    let tool = tool_with(&fixture);
    let words =
        ["test", "--isolation", "ports", "--set", "instances.back=2", "--repeat", "2", "--slots", "2"];
    let running = tool.start(words);
    let id = running.id();
    running.wait().expect(0);
    nothing_left(id, &tool.folder());
    assert_eq!(tool.last_run().calls().len(), 2);
}

#[test]
fn kept_services_find_others_by_ports() {
    let told = |service: &str| format!("\"{service}\", \"--port\", \"${{port}}\"]");
    let fixture = cells().replace("\"front\"]", &told("front")).replace("\"back\"]", &told("back"));
    // `front` runs on while `back` is made anew behind it.
    let fixture = fixture.replace("ports: [8080]", "ports: [8080]\n    reset: keep");
    let tool = tool_with(&fixture);
    let runs = tool.json(["test", "--isolation", "ports", "--repeat", "3"], 0);
    let kept: Vec<_> = runs["runs"].as_array().unwrap().iter().map(|run| &run["cost"]["kept"]).collect();
    assert_eq!(kept, [0, 1, 1]);
    assert_eq!(tool.last_run().calls().len(), 2);
}

#[test]
fn services_and_tests_get_the_limit_of_open_files_that_the_user_had() {
    let fixture = python().application(
        r#"name: files
services:
  files:
    command: ["sh", "-c", "echo $(ulimit -Sn) $(ulimit -Hn) > limit; exec python3 -m http.server 8080"]
    ports: [8080]
tests:
  - { name: service, http: { get: "http://files:8080/limit", expect: { body: "^512 8192\\n$" } } }
  - { name: test, run: ["sh", "-c", "test $(ulimit -Sn) = 512"] }
"#,
    );
    for isolation in ["netns", "ports"] {
        tool_with(&fixture).open_files(512, 8192).run(["test", "--isolation", isolation]).expect(0);
    }
}

#[test]
fn a_hard_limit_of_open_files_that_is_too_low_is_named_before_anything_starts() {
    let tool = tool_with(&cells()).open_files(90, 90);
    let shown = tool.run(["test"]).shown();
    let about = regex::Regex::new(r"about \d+ are needed").unwrap();
    assert_snapshot!(about.replace(&shown, "about N are needed"), @"
    exit code 6
    --- stderr
    error: process: cannot open files for 2 instances
      because: about N are needed, and the hard limit is 90

    hint: raise the limit of this shell with `sudo prlimit --pid $$ --nofile=4096:4096`, or use fewer --slots
    ");
}

#[test]
fn names_in_programs_are_warned_of_where_ports_stand_for_networks() {
    let program = "import urllib.request as r; print(r.urlopen('http://stock:8081/').status)";
    let fixture = python().file("ask.py", program).application(
        r#"name: asking
services:
  ask: { command: ["python3", "ask.py"], ports: [8080], env: { STOCK_HOST: stock }, ready: { within: 200ms } }
  told: { command: ["python3", "ask.py"], ports: [8082], ready: { within: 200ms } }
  stock: { command: ["python3", "-m", "http.server", "8081"], ports: [8081] }
tests:
  - { name: t, http: { get: "http://stock:8081/" } }
"#,
    );
    let tool = tool_with(&fixture);
    let warnings = |isolation: &str| -> Vec<String> {
        let said = tool.run(["test", "--isolation", isolation]).stderr;
        said.lines().filter(|line| line.starts_with("warning: ")).map(ToOwned::to_owned).collect()
    };
    assert_snapshot!(warnings("ports").join("\n"), @"
    warning: ask calls `stock` by the name in STOCK_HOST, which leads nowhere with isolation by ports: let it read the address from its environment (`STOCK_URL` is set), or use --isolation netns
    warning: told calls `stock:8081` by the name in ask.py, which leads nowhere with isolation by ports: let it read the address from its environment (`STOCK_URL` is set), or use --isolation netns
    ");
    assert_eq!(warnings("netns"), [] as [&str; 0]);
}

#[test]
fn calls_to_hosts_that_nobody_declared_leave_a_span() {
    let program = r#"
import http.server, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args): pass
    def do_GET(self):
        try: urllib.request.urlopen("http://payments.example/pay", timeout=10)
        except urllib.error.URLError as error: text = str(error.reason).encode()
        self.send_response(502)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
http.server.HTTPServer(("0.0.0.0", 8080), Handler).serve_forever()
"#;
    let fixture = python().file("pay.py", program).application(
        r#"name: outside
services:
  pay: { command: ["python3", "pay.py"], ports: [8080], ready: { tcp: 8080 } }
tests:
  - { name: pay, http: { get: "http://pay:8080/", expect: { status: 502, body: "not known" } } }
"#,
    );
    let tool = tool_with(&fixture);
    let run = tool.tested(["--isolation", "netns"], 0);
    let [span] = run.spans_to("payments.example")[..] else { panic!("{:?}", run.calls()) };
    assert_eq!((&span["caller"], &span["error"]), (&"pay-1".into(), &"undeclared_host".into()));
    assert_eq!(span["parent"], run.spans_to("pay")[0]["id"], "it belongs to the request that was handled");
    let shown = tool.run(["runs", "show"]).expect(0).stdout;
    let line = shown
        .lines()
        .find(|line| line.contains("payments.example (parent inferred) connection"))
        .expect("a line");
    assert!(line.contains("not declared under `external`"), "{line}");
}

#[test]
fn fixed_ports_cannot_be_shared() {
    let output = tool_with(&cells()).run(["test", "--isolation", "ports", "--set", "instances.back=2"]);
    assert_snapshot!(output.exact(), @"
    exit code 3
    --- stderr
    error: process: cannot assign ports
      because: back-1 and back-2 would both listen on port 8081; write `${port}` where the service is told its port, or use `isolation: netns`
    ");
}

#[test]
fn without_rights() {
    let tool = tool_with(&cells()).unprivileged();
    let output = tool.run(["test", "--isolation", "netns", "--repeat", "2", "--slots", "2"]);
    output.expect(0);
    let run = tool.last_run();
    assert_eq!(
        run.calls(),
        ["test-1 -> front-1 GET /hello http1 200 root", "front-1 -> back-1 GET /word http1 200 propagated"]
    );
}

#[test]
fn a_killed_tool_leaves_nothing() {
    let fixture = published(free_port()).replace(
        "failing:",
        "  - { name: forks, run: [\"sh\", \"-c\", \"(setsid sleep 1000 &) ; sleep 1000\"] }\nfailing:",
    );
    let tool = tool_with(&fixture);
    let mut running = tool.start(["up"]);
    running.wait_for_line("Ctrl-C ends it");
    let up = running.id();
    running.kill();
    assert_eq!(running.wait().signal, Some(9));
    no_process_left(up);
    // In the middle of a test whose command has forked away.
    let running = tool.start(["test", "--test", "forks"]);
    let test = running.id();
    wait_until("the test has forked", || {
        left_over(test, &tool.folder()).iter().any(|line| line.contains("sleep 1000"))
    });
    running.kill();
    assert_eq!(running.wait().signal, Some(9));
    no_process_left(test);
    // The next start works and takes the rest away.
    tool.run(["test", "--test", "hello"]).expect(0);
    nothing_left(up, &tool.folder());
    nothing_left(test, &tool.folder());
}

#[test]
fn clean_takes_away_what_a_killed_tool_left() {
    let tool = tool_with(&published(free_port()));
    let mut running = tool.start(["up"]);
    running.wait_for_line("Ctrl-C ends it");
    let id = running.id();
    running.kill();
    running.wait();
    tool.run(["clean"]).expect(0);
    nothing_left(id, &tool.folder());
}

#[test]
fn fresh_data_for_every_trial() {
    // Each trial would see what the one before wrote, if anything were shared.
    let fixture = python().application(
        r#"name: notes
services:
  notes:
    command: ["python3", "-c", "import http.server, os; os.makedirs('data', exist_ok=True); open('data/log', 'a').write('x'); http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)"]
    ports: [8000]
    durable: [data/]
setup: ["sh", "-c", "mkdir -p data && printf seed > data/log"]
tests:
  - { name: seeded, http: { get: "http://notes:8000/data/log", expect: { body: "^seedx$" } } }
"#,
    );
    let tool = tool_with(&fixture);
    tool.run(["test", "--repeat", "3"]).expect(0);
    assert!(!tool.folder().join("data").exists(), "the application's own folder is not written to");
}
