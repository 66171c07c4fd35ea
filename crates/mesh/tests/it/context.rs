//! Parents: handed on, inferred, unknown.

use faultscope_model::span::{Parentage, Span};
use tokio::sync::mpsc;

use crate::kit::{Known, OK, Raw, World, answering, callee, header, soon, world};

/// A world where `order` calls `stock` while it handles a request, handing on the headers it is told to.
async fn order_and_stock(hand_on: &'static [&'static str]) -> World {
    let known = Known::default();
    let (stock, _) = answering(OK).await;
    let calls = known.clone();
    let order = callee(move |mut raw| {
        let calls = calls.clone();
        async move {
            while let Some(request) = raw.message().await {
                let mut inner = calls.connect("order-1", "stock").await;
                let headers: String = hand_on
                    .iter()
                    .filter_map(|name| Some(format!("{name}: {}\r\n", header(&request, name)?)))
                    .collect();
                inner.ask(&format!("GET /inner HTTP/1.1\r\nHost: stock\r\n{headers}\r\n")).await;
                raw.send(OK).await;
            }
        }
    })
    .await;
    world()
        .caller("order-1", 0)
        .caller("test-1", 0)
        .service("order", &[order])
        .service("stock", &[stock])
        .known_to(&known)
        .start()
}

fn check_child(spans: &[Span], parentage: Parentage) {
    let (inner, outer) = (&spans[0], &spans[1]);
    assert_eq!((inner.path.as_str(), outer.path.as_str()), ("/inner", "/outer"));
    assert_eq!((inner.trace, inner.parent, inner.parentage), (outer.trace, Some(outer.id), parentage));
    assert_eq!(outer.parentage, Parentage::Root);
}

#[tokio::test]
async fn handed_on_in_each_form() {
    for forms in [&["traceparent"][..], &["x-b3-traceid", "x-b3-spanid", "x-b3-sampled"]] {
        let world = order_and_stock(forms).await;
        world.get("order", "/outer").await;
        check_child(&world.spans(2).await, Parentage::Propagated);
        assert!(world.slot.reports().without_context.is_empty());
    }
}

#[tokio::test]
async fn inferred_when_only_one_is_handled() {
    let world = order_and_stock(&[]).await;
    world.get("order", "/outer").await;
    check_child(&world.spans(2).await, Parentage::Inferred);
    let without = world.slot.reports().without_context;
    assert_eq!(
        without.into_iter().map(|(name, count)| (name.to_string(), count)).collect::<Vec<_>>(),
        [("order".to_owned(), 1)]
    );
}

#[tokio::test]
async fn unknown_when_several_are_handled() {
    let known = Known::default();
    let (stock, _) = answering(OK).await;
    let (arrived, mut arrivals) = mpsc::channel::<Raw<_>>(2);
    let order = callee(move |mut raw| {
        let arrived = arrived.clone();
        async move {
            raw.message().await;
            arrived.send(raw).await.unwrap();
        }
    })
    .await;
    let world = world()
        .caller("order-1", 0)
        .service("order", &[order])
        .service("stock", &[stock])
        .known_to(&known)
        .start();
    let (mut first, mut second) = (world.connect("order").await, world.connect("order").await);
    for raw in [&mut first, &mut second] {
        raw.send("GET /outer HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
    let mut handled = [soon(arrivals.recv()).await.unwrap(), soon(arrivals.recv()).await.unwrap()];
    known.connect("order-1", "stock").await.get("/inner").await;
    for raw in &mut handled {
        raw.send(OK).await;
    }
    let spans = world.spans(3).await;
    assert_eq!((spans[0].parentage, spans[0].parent), (Parentage::Unknown, None));
    assert!(spans[1..].iter().all(|outer| outer.trace != spans[0].trace));
    known.connect("order-1", "stock").await.get("/later").await;
    assert_eq!(world.spans(4).await[3].parentage, Parentage::Root, "nothing is handled any more");
}

#[tokio::test]
async fn all_forms_that_came_in_go_on() {
    let (address, heard) = answering(OK).await;
    let world = world().caller("test-1", 0).service("stock", &[address]).start();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let mut raw = world.connect("stock").await;
    raw.ask(&format!(
        "GET / HTTP/1.1\r\nHost: a\r\nb3: {trace}-b7ad6b7169203331-0\r\nTracestate: x=1\r\n\r\n"
    ))
    .await;
    let span = world.spans(1).await.remove(0);
    let request = &heard.requests()[0];
    assert_eq!(header(request, "b3"), Some(format!("{trace}-{}-0", span.id)));
    assert_eq!(
        (header(request, "traceparent"), header(request, "tracestate").as_deref()),
        (None, Some("x=1"))
    );
    assert_eq!((span.trace.to_string().as_str(), span.parentage), (trace, Parentage::Propagated));
    // What is not valid is replaced by a context of our own.
    raw.ask("GET / HTTP/1.1\r\nHost: a\r\nTraceparent: 00-zz\r\n\r\n").await;
    let span = world.spans(2).await.remove(1);
    let request = &heard.requests()[1];
    assert_eq!(header(request, "traceparent"), Some(format!("00-{}-{}-01", span.trace, span.id)));
    assert_eq!(header(request, "x-b3-traceid"), Some(span.trace.to_string()));
    assert_eq!(request.matches("raceparent").count(), 1);
}

/// A world in front of services that somebody else started: all calls come through the same listeners.
async fn behind_proxies(hand_on: fn(&str) -> String) -> World {
    let known = Known::default();
    let (stock, _) = answering(OK).await;
    let calls = known.clone();
    let order = callee(move |mut raw| {
        let calls = calls.clone();
        async move {
            while let Some(request) = raw.message().await {
                let mut inner = calls.connect("web-1", "stock").await;
                let context = hand_on(&header(&request, "traceparent").unwrap());
                inner.ask(&format!("GET /inner HTTP/1.1\r\nHost: stock\r\n{context}\r\n")).await;
                raw.send(OK).await;
            }
        }
    })
    .await;
    let world = world().service("order", &[order]).service("stock", &[stock]);
    world.callers_by_context().known_to(&known).start()
}

#[tokio::test]
async fn callers_behind_proxies_are_found_by_context() {
    let as_it_came: fn(&str) -> String = |context| format!("traceparent: {context}\r\n");
    // A service with a tracer names a span of its own.
    let with_own_span: fn(&str) -> String =
        |context| format!("traceparent: {}00000000000000ab-01\r\n", &context[..36]);
    let silent: fn(&str) -> String = |_| String::new();
    for (hand_on, caller) in [(as_it_came, "order-1"), (with_own_span, "order-1"), (silent, "web-1")] {
        let world = behind_proxies(hand_on).await;
        world.get("order", "/outer").await;
        let spans = world.spans(2).await;
        assert_eq!((spans[0].path.as_str(), spans[0].caller.to_string().as_str()), ("/inner", caller));
        assert_eq!(spans[1].caller.to_string(), "web-1");
        assert_eq!(spans[0].trace == spans[1].trace, caller == "order-1");
    }
}
