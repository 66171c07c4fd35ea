//! Series that are held and released in an order.

use std::time::Duration;

use faultscope_model::CallError;
use faultscope_model::series::{CallName, GateOutcome};
use futures_util::future::join_all;

use crate::kit::{Heard, Known, OK, World, answering, callee, header, world};

const WAIT: Duration = Duration::from_secs(3);

/// How `order` makes its calls to `a` and `b`.
#[derive(Clone, Copy)]
enum Calls {
    Concurrent(&'static [&'static str]),
    OneByOne(&'static [&'static str]),
}

/// A world where `POST /pay` at `order` makes calls to `a` and `b`, which note when they hear them.
async fn paying(calls: Calls, order: &[&str], hands_on: bool) -> (World, Heard) {
    let known = Known::default();
    let (address, heard) = answering(OK).await;
    let inner = known.clone();
    let payer = callee(move |mut raw| {
        let known = inner.clone();
        async move {
            while let Some(request) = raw.message().await {
                let context = header(&request, "traceparent").filter(|_| hands_on);
                let context = context.map(|value| format!("traceparent: {value}\r\n")).unwrap_or_default();
                let ask = |callee: &'static str| {
                    let (known, context) = (known.clone(), context.clone());
                    async move {
                        let mut raw = known.connect("order-1", callee).await;
                        raw.ask(&format!("PUT /{callee} HTTP/1.1\r\nHost: x\r\n{context}\r\n")).await;
                    }
                };
                match calls {
                    Calls::Concurrent(callees) => {
                        join_all(callees.iter().map(|callee| ask(callee))).await;
                    }
                    Calls::OneByOne(callees) => {
                        for callee in callees {
                            ask(callee).await;
                        }
                    }
                }
                raw.send(OK).await;
            }
        }
    })
    .await;
    let world = world()
        .caller("order-1", 0)
        .service("order", &[payer])
        .service("a", &[address])
        .service("b", &[address])
        .gate("order", "POST /pay", order, WAIT)
        .known_to(&known)
        .start();
    (world, heard)
}

async fn pay(world: &World) -> GateOutcome {
    let answered = world.connect("order").await.ask("POST /pay HTTP/1.1\r\nHost: order\r\n\r\n").await;
    assert_eq!(answered.text, OK);
    assert!(world.slot.quiet(Duration::from_secs(1)).await);
    let mut gates = world.slot.reports().gates;
    assert_eq!(gates.len(), 1, "{gates:?}");
    gates.remove(0).outcome
}

fn names(calls: &[&str]) -> Vec<CallName> {
    calls.iter().map(|call| call.parse().unwrap()).collect()
}

fn heard_paths(heard: &Heard) -> Vec<String> {
    heard.requests().iter().map(|request| request[4..6].to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_released_in_either_order() {
    for (order, expected) in
        [(["b PUT /b", "a PUT /a"], ["/b", "/a"]), (["a PUT /a", "b PUT /b"], ["/a", "/b"])]
    {
        for hands_on in [true, false] {
            let (world, heard) = paying(Calls::Concurrent(&["a", "b"]), &order, hands_on).await;
            assert_eq!(pay(&world).await, GateOutcome::Completed);
            assert_eq!(heard_paths(&heard), expected);
            assert_eq!(pay(&world).await, GateOutcome::Completed, "each handling is a series of its own");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn synchronous_calls_are_named() {
    let (world, heard) = paying(Calls::OneByOne(&["a", "b"]), &["b PUT /b", "a PUT /a"], true).await;
    let outcome = pay(&world).await;
    assert_eq!(
        outcome,
        GateOutcome::Synchronous { arrived: names(&["a PUT /a"]), missing: names(&["b PUT /b"]) }
    );
    assert_eq!(heard_paths(&heard), ["/a", "/b"], "the application goes on");
}

#[tokio::test(start_paused = true)]
async fn missing_calls_are_named() {
    let (world, _) = paying(Calls::Concurrent(&[]), &["b PUT /b", "a PUT /a"], true).await;
    assert_eq!(pay(&world).await, GateOutcome::Missing { missing: names(&["b PUT /b", "a PUT /a"]) });
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_is_named() {
    let (world, _) = paying(Calls::Concurrent(&["a", "b"]), &["b PUT /b", "a PUT /a"], true).await;
    // `b` answers only after the wait, because its link is slow.
    let mut wiring = world.wiring.clone();
    wiring.rules.push(faultscope_model::rule::Rule {
        id: 1,
        select: faultscope_model::rule::Selector { callee: Some("b".parse().unwrap()), ..Default::default() },
        effect: faultscope_model::rule::Effect::Delay { by: WAIT * 2, jitter: Duration::ZERO },
    });
    world.slot.configure(wiring);
    assert_eq!(pay(&world).await, GateOutcome::Unanswered { call: names(&["b PUT /b"])[0].clone() });
}

#[tokio::test(start_paused = true)]
async fn calls_of_others_pass() {
    let (world, heard) = paying(Calls::Concurrent(&["a", "b"]), &["b PUT /b", "a PUT /a"], true).await;
    let mut raw = world.connect("a").await;
    assert_eq!(raw.ask("PUT /a HTTP/1.1\r\nHost: a\r\n\r\n").await.text, OK);
    assert_eq!(heard.requests().len(), 1);
    assert!(world.slot.reports().gates.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_while_held_lets_the_rest_go() {
    let known = Known::default();
    let (address, heard) = answering(OK).await;
    let inner = known.clone();
    let payer = callee(move |mut raw| {
        let known = inner.clone();
        async move {
            raw.message().await;
            let mut held = known.connect("order-1", "a").await;
            held.send("PUT /a HTTP/1.1\r\nHost: x\r\n\r\n").await;
            // Given up after a second, as a client with a time-out does.
            let given_up = tokio::time::timeout(Duration::from_secs(1), held.message()).await;
            assert!(given_up.is_err());
            drop(held);
            known.connect("order-1", "b").await.ask("PUT /b HTTP/1.1\r\nHost: x\r\n\r\n").await;
            raw.send(OK).await;
        }
    })
    .await;
    let world = world()
        .caller("order-1", 0)
        .service("order", &[payer])
        .service("a", &[address])
        .service("b", &[address])
        .gate("order", "POST /pay", &["b PUT /b", "a PUT /a"], WAIT)
        .known_to(&known)
        .start();
    assert_eq!(pay(&world).await, GateOutcome::Unanswered { call: names(&["a PUT /a"])[0].clone() });
    assert_eq!(heard_paths(&heard), ["/b"], "what was given up did not reach its callee");
    let spans = world.spans(3).await;
    assert_eq!(spans[0].error, Some(CallError::CallerGone));
}
