//! Answers in the place of services that are not there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use faultscope_mesh::{MockAnswer, MockReply, MockRequest, Mocks};
use faultscope_model::span::{Span, Wire};
use faultscope_model::{CallError, Protocol, ServiceName, TraceId};
use http::{HeaderMap, Request};
use tokio::net::TcpStream;

use crate::kit::{OK, World, answering, header, soon, world};

/// Stands for `stock`, notes what it is asked, and answers by the path.
#[derive(Debug, Default)]
struct Fake {
    asked: Mutex<Vec<(String, String, TraceId)>>,
    refused: Mutex<usize>,
}

impl Mocks for Fake {
    fn stands_for(&self, callee: &ServiceName) -> bool {
        callee.as_str() == "stock"
    }

    fn reply(&self, request: &MockRequest<'_>) -> MockReply {
        let body = String::from_utf8_lossy(request.body).into_owned();
        let operation = format!("{} {}", request.method, request.path);
        self.asked.lock().unwrap().push((operation, body, request.trace));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match request.path {
            "/reset" => MockReply::Reset,
            "/miss" => MockReply::Miss(MockAnswer { status: 501, ..MockAnswer::default() }),
            "/none" => MockReply::Answer(MockAnswer { status: 204, ..MockAnswer::default() }),
            _ => MockReply::Answer(MockAnswer {
                after: Duration::ZERO,
                status: 200,
                headers: vec![
                    pair("Content-Length", "999"),
                    pair("Transfer-Encoding", "chunked"),
                    pair("Connection", "close"),
                    pair("X-Kind", "recorded"),
                ],
                body: Bytes::from_static(b"seven"),
                trailers: vec![pair("grpc-status", "0"), pair("x-late", "1")],
            }),
        }
    }

    fn refuse_connection(&self, _: &ServiceName) {
        *self.refused.lock().unwrap() += 1;
    }
}

/// A world in which nobody stands behind `stock`.
fn mocked() -> (World, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    (world().service("stock", &[]).mocks(fake.clone()).start(), fake)
}

fn ends(spans: &[Span]) -> Vec<(Option<u16>, Option<CallError>)> {
    spans.iter().map(|span| (span.status, span.error.clone())).collect()
}

#[tokio::test]
async fn one_connection_gets_answer_after_answer() {
    let (world, fake) = mocked();
    let mut raw = world.connect("stock").await;
    let chunked =
        "POST /a?b HTTP/1.1\r\nHost: stock\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let answer = raw.ask(chunked).await.text;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nseven"), "{answer}");
    assert_eq!(header(&answer, "content-length").as_deref(), Some("5"), "that of this answer: {answer}");
    assert_eq!(
        (header(&answer, "x-kind").as_deref(), header(&answer, "connection")),
        (Some("recorded"), None)
    );
    let answer = raw.get("/none").await.text;
    assert!(answer.starts_with("HTTP/1.1 204") && !answer.contains("content-length"), "{answer}");
    let answer = raw.get("/miss").await.text;
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    raw.send("HEAD /a HTTP/1.1\r\nHost: stock\r\n\r\n").await;
    let head = raw.read_to("\r\n\r\n").await;
    assert_eq!(header(&head, "content-length").as_deref(), Some("999"), "as it was recorded");
    assert!(raw.get("/reset").await.error.is_some());
    let spans = world.spans(5).await;
    let whole = |status| (Some(status), None);
    let (missed, reset) = ((Some(501), Some(CallError::MockMissed)), (None, Some(CallError::ResetByCallee)));
    assert_eq!(ends(&spans), [whole(200), whole(204), missed, whole(200), reset]);
    assert_eq!((spans[0].request_bytes, spans[0].response_bytes, spans[0].wire), (3, 5, Wire::Http1));
    let asked = fake.asked.lock().unwrap();
    assert_eq!((asked[0].0.as_str(), asked[0].1.as_str(), asked[0].2), ("POST /a?b", "abc", spans[0].trace));
}

