//! `faultscope record`: a system that somebody else started; and replays in which recorded answers stand for services.

use std::net::TcpListener;
use std::process::Command;

use faultscope_testkit::{Faultscope, cells, free_port};

use crate::{published, tool, tool_with};

fn curl(url: &str) -> String {
    let output = Command::new("curl").args(["-sS", "--max-time", "20", url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Asserts that a text has all these parts.
fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn a_running_system_is_recorded_and_replayed() {
    let (port, listen) = (free_port(), free_port());
    let system = tool_with(&published(port));
    let mut running = system.start(["up"]);
    running.wait_for_line("Ctrl-C ends it");
    let tool = tool_with(&cells());
    let (listening, to) = (listen.to_string(), format!("http://127.0.0.1:{port}"));
    let mut recording = tool.start(["record", "--listen", &listening, "--to", &to, "--as", "front"]);
    recording.wait_for_line("Ctrl-C ends it");
    assert_eq!(curl(&format!("http://127.0.0.1:{listen}/hello")), r#"{"by":"back-1","said":"hello world"}"#);
    assert_eq!(curl(&format!("http://localhost:{listen}/hello")).len(), 36);
    recording.interrupt();
    let output = recording.wait().expect(0);
    assert_parts(&output.stdout, &["goes on to", &to]);
    assert_parts(&output.stderr, &["2 calls recorded", "faultscope replay --run"]);
    assert!(TcpListener::bind(("127.0.0.1", listen)).is_ok(), "the port is free again");
    running.interrupt();
    running.wait().expect(0);

    let calls = ["user-1 -> front-1 GET /hello http1 200 root"; 2];
    assert_eq!(tool.last_run().calls(), calls);
    assert_parts(&tool.run(["services"]).expect(0).stdout, &["front", "user"]);
    assert_parts(&tool.run(["deps"]).expect(0).stdout, &["front"]);
    let report = tool.json(["replay", "--run", "last", "--speed", "max"], 0);
    assert_eq!((&report["verdict"], report["requests"].as_array().unwrap().len()), (&"reproduced".into(), 2));
}

#[test]
fn what_cannot_be_recorded_is_said_at_once() {
    let check = |words: &[&str], code, part: &str| {
        let output = tool().run(words.iter().copied()).expect(code);
        assert_parts(&output.stderr, &[part]);
    };
    check(&["record"], 2, "there is nothing to record");
    check(&["record", "--listen", "8080"], 2, "--to");
    check(&["record", "--listen", "1", "--to", "https://a"], 2, "only http:// can be recorded");
    check(&["record", "--service", "a=8080:http://localhost:8080"], 2, "round in a circle");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check(&["record", "--listen", &port, "--to", "http://a:1"], 6, "cannot listen on");
}

#[test]
fn other_machines_are_let_in_with_a_warning_only() {
    // An address that no machine has: nothing is opened.
    let output = tool().run(["record", "--listen", "192.0.2.1:8080", "--to", "http://127.0.0.1:9"]).expect(6);
    assert_parts(&output.stderr, &["can be reached from other machines", "cannot listen on 192.0.2.1:8080"]);
}

#[test]
fn a_recording_may_end_by_itself() {
    let listen = free_port().to_string();
    let words = ["record", "--listen", &listen, "--to", "http://127.0.0.1:9", "--for", "50ms"];
    assert_parts(&tool().run(words).expect(0).stderr, &["0 calls recorded"]);
}

/// The cells after one passing test.
fn tested() -> Faultscope {
    let tool = tool_with(&cells());
    tool.run(["test"]).expect(0);
    tool
}

#[test]
fn recorded_answers_stand_for_a_service() {
    let tool = tested();
    let report = tool.json(["replay", "--run", "last", "--mock", "back", "--speed", "max"], 0);
    assert_eq!(report["verdict"], "reproduced", "{report:#}");
    let back = &report["mocks"]["services"]["back"];
    assert_eq!(
        (&back["answered"], &back["missed"], &back["without_trace"]),
        (&2.into(), &0.into(), &0.into())
    );
    let output = tool.run(["replay", "last", "--mock", "bakc"]).expect(2);
    assert_parts(&output.stderr, &["did you mean `back`?"]);
}

#[test]
fn a_call_without_a_recorded_answer_has_an_exit_code() {
    let tool = tested();
    let changed = tool.read("cells.yaml").replacen("path: /word, as: back", "path: /other, as: back", 1);
    tool.write("cells.yaml", &changed);
    let output = tool.run(["replay", "--run", "last", "--mock", "back", "--speed", "max"]).expect(9);
    let parts = ["no recorded answer: back GET /other", "nearest is GET /word in trace"];
    assert_parts(&output.stdout, &parts);
}
