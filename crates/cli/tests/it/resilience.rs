//! `faultscope resilience`: services through the mesh, and processes that speak the JSON formats.

use faultscope_model::perturbation::Perturbation;
use faultscope_testkit::{Faultscope, Fixture, cells, grpc};
use insta::assert_snapshot;

use crate::{tool, tool_with};

const DEFECT: &str = "duplicate a.Go/b.Go";

const CELLS: &str = r#"
version: 1
services:
  shop:
    port: 8080
    operations:
      "POST /buy":
        steps:
          - call: { service: stock, method: POST, path: /take, body: { id: "{body.id}" }, as: took }
          - call: { service: ledger, method: PUT, path: "/entries/{body.id}", body: { amount: 7 }, retries: 1 }
          - respond: { body: { left: "{took.left}" } }
      "GET /state":
        steps:
          - call: { service: stock, path: /left, as: stock }
          - call: { service: ledger, path: /sum, as: ledger }
          - respond: { body: { left: "{stock.left}", sum: "{ledger.sum}" } }
  stock:
    port: 8081
    settings: { careful: false }
    store: { kind: file, path: data/stock.json }
    data: { items: { ball: { taken: 0 } } }
    operations:
      "POST /take":
        steps:
          - get: { from: seen, key: "{body.id}", as: seen }
          - when:
              if: "not (setting.careful and exists(seen))"
              then:
                - increment: { into: items, key: ball, field: taken }
                - put: { into: seen, key: "{body.id}", value: { done: true } }
          - get: { from: items, key: ball, as: item }
          - respond: { body: { left: "{10 - item.taken}" } }
      "GET /left":
        steps:
          - get: { from: items, key: ball, as: item }
          - respond: { body: { left: "{10 - item.taken}" } }
  ledger:
    port: 8082
    operations: &ledger
      "PUT /entries/{id}":
        steps:
          - put: { into: entries, key: "{path.id}", value: { amount: "{body.amount}" } }
          - respond: { body: { ok: true } }
      "GET /sum":
        steps:
          - find: { from: entries, as: all }
          - respond: { body: { sum: "{sum(all, 'amount')}" } }
"#;

const SHOP: &str = r#"
name: shop
services:
  shop: { command: ["${faultscope}", cell, --spec, cells.yaml, --service, shop], ports: [8080], ready: { http: /health } }
  stock:
    command: ["${faultscope}", cell, --spec, cells.yaml, --service, stock]
    ports: [8081]
    ready: { http: /health }
    env: { CAREFUL: "false" }
    durable: [data/]
    delivery: { "POST /take": at-least-once }
  ledger:
    command: ["${faultscope}", cell, --spec, cells.yaml, --service, ledger]
    ports: [8082]
    ready: { http: /health }
    durable: true
tests:
  - name: buy
    steps:
      - { post: "http://shop:8080/buy", json: { id: order-a } }
      - { get: "http://shop:8080/state", expect: { json: { left: "9", sum: "7" } } }
resilience: { outage: { for: 100ms } }
invariants:
  - { name: nothing is lost, http: { get: "http://stock:8081/left", expect: { json: { left: "10|9" } } } }
"#;

/// A shop whose stock counts twice what arrives twice, and whose ledger forgets when it is restarted.
pub(crate) fn shop() -> Fixture {
    cells().file("cells.yaml", CELLS).application(SHOP)
}

fn defects(report: &serde_json::Value) -> Vec<String> {
    let defects = report["tests"][0]["defects"].as_array().unwrap();
    let name = |p: &serde_json::Value| serde_json::from_value::<Perturbation>(p.clone()).unwrap().to_string();
    let names = |defect: &serde_json::Value| {
        let names: Vec<_> = defect["perturbations"].as_array().unwrap().iter().map(name).collect();
        names.join(" + ")
    };
    let mut all: Vec<_> = defects.iter().map(names).collect();
    all.sort();
    all
}

