//! A sample span for unit tests, each of which changes what it is about.

use faultscope_model::span::Wire;
use faultscope_model::{InstanceId, NodeId, Span, SpanId, TraceId};

/// A successful call of the test.
pub(crate) fn span() -> Span {
    Span {
        trace: TraceId(1),
        id: SpanId(1),
        parent: None,
        parentage: Default::default(),
        caller: InstanceId::test(),
        caller_node: NodeId(0),
        callee: "shop".parse().expect("a name"),
        callee_instance: None,
        callee_node: NodeId(0),
        port: 80,
        wire: Wire::Http1,
        method: "GET".into(),
        path: "/".into(),
        start_us: 0,
        duration_us: 1,
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
