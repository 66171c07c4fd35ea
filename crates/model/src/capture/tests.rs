use std::collections::BTreeMap;

use super::*;
use crate::ids::{NodeId, SpanId, TraceId};
use crate::span::{Parentage, Wire};
use crate::trace::{ReportedSpan, SpanKind};

const SHOP: &str = r#"# the shop
name: shop
services:
  order:
    image: "shop/order:1.0"   # tagged by the build
    ports: [8080]
    env: { TTL: "30", MODE: fast }
  price: { command: [p], ports: [8081] }
  stock: { command: [s], ports: [8082] }

failing:   # by hand
  nodes: 2
  config: { stock: { memory: 64MiB } }

# the tests
tests: [ { name: list, http: { get: "http://order:8080/orders" } } ]
"#;

fn shop() -> Application {
    Application::read_alone(SHOP, "shop.yaml").unwrap()
}

fn call(id: u64, parent: Option<u64>, to: (&str, u32), path: &str, start_us: u64, duration_us: u64) -> Span {
    let callee: ServiceName = to.0.parse().unwrap();
    Span {
        trace: TraceId(1),
        id: SpanId(id),
        parent: parent.map(SpanId),
        parentage: Parentage::Propagated,
        caller: InstanceId::test(),
        caller_node: NodeId(0),
        callee_instance: Some(InstanceId::new(callee.clone(), to.1)),
        callee,
        callee_node: NodeId(0),
        port: 80,
        wire: Wire::Http1,
        method: "GET".into(),
        path: path.into(),
        start_us,
        duration_us,
        first_byte_us: None,
        request_bytes: 0,
        response_bytes: 0,
        status: Some(200),
        grpc_status: None,
        error: None,
        rules: Vec::new(),
        target: None,
        extent: Default::default(),
        payload: None,
    }
}

fn describe(captured: &Captured) -> Vec<String> {
    let one = |o: &crate::circumstance::Order| {
        let calls: Vec<_> = o.order.iter().map(ToString::to_string).collect();
        format!("{} {}: {}", o.from, o.handling, calls.join(", "))
    };
    captured.failing.sequence.iter().map(one).collect()
}

#[test]
fn overlapping_calls_are_a_series_in_the_order_of_their_answers() {
    let spans = [
        call(1, None, ("order", 2), "/orders/17?full=1", 0, 1000),
        call(2, Some(1), ("price", 1), "/p", 10, 100),
        call(3, Some(1), ("stock", 3), "/s/7f3a9c1e", 20, 30),
        call(4, Some(1), ("price", 1), "/p", 25, 10),
        call(5, Some(1), ("stock", 1), "/later", 500, 10),
    ];
    let captured = from_calls(&shop(), &nested_calls_of_spans(&spans));
    assert_eq!(
        describe(&captured),
        ["order GET /orders/{id}: price GET /p#2, stock GET /s/{id}, price GET /p"]
    );
    let run: Run = serde_json::from_value(serde_json::json!({
        "id": "a.1", "trial": "1", "slot": 0, "treatment": { "kind": "nothing" }, "circumstance": { "nodes": 3 }, "outcome": { "kind": "pass" },
        "evidence": { "tests": [], "spans": 5 }, "started_us": 0, "seed": 1,
        "cost": { "deploy": 0, "tests": 0, "total": 0, "created": 0, "destroyed": 0, "kept": 0 },
    }))
    .unwrap();
    let captured = from_run(&shop(), &run, &spans);
    assert_eq!(captured.failing.nodes, 3);
    let counts: Vec<_> = captured.failing.instances.iter().map(|(s, n)| format!("{s} {n}")).collect();
    assert_eq!(counts, ["order 2", "stock 3"]);
    assert_eq!(captured.failing.sequence.len(), 1);
}

#[test]
fn calls_in_turn_or_in_request_order_are_none() {
    let in_turn = [
        call(1, None, ("order", 1), "/o", 0, 1000),
        call(2, Some(1), ("price", 1), "/p", 10, 10),
        call(3, Some(1), ("stock", 1), "/s", 30, 10),
    ];
    let captured = from_calls(&shop(), &nested_calls_of_spans(&in_turn));
    assert!(captured.failing.sequence.is_empty() && captured.notes.is_empty());
    let as_asked = [
        call(1, None, ("order", 1), "/o", 0, 1000),
        call(2, Some(1), ("price", 1), "/p", 10, 30),
        call(3, Some(1), ("stock", 1), "/s", 20, 40),
    ];
    let captured = from_calls(&shop(), &nested_calls_of_spans(&as_asked));
    assert!(captured.failing.sequence.is_empty());
    assert!(captured.notes[0].contains("in the order in which they were made"), "{:?}", captured.notes);
}