#[test]
fn every_defect_of_services_is_found_and_can_be_shown_again() {
    let tool = tool_with(&shop());
    let report = tool
        .json(["resilience", "buy", "--slots", "2", "--report", "junit=r.xml", "--report", "html=r.html"], 1);
    let found = [
        "duplicate shop POST /buy > stock POST /take",
        "restart shop POST /buy > ledger PUT /entries/order-a",
    ];
    assert_eq!(defects(&report), found);
    let test = &report["tests"][0];
    assert_eq!((&test["unstable"], &test["missed"]), (&0.into(), &serde_json::Value::Null));
    let duplicate =
        test["defects"].as_array().unwrap().iter().find(|d| d["perturbations"][0]["kind"] == "duplicate");
    let duplicate = duplicate.unwrap();
    assert_eq!(duplicate["signature"]["ending"], serde_json::json!({ "step": 2 }));
    assert_eq!(duplicate["blamed"], serde_json::json!(["shop"]));
    let marked: Vec<_> =
        duplicate["trace"].as_array().unwrap().iter().filter(|s| s["marks"][0] == "duplicate").collect();
    assert_eq!(marked.len(), 2, "both sendings are marked: {duplicate}");
    for found in found {
        tool.run(["resilience", "--reproduce", found]).expect(1);
    }
    let junit = tool.read("r.xml");
    assert!(
        junit.contains("tests=\"1\" failures=\"1\" errors=\"0\"") && junit.contains("reproduce:"),
        "{junit}"
    );
    assert!(tool.read("r.html").contains("2 defects in 1 test"));
    // Each trial that `--reproduce` made is a campaign of its own, without a report.
    let again = tool.json(["report"], 0);
    assert_eq!(defects(&again), found);
    assert!(tool.run(["report", "--format", "junit"]).expect(0).stdout.contains("failures=\"1\""));
}

#[test]
fn grpc_calls_are_perturbed() {
    let fixture = grpc(env!("CARGO_TARGET_TMPDIR")).replace("[50051]", "[50051], durable: true");
    let run = ["resilience", "--all-deliveries", "--kinds", "duplicate,restart"];
    let report = tool_with(&fixture).json(run, 0);
    let test = &report["tests"][0];
    assert_eq!(test["verdict"]["kind"], "clean", "{report}");
    let missed: Vec<_> = test["missed"].as_array().into_iter().flatten().collect();
    assert!(missed.iter().all(|m| m["why"] == "answer_goes_on"), "{missed:?}");
    assert!(test["candidates"]["restart"].as_u64().unwrap() >= 2, "{test}");
}

