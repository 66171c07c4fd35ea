//! `faultscope clone`: copies of what `up` runs, and replays that start from them.

use std::process::Command;

use faultscope_testkit::{
    Faultscope, Fixture, Running, files, free_port, no_process_left, nothing_left, wait_until,
};

use crate::tool_with;

/// Counts in a file that is not durable, in one that is, and in memory; `/save` of the hook writes the latter.
const COUNTER: &str = r#"
import http.server, os, sys
memory = int(open("saved").read()) if os.path.exists("saved") else 0
class Counter(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global memory
        def add(name):
            with open(name, "a") as file: file.write("x")
            return os.path.getsize(name)
        if self.path == "/add":
            os.makedirs("data", exist_ok=True)
            memory += 1
            text = f"{add('data/kept')} {add('scratch')} {memory}"
        elif self.path == "/save":
            open("saved", "w").write(str(memory))
            text = "saved"
        elif self.path == "/token":
            text = os.environ["API_TOKEN"]
        elif self.path == "/die":
            os._exit(3)
        else:
            text = "ok"
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("0.0.0.0", 8080), Counter).serve_forever()
"#;

const SAVE: &str = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/save').read()";

fn counter(port: u16) -> Fixture {
    let application = format!(
        "name: counting\nservices:\n  counter:\n    command: [python3, counter.py]\n    ports: [8080]\n    \
         publish: {{ 8080: {port} }}\n    durable: [data/]\n    env: {{ API_TOKEN: tok-4711 }}\n    \
         ready: {{ http: /health }}\n    clone: {{ before: [python3, -c, \"{SAVE}\"] }}\n"
    );
    files().file("counter.py", COUNTER).application(&application)
}

fn curl(port: u16, path: &str) -> String {
    let url = format!("http://127.0.0.1:{port}{path}");
    let output = Command::new("curl").args(["-sS", "--max-time", "20", &url]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn up(tool: &Faultscope, words: &[&str]) -> Running {
    let mut running = tool.start(["up"].iter().chain(words));
    running.wait_for_line("Ctrl-C ends it");
    running
}

#[test]
fn a_replay_on_a_clone_finds_the_data_that_was_there() {
    let port = free_port();
    let tool = tool_with(&counter(port));
    let running = up(&tool, &[]);
    let id = running.id();
    assert_eq!(curl(port, "/add"), "1 1 1");
    assert_eq!(curl(port, "/add"), "2 2 2");
    let clone = tool.run(["clone", "--name", "two"]).expect(0);
    assert!(
        clone.stdout.contains("counter-1") && clone.stdout.contains("written by `python3"),
        "{}",
        clone.stdout
    );
    assert_eq!(curl(port, "/add"), "3 3 3", "it goes on");
    running.interrupt();
    running.wait().expect(0);
    nothing_left(id, &tool.folder());
    // On the clone the third request gets the answer it got; on fresh data it does not.
    let run = tool.last_run();
    let trace = run.spans().iter().filter_map(|span| span["trace"].as_str()).next_back().unwrap().to_owned();
    let on_clone = tool.json(["replay", &trace, "--on", "two"], 0);
    assert_eq!(on_clone["verdict"], "reproduced", "{on_clone:#}");
    let fresh = tool.json(["replay", &trace], 1);
    assert_eq!(fresh["verdict"], "differs", "{fresh:#}");
}

#[test]
fn clones_are_listed_shown_carried_and_removed() {
    let port = free_port();
    let tool = tool_with(&counter(port));
    assert!(tool.run(["clone"]).expect(2).stderr.contains("no `faultscope up` runs in this folder"));
    let running = up(&tool, &[]);
    assert_eq!(curl(port, "/add"), "1 1 1");
    tool.run(["clone", "--name", "one"]).expect(0);
    assert!(tool.run(["clone", "--name", "one"]).expect(6).stderr.contains("another clone has it"));
    tool.run(["clone"]).expect(0);
    running.interrupt();
    running.wait().expect(0);
    let all = tool.json(["clone", "ls"], 0);
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert!(!all.to_string().contains("tok-4711"), "values of the environment are not shown");
    // Nor can anybody read them in the files.
    let folder = tool.folder().join(".faultscope/clones");
    let grep = Command::new("grep").args(["-r", "tok-4711"]).arg(&folder).output().unwrap();
    assert_eq!(grep.status.code(), Some(1), "{}", String::from_utf8_lossy(&grep.stdout));
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&folder).unwrap());
    assert_eq!(mode & 0o777, 0o700);
    let exported = tool.run(["clone", "export", "one", "one.tar.gz"]).expect(0);
    assert!(exported.stderr.contains("API_TOKEN"), "{}", exported.stderr);
    tool.run(["clone", "rm", "one", "last"]).expect(0);
    assert!(tool.run(["clone", "ls"]).expect(0).stdout.contains("there is no clone yet"));
    tool.run(["clone", "import", "one.tar.gz"]).expect(0);
    assert!(tool.run(["clone", "show", "one"]).expect(0).stdout.contains("counter-1"));
    // What was left out comes from the application file.
    let shell = tool.run([
        "clone",
        "shell",
        "one",
        "--",
        "sh",
        "-c",
        "cat data/kept scratch; echo $FAULTSCOPE_INSTANCE",
    ]);
    assert_eq!(shell.expect(0).stdout, "xxcounter-1\n");
    tool.write("bad.tar.gz", "not an archive");
    assert!(tool.run(["clone", "import", "bad.tar.gz"]).expect(6).stderr.contains("is damaged"));
    tool.run(["clone", "show", "two"]).expect(2);
}

