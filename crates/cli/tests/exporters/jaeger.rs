//! A real Jaeger: traces are read from it, and handed on to it.

use std::process::Command;

use faultscope_testkit::{Faultscope, wait_until};
use serde_json::json;

use crate::http::get;
use crate::little::{USUAL, send};
use crate::peers::jaeger;
use crate::server::Server;
use crate::{installed, source};

#[test]
#[ignore = "run by ./test.sh exporters"]
fn traces_are_read_from_jaeger() {
    let (peer, otlp, _) = jaeger();
    let mut client = Command::new(installed("python/bin/python"));
    let little = send(client.arg(source("python/otel.py")).arg("otlp-http").arg(&otlp));
    wait_until("Jaeger has the trace", || {
        let answer = get(&peer.url, &format!("/api/traces/{}", little.trace));
        answer.value()["data"][0]["spans"].as_array().is_some_and(|spans| spans.len() == 3)
    });
    let tool = Faultscope::new(env!("CARGO_BIN_EXE_faultscope"));
    let imported = tool.json(["traces", "import", &peer.url], 0);
    assert_eq!(
        (&imported["spans"], &imported["rejected"], &imported["known"]),
        (&json!(3), &json!(0), &json!(0))
    );
    little.check_zipkin(&tool.json(["traces", "show", &little.trace], 0), USUAL);
    // The same again changes nothing.
    let again = tool.json(["traces", "import", &peer.url, "--service", "stock"], 0);
    assert_eq!((&again["spans"], &again["known"]), (&json!(0), &json!(3)));
    let links = tool.json(["deps"], 0);
    let link = &links[0];
    assert_eq!(
        (
            links.as_array().map(Vec::len),
            &link["parent"],
            &link["child"],
            &link["callCount"],
            &link["errorCount"]
        ),
        (Some(1), &json!("front"), &json!("stock"), &json!(1), &json!(1))
    );
}

#[test]
#[ignore = "run by ./test.sh exporters"]
fn traces_are_handed_on_to_jaeger() {
    let (peer, http, grpc) = jaeger();
    for url in [http, grpc] {
        let server = Server::start(&["--forward", &url]);
        let mut client = Command::new(installed("python/bin/python"));
        let little = send(client.arg(source("python/zipkin_v2.py")).arg("v2-json").arg(&server.zipkin));
        server.wait_for("counter.faultscope.forward_sent", 3);
        let path = format!("/api/traces/{}", little.trace);
        wait_until("Jaeger has the trace", || {
            let answer = get(&peer.url, &path).value();
            answer["data"][0]["spans"].as_array().is_some_and(|spans| spans.len() == 3)
        });
        // What Jaeger answers about it is what a Jaeger that was sent it would: so it can be read back.
        let tool = Faultscope::new(env!("CARGO_BIN_EXE_faultscope"));
        tool.json(["traces", "import", &peer.url], 0);
        little.check_zipkin(&tool.json(["traces", "show", &little.trace], 0), USUAL);
    }
}