#[test]
fn what_is_not_there_is_not_applied() {
    let tool = tool_with(&shop());
    assert_snapshot!(tool.run(["resilience", "-q", "--reproduce", "restart shop POST /sell > stock POST /take"]).shown(), @"
    exit code 5
    --- stdout
    run <run>.1 unresolved (not applied: restart shop POST /sell > stock POST /take (no such call or message came)): 1 of 1 test passed, 7 calls seen, ready after <time>, took <time>
      pass  buy <time>
      not applied: restart shop POST /sell > stock POST /take (no such call or message came)
    see the calls with `faultscope runs show <run>.1`
    ");
    assert_snapshot!(tool.run(["resilience", "--reproduce", "restart"]).exact(), @"
    exit code 2
    --- stderr
    error: invalid value 'restart' for '--reproduce <PERTURBATION>': a perturbation is a kind and its target: restart order POST /pay > stock PUT /s

    For more information, try '--help'.
    ");
    tool.run(["resilience", "--command", ""]).expect(2);
}

#[test]
fn a_test_that_fails_by_itself_is_refused() {
    let tool = tool_with(&shop().replace("left: \"9\"", "left: \"12\""));
    assert_snapshot!(tool.run(["resilience", "-q"]).shown(), @"
    exit code 8
    --- stdout
    buy: fails without any perturbation
      step 2: GET http://shop:8080/state: left: `9` does not match `12`
      3 trials in <time>: 3 without perturbations
    See its calls with `faultscope runs show <run>.check-simplest`
    ");
}

/// A test process that speaks the formats: `a` tells `b` and `c`; a repeated `b` is a defect.
const PROCESS: &str = r#"
import json, os, sys
asked = json.load(open(os.environ["FAULTSCOPE_PERTURB"]))["perturbations"]
trace = open(os.environ["FAULTSCOPE_TRACE"], "w")
def tell(**event):
    trace.write(json.dumps(event) + "\n")
    trace.flush()
tell(faultscope_trace=1, adapter="python")
bad = []
def send(number, turn, to, cause):
    target = f"{cause}/{to}.Go" if cause else f"{to}.Go"
    tell(event="send", to=to, message="Go", send=number, turn=turn, at_least_once=True, target=target, **{"from": "x"})
    tell(event="turn", to=to, send=number, turn=number)
    for p in asked:
        if p["target"] == target:
            tell(event="applied", perturbation=p)
            bad.append((p["kind"], to))
    return target
for actor in "abc":
    tell(event="create", child=actor, persistent=actor == "c")
a = send(1, None, "a", "")
send(2, 1, "b", a)
send(3, 1, "c", a)
MODE
if ("duplicate", "b") in bad:
    sys.exit("process.py:7: error@[b] 2 != 1")
"#;

fn process(mode: &str) -> Faultscope {
    let tool = tool();
    tool.write("process.py", &PROCESS.replace("MODE", mode));
    tool
}

#[test]
fn a_process_that_speaks_the_formats() {
    let tool = process("");
    let run = ["resilience", "--command", "python3 process.py"];
    let report = tool.json(run, 1);
    assert_eq!(defects(&report), [DEFECT]);
    let test = &report["tests"][0];
    assert_eq!(test["candidates"], serde_json::json!({ "duplicate": 3, "restart": 1 }));
    assert_eq!(test["defects"][0]["blamed"], serde_json::json!(["b"]));
    assert_eq!(test["defects"][0]["location"], "process.py:7");
    let other = tool.json([&run[..], &["--strategy", "rt-dd"]].concat(), 1);
    assert_eq!((&other["strategy"], defects(&other)), (&"rt-dd".into(), vec![DEFECT.to_owned()]));
}

#[test]
fn a_process_that_speaks_nonsense() {
    let tool = process("trace.write('nonsense\\n')\ntrace.flush()");
    assert_snapshot!(tool.run(["resilience", "-q", "--command", "python3 process.py"]).shown(), @"
    exit code 5
    --- stdout
    command: unresolved: the trace of the test's process cannot be read: line 11: expected ident at line 1 column 2
      2 trials in <time>: 2 without perturbations
    ");
}

#[test]
fn a_process_that_hangs_when_perturbed_is_ended() {
    let tool = process("");
    let process = tool.read("process.py");
    let then = "bad.append((p[\"kind\"], to))";
    assert!(process.contains(then));
    let file = tool.temporary().join("pid");
    let hang = format!("open({file:?}, \"w\").write(str(os.getpid())); import time; time.sleep(1000)");
    tool.write("process.py", &process.replace(then, &hang));
    let run = ["resilience", "--command", "exec python3 process.py", "--kinds", "duplicate"];
    let report = tool.json([&run[..], &["--within", "4s", "--budget", "1 trial"]].concat(), 7);
    let first = &report["tests"][0]["defects"][0];
    assert_eq!(first["signature"]["message"], "did not end within 4.0s", "{report}");
    assert!(first["reproduce"].as_str().unwrap().ends_with("--within 4.0s"), "{first}");
    let pid = std::fs::read_to_string(file).unwrap();
    assert!(!std::path::Path::new("/proc").join(pid).exists(), "nothing is left running");
}

#[test]
fn a_campaign_that_ran_out_of_trials_goes_on() {
    let tool = process("");
    let run = ["resilience", "--command", "python3 process.py"];
    let first = tool.json([&run[..], &["--budget", "1 trial"]].concat(), 7);
    assert_eq!(first["verdict"]["kind"], "out_of_budget");
    let rest = tool.json([&run[..], &["--resume"]].concat(), 1);
    assert_eq!(defects(&rest), [DEFECT]);
    assert_eq!(rest["tests"][0]["trials"]["earlier"], 1, "{rest}");
    tool.run([&run[..], &["--resume"]].concat()).expect(2);
}

/// A store that speaks lines over TCP, and a service that keeps a connection to it.
const STORE: &str = r#"
import socketserver
class Lines(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer(("", 6379), Lines).serve_forever()
"#;

const TODO: &str = r#"
import http.server, os, socket, sys, threading, time
line = None
def connect():
    global line
    line = socket.create_connection(("store", 6379))
    line.sendall(b"hello\n")
    line.recv(100)
connect()
def watch():
    while True:
        try:
            gone = not line.recv(100)
        except OSError:
            gone = True
        if gone and len(sys.argv) < 2:
            print("lost the store", flush=True)
            os._exit(3)
        while gone:
            time.sleep(0.1)
            try:
                connect()
                gone = False
            except OSError:
                pass
threading.Thread(target=watch, daemon=True).start()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("", 8080), Handler).serve_forever()
"#;

const TODO_FILE: &str = r#"
name: todo
services:
  store: { command: [python3, store.py], ports: [{ port: 6379, protocol: redis }], ready: { tcp: 6379 } }
  todo: { command: [python3, todo.py], ports: [8080], ready: { http: / }, after: [store] }
tests:
  - { name: lists, http: { get: "http://todo:8080/" } }
resilience:
  outage: { for: 1s, recovery: 500ms }
"#;

#[test]
fn a_service_that_does_not_survive_an_outage_of_its_store_is_found() {
    let fixture = cells().file("store.py", STORE).file("todo.py", TODO).application(TODO_FILE);
    let tool = tool_with(&fixture);
    let report = tool.json(["resilience", "--kinds", "outage"], 1);
    assert_eq!(defects(&report), ["outage store"], "{report:#}");
    let defect = &report["tests"][0]["defects"][0];
    assert_eq!(defect["exits"][0], "todo-1 exited with 3", "{defect:#}");
    tool.run(["resilience", "--reproduce", "outage store"]).expect(1);

    let robust = fixture.replace("[python3, todo.py]", "[python3, todo.py, robust]");
    let report = tool_with(&robust).json(["resilience", "--kinds", "outage,restart", "--all-restarts"], 0);
    let tally = &report["tests"][0]["tally"];
    assert!(tally["passed"].as_u64().unwrap() >= 2 && tally["not_applied"] == 0, "{report:#}");
}

/// A service that keeps one connection to Redis, as a pool does. `dies` makes it end when that breaks, `stuck` makes it
/// keep the broken one.
const POOLED: &str = r#"
import http.server, os, socket, sys
how = sys.argv[1]
line = None
def ask():
    global line
    if line is None:
        line = socket.create_connection(("redis", 6379), timeout=5)
    line.sendall(b"INCR visits\r\n")
    answer = line.recv(100)
    if not answer.startswith(b":"):
        raise OSError("redis is gone")
ask()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global line
        status = 200
        if self.path != "/health":
            try:
                ask()
            except OSError as error:
                status = 503
                if how == "dies":
                    print("lost redis:", error, flush=True)
                    os._exit(3)
                if how == "robust":
                    line = None
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 8080), Handler).serve_forever()
"#;

const POOLED_FILE: &str = r#"
name: visits
services:
  redis: { command: [redis-server, --port, "6379", --save, ""], ports: [6379], ready: { tcp: 6379 } }
  web: { command: [python3, web.py, dies], ports: [8080], ready: { http: /health }, after: [redis] }
tests:
  - { name: visit, steps: [ { get: "http://web:8080/a" }, { get: "http://web:8080/b" } ] }
resilience:
  outage: { for: 500ms, recovery: 3s }
"#;

#[test]
fn outages_of_a_real_redis_show_who_comes_back() {
    let tool_for = |how: &str| {
        let file = POOLED_FILE.replace("dies", how);
        tool_with(&cells().file("web.py", POOLED).application(&file))
    };
    let run = ["resilience", "--kinds", "outage"];
    let tool = tool_for("dies");
    let report = tool.json(run, 1);
    let defect = &report["tests"][0]["defects"][0];
    assert_eq!(defects(&report), ["outage redis"], "{report:#}");
    assert_eq!(defect["signature"]["message"], "web-1 exited with 3 after outage redis", "{report:#}");
    assert_eq!(defect["also"].as_array().unwrap().len(), 2, "{report:#}");
    // The printed command shows it again.
    let command = defect["reproduce"].as_str().unwrap();
    assert!(command.contains("--reproduce 'outage redis'"), "{command}");
    tool.pasted(command).expect(1);
    tool.run(["resilience", "--reproduce", "outage redis at call 2"]).expect(1);

    let tool = tool_for("stuck");
    let report = tool.json(run, 1);
    let message = report["tests"][0]["defects"][0]["signature"]["message"].as_str().unwrap();
    assert!(message.starts_with("does not work again after outage redis: "), "{report:#}");
    let text = tool.run(["resilience", "--reproduce", "outage redis at call 1"]).expect(1).stdout;
    assert!(text.contains("does not work again after outage redis at call 1: "), "{text}");

    let tool = tool_for("robust");
    let text = tool.run(run).expect(0).stdout;
    assert!(text.contains("outage redis at call 1 (refuse for "), "{text}");
    assert!(text.contains("): degraded, and passed "), "{text}");
    tool.run(["resilience", "--reproduce", "outage redis at call 9"]).expect(5);
}
