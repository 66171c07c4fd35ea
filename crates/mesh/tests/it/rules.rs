//! What each rule does, as caller and callee see it.

use std::io::ErrorKind;
use std::time::Duration;

use faultscope_model::CallError;
use faultscope_model::rule::{Effect, Occurrence, Selector};

use crate::kit::{OK, World, answering, callee, world};

fn hits(world: &World) -> (u64, u64) {
    let hits = world.slot.reports().rules[0].clone();
    (hits.matched, hits.applied)
}

#[tokio::test]
async fn drop_resets_and_the_callee_hears_nothing() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).rule(Effect::Drop).start();
    assert_eq!(world.get("stock", "/").await.error, Some(ErrorKind::ConnectionReset));
    let span = &world.spans(1).await[0];
    assert_eq!((span.rules.as_slice(), span.error.clone()), (&[1][..], Some(CallError::DroppedByRule)));
    assert_eq!((heard.connections(), hits(&world)), (0, (1, 1)));
}

#[tokio::test]
async fn abort_answers_and_the_connection_lives_on() {
    let (address, heard) = answering(OK).await;
    let select = Selector { occurrence: Occurrence::Nth(1), ..Selector::default() };
    let effect = Effect::Abort { status: 503, grpc_status: None };
    let world = world().service("stock", &[address]).rule_for(select, effect).start();
    let mut raw = world.connect("stock").await;
    let aborted = raw.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").await;
    assert!(aborted.text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    assert_eq!(raw.get("/").await.text, OK);
    assert_eq!(world.spans(2).await[0].status, Some(503));
    assert_eq!((heard.requests().len(), hits(&world)), (1, (1, 1)));
}

#[tokio::test(start_paused = true)]
async fn delay_holds_the_request_back() {
    let (address, _) = answering(OK).await;
    let by = Duration::from_secs(4);
    let world = world().service("stock", &[address]).rule(Effect::Delay { by, jitter: by }).start();
    let began = tokio::time::Instant::now();
    world.get("stock", "/").await;
    assert!((4..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(world.spans(1).await[0].duration_us >= 4_000_000);
}

#[tokio::test]
async fn duplicate_sends_twice_and_answers_once() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).rule(Effect::Duplicate).start();
    let mut raw = world.connect("stock").await;
    assert_eq!(raw.ask("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").await.text, OK);
    assert!(world.slot.quiet(Duration::from_secs(5)).await);
    let spans = world.spans(2).await;
    assert_ne!(spans[0].id, spans[1].id);
    assert!(
        spans.iter().all(|span| span.rules == [1] && span.status == Some(200) && span.request_bytes == 4)
    );
    let requests = heard.requests();
    assert_eq!(requests.len(), 2);
    // The second one ends first: the caller has its answer when both are done.
    assert!(requests[1].ends_with("\r\n\r\nbody") && requests[1].contains(&spans[0].id.to_string()));
    assert_eq!(hits(&world), (1, 1));
    // The connection goes on as if nothing had been.
    let mut wiring = world.wiring.clone();
    wiring.rules.clear();
    world.slot.configure(wiring);
    assert_eq!(raw.get("/").await.text, OK);
}

#[tokio::test]
async fn duplicate_leaves_what_is_too_large() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).rule(Effect::Duplicate).start();
    let body = "x".repeat(1_200_000);
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert_eq!(world.connect("stock").await.ask(&request).await.text, OK);
    assert!(world.slot.quiet(Duration::from_secs(5)).await);
    assert_eq!((heard.requests().len(), hits(&world)), (1, (1, 0)));
}

#[tokio::test]
async fn a_lost_answer_was_worked_for() {
    let (address, heard) = answering(OK).await;
    let world = world().service("stock", &[address]).rule(Effect::LostAnswer).start();
    let answered = world.get("stock", "/").await;
    assert_eq!((answered.text.as_str(), answered.error), ("", Some(ErrorKind::ConnectionReset)));
    let span = &world.spans(1).await[0];
    assert_eq!((span.status, span.response_bytes), (Some(200), 2));
    assert_eq!(span.error, Some(CallError::AnswerLostByRule));
    assert_eq!((heard.requests().len(), hits(&world)), (1, (1, 1)));
}

