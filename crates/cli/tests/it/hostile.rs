//! Senders that mean harm, or do not know better: over HTTP and gRPC, against the built tool.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use faultscope_testkit::{Faultscope, Running, wait_until};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};

use crate::tool;

const TRACES: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

struct Server {
    _tool: Faultscope,
    running: Running,
    sender: Sender,
}

/// Whoever sends to it.
struct Sender {
    address: String,
}

impl Server {
    fn start() -> Self {
        let tool = tool();
        let mut running = tool.start(["serve", "--listen", "127.0.0.1:0", "--otlp", "off", "--grpc", "off"]);
        let line = running.wait_for_line("Zipkin and Jaeger clients");
        let address = line.rsplit("http://").next().unwrap().trim().to_owned();
        Self { _tool: tool, running, sender: Sender { address } }
    }

    /// The most memory that the process ever had, in MiB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
    }
}

impl Sender {
    /// Sends a body and gives status and text of the answer; none when the connection was cut.
    fn post(&self, path: &str, headers: &str, body: &[u8]) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        // The server may answer and close before all is sent.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1)?.parse().ok()?;
        Some((status, text.split_once("\r\n\r\n")?.1.to_owned()))
    }

    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Calls with a body as it stands; gives gRPC's status, its message, and the answer's body.
    fn call(&self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> (String, String, Bytes) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(&self.address).await.unwrap();
            let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
            let (mut sender, connection) = handshake.await.unwrap();
            tokio::spawn(connection);
            let mut request =
                Request::post(format!("http://{}{path}", self.address)).header("te", "trailers");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let response =
                sender.send_request(request.body(Full::<Bytes>::from(body)).unwrap()).await.unwrap();
            let head = response.headers().clone();
            let body = response.into_body().collect().await.unwrap();
            let trailers = body.trailers().cloned().unwrap_or_default();
            let text = |name: &str| {
                let value = trailers.get(name).or_else(|| head.get(name));
                value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
            };
            (text("grpc-status"), text("grpc-message"), body.to_bytes())
        })
    }
}

fn gzip(bytes: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    bytes.for_each(|bytes| encoder.write_all(&bytes).unwrap());
    encoder.finish().unwrap()
}

/// A quarter of a gibibyte of spaces in about a mebibyte.
fn bomb() -> Vec<u8> {
    gzip(std::iter::repeat_n(vec![b' '; 1 << 20], 256))
}

