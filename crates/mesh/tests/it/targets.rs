//! Names of calls, and rules that find their calls by them.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use faultscope_mesh::RuleHits;
use faultscope_model::perturbation::TargetId;
use faultscope_model::rule::{Effect, Occurrence, Selector};
use faultscope_model::{CallError, NotApplied};
use h2::RecvStream;
use h2::server::SendResponse;
use http::Request;
use tokio::net::TcpStream;

use crate::control::{beside, get};
use crate::http2::{Callee, call, caller, client, echo, http2_callee, post};
use crate::kit::{Known, OK, Raw, World, answering, callee, soon, world};

fn target(name: &str) -> Selector {
    Selector { target: Some(TargetId::from(name)), ..Selector::default() }
}

async fn connect(world: &World, callee: &str) -> Raw<TcpStream> {
    Raw::new(TcpStream::connect(world.address("test-1", callee)).await.unwrap())
}

fn hits(world: &World) -> RuleHits {
    world.slot.reports().rules[0].clone()
}

async fn names(world: &World, count: usize) -> Vec<String> {
    let mut spans = world.spans(count).await;
    spans.sort_by_key(|span| (span.start_us, span.id));
    spans.iter().map(|span| span.target.as_ref().map_or_else(String::new, ToString::to_string)).collect()
}

#[tokio::test]
async fn an_error_for_the_first_attempt_lets_the_retry_pass() {
    let (address, _) = answering(OK).await;
    let effect = Effect::ErrorFirst { count: 1, status: 503, grpc_status: None };
    let world = world()
        .caller("test-1", 0)
        .service("stock", &[address])
        .rule_for(target("stock GET /items/{}"), effect)
        .targets()
        .start();
    let mut raw = connect(&world, "stock").await;
    assert!(raw.get("/items/1").await.text.starts_with("HTTP/1.1 503"));
    assert_eq!(raw.get("/items/2").await.text, OK);
    assert_eq!(raw.get("/items/3").await.text, OK);
    let name = "stock GET /items/{}".to_owned();
    assert_eq!(names(&world, 3).await, [name.clone(), name.clone(), format!("{name} #2")]);
    let hits = hits(&world);
    assert_eq!((hits.matched, hits.applied), (2, 1));
}

#[tokio::test]
async fn a_permanent_error_meets_every_attempt_and_no_other_call() {
    let (address, heard) = answering(OK).await;
    let effect = Effect::Abort { status: 503, grpc_status: None };
    let builder = world().caller("test-1", 0).service("stock", &[address]);
    let world = builder.rule_for(target("stock GET /a"), effect).targets().start();
    let mut raw = connect(&world, "stock").await;
    for path in ["/a", "/a", "/b", "/a"] {
        assert_eq!(raw.get(path).await.text.starts_with("HTTP/1.1 503"), path == "/a");
    }
    assert_eq!((heard.requests().len(), hits(&world).applied), (1, 3));
    // What must hold is looked at in peace.
    world.slot.calm();
    assert_eq!(raw.get("/a").await.text, OK);
    assert_eq!(world.spans(5).await[4].target, None);
}

#[tokio::test]
async fn a_cause_is_known_without_context() {
    let known = Known::default();
    let (stock, _) = answering(OK).await;
    let ways = known.clone();
    let order = callee(move |mut raw| {
        let ways = ways.clone();
        async move {
            while raw.message().await.is_some() {
                for _ in 0..2 {
                    ways.connect("order-1", "stock").await.get("/s").await;
                }
                raw.send(OK).await;
            }
        }
    });
    let order = order.await;
    let world = world()
        .caller("test-1", 0)
        .caller("order-1", 0)
        .service("order", &[order])
        .service("stock", &[stock])
        .rule_for(target("order GET /pay > stock GET /s #2"), Effect::Duplicate)
        .targets()
        .known_to(&known)
        .start();
    assert_eq!(connect(&world, "order").await.get("/pay").await.text, OK);
    assert_eq!(
        names(&world, 4).await,
        [
            "order GET /pay",
            "order GET /pay > stock GET /s",
            "order GET /pay > stock GET /s #2",
            "order GET /pay > stock GET /s #2+"
        ]
    );
    assert_eq!(hits(&world).applied, 1);
}

