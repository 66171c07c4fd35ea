//! `faultscope up`: an application that stays up, reachable from outside, until it is told to end.

use std::net::TcpListener;
use std::process::Command;

use faultscope_testkit::{cells, free_port, nothing_left, python};
use insta::assert_snapshot;

use crate::{published, tool_with};

fn curl(url: &str) -> String {
    let output = Command::new("curl").args(["-sS", "--max-time", "20", url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn answers_until_interrupted() {
    let port = free_port();
    let tool = tool_with(&published(port));
    let mut running = tool.start(["up"]);
    let id = running.id();
    running.wait_for_line("Ctrl-C ends it");
    assert_eq!(curl(&format!("http://127.0.0.1:{port}/hello")), r#"{"by":"back-1","said":"hello world"}"#);
    assert_eq!(curl(&format!("http://localhost:{port}/hello")).len(), 36);
    running.interrupt();
    let output = running.wait();
    assert_snapshot!(output.shown(), @"
    exit code 0
    --- stdout
    service  port  address
    front    8080  127.0.0.1:<port>
    back     8081  127.0.0.1:<port>
    --- stderr
    recording to campaign <campaign>; Ctrl-C ends it
    4 calls recorded; see them with `faultscope runs show <campaign>`
    ");
    nothing_left(id, &tool.folder());
    assert!(TcpListener::bind(("127.0.0.1", port)).is_ok(), "the port is free again");
    assert_snapshot!(tool.run(["runs", "show", "--traces", "1"]).shown(), @"
    exit code 0
    --- stdout
    run <run>.1 pass: 4 calls seen, ready after <time>, took <time>

    service map: 3 services, 2 edges
      user
       └─▶ front      2 calls  p50 <time>  p99 <time>
      front
       └─▶ back       2 calls  p50 <time>  p99 <time>

    trace <trace>: 2 calls in <time>
      front-1 GET /hello <time> <bar> 200
      └─ back-1 GET /word <time> <bar> 200
    ");
}

#[test]
fn a_published_port_is_not_taken_by_a_service_that_has_it() {
    let port = free_port();
    let fixture = cells().application(&format!(
        "services:
  mail: {{ command: [sleep, '1000'], ports: [{port}], ready: {{ command: ['true'] }} }}
  shop: {{ command: [sleep, '1000'], ports: [8080], publish: {{ 8080: {port} }}, ready: {{ command: ['true'] }} }}
"
    ));
    let published = tool_with(&fixture).json(["up", "--for", "100ms"], 0);
    let address = |at: usize| (published[at]["service"].clone(), published[at]["address"].clone());
    assert_eq!(address(1), ("shop".into(), format!("127.0.0.1:{port}").into()), "{published:#}");
    assert_eq!(address(0).0, "mail", "in the order of the file");
}

#[test]
fn ends_by_itself() {
    let tool = tool_with(&published(free_port()));
    let output = tool.run(["up", "--for", "100ms", "--json"]).expect(0);
    let services: Vec<_> = output.json().as_array().unwrap().iter().map(|s| s["service"].clone()).collect();
    assert_eq!(services, ["front", "back"]);
    assert_snapshot!(tool.run(["up", "--for", "soon"]).exact(), @"
    exit code 2
    --- stderr
    error: `soon` is not a duration; write it like `250ms` or `10s`
    ");
}

#[test]
fn a_taken_port() {
    let port = free_port();
    let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let tool = tool_with(&published(port));
    let output = tool.run(["up"]);
    assert_snapshot!(output.exact().replace(&port.to_string(), "<port>"), @"
    exit code 6
    --- stderr
    error: cannot offer front on port <port>
      because: Address already in use (os error 98)

    hint: something else listens there; `--publish-from 20000` uses other ports
    ");
    let output = tool_with(&cells()).run(["up", "--publish-from", &port.to_string()]);
    assert_eq!(output.code, Some(6), "{}", output.stderr);
}

#[test]
fn says_when_a_service_ends() {
    let port = free_port();
    let tool = tool_with(&published(port));
    let mut running = tool.start(["up"]);
    running.wait_for_line("Ctrl-C ends it");
    let answer = Command::new("curl").args(["-s", &format!("http://127.0.0.1:{port}/end")]).status().unwrap();
    // 52: nothing was answered.
    assert_eq!(answer.code(), Some(52));
    let line = running.wait_for_line("front-1 exited with");
    assert!(line.contains('7'), "{line}");
    running.interrupt();
    running.wait().expect(0);
}

#[test]
fn under_a_circumstance_and_with_real_services() {
    let port = free_port();
    let fixture =
        python().replace("ports: [8080]", &format!("ports: [8080]\n    publish: {{ 8080: {port} }}"));
    let fixture =
        fixture.replace("ports: [8081]", &format!("ports: [8081]\n    publish: {{ 8081: {} }}", free_port()));
    let tool = tool_with(&fixture);
    let mut running = tool.start(["up", "--set", "instances.stock=2"]);
    let id = running.id();
    running.wait_for_line("Ctrl-C ends it");
    let url = format!("http://127.0.0.1:{port}/orders/apple");
    assert_eq!(curl(&url), r#"{"item": "apple", "left": 3, "by": "stock-1"}"#);
    assert_eq!(curl(&url), r#"{"item": "apple", "left": 3, "by": "stock-2"}"#);
    running.signal(rustix::process::Signal::TERM);
    running.wait().expect(0);
    nothing_left(id, &tool.folder());
    assert_eq!(
        tool.last_run().calls(),
        [
            "user-1 -> order-1 GET /orders/apple http1 200 root",
            "order-1 -> stock-1 GET /stock/apple http1 200 propagated",
            "user-1 -> order-1 GET /orders/apple http1 200 root",
            "order-1 -> stock-2 GET /stock/apple http1 200 propagated",
        ]
    );
}