fn framed(compressed: u8, message: &[u8]) -> Vec<u8> {
    [&[compressed][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// Many at once send little that becomes much: nobody gets in, nothing falls over, memory stays bounded.
#[test]
fn bombs_and_giants_take_bounded_memory() {
    let server = Server::start();
    let bomb = bomb();
    assert!(bomb.len() < 2 << 20);
    // Spans of one tag each, far more than are taken.
    let giant: Vec<u8> = {
        let span = |n: u64| format!(r#"{{"traceId":"{:x}","id":"1","tags":{{"a":"b"}}}},"#, n + 1);
        let spans: String = (0..150_000).map(span).collect();
        format!("[{}]", spans.trim_end_matches(',')).into_bytes()
    };
    let oversized = vec![b' '; 40 << 20];
    let packed = "content-encoding: gzip\r\n";
    let answered = AtomicU32::new(0);
    thread::scope(|scope| {
        for n in 0..40 {
            let (server, bomb, giant, oversized) = (&server.sender, &bomb, &giant, &oversized);
            let answered = &answered;
            scope.spawn(move || {
                let answer = match n % 5 {
                    0 => server.post("/api/v2/spans", packed, bomb),
                    1 => server.post(
                        "/v1/traces",
                        &format!("{packed}content-type: application/x-protobuf\r\n"),
                        bomb,
                    ),
                    2 => server.post(
                        "/v1/metrics",
                        &format!("{packed}content-type: application/json\r\n"),
                        bomb,
                    ),
                    3 => server.post("/api/v2/spans", "", giant),
                    _ => server.post("/api/v2/spans", "", oversized),
                };
                // Where much is still on its way, the connection may be cut before the answer is read.
                let Some((status, text)) = answer else { return };
                answered.fetch_add(1, Ordering::Relaxed);
                assert!(matches!(status, 413 | 429), "{n}: {status} {text}");
                assert!(text.len() > 10, "{n}: it does not say why");
            });
        }
        for _ in 0..10 {
            let (server, bomb) = (&server.sender, &bomb);
            scope.spawn(move || {
                let headers = [("content-type", "application/grpc"), ("grpc-encoding", "gzip")];
                let (status, message, _) = server.call(TRACES, &headers, framed(1, bomb));
                assert!(matches!(status.as_str(), "8" | "14"), "{status} {message}");
            });
        }
    });
    assert!(answered.into_inner() > 0, "nobody was told why");
    let peak = server.peak();
    assert!(peak < 900, "it took {peak} MiB");
    // Those who mean well are heard again.
    let span = br#"[{"traceId":"a","id":"1","localEndpoint":{"serviceName":"good"}}]"#;
    wait_until("a good span is taken", || {
        server.sender.post("/api/v2/spans", "", span).is_some_and(|(status, _)| status == 202)
    });
    assert_eq!(server.sender.get("/api/v2/services"), json!(["good"]));
    assert_eq!(server.sender.get("/metrics")["counter.faultscope.spans_stored"], 1);
}

#[test]
fn errors_of_grpc_messages_are_reported() {
    let server = Server::start();
    // A span of the trace 1 with the id 2; the same without an id.
    let trace = [&[10, 16][..], &1u128.to_be_bytes()].concat();
    let good = [&trace[..], &[18, 8], &2u64.to_be_bytes()].concat();
    let export = |spans: &[&[u8]]| {
        let field = |number: u8, bytes: &[u8]| {
            [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
        };
        let spans: Vec<u8> = spans.iter().flat_map(|span| field(2, span)).collect();
        field(1, &field(2, &spans))
    };
    let plain = [("content-type", "application/grpc")];
    let (gzipped, odd) = (("grpc-encoding", "gzip"), ("grpc-encoding", "zstd"));
    for (what, headers, body, status, said) in [
        ("nothing", &plain[..], Vec::new(), "3", "cut off"),
        ("half a frame", &plain, vec![0, 0, 0], "3", "cut off"),
        ("a frame that lies", &plain, vec![0, 0, 0, 0, 9, 1], "3", "just one message"),
        ("two messages", &plain, [framed(0, b""), framed(0, b"")].concat(), "3", "just one message"),
        ("nonsense", &plain, framed(0, b"\xff\xff\xff"), "3", "OTLP protobuf"),
        ("not compressed", &[plain[0], gzipped], framed(1, b"nonsense"), "3", "gzip"),
        ("another compression", &[plain[0], odd], framed(1, b"nonsense"), "12", "zstd"),
        ("another type", &[("content-type", "application/json")], framed(0, b""), "12", "gRPC"),
        ("too much", &plain, framed(0, &vec![0; 33 << 20]), "8", "limit"),
    ] {
        let (found, message, _) = server.sender.call(TRACES, headers, body);
        assert_eq!(found, status, "{what}: {message}");
        assert!(message.contains(said), "{what}: {message}");
    }
    // The good one of two is kept, and the answer tells of the other.
    let (status, _, answer) = server.sender.call(TRACES, &plain, framed(0, &export(&[&good, &trace])));
    assert_eq!(status, "0");
    assert!(String::from_utf8_lossy(&answer).contains("1 of 2 were rejected"), "{answer:?}");
    assert_eq!(server.sender.get("/api/v2/trace/1")[0]["id"], "0000000000000002");
    // An empty export is fine, compressed or not.
    for body in [framed(0, b""), framed(1, &gzip(std::iter::empty()))] {
        assert_eq!(server.sender.call(TRACES, &[plain[0], gzipped], body).0, "0");
    }
    let figures = server.sender.get("/metrics");
    assert_eq!(
        (&figures["counter.faultscope.spans_stored"], &figures["counter.faultscope.spans_rejected"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(figures["counter.zipkin_collector.messages_dropped.http"], 9);
}