#[test]
fn reported_spans_tell_series_too() {
    let span =
        |id: u64, parent: u64, kind: Option<SpanKind>, service: &str, name: &str, start: u64, took: u64| {
            let mut span = ReportedSpan::new(TraceId(1), SpanId(id));
            span.parent = (parent > 0).then_some(SpanId(parent));
            span.kind = kind;
            span.name = name.into();
            span.local.service = Some(service.into());
            span.start_us = Some(start);
            span.duration_us = Some(took);
            span
        };
    let (client, server) = (Some(SpanKind::Client), Some(SpanKind::Server));
    let mut stock = span(4, 2, client, "order", "get", 20, 10);
    stock.tags = vec![("http.method".into(), "put".into()), ("http.url".into(), "http://stock:1/s?x".into())];
    stock.remote.service = Some("stock".into());
    let spans = [
        span(1, 0, server, "order", "GET /o", 0, 1000),
        span(2, 1, None, "order", "work", 5, 900),
        span(3, 2, client, "order", "GET /p", 10, 100),
        span(30, 3, server, "price", "GET /p", 15, 90),
        stock,
    ];
    let captured = from_calls(&shop(), &nested_calls_of_reports(&spans));
    assert_eq!(describe(&captured), ["order GET /o: stock PUT /s, price GET /p"]);
    let mut callers: Vec<ReportedSpan> = spans.iter().filter(|s| s.kind == client).cloned().collect();
    callers[0].remote.service = Some("price".into());
    let mut outer = span(2, 0, client, "test", "GET /o", 0, 1000);
    outer.remote.service = Some("order".into());
    callers.push(outer);
    let captured = from_calls(&shop(), &nested_calls_of_reports(&callers));
    assert_eq!(describe(&captured), ["order GET /o: stock PUT /s, price GET /p"], "only callers report");
    let circle = [
        span(1, 2, None, "a", "x", 0, 1),
        span(2, 1, None, "a", "x", 0, 1),
        span(3, 1, client, "a", "GET /", 0, 1),
    ];
    assert!(nested_calls_of_reports(&circle).is_empty());
}

fn container(service: &str, image: &str, env: &[(&str, &str)]) -> Container {
    Container {
        service: service.into(),
        image: image.into(),
        env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..Container::default()
    }
}

#[test]
fn containers_differ_from_the_file() {
    let order =
        container("order", "shop/order:1.1", &[("TTL", "300"), ("MODE", "fast"), ("DB_PASSWORD", "x")]);
    let order = Container { memory: Some(64 << 20), cpu: Some(0.5), ..order };
    let containers =
        [order.clone(), order, container("price", "shop/price:3", &[]), container("cron", "c", &[])];
    let captured = from_containers(&shop(), &containers);
    assert_eq!(
        section(&captured.failing),
        "failing:\n  instances: { order: 2 }\n  versions: { order: \"captured\" }\n  config:\n    \
         order: { cpu: \"0.5\", env.TTL: \"300\", memory: \"64MiB\" }\n"
    );
    assert_eq!(
        captured.notes,
        [
            "`cron` runs and is not in the application file",
            "`order` has its own DB_PASSWORD: left out, since secrets stay out of files",
            "`stock` does not run",
        ]
    );
    let written = write(SHOP, &captured).unwrap();
    let read = Application::read_alone(&written, "shop.yaml").unwrap();
    assert_eq!(read.failing, captured.failing);
    assert_eq!(read.services["order"].versions["captured"].image.as_deref(), Some("shop/order:1.1"));
}

#[test]
fn writing_leaves_the_rest_as_it_is() {
    let captured =
        Captured { failing: Circumstance { nodes: 3, ..Circumstance::default() }, ..Captured::default() };
    let written = write(SHOP, &captured).unwrap();
    let hand = "failing:   # by hand\n  nodes: 2\n  config: { stock: { memory: 64MiB } }\n";
    assert_eq!(written, SHOP.replace(hand, "failing:\n  nodes: 3\n"));
    let without = SHOP.replace(hand, "");
    assert_eq!(write(&without, &captured).unwrap(), format!("{without}failing:\n  nodes: 3\n"));
    assert_eq!(write(&written, &captured).unwrap(), written, "twice is once");
    let flow = "{ services: { a: { command: [a] } }, failing: { nodes: 2 } }";
    assert!(write(flow, &captured).is_err());
    let short = SHOP.replace("  order:\n    image: \"shop/order:1.0\"   # tagged by the build\n    ports: [8080]\n    env: { TTL: \"30\", MODE: fast }\n", "  order: { image: x, ports: [8080] }\n");
    let image = CapturedImage { version: "captured".into(), image: "y".into() };
    let images = BTreeMap::from([("order".parse().unwrap(), image)]);
    let refused = write(&short, &Captured { images, ..captured }).unwrap_err();
    assert!(
        refused.to_string().starts_with("add `versions: { captured: { image: \"y\" } }` to `order` by hand"),
        "{refused}"
    );
}

#[test]
fn what_was_seen_is_laid_over_what_was_written() {
    let seen = Circumstance {
        instances: BTreeMap::from([("order".parse().unwrap(), 4)]),
        ..Circumstance::default()
    };
    let merged = over(&seen, &shop().failing);
    assert_eq!(
        section(&merged),
        "failing:\n  nodes: 2\n  instances: { order: 4 }\n  config:\n    stock: { memory: \"64MiB\" }\n"
    );
}

#[test]
fn a_replay_imposes_only_orders_that_were_always_the_same() {
    let handling = |first: u64, early: &str, late: &str| {
        let at = first * 10_000;
        [
            call(first, None, ("order", 1), "/orders", at, 1000),
            call(first + 1, Some(first), (late, 1), "/x", at + 10, 100),
            call(first + 2, Some(first), (early, 1), "/x", at + 20, 30),
        ]
    };
    let same = [handling(1, "price", "stock"), handling(4, "price", "stock")].concat();
    let found = recorded_orders(&shop(), &same);
    let orders: Vec<String> = found.orders.iter().map(ToString::to_string).collect();
    assert_eq!(orders, ["order GET /orders: price GET /x, stock GET /x"]);
    assert!(found.ambiguous.is_empty());

    let different = [handling(1, "price", "stock"), handling(4, "stock", "price")].concat();
    let found = recorded_orders(&shop(), &different);
    assert!(found.orders.is_empty());
    assert_eq!(found.ambiguous.len(), 1);
}
