//! Bytes: server-first protocols, half-closed connections, detection.

use std::io::ErrorKind;

use faultscope_model::rule::Effect;
use faultscope_model::span::Wire;
use faultscope_model::{CallError, Protocol};
use tokio::io::AsyncWriteExt;

use crate::kit::{OK, answering, callee, soon, world};

#[tokio::test]
async fn a_server_may_speak_first() {
    for protocol in [Protocol::Mysql, Protocol::Detect] {
        let address = callee(|mut raw| async move {
            raw.send("hello\n").await;
            raw.read_to("user\n").await;
            raw.send("welcome\n").await;
        })
        .await;
        let world = world().service("db", &[address]).protocol("db", protocol).start();
        let mut raw = world.connect("db").await;
        raw.read_to("hello\n").await;
        raw.send("user\n").await;
        assert_eq!(raw.rest().await.text, "welcome\n");
        drop(raw);
        let span = &world.spans(1).await[0];
        assert_eq!(
            (span.wire, span.request_bytes, span.response_bytes, &span.error),
            (Wire::Tcp, 5, 14, &None)
        );
        assert!(span.first_byte_us.is_some() && span.method.is_empty());
    }
}

#[tokio::test]
async fn halves_close_one_by_one() {
    let address = callee(|mut raw| async move {
        let asked = raw.rest().await;
        assert_eq!((asked.text.as_str(), asked.error), ("question", None));
        raw.send("answer").await;
    })
    .await;
    let world = world().service("db", &[address]).protocol("db", Protocol::Tcp).start();
    let mut raw = world.connect("db").await;
    raw.send("question").await;
    raw.stream.shutdown().await.unwrap();
    assert_eq!(raw.rest().await.text, "answer");
    // And the other way round: the callee ends first, the caller goes on.
    let (got, received) = tokio::sync::oneshot::channel();
    let mut got = Some(got);
    let address = callee(move |mut raw| {
        let got = got.take().unwrap();
        async move {
            raw.send("done").await;
            raw.stream.shutdown().await.unwrap();
            got.send(raw.rest().await.text).unwrap();
        }
    })
    .await;
    let world = crate::kit::world().service("db", &[address]).protocol("db", Protocol::Tcp).start();
    let mut raw = world.connect("db").await;
    assert_eq!(raw.rest().await.text, "done");
    raw.send("more").await;
    drop(raw);
    assert_eq!(soon(received).await.unwrap(), "more");
}

#[tokio::test]
async fn resets_go_through() {
    let address = callee(|mut raw| async move {
        raw.read_to("go").await;
        raw.reset();
    })
    .await;
    let world = world().service("db", &[address]).protocol("db", Protocol::Redis).start();
    let mut raw = world.connect("db").await;
    raw.send("go").await;
    assert_eq!(raw.rest().await.error, Some(ErrorKind::ConnectionReset));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ResetByCallee));
}

#[tokio::test]
async fn detection_tells_protocols_apart() {
    let (address, _) = answering(OK).await;
    let world = world().service("any", &[address]).protocol("any", Protocol::Detect).start();
    assert_eq!(world.get("any", "/").await.text, OK);
    assert_eq!(world.spans(1).await[0].wire, Wire::Http1);
    for (bytes, wire) in [("\x16\x03\x01rest", Wire::Tls), ("*1\r\n$4\r\nPING\r\n", Wire::Tcp)] {
        let mut raw = world.connect("any").await;
        raw.send(bytes).await;
        raw.stream.shutdown().await.unwrap();
        raw.rest().await;
        let wires: Vec<_> =
            world.spans(if wire == Wire::Tls { 2 } else { 3 }).await.iter().map(|s| s.wire).collect();
        assert_eq!(wires.last(), Some(&wire));
    }
}

#[tokio::test]
async fn rules_for_connections() {
    let address = callee(|mut raw| async move {
        raw.send("0123456789").await;
        raw.rest().await;
    })
    .await;
    let tcp = |effect| world().service("db", &[address]).protocol("db", Protocol::Tcp).rule(effect).start();
    let world = tcp(Effect::Drop);
    assert_eq!(world.connect("db").await.rest().await.error, Some(ErrorKind::ConnectionReset));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::DroppedByRule));
    let world = tcp(Effect::Truncate { after: 4 });
    assert_eq!(world.connect("db").await.rest().await.text, "0123");
    let world = tcp(Effect::Abort { status: 500, grpc_status: None });
    assert_eq!(world.connect("db").await.read_to("9").await, "0123456789");
    let hits = world.slot.reports().rules[0].clone();
    assert_eq!((hits.matched, hits.applied), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn connections_are_slowed_too() {
    let address = callee(|mut raw| async move {
        raw.send(&"x".repeat(1000)).await;
    })
    .await;
    let effect = Effect::Throttle { bytes_per_second: 500 };
    let world = world().service("db", &[address]).protocol("db", Protocol::Tcp).rule(effect).start();
    let began = tokio::time::Instant::now();
    assert_eq!(world.connect("db").await.rest().await.text.len(), 1000);
    assert!((1900..2300).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
}