#[tokio::test]
async fn a_caller_that_asks_first_is_told_to_go_on() {
    let (world, fake) = mocked();
    let mut raw = world.connect("stock").await;
    raw.send("PUT /a HTTP/1.1\r\nHost: stock\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n").await;
    raw.read_to("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert!(raw.ask("ok").await.text.ends_with("seven"));
    assert_eq!(fake.asked.lock().unwrap()[0].1, "ok");
}

#[tokio::test]
async fn nothing_is_dialled() {
    for (protocol, is_external) in
        [(Protocol::Http, false), (Protocol::Tcp, false), (Protocol::Detect, true), (Protocol::Tls, true)]
    {
        let (address, heard) = answering(OK).await;
        let fake = Arc::new(Fake::default());
        // Both would be reached without mocks.
        let there = if is_external {
            world().external("stock", "127.0.0.1", true)
        } else {
            world().service("stock", &[address])
        };
        let world = there.protocol("stock", protocol).mocks(fake.clone()).start();
        let mut raw = world.connect("stock").await;
        let answer = raw.ask("\x16\x03\x01 nothing that is HTTP\r\n\r\n").await;
        assert!(answer.error.is_some(), "{protocol:?}: {answer:?}");
        let spans = world.spans(1).await;
        assert_eq!(spans[0].error, Some(CallError::MockMissed), "{protocol:?}");
        assert_eq!((heard.connections(), *fake.refused.lock().unwrap()), (0, 1), "{protocol:?}");
    }
}

#[tokio::test]
async fn others_are_carried_as_ever() {
    let (order, heard) = answering(OK).await;
    let world = world().service("order", &[order]).mocks(Arc::new(Fake::default())).start();
    assert!(world.get("order", "/a").await.text.ends_with("hi"));
    assert_eq!(heard.requests().len(), 1);
}

#[tokio::test]
async fn streams_get_bodies_and_trailers() {
    let (world, fake) = mocked();
    let stream = TcpStream::connect(world.address("web-1", "stock")).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = |path: &str| {
        let uri = format!("http://stock{path}");
        Request::post(uri).header("content-type", "application/grpc").body(()).unwrap()
    };
    let (answering, mut body) = sender.send_request(request("/shop.Stock/Get"), false).unwrap();
    body.send_data(Bytes::from_static(b"asked"), true).unwrap();
    let (head, mut incoming) = soon(answering).await.unwrap().into_parts();
    assert_eq!((head.status.as_u16(), head.headers["x-kind"].as_bytes()), (200, &b"recorded"[..]));
    assert!(!head.headers.contains_key("content-length"), "{:?}", head.headers);
    assert_eq!(soon(incoming.data()).await.unwrap().unwrap(), "seven");
    let trailers: HeaderMap = soon(incoming.trailers()).await.unwrap().unwrap();
    assert_eq!((trailers["grpc-status"].as_bytes(), trailers.len()), (&b"0"[..], 2));
    let (answering, _) = sender.send_request(request("/miss"), true).unwrap();
    assert_eq!(soon(answering).await.unwrap().status().as_u16(), 501);
    let (answering, _) = sender.send_request(request("/reset"), true).unwrap();
    assert!(soon(answering).await.unwrap_err().is_reset());
    let spans = world.spans(3).await;
    let reset = (None, Some(CallError::ResetByCallee));
    assert_eq!(ends(&spans), [(Some(200), None), (Some(501), Some(CallError::MockMissed)), reset]);
    assert_eq!((spans[0].grpc_status, spans[0].request_bytes, spans[0].wire), (Some(0), 5, Wire::Http2));
    assert_eq!(fake.asked.lock().unwrap()[0].1, "asked");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_waits_within_its_request_is_answered() {
    let (world, fake) = mocked();
    let stream = TcpStream::connect(world.address("web-1", "stock")).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://stock/talk").body(()).unwrap();
    let (answering, mut body) = sender.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"first"), false).unwrap();
    assert_eq!(soon(answering).await.unwrap().status().as_u16(), 200);
    assert_eq!(fake.asked.lock().unwrap()[0].1, "first");
}