#[tokio::test]
async fn truncated_answers() {
    let truncated = async |answer: &str| {
        let (address, _) = answering(answer).await;
        let world = world().service("stock", &[address]).rule(Effect::Truncate { after: 5 }).start();
        let mut raw = world.connect("stock").await;
        raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let rest = raw.rest().await;
        assert_eq!((rest.error, hits(&world)), (None, (1, 1)));
        rest.text
    };
    let text = truncated("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789").await;
    assert!(text.ends_with("\r\n\r\n01234"), "cut short: {text}");
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7\r\n3456789\r\n0\r\n\r\n";
    let text = truncated(chunked).await;
    assert!(text.ends_with("\r\n\r\n3\r\n012\r\n2\r\n34\r\n0\r\n\r\n"), "whole as far as it goes: {text}");
}

#[tokio::test]
async fn short_answers_are_not_truncated() {
    let (address, _) = answering(OK).await;
    let world = world().service("stock", &[address]).rule(Effect::Truncate { after: 5 }).start();
    let mut raw = world.connect("stock").await;
    assert_eq!(raw.get("/").await.text, OK);
    assert_eq!(raw.get("/").await.text, OK, "and the connection can be used again");
    assert_eq!(hits(&world), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn throttle_slows_the_answer() {
    let body = "x".repeat(2000);
    let (address, _) = answering(&format!("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{body}")).await;
    let world =
        world().service("stock", &[address]).rule(Effect::Throttle { bytes_per_second: 1000 }).start();
    let began = tokio::time::Instant::now();
    assert!(world.get("stock", "/").await.text.ends_with(&body));
    assert!((1900..2400).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(hits(&world), (1, 1));
}

#[tokio::test]
async fn restart_comes_between_answer_and_caller() {
    for size in [2, 3_000_000] {
        let body = "x".repeat(size);
        let (address, _) =
            answering(&format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{body}")).await;
        let world = world().service("stock", &[address]).rule(Effect::RestartAfter).start();
        assert!(world.get("stock", "/").await.text.ends_with(&body));
        let restarted: Vec<_> =
            world.platform.restarted.lock().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!((restarted, hits(&world)), (vec!["stock-1".to_owned()], (1, 1)));
    }
}

#[tokio::test]
async fn errors_come_first_for_each_caller_and_operation() {
    let (address, _) = answering(OK).await;
    let world = world()
        .service("stock", &[address])
        .rule(Effect::ErrorFirst { count: 2, status: 500, grpc_status: None })
        .start();
    let mut raw = world.connect("stock").await;
    let mut failed = Vec::new();
    for path in ["/a", "/a", "/a", "/b", "/b", "/b?x"] {
        failed.push(raw.get(path).await.text.starts_with("HTTP/1.1 500"));
    }
    assert_eq!(failed, [true, true, false, true, true, false]);
    assert_eq!(hits(&world), (6, 4));
}

#[tokio::test]
async fn marks_are_seen_and_occurrences_counted_over_all_callers() {
    let (address, _) = answering(OK).await;
    let select = Selector {
        callee: Some("stock".parse().unwrap()),
        operation: Some("GET /items/{id}".parse().unwrap()),
        occurrence: Occurrence::From(2),
        ..Selector::default()
    };
    let world =
        world().caller("web-2", 0).service("stock", &[address]).rule_for(select, Effect::Mark).start();
    for path in ["/items/1", "/other"] {
        world.get("stock", path).await;
    }
    let other = world.address("web-2", "stock");
    let mut raw = crate::kit::Raw::new(tokio::net::TcpStream::connect(other).await.unwrap());
    raw.get("/items/2").await;
    let marked: Vec<_> = world.spans(3).await.iter().map(|span| !span.rules.is_empty()).collect();
    assert_eq!(marked, [false, false, true]);
    world.slot.configure(world.wiring.clone());
    raw.get("/items/3").await;
    assert!(world.spans(4).await[3].rules.is_empty(), "a new trial counts anew");
}

#[tokio::test]
async fn an_early_answer_does_not_end_the_request() {
    let address = callee(|mut raw| async move {
        raw.read_to("\r\n\r\n").await;
        raw.send(OK).await;
        raw.read_to("late body").await;
        raw.message().await.unwrap();
        raw.send(OK).await;
    })
    .await;
    let world = world().service("stock", &[address]).start();
    let mut raw = world.connect("stock").await;
    raw.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n").await;
    assert_eq!(raw.read_to("hi").await, OK);
    raw.send("late body").await;
    assert_eq!(raw.get("/").await.text, OK);
}
