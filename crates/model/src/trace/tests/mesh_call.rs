//! Mesh spans as tracers would tell them, and how they join those of services.

use super::lines;
use crate::CallError;
use crate::ids::{NodeId, SpanId, TraceId};
use crate::span::{Parentage, Payload, Span, Wire};
use crate::trace::{Linker, SpanKind, TraceTree, report_call};

fn call() -> Span {
    Span {
        trace: TraceId(0xa),
        id: SpanId(0x10),
        parent: Some(SpanId(0x1)),
        parentage: Parentage::Propagated,
        caller: "web-1".parse().unwrap(),
        caller_node: NodeId(0),
        callee: "order".parse().unwrap(),
        callee_instance: Some("order-2".parse().unwrap()),
        callee_node: NodeId(1),
        port: 8080,
        wire: Wire::Http1,
        method: "POST".to_owned(),
        path: "/orders/7?x=1".to_owned(),
        start_us: 1_000,
        duration_us: 0,
        first_byte_us: Some(3),
        request_bytes: 5,
        response_bytes: 6,
        status: Some(201),
        grpc_status: None,
        error: None,
        rules: vec![3, 4],
        target: None,
        extent: Default::default(),
        payload: None,
    }
}

#[test]
fn a_call_is_a_clients_span() {
    let span = report_call(&call());
    assert_eq!((span.kind, span.name.as_str(), span.duration_us), (Some(SpanKind::Client), "post", Some(1)));
    assert_eq!((span.local.service.as_deref(), span.remote.service.as_deref()), (Some("web"), Some("order")));
    assert_eq!(span.remote.port, Some(8080));
    for (key, value) in [
        ("http.method", Some("POST")),
        ("http.path", Some("/orders/7?x=1")),
        ("http.status_code", Some("201")),
        ("error", None),
        ("faultscope.caller", Some("web-1")),
        ("faultscope.callee", Some("order-2")),
        ("faultscope.callee_node", Some("node-1")),
        ("faultscope.request_bytes", Some("5")),
        ("faultscope.response_bytes", Some("6")),
        ("faultscope.rules", Some("3,4")),
        ("req", None),
    ] {
        assert_eq!(span.tag(key), value, "{key}");
    }
}

#[test]
fn failures_say_why() {
    for (change, expected) in [
        (Box::new(|_: &mut Span| ()) as Box<dyn Fn(&mut Span)>, None),
        (Box::new(|span: &mut Span| span.status = Some(503)), Some("503")),
        (Box::new(|span: &mut Span| span.grpc_status = Some(14)), Some("UNAVAILABLE")),
        (Box::new(|span: &mut Span| span.error = Some(CallError::ConnectRefused)), Some("connect refused")),
    ] {
        let mut span = call();
        change(&mut span);
        let span = report_call(&span);
        assert_eq!((span.tag("error"), span.failed), (expected, expected.is_some()));
    }
}

#[test]
fn payload_is_reported_without_secrets() {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut span = call();
    span.payload = Some(Box::new(Payload {
        request_headers: vec![header("Authorization", "Bearer s3cret"), header("Accept", "a\"b")],
        response_headers: vec![header("set-cookie", "s3cret")],
        request_body: b"{\"a\":1}".to_vec(),
        response_body: vec![b'x'; 20_000],
        decoded: None,
    }));
    let span = report_call(&span);
    assert_eq!(span.tag("req"), Some("{\"a\":1}"));
    assert_eq!(span.tag("req_headers"), Some(r#"[["Authorization","[redacted]"],["Accept","a\"b"]]"#));
    assert!(span.tag("res").unwrap().ends_with("… 3616 more bytes"));
    assert!(!format!("{span:?}").contains("s3cret"));
}

#[test]
fn a_connection_has_no_path() {
    let mut span = call();
    (span.wire, span.method, span.path, span.status) = (Wire::Tcp, String::new(), String::new(), None);
    let span = report_call(&span);
    assert_eq!((span.name.as_str(), span.tag("http.path")), ("connection", None));
}

#[test]
fn mesh_and_service_spans_join_in_one_tree() {
    // The service's client span is above the mesh's, the server's below it; the call counts once.
    let mut all = lines("0f - server web\n 1 f client web\n 2 10 server order\n 3 2 client order>db");
    all.push(report_call(&call()));
    let tree = TraceTree::new(all);
    let path: Vec<_> =
        tree.depth_first().iter().map(|(at, depth)| (tree.span(*at).unwrap().id.0, *depth)).collect();
    assert_eq!(path, [(0xf, 0), (1, 1), (0x10, 2), (2, 3), (3, 4)]);
    let mut linker = Linker::default();
    linker.add(&tree);
    let links = linker.links();
    let links: Vec<_> =
        links.iter().map(|link| (link.parent.as_str(), link.child.as_str(), link.call_count)).collect();
    assert_eq!(links, [("web", "order", 1), ("order", "db", 1)]);
}