#[tokio::test]
async fn a_call_is_overtaken_by_an_unrelated_one() {
    let (address, heard) = answering(OK).await;
    let select = Selector { occurrence: Occurrence::First(1), ..target("stock GET /a") };
    let within = Duration::from_secs(5);
    let builder = world().caller("test-1", 0).service("stock", &[address]);
    let world = builder.rule_for(select, Effect::Reorder { within }).targets().start();
    let (mut first, mut second) = (connect(&world, "stock").await, connect(&world, "stock").await);
    first.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    // It is there before the other is sent.
    while world.slot.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.get("/b").await.text, OK);
    assert_eq!(first.message().await.unwrap(), OK);
    let paths: Vec<_> = heard.requests().iter().map(|r| r.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(paths, ["/b", "/a"]);
    assert_eq!(hits(&world).applied, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_nothing_overtakes_goes_on() {
    let (address, _) = answering(OK).await;
    let within = Duration::from_secs(5);
    let builder = world().caller("test-1", 0).service("stock", &[address]);
    let world = builder.rule_for(target("stock GET /a"), Effect::Reorder { within }).targets().start();
    assert_eq!(connect(&world, "stock").await.get("/a").await.text, OK);
    let hits = hits(&world);
    assert_eq!((hits.matched, hits.applied), (1, 0));
    assert_eq!(hits.note, Some(NotApplied::NothingOvertook));
}

#[tokio::test(start_paused = true)]
async fn no_answer_in_time() {
    let (address, heard) = answering(OK).await;
    let effect = Effect::Timeout { after: Duration::from_secs(5) };
    let world = world().service("stock", &[address]).rule(effect).start();
    let answered = world.get("stock", "/").await;
    assert_eq!((answered.text.as_str(), answered.error), ("", Some(ErrorKind::ConnectionReset)));
    assert_eq!((heard.requests().len(), hits(&world).applied), (0, 1));
}

#[tokio::test]
async fn a_caller_may_give_up_before() {
    let (address, _) = answering(OK).await;
    let effect = Effect::Timeout { after: Duration::from_secs(500) };
    let world = world().service("stock", &[address]).rule(effect).start();
    let mut raw = world.connect("stock").await;
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    while world.slot.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    drop(raw);
    assert_eq!(world.spans(1).await[0].error, Some(CallError::CallerGone));
}

#[tokio::test]
async fn a_restart_does_not_end_the_callers_connection() {
    let address = callee(|mut raw| async move {
        // It goes down with its first answer.
        if raw.message().await.is_some() {
            raw.send(OK).await;
        }
    });
    let world = world()
        .caller("test-1", 0)
        .service("stock", &[address.await])
        .rule_for(target("stock GET /a"), Effect::RestartAfter)
        .targets()
        .start();
    let mut raw = connect(&world, "stock").await;
    assert_eq!(raw.get("/a").await.text, OK);
    assert_eq!(raw.get("/b").await.text, OK);
    assert_eq!((world.platform.restarted.lock().unwrap().len(), hits(&world).applied), (1, 1));
}

#[tokio::test]
async fn http2_calls_have_names() {
    let callee = http2_callee(echo).await;
    let world = world()
        .service("stock", &[callee.address])
        .rule_for(target("(web) > stock POST /pay"), Effect::Duplicate)
        .rule_for(target("(web) > stock POST /pay"), Effect::RestartAfter)
        .targets()
        .start();
    assert_eq!(&call(&mut caller(&world).await, "/pay", "twice").await.unwrap().1[..], b"twice");
    let mut found = names(&world, 2).await;
    found.sort();
    assert_eq!(found, ["(web) > stock POST /pay", "(web) > stock POST /pay+"]);
    let reports = world.slot.reports();
    assert!(reports.rules.iter().all(|hits| hits.applied == 1), "{:?}", reports.rules);
    assert_eq!(callee.heads.lock().unwrap().len(), 2);
}

/// Answers as `echo` does, but never what is sent to `/hang`.
fn echo_or_hang(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> futures_util::future::BoxFuture<'static, ()> {
    match request.uri().path() {
        "/hang" => Box::pin(async move {
            let _held = (request, respond);
            std::future::pending().await
        }),
        _ => echo(request, respond),
    }
}

/// Has a caller leave while its callee is closed for a restart; others must still be able to call.
async fn leave_while_closed(world: &World, callee: &Callee, address: SocketAddr) {
    let connect = || async move { client(TcpStream::connect(address).await.unwrap()).await };
    // What is being handled keeps the restart waiting.
    let mut other = connect().await;
    let hanging = other.send_request(post("/hang"), true).unwrap();
    while callee.heads.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let mut leaving = connect().await;
    let (answer, _) = leaving.send_request(post("/restart"), true).unwrap();
    // The head passes; what comes behind it is held back for the restart.
    let answer = soon(answer).await.unwrap();
    drop((answer, leaving));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ConnectionDropped));
    drop((hanging, other));
    world.spans(2).await;
    assert_eq!(call(&mut connect().await, "/next", "x").await.unwrap().0, 200);
    assert!(world.platform.restarted.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_caller_that_leaves_before_a_restart_leaves_its_callee_open() {
    let callee = http2_callee(echo_or_hang).await;
    let builder = world().service("stock", &[callee.address]);
    let rule = target("(web) > stock POST /restart");
    let world = builder.rule_for(rule, Effect::RestartAfter).targets().start();
    leave_while_closed(&world, &callee, world.address("web-1", "stock")).await;
}

#[tokio::test]
async fn a_caller_of_a_sidecar_that_leaves_before_a_restart_leaves_its_callee_open() {
    let callee = http2_callee(echo_or_hang).await;
    let builder = world().service("stock", &[callee.address]);
    let rule = target("(web) > stock POST /restart");
    let world = builder.rule_for(rule, Effect::RestartAfter).targets().start();
    let sidecar = beside(&world, "web-1", &["stock"]).await;
    leave_while_closed(&world, &callee, sidecar.addresses[0]).await;
}

#[tokio::test]
async fn a_restart_goes_on_when_its_caller_leaves() {
    let callee = http2_callee(echo_or_hang).await;
    let builder = world().service("stock", &[callee.address]);
    let rule = target("(web) > stock POST /restart");
    let world = builder.rule_for(rule, Effect::RestartAfter).targets().start();
    let mut back = world.platform.take_time();
    let mut leaving = caller(&world).await;
    let answer = leaving.send_request(post("/restart"), true).unwrap();
    soon(back.begun()).await;
    drop((answer, leaving));
    assert_eq!(world.spans(1).await[0].error, Some(CallError::ConnectionDropped));
    let mut next = caller(&world).await;
    let mut next = std::pin::pin!(call(&mut next, "/next", "x"));
    while world.slot.in_flight() == 0 {
        assert!(futures_util::poll!(next.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(callee.heads.lock().unwrap().len(), 1, "nobody meets an instance that is down");
    back.end();
    assert_eq!(next.await.unwrap().0, 200);
    assert_eq!(hits(&world).applied, 1);
}

#[tokio::test]
async fn sidecars_ask_for_names() {
    let (address, heard) = answering(OK).await;
    let world = world()
        .service("stock", &[address])
        .rule_for(
            target("(web) > stock GET /a"),
            Effect::ErrorFirst { count: 1, status: 503, grpc_status: None },
        )
        .rule_for(target("(web) > stock GET /b"), Effect::Duplicate)
        .rule_for(target("(web) > stock GET /c"), Effect::RestartAfter)
        .targets()
        .start();
    let sidecar = beside(&world, "web-1", &["stock"]).await;
    assert!(get(sidecar.addresses[0], "/a").await.starts_with("HTTP/1.1 503"));
    for path in ["/a", "/b", "/c"] {
        assert_eq!(get(sidecar.addresses[0], path).await, OK);
    }
    assert_eq!(heard.requests().len(), 4, "one was refused, one came twice");
    let mut found = names(&world, 5).await;
    found.sort();
    let name = |path: &str| format!("(web) > stock GET {path}");
    assert_eq!(found, [name("/a"), name("/a"), name("/b"), name("/b+"), name("/c")]);
    assert!(world.slot.quiet(Duration::from_secs(5)).await);
    let reports = world.slot.reports();
    assert!(reports.rules.iter().all(|hits| hits.applied == 1), "{:?}", reports.rules);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_goes_on_is_not_held_back() {
    let address = callee(|mut raw| async move {
        if raw.message().await.is_some() {
            raw.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
            std::future::pending::<()>().await;
        }
    });
    let builder = world().caller("test-1", 0).service("stock", &[address.await]);
    let world = builder.rule_for(target("stock GET /events"), Effect::RestartAfter).targets().start();
    let mut raw = connect(&world, "stock").await;
    raw.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(raw.read_to("first").await.starts_with("HTTP/1.1 200"));
    let hits = hits(&world);
    assert_eq!((hits.applied, hits.note), (0, Some(NotApplied::AnswerGoesOn)));
}
