//! A call belongs to the trial in which it begins; what goes on is cut at the trial's end and continued in the next.

use std::collections::BTreeSet;

use faultscope_model::Protocol;
use faultscope_model::span::Wire;
use h2::Reason;
use tokio::io::AsyncWriteExt;

use crate::http2::{caller, echo, http2_callee, post};
use crate::kit::{OK, Raw, World, answering, callee, soon, world};

/// A database that says everything twice.
async fn echoing() -> World {
    let address = callee(|mut raw| async move {
        loop {
            let line = raw.read_to("\n").await;
            raw.send(&line).await;
        }
    })
    .await;
    world().service("db", &[address]).protocol("db", Protocol::Redis).start()
}

async fn ask(raw: &mut Raw<tokio::net::TcpStream>, line: &str) {
    raw.send(line).await;
    assert_eq!(raw.read_to("\n").await, line);
}

#[tokio::test]
async fn an_open_connection_is_recorded_when_its_trial_ends() {
    let world = echoing().await;
    let mut raw = world.connect("db").await;
    ask(&mut raw, "one\n").await;
    world.slot.end_trial();
    let span = world.spans(1).await.remove(0);
    assert_eq!((span.wire, span.request_bytes, span.response_bytes), (Wire::Tcp, 4, 4));
    assert!(span.extent.open && !span.extent.continued && span.error.is_none());
    // Nobody's trial: neither what goes on nor what begins is recorded.
    ask(&mut raw, "between\n").await;
    ask(&mut world.connect("db").await, "new\n").await;
    world.slot.reset_connections().await;
    world.slot.configure(world.wiring.clone());
    ask(&mut world.connect("db").await, "next\n").await;
    let spans = world.spans(2).await;
    assert_eq!((spans.len(), spans[1].request_bytes, spans[1].extent.is_whole()), (2, 5, true));
}

#[tokio::test]
async fn a_connection_that_goes_on_is_continued() {
    let world = echoing().await;
    let (mut used, mut idle) = (world.connect("db").await, world.connect("db").await);
    ask(&mut used, "one\n").await;
    ask(&mut idle, "one\n").await;
    world.slot.end_trial();
    let kept: BTreeSet<_> = ["web-1", "db-1"].map(|name| name.parse().unwrap()).into();
    world.slot.reset_connections_except(&kept).await;
    let began = world.spans(2).await.iter().map(|span| span.start_us).max().unwrap();
    world.slot.configure(world.wiring.clone());
    ask(&mut used, "second\n").await;
    world.slot.end_trial();
    let spans = world.spans(3).await;
    let span = &spans[2];
    assert_eq!(spans.len(), 3, "a connection that nobody used is no part of the trial");
    assert_eq!((span.extent.continued, span.extent.open, span.request_bytes), (true, true, 7));
    assert!(span.start_us >= began && spans[..2].iter().all(|before| before.id != span.id));
    // Its end in the third trial is no news unless it broke.
    world.slot.configure(world.wiring.clone());
    drop((used, idle));
    ask(&mut world.connect("db").await, "third\n").await;
    assert!(world.spans(4).await[3].extent.is_whole());
}

#[tokio::test]
async fn connections_of_instances_that_end_are_dropped() {
    for kept in [&["web-1"][..], &["db-1"], &[]] {
        let world = echoing().await;
        let mut raw = world.connect("db").await;
        ask(&mut raw, "one\n").await;
        world.slot.end_trial();
        let kept: BTreeSet<_> = kept.iter().map(|name| name.parse().unwrap()).collect();
        world.slot.reset_connections_except(&kept).await;
        assert_eq!(raw.rest().await.text, "");
        assert_eq!(world.spans(1).await.len(), 1);
    }
}

