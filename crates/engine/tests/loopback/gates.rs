//! Orders of concurrent calls: imposed where that is possible, and said where it is not.

use faultscope_model::Span;
use faultscope_platform::loopback::{Call, Loopback, Reply};

use crate::bed::{Bed, Tested};

const CALLS: [&str; 3] = ["a GET /first", "b GET /second", "c GET /third"];

/// `desk` makes three calls as it is asked to, and the gate puts them in an order.
fn desk(handling: &str, order: [usize; 3], wait: &str) -> Bed {
    desk_with(&format!("{{ post: \"http://desk/{handling}\" }}"), handling, order, wait)
}

fn desk_with(steps: &str, handling: &str, order: [usize; 3], wait: &str) -> Bed {
    let order: Vec<String> = order.iter().map(|&place| format!("\"{}\"", CALLS[place])).collect();
    let order = order.join(", ");
    let file = format!(
        r#"name: desk
services:
  desk: {{ command: [desk], ports: [80] }}
  a: {{ command: [echo], ports: [80] }}
  b: {{ command: [echo], ports: [80] }}
  c: {{ command: [echo], ports: [80] }}
tests: [ {{ name: desk, steps: [ {steps} ] }} ]
gate_wait: {wait}
failing: {{ sequence: [ {{ from: desk, in: "POST /{handling}", order: [ {order} ] }} ] }}
"#
    );
    let platform = Loopback::new()
        .service("echo", |call: Call| async move { call.path().to_owned() })
        .service("desk", desk_handler);
    Bed::new(&file, platform)
}

async fn desk_handler(call: Call) -> std::io::Result<Reply> {
    let ask = async |url: &str| call.client().get(url).await;
    // As a client does that knows nothing of trace context.
    let ask_alone = async |url: &str| call.instance.client().get(url).await;
    const URLS: [&str; 3] = ["http://a/first", "http://b/second", "http://c/third"];
    match call.path() {
        "/at-once" => {
            tokio::try_join!(ask(URLS[0]), ask(URLS[1]), ask(URLS[2]))?;
        }
        "/without-context" => {
            tokio::try_join!(ask_alone(URLS[0]), ask_alone(URLS[1]), ask_alone(URLS[2]))?;
        }
        "/in-turn" => {
            for url in URLS {
                ask(url).await?;
            }
        }
        "/only-two" => {
            tokio::try_join!(ask(URLS[0]), ask(URLS[1]))?;
        }
        // A refusal, before the first call.
        _ => {}
    }
    Ok("done".into())
}

/// The pairs of a sequence, which are its deltas.
async fn imposed(bed: &Bed) -> Tested {
    let space = bed.application().space().unwrap();
    let names: Vec<&str> = space.deltas.iter().map(|delta| delta.name.as_str()).collect();
    bed.test(&names).await
}

/// Whom `desk` called, in the order of the answers: a gate releases a call after the answer of the one before.
fn answered(tested: &Tested) -> Vec<String> {
    let mut spans: Vec<&Span> =
        tested.spans.iter().filter(|span| span.caller.service.as_str() == "desk").collect();
    spans.sort_by_key(|span| span.start_us + span.duration_us);
    spans.iter().map(|span| span.callee.to_string()).collect()
}

#[tokio::test]
async fn any_order_of_concurrent_calls_is_imposed() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for handling in ["at-once", "without-context"] {
            let tested = imposed(&desk(handling, order, "10s")).await;
            let wanted = order.map(|place| CALLS[place].split(' ').next().unwrap().to_owned());
            assert_eq!((tested.outcome(), answered(&tested)), ("pass", wanted.to_vec()), "{handling}");
            assert_eq!(tested.run.evidence.gates.len(), 1, "{handling}");
        }
    }
}

#[tokio::test]
async fn calls_that_wait_for_one_another_are_unresolved() {
    let tested = imposed(&desk("in-turn", [2, 1, 0], "100ms")).await;
    assert_eq!(
        tested.reason(),
        "the order of desk POST /in-turn could not be imposed: the calls are not concurrent: c GET /third, \
         b GET /second came only after the response to another one"
    );
    assert_eq!(tested.results(), [("desk", "")], "the test itself was let through");
    // The order in which they are made anyway needs nothing of anyone.
    let tested = imposed(&desk("in-turn", [0, 1, 2], "100ms")).await;
    assert_eq!(answered(&tested), ["a", "b", "c"]);
}

#[tokio::test]
async fn calls_that_are_not_made_are_named_unless_none_is() {
    let tested = imposed(&desk("only-two", [2, 1, 0], "100ms")).await;
    let reason = tested.reason();
    assert!(reason.starts_with("the order of desk POST /only-two could not be imposed: "), "{reason}");
    assert!(reason.contains("c GET /third"), "{reason}");
    let tested = imposed(&desk("refused", [2, 1, 0], "10s")).await;
    assert_eq!((tested.outcome(), tested.spans.len()), ("pass", 1), "without a call there is no order");
}

#[tokio::test]
async fn every_handling_is_put_in_order_and_a_request_that_does_not_come_needs_none() {
    let twice = "{ post: \"http://desk/at-once\" }, { post: \"http://desk/at-once\" }";
    let tested = imposed(&desk_with(twice, "at-once", [2, 1, 0], "10s")).await;
    assert_eq!((tested.outcome(), tested.run.evidence.gates.len()), ("pass", 2));
    assert_eq!(answered(&tested), ["c", "b", "a", "c", "b", "a"]);
    let tested = imposed(&desk_with("{ get: \"http://a/x\" }", "at-once", [2, 1, 0], "10s")).await;
    assert_eq!((tested.outcome(), tested.run.evidence.gates.len()), ("pass", 0));
}
