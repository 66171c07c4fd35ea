//! Turns what the mesh recorded into the span that a tracer would have reported.
//!
//! A mesh span is the caller's side of a call. The callee's own span has it as its parent or shares its id,
//! so both join in one tree.

use super::{Endpoint, ReportedSpan, SpanKind};
use crate::grpc::{GrpcCode, is_grpc};
use crate::secrets::{REDACTED, SecretNames};
use crate::span::{Parentage, Span, Wire};

/// The most bytes of a body that become a tag: Zipkin's UI renders tags in full.
const MAX_BODY_TAG: usize = 16 << 10;

/// Whether a span was recorded by the mesh.
pub fn is_mesh_call(span: &ReportedSpan) -> bool {
    span.tag("faultscope.wire").is_some()
}

/// The span as the caller's tracer would have reported it.
///
/// Where payload was recorded it has the tags `req`, `req_headers` and `res`, with secrets redacted.
pub fn report_call(span: &Span) -> ReportedSpan {
    let mut out = ReportedSpan::new(span.trace, span.id);
    out.parent = span.parent;
    out.kind = Some(SpanKind::Client);
    out.name = match span.wire {
        // Paths of gRPC hold no ids, and this is the name that tracers give to such spans.
        Wire::Http2 if is_grpc(span) => {
            span.path.split('?').next().unwrap_or_default().trim_matches('/').to_owned()
        }
        // Span names fill drop-down lists and a path may contain ids, so the path becomes a tag.
        Wire::Http1 | Wire::Http2 | Wire::WebSocket => span.method.to_lowercase(),
        Wire::Tcp | Wire::Tls => span.operation(),
    };
    out.start_us = Some(span.start_us).filter(|us| *us > 0);
    out.duration_us = Some(span.duration_us.max(1));
    out.local = Endpoint { service: Some(service(span.caller.service.as_str())), ..Endpoint::default() };
    out.remote = Endpoint {
        service: Some(service(span.callee.as_str())),
        port: Some(span.port).filter(|port| *port != 0),
        ..Endpoint::default()
    };
    out.failed = span.failed();
    let mut tag = |key: &str, value: String| out.tags.push((key.to_owned(), value));
    if matches!(span.wire, Wire::Http1 | Wire::Http2 | Wire::WebSocket) {
        tag("http.method", span.method.clone());
        tag("http.path", span.path.clone());
    }
    // A gRPC call that failed has a good HTTP status.
    if let Some(status) = span.status.filter(|status| span.grpc_status.is_none() || *status >= 300) {
        tag("http.status_code", status.to_string());
    }
    if let Some(status) = span.grpc_status {
        tag("grpc.status_code", GrpcCode(status).to_string());
    }
    if span.extent.continued {
        tag("faultscope.continued", "true".to_owned());
    }
    if span.extent.open {
        tag("faultscope.open", "true".to_owned());
    }
    if span.failed() {
        tag("error", span.error.as_ref().map_or_else(|| span.describe_failure(), ToString::to_string));
        if let Some(message) = span.grpc_message() {
            tag("grpc.message", message);
        }
    }
    tag("faultscope.wire", wire(span.wire).to_owned());
    tag("faultscope.caller", span.caller.to_string());
    tag("faultscope.caller_node", span.caller_node.to_string());
    if let Some(callee) = &span.callee_instance {
        tag("faultscope.callee", callee.to_string());
        tag("faultscope.callee_node", span.callee_node.to_string());
    }
    tag("faultscope.request_bytes", span.request_bytes.to_string());
    tag("faultscope.response_bytes", span.response_bytes.to_string());
    if let Some(us) = span.first_byte_us {
        tag("faultscope.first_byte_us", us.to_string());
    }
    if matches!(span.parentage, Parentage::Inferred | Parentage::Unknown) {
        let how = if span.parentage == Parentage::Inferred { "inferred" } else { "unknown" };
        tag("faultscope.parentage", how.to_owned());
    }
    if !span.rules.is_empty() {
        let rules: Vec<_> = span.rules.iter().map(u32::to_string).collect();
        tag("faultscope.rules", rules.join(","));
    }
    if let Some(payload) = &span.payload {
        tag("req", body(&span.request_text().unwrap_or_default()));
        tag("req_headers", headers(&payload.request_headers));
        tag("res", body(&span.response_text().unwrap_or_default()));
    }
    out
}

fn service(name: &str) -> String {
    name.to_lowercase()
}

fn wire(wire: Wire) -> &'static str {
    match wire {
        Wire::Http1 => "http1",
        Wire::Http2 => "http2",
        Wire::WebSocket => "websocket",
        Wire::Tcp => "tcp",
        Wire::Tls => "tls",
    }
}

fn body(text: &str) -> String {
    let (shown, rest) = text.split_at(text.floor_char_boundary(MAX_BODY_TAG));
    let mut text = shown.to_owned();
    if !rest.is_empty() {
        text.push_str(&format!("… {} more bytes", rest.len()));
    }
    text
}

fn headers(headers: &[(String, String)]) -> String {
    let names = SecretNames::default();
    let shown = headers.iter().map(|(name, value)| {
        let value = if names.is_secret_header(name, value.as_bytes()) { REDACTED } else { value.as_str() };
        serde_json::json!([name, value])
    });
    // Pairs, not an object: a header may occur twice, and order can matter.
    serde_json::Value::Array(shown.collect()).to_string()
}
