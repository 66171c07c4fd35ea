//! Other servers, played by this test: traces are read from them and handed on to them. The real ones are asked
//! by `./test.sh exporters`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use faultscope_testkit::wait_until;
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::tool;

/// A server that answers each request, given as its first line, with a status and a body. Gives its address
/// and what it was asked.
fn playing(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).unwrap_or(0) > 0 {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            let _ = connection.read_exact(&mut body);
            let line = head.lines().next().unwrap_or_default().to_owned();
            let (status, text) = answer(&line);
            seen.lock().unwrap().push(format!("{head}{} bytes", body.len()));
            let length = text.len();
            let after = "retry-after: 0\r\nconnection: close\r\n";
            let answer = format!("HTTP/1.1 {status} X\r\n{after}content-length: {length}\r\n\r\n{text}");
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    (address, asked)
}

fn now_us() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

/// A Jaeger of the newer kind: nothing but `/api/v3`.
#[test]
fn traces_are_read_from_a_newer_jaeger() {
    let nanos = (now_us() - 1_000_000) * 1_000;
    let spans = json!({"result": {"resourceSpans": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "Order"}}]},
        "scopeSpans": [{"scope": {}, "spans": [{"traceId": "463ac35c9f6413ad48485a3953bb6124", "spanId": "00000000000000aa",
            "name": "GET /pay", "kind": 2, "startTimeUnixNano": nanos.to_string(), "endTimeUnixNano": (nanos + 5_000_000).to_string(),
            "status": {"code": 2, "message": "out of stock"}}]}]}]}});
    let (url, asked) = playing(move |line| match line {
        line if line.starts_with("get /api/v3/services ") => {
            (200, r#"{"services":["Order","idle one"]}"#.into())
        }
        line if line.contains("query.service_name=order&") => (200, spans.to_string()),
        line if line.starts_with("get /api/v3/traces") => {
            (404, r#"{"error":{"httpCode":404,"message":"No traces found"}}"#.into())
        }
        _ => (404, "404 page not found".into()),
    });
    let tool = tool();
    let imported = tool.json(["traces", "import", &url, "--header", "X-Token: abc"], 0);
    assert_eq!(imported, json!({"spans": 1, "rejected": 0, "known": 0, "complaints": []}));
    let shown = tool.json(["traces", "show", "463ac35c9f6413ad48485a3953bb6124"], 0);
    assert_eq!(
        (&shown[0]["name"], &shown[0]["duration"], &shown[0]["tags"]["error"]),
        (&json!("get /pay"), &json!(5_000), &json!("out of stock"))
    );
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|request| request.contains("x-token: abc")));
    let idle = asked.iter().find(|request| request.contains("service_name=idle%20one")).unwrap();
    assert!(idle.contains("query.start_time_min=20") && idle.contains("query.search_depth=500"), "{idle}");
}

/// Whoever has more traces than it gives at once is asked for shorter times, until all of them have come.
#[test]
fn times_with_too_many_traces_are_halved() {
    let start_ms = now_us() / 1_000 - 600_000;
    let (url, asked) = playing(move |line| {
        if line.starts_with("get /api/v2/services ") {
            return (200, r#"["a"]"#.into());
        }
        let number = |name: &str| -> u64 {
            let text = line.split(['?', '&', ' ']).find_map(|pair| pair.strip_prefix(&format!("{name}=")));
            text.unwrap().parse().unwrap()
        };
        let (end, lookback, limit) = (number("endts"), number("lookback"), number("limit"));
        // Two thousand traces, three in each 20 milliseconds.
        let times = (0..2_000u64).map(|n| (n, start_ms + n / 3 * 20));
        let within = times.filter(|(_, ms)| (end - lookback..=end).contains(ms));
        let trace = |(n, ms): (u64, u64)| json!([{"traceId": format!("{:x}", n + 1), "id": "1", "timestamp": ms * 1_000}]);
        let traces: Vec<Value> = within.take(usize::try_from(limit).unwrap()).map(trace).collect();
        (200, json!(traces).to_string())
    });
    let tool = tool();
    let imported = tool.json(["traces", "import", &url, "--since", "1h"], 0);
    assert_eq!(imported, json!({"spans": 2_000, "rejected": 0, "known": 0, "complaints": []}));
    assert!(asked.lock().unwrap().len() < 100, "{}", asked.lock().unwrap().len());
    let again = tool.json(["traces", "import", &url, "--since", "1h"], 0);
    assert_eq!((&again["spans"], &again["known"]), (&json!(0), &json!(2_000)));
}

#[test]
fn a_file_that_jaegers_page_saved_is_read() {
    let tool = tool();
    let us = now_us();
    tool.write("saved.json", &format!(r#"{{"data":[{{"traceID":"abc","spans":[{{"traceID":"abc","spanID":"1","operationName":"Pay","references":[],
        "startTime":{us},"duration":7,"tags":[{{"key":"span.kind","type":"string","value":"server"}}],"logs":[],"processID":"p1"}}],
        "processes":{{"p1":{{"serviceName":"order","tags":[]}}}}}}]}}"#));
    assert_eq!(tool.json(["traces", "import", "saved.json"], 0)["spans"], 1);
    assert_eq!(tool.json(["traces", "show", "abc"], 0)[0]["localEndpoint"]["serviceName"], "order");
}