#[tokio::test]
async fn a_request_that_outlives_its_trial_is_recorded_there() {
    let (asked, mut asks) = tokio::sync::mpsc::channel(1);
    let address = callee(move |mut raw| {
        let asked = asked.clone();
        async move {
            raw.read_to("\r\n\r\n").await;
            raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
            asked.send(()).await.unwrap();
            raw.rest().await;
        }
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET /poll HTTP/1.1\r\nHost: a\r\n\r\n").await;
    soon(asks.recv()).await.unwrap();
    raw.read_to("a\r\n").await;
    world.slot.end_trial();
    let span = world.spans(1).await.remove(0);
    assert_eq!((span.path.as_str(), span.status, span.extent.open), ("/poll", Some(200), true));
    world.slot.reset_connections().await;
    world.slot.configure(world.wiring.clone());
    assert_eq!(world.spans(1).await.len(), 1, "its end is of no other trial");
    assert_eq!(world.slot.in_flight(), 0);
}

#[tokio::test]
async fn a_stream_that_its_client_ends_has_no_error() {
    let address = callee(|mut raw| async move {
        raw.read_to("\r\n\r\n").await;
        raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
        raw.rest().await;
    })
    .await;
    let events = world().service("stock", &[address]).start();
    let mut raw = events.connect("stock").await;
    raw.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await;
    raw.read_to("a\r\n").await;
    raw.reset();
    let span = events.spans(1).await.remove(0);
    assert_eq!((span.status, span.error), (Some(200), None));

    let streams = http2_callee(echo).await;
    let streams = world().service("stock", &[streams.address]).start();
    let mut sender = caller(&streams).await;
    let (answer, mut send) = sender.send_request(post("/pkg.Stock/Watch"), false).unwrap();
    let _answer = soon(answer).await.unwrap();
    send.send_reset(Reason::CANCEL);
    let span = streams.spans(1).await.remove(0);
    assert_eq!((span.status, span.error), (Some(200), None));

    let tcp = echoing().await;
    let mut raw = tcp.connect("db").await;
    ask(&mut raw, "one\n").await;
    raw.reset();
    assert_eq!(tcp.spans(1).await[0].error, None);
}

#[tokio::test]
async fn reports_of_exporters_are_no_calls() {
    let (collector, heard) = answering(OK).await;
    let (stock, _) = answering(OK).await;
    let world = world().service("zipkin", &[collector]).service("stock", &[stock]).start();
    let export = "POST /api/v2/spans HTTP/1.1\r\nHost: zipkin\r\nContent-Length: 2\r\n\r\n[]";
    assert_eq!(world.connect("zipkin").await.ask(export).await.text, OK);
    world.get("stock", "/").await;
    assert_eq!(heard.requests().len(), 1, "they are carried");
    let spans = world.spans(1).await;
    assert_eq!((spans.len(), spans[0].callee.as_str()), (1, "stock"));
    let reports = world.slot.reports();
    assert_eq!(reports.calls.values().sum::<u64>(), 1);
    let exports: Vec<_> = reports.exports.iter().map(|(callee, count)| (callee.as_str(), *count)).collect();
    assert_eq!(exports, [("zipkin", 1)]);
    // A test that posts spans is about just that.
    let mut raw = Raw::new(world.slot.connect(&crate::kit::service("zipkin"), crate::kit::PORT).unwrap());
    raw.ask(export).await;
    assert_eq!(world.spans(2).await[1].path, "/api/v2/spans");
}

#[tokio::test]
async fn an_export_that_hangs_is_not_waited_for() {
    let (asked, mut asks) = tokio::sync::mpsc::channel(1);
    let address = callee(move |mut raw| {
        let asked = asked.clone();
        async move {
            raw.read_to("\r\n\r\n").await;
            asked.send(()).await.unwrap();
            raw.rest().await;
        }
    })
    .await;
    let world = world().service("collector", &[address]).start();
    let mut raw = world.connect("collector").await;
    raw.send("POST /v1/traces HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").await;
    soon(asks.recv()).await.unwrap();
    assert_eq!(world.slot.in_flight(), 0);
    drop(raw);
}

/// With the clock paused a time-out fires as soon as everybody waits for somebody else.
#[tokio::test(start_paused = true)]
async fn interim_answers_without_end_are_not_hoarded() {
    const MOST: usize = 256 << 20;
    let (sent, told) = tokio::sync::oneshot::channel();
    let mut sent = Some(sent);
    let address = callee(move |mut raw| {
        let sent = sent.take();
        async move {
            let Some(sent) = sent else { return };
            raw.read_to("\r\n\r\n").await;
            let heads = "HTTP/1.1 100 Continue\r\n\r\n".repeat(4096);
            let mut total = 0;
            while total < MOST {
                let write = raw.stream.write_all(heads.as_bytes());
                match tokio::time::timeout(std::time::Duration::from_secs(5), write).await {
                    Ok(Ok(())) => total += heads.len(),
                    _ => break,
                }
            }
            sent.send(total).unwrap();
        }
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n").await;
    // Nobody reads the answers: what has been taken waits in sockets and in one small buffer.
    let total = soon(told).await.unwrap();
    assert!(total < MOST / 4, "{total} bytes were taken");
}
