//! Short labels of spans.

use faultscope_model::trace::is_mesh_call;
use faultscope_model::trace::{ReportedSpan, SpanKind};

/// A short label: `order GET /pay`, or `order-1 ─▶ stock-2 GET /items` for a call that the mesh recorded.
pub fn span_label(span: &ReportedSpan) -> String {
    if is_mesh_call(span) {
        return call_label(span);
    }
    let service = span.local.service.as_deref().unwrap_or("?");
    let name = if span.name.is_empty() { "?" } else { &span.name };
    let other = match (span.kind, span.remote.service.as_deref()) {
        (Some(SpanKind::Client | SpanKind::Producer), Some(remote)) => format!(" -> {remote}"),
        _ => String::new(),
    };
    plain(&format!("{service} {name}{other}"))
}

/// Text from outside with spaces in place of control characters, which would move a terminal's cursor.
pub fn plain(text: &str) -> String {
    faultscope_model::terminal::neutralize_line(text).into_owned()
}

fn call_label(span: &ReportedSpan) -> String {
    let side = |key: &str, service: Option<&str>| span.tag(key).or(service).unwrap_or("?").to_owned();
    let caller = side("faultscope.caller", span.local.service.as_deref());
    let callee = side("faultscope.callee", span.remote.service.as_deref());
    let asked = match (span.tag("http.method"), span.tag("http.path")) {
        (Some(method), Some(path)) => format!("{method} {}", path.split('?').next().unwrap_or_default()),
        _ => span.name.clone(),
    };
    plain(&format!("{caller} ─▶ {callee} {asked}"))
}