#[test]
fn unusable_servers_are_reported() {
    let (url, _) = playing(|_| (404, "<html>\u{1b}[31mnothing</html>".into()));
    let tool = tool();
    assert_snapshot!(tool.run(["traces", "import", &url]).shown(), @"
    exit code 6
    --- stderr
    error: cannot read traces from http://127.0.0.1:<port>
      because: /api/v2/services: status 404, <html>[31mnothing</html>; /api/services: status 404, <html>[31mnothing</html>; /api/v3/services: status 404, <html>[31mnothing</html>

    hint: neither Zipkin's nor Jaeger's API answers there; a path before /api belongs to the address, as in http://127.0.0.1:<port>/zipkin
    ");
    assert!(!tool.folder().join(".faultscope").exists(), "nothing came, so there is nothing to keep");
    assert_snapshot!(tool.run(["traces", "import", "https://127.0.0.1"]).shown(), @"
    exit code 2
    --- stderr
    error: `https://127.0.0.1` is not an http:// address

    hint: the address of a Zipkin or Jaeger: http://127.0.0.1:<port>, http://127.0.0.1:<port>
    ");
    assert_snapshot!(tool.run(["serve", "--forward", "https://127.0.0.1"]).shown(), @"
    exit code 2
    --- stderr
    error: `https://127.0.0.1` uses TLS; only http:// and grpc:// are supported

    hint: --forward http://127.0.0.1:<port> or --forward grpc://127.0.0.1:<port>
    ");
}

#[test]
fn spans_are_handed_on_and_sent_again_when_asked_to() {
    let refusals = Mutex::new(2);
    let (url, asked) = playing(move |_| {
        let mut left = refusals.lock().unwrap();
        *left -= i32::from(*left > 0);
        if *left > 0 { (503, "not now".into()) } else { (200, String::new()) }
    });
    let tool = tool();
    let any = "127.0.0.1:0";
    let mut running =
        tool.start(["serve", "--listen", any, "--otlp", "off", "--grpc", "off", "--forward", &url]);
    let line = running.wait_for_line("Zipkin and Jaeger clients");
    let zipkin = line.split_whitespace().last().unwrap().to_owned();
    let span = r#"[{"traceId":"a","id":"1","name":"pay","timestamp":1700000000000000,"localEndpoint":{"serviceName":"order"}}]"#;
    tool.run(["fetch", &format!("{zipkin}/api/v2/spans"), "-d", span, "-X", "POST"]).expect(0);
    wait_until("it is handed on", || asked.lock().unwrap().len() == 2);
    let request = asked.lock().unwrap()[1].clone();
    assert!(request.starts_with("post /v1/traces http/1.1"), "{request}");
    assert!(
        request.contains("content-type: application/x-protobuf")
            && request.contains("content-encoding: gzip")
    );
    running.interrupt();
    let output = running.wait().expect(0);
    assert!(output.stderr.contains("1 span forwarded"), "{}", output.stderr);
}