#[test]
fn an_edited_copy_is_kept_and_the_clone_stays_as_it_was() {
    let port = free_port();
    let tool = tool_with(&counter(port));
    let running = up(&tool, &[]);
    assert_eq!(curl(port, "/add"), "1 1 1");
    tool.run(["clone", "--name", "one"]).expect(0);
    running.interrupt();
    running.wait().expect(0);
    let edit = r#"sed -i 's/"ok"/"edited"/' counter.py && echo y >> data/kept"#;
    tool.run(["clone", "shell", "one", "counter", "--save-as", "edited", "--", "sh", "-c", edit]).expect(0);
    let show = |clone: &str| {
        let words = ["clone", "shell", clone, "--", "sh", "-c", "grep -c edited counter.py; cat data/kept"];
        tool.run(words).stdout
    };
    assert_eq!((show("one"), show("edited")), ("0\nx\n".to_owned(), "1\nxy\n".to_owned()));
    assert!(tool.read("counter.py").contains("\"ok\""), "the application's own file is as it was");
}

#[test]
fn schedules_and_ends_take_clones_and_old_ones_go() {
    let port = free_port();
    let tool = tool_with(&counter(port));
    let mut running = up(&tool, &["--clone-every", "600ms", "--clone-on", "restart", "--keep", "2"]);
    for _ in 0..4 {
        running.wait_for_line("clone .* taken .every 600ms.");
    }
    curl(port, "/die");
    running.wait_for_line("clone .* taken .counter-1 ended.");
    running.interrupt();
    running.wait().expect(0);
    let n_clones = tool.json(["clone", "ls"], 0).as_array().unwrap().len();
    assert_eq!(n_clones, 2, "older ones are removed");
}

#[test]
fn a_killed_tool_leaves_no_half_clone() {
    let port = free_port();
    let tool = tool_with(&counter(port));
    let running = up(&tool, &[]);
    let id = running.id();
    let clones = tool.folder().join(".faultscope/clones");
    let mut client = Command::new(tool.program()).args(["clone"]).current_dir(tool.folder()).spawn().unwrap();
    wait_until("the clone begins", || clones.is_dir());
    running.kill();
    running.wait();
    client.wait().unwrap();
    no_process_left(id);
    let (list, n_folders) = (tool.json(["clone", "ls"], 0), std::fs::read_dir(&clones).unwrap().count());
    let n_clones = list.as_array().unwrap().len();
    // Either it was complete, or it is not there; what is unfinished goes with the next `up`.
    assert!(n_clones <= 1 && n_folders <= 3, "{n_clones} {n_folders}");
    let running = up(&tool, &[]);
    running.interrupt();
    running.wait().expect(0);
    let unfinished = std::fs::read_dir(&clones).unwrap().flatten();
    let unfinished =
        unfinished.filter(|entry| entry.file_name().to_string_lossy().starts_with(".unfinished"));
    assert_eq!(unfinished.count(), 0);
}

#[test]
fn a_service_starts_with_another_command_and_its_debugger_is_forwarded() {
    let port = free_port();
    let tool = tool_with(&counter(port));
    let running = up(&tool, &[]);
    assert_eq!(curl(port, "/add"), "1 1 1");
    running.interrupt();
    running.wait().expect(0);
    let command = "counter=env python3 -m debugpy --listen 5678 counter.py";
    // Stands in for debugpy, which this machine need not have: it listens, and then runs the service.
    tool.write(
        "debugpy.py",
        "import socket, sys, threading, runpy\ns = socket.create_server(('127.0.0.1', int(sys.argv[2])))\n\
         def greet():\n    while True:\n        c, _ = s.accept(); c.sendall(b'debugger'); c.close()\n\
         threading.Thread(target=greet, daemon=True).start()\nrunpy.run_path(sys.argv[3], run_name='__main__')\n",
    );
    let output = tool.run(["replay", "--run", "last", "--debug", command]).expect(0);
    assert!(
        output.stderr.contains("counter-1 starts with debugpy; attach to 127.0.0.1:"),
        "{}",
        output.stderr
    );
    assert!(tool.run(["replay", "--run", "last", "--debug", "nobody=x"]).expect(2).stderr.contains("nobody"));
}
