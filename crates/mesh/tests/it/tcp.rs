//! Bytes: server-first protocols, half-closed connections, detection.

use std::io::ErrorKind;

use faultscope_model::rule::Effect;
use faultscope_model::span::Wire;
use faultscope_model::{CallError, Protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

const SECRET: &[u8] = b"QSECRET-hunter2";

/// `before`, the secret, `after`.
fn with_secret(before: &[u8], after: &[u8]) -> Vec<u8> {
    [before, SECRET, after].concat()
}

/// What clients send first, by protocol.
fn log_ins() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("redis", with_secret(b"*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$15\r\n", b"\r\n*1\r\n$4\r\nPING\r\n")),
        ("redis, inline", with_secret(b"AUTH ", b"\r\n")),
        (
            "postgres",
            with_secret(b"\0\0\0\x1d\0\x03\0\0user\0app\0database\0shop\0\0p\0\0\0\x14", b"\0"),
        ),
        (
            "mysql",
            with_secret(
                b"\x51\0\0\x01\x8d\xa2\x0b\0\0\0\0\x01\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0app\0\x10",
                b"\0mysql_clear_password\0",
            ),
        ),
        (
            "amqp",
            with_secret(
                b"AMQP\0\0\x09\x01\x01\0\0\0\0\0\x2c\0\x0a\0\x0b\0\0\0\0\x05PLAIN\0\0\0\x14\0app\0",
                b"\x05en_US\xce",
            ),
        ),
        ("nats", with_secret(b"CONNECT {\"verbose\":false,\"user\":\"app\",\"pass\":\"", b"\"}\r\nPING\r\n")),
        ("smtp", with_secret(b"EHLO shop\r\nAUTH LOGIN\r\nYXBw\r\n", b"\r\n")),
        ("pop3", with_secret(b"USER app\r\nPASS ", b"\r\n")),
        ("ldap", with_secret(b"\x30\x23\x02\x01\x01\x60\x1e\x02\x01\x03\x04\x08cn=admin\x80\x0f", b"")),
        (
            "mongo",
            with_secret(
                b"\x60\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x4b\0\0\0\x10saslStart\0\x01\0\0\0\x02mechanism\0\x06\0\0\0PLAIN\0\x05payload\0\x14\0\0\0\0\0app\0",
                b"\0",
            ),
        ),
        ("mqtt", with_secret(b"\x10\x24\0\x04MQTT\x04\xc2\0\x3c\0\x04shop\0\x03app\0\x0f", b"")),
        ("stomp", with_secret(b"CONNECT\naccept-version:1.2\nlogin:app\npasscode:", b"\n\n\0")),
    ]
}

#[tokio::test]
async fn no_byte_of_a_log_in_is_recorded() {
    for (name, sent) in log_ins() {
        for protocol in [Protocol::Tcp, Protocol::Detect, Protocol::Http] {
            let n_bytes = sent.len();
            let address = callee(move |mut raw| async move {
                let mut got = vec![0; n_bytes];
                raw.stream.read_exact(&mut got).await.unwrap();
                // Servers repeat what they were told, in errors above all.
                raw.stream.write_all(&got).await.unwrap();
            })
            .await;
            let world = world().service("db", &[address]).protocol("db", protocol).start();
            let mut raw = world.connect("db").await;
            raw.stream.write_all(&sent).await.unwrap();
            raw.stream.shutdown().await.unwrap();
            raw.rest().await;
            drop(raw);
            for span in world.spans(1).await {
                let place = format!("{name} as {protocol:?}: {span:?}");
                assert_eq!((span.wire, span.request_bytes), (Wire::Tcp, n_bytes as u64), "{place}");
                assert_eq!((span.method.as_str(), span.path.as_str()), ("", ""), "{place}");
                let payload = span.payload.as_deref().unwrap();
                let commands = if name == "redis" { "AUTH PING" } else { "" };
                assert_eq!(String::from_utf8_lossy(&payload.request_body), commands, "{place}");
                assert!(payload.response_body.is_empty(), "{place}");
            }
        }
    }
}
