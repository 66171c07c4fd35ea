//! Calls from spans that services reported with their requests and answers in the tags `req`, `req_headers` and `res`.
//!
//! Instrumentation writes `req` as `{"url": ..., "method": ..., "body": ...}` and `req_headers` as an object; this tool
//! itself writes the body alone, pairs of headers, and the rest in tags of Zipkin's own.

use std::collections::HashMap;

use serde_json::Value;

use crate::ids::{InstanceId, NodeId, ServiceName, SpanId};
use crate::span::{Extent, Parentage, Payload, Span, Wire};
use crate::trace::{ReportedSpan, SpanKind};

/// The most headers that are read of one span.
const MAX_HEADERS: usize = 128;

/// The calls among reported spans. Of two sides that report the same call the one with the longer answer counts.
pub fn calls_from_reports(reports: &[ReportedSpan]) -> Vec<Span> {
    let owners: HashMap<SpanId, &str> =
        reports.iter().filter_map(|span| Some((span.id, span.local.service.as_deref()?))).collect();
    let mut calls: HashMap<(u128, SpanId), Span> = HashMap::new();
    for report in reports {
        let Some(call) = call_of(report, &owners) else { continue };
        let known = calls.get(&(call.trace.0, call.id));
        if known.is_none_or(|known| known.response_bytes < call.response_bytes) {
            calls.insert((call.trace.0, call.id), call);
        }
    }
    let mut calls: Vec<Span> = calls.into_values().collect();
    calls.sort_by_key(|call| (call.start_us, call.trace, call.id));
    calls
}

fn call_of(report: &ReportedSpan, owners: &HashMap<SpanId, &str>) -> Option<Span> {
    let request = report.tag("req").unwrap_or_default();
    report.tag("req").or(report.tag("req_headers")).or(report.tag("res"))?;
    let (local, remote) = (report.local.service.as_deref(), report.remote.service.as_deref());
    let (caller, callee) = match report.kind {
        Some(SpanKind::Client) => (local, remote?),
        // A server rarely knows who calls it; whoever made the span above does.
        Some(SpanKind::Server) | None => {
            let above = report.parent.and_then(|parent| owners.get(&parent).copied());
            (remote.or(above).filter(|caller| Some(*caller) != local), local?)
        }
        Some(SpanKind::Producer | SpanKind::Consumer) => return None,
    };
    let callee: ServiceName = callee.parse().ok()?;
    let caller: Option<ServiceName> = caller.and_then(|caller| caller.parse().ok());
    let told: Option<Value> =
        serde_json::from_str(request).ok().filter(|told: &Value| told["url"].is_string());
    let word = |key: &str| told.as_ref().and_then(|told| told[key].as_str());
    let method = word("method").or(report.tag("http.method")).or(report.tag("http.request.method"));
    let path = word("url").or(report.tag("http.path")).or(report.tag("url.path"))?;
    let body = match &told {
        Some(told) => match &told["body"] {
            Value::Null => Vec::new(),
            Value::String(text) => text.clone().into_bytes(),
            // An empty object is what parsers of bodies give for none.
            Value::Object(fields) if fields.is_empty() => Vec::new(),
            other => other.to_string().into_bytes(),
        },
        None => request.as_bytes().to_vec(),
    };
    let answer = report.tag("res").unwrap_or_default().as_bytes().to_vec();
    let status = report.tag("http.status_code").or(report.tag("http.response.status_code"));
    let instance = |service: ServiceName| InstanceId::new(service, 1);
    Some(Span {
        trace: report.trace,
        id: report.id,
        parent: report.parent,
        parentage: if report.parent.is_some() { Parentage::Propagated } else { Parentage::Root },
        caller: instance(caller.or_else(|| "user".parse().ok())?),
        caller_node: NodeId::default(),
        callee_instance: Some(instance(callee.clone())),
        callee,
        callee_node: NodeId::default(),
        port: report.local.port.or(report.remote.port).unwrap_or(80),
        wire: Wire::Http1,
        method: method.unwrap_or("GET").to_uppercase(),
        path: path_of(path).to_owned(),
        start_us: report.start_us.unwrap_or_default(),
        duration_us: report.duration_us.unwrap_or_default(),
        first_byte_us: None,
        request_bytes: body.len() as u64,
        response_bytes: answer.len() as u64,
        status: status.and_then(|status| status.parse().ok()).or(Some(200)),
        grpc_status: None,
        error: None,
        rules: Vec::new(),
        target: None,
        extent: Extent::default(),
        payload: Some(Box::new(Payload {
            request_headers: headers_of(report.tag("req_headers").unwrap_or_default()),
            response_headers: Vec::new(),
            request_body: body,
            response_body: answer,
            decoded: None,
        })),
    })
}

/// An object of names and values, or a list of pairs.
fn headers_of(text: &str) -> Vec<(String, String)> {
    let value = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(headers)) => {
            headers.iter().take(MAX_HEADERS).map(|(name, found)| (name.clone(), value(found))).collect()
        }
        Ok(Value::Array(pairs)) => {
            let pair = |pair: &Value| Some((pair.get(0)?.as_str()?.to_owned(), value(pair.get(1)?)));
            pairs.iter().take(MAX_HEADERS).filter_map(pair).collect()
        }
        _ => Vec::new(),
    }
}

/// The path and query of a URL.
fn path_of(url: &str) -> &str {
    match url.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => url,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TraceId;
    use crate::recording::Recording;
    use crate::trace::{Endpoint, report_call};

    fn report(id: u64, parent: Option<u64>, service: &str, tags: &[(&str, &str)]) -> ReportedSpan {
        let mut span = ReportedSpan::new(TraceId(0x4fcc), SpanId(id));
        span.parent = parent.map(SpanId);
        span.kind = Some(SpanKind::Server);
        (span.start_us, span.duration_us) = (Some(1_589_750_503_288_975 + id), Some(24_134));
        span.local = Endpoint { service: Some(service.into()), ..Endpoint::default() };
        span.tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        span
    }

    #[test]
    fn tags_of_instrumented_services_become_requests() {
        let request =
            r#"{"url":"/todos","method":"POST","user":{"username":"johnd"},"body":{"content":"zdsasd"}}"#;
        let headers =
            r#"{"accept":"application/json","content-type":"application/json","x-b3-traceid":"4fcc"}"#;
        let tags = [
            ("http.status_code", "200"),
            ("req", request),
            ("req_headers", headers),
            ("res", r#"{"content":"zdsasd","id":3}"#),
        ];
        let inner = [
            ("req", r#"{"url":"http://users-api:8083/users/johnd","method":"GET","body":{}}"#),
            ("res", "{}"),
        ];
        let reports = [report(2, Some(1), "users-api", &inner), report(1, None, "todos-api", &tags)];
        let calls = calls_from_reports(&reports);
        let seen: Vec<_> = calls
            .iter()
            .map(|call| format!("{} > {} {}", call.caller, call.callee, call.operation()))
            .collect();
        assert_eq!(seen, ["user-1 > todos-api POST /todos", "todos-api-1 > users-api GET /users/johnd"]);
        let is_service = |name: &ServiceName| name.as_str().ends_with("-api");
        let recording = Recording::from_calls(calls, is_service);
        let [root] = &recording.requests[..] else { panic!("{recording:?}") };
        assert_eq!(root.body, br#"{"content":"zdsasd"}"#);
        assert_eq!(
            root.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["accept", "content-type"]
        );
        assert_eq!(
            (root.answer.status, root.answer.body.as_slice()),
            (Some(200), &br#"{"content":"zdsasd","id":3}"#[..])
        );
    }

    #[test]
    fn own_exports_are_read_back() {
        let tags = [("req", "{\"a\":1}"), ("http.method", "PUT"), ("http.path", "/x?y=1"), ("res", "ok")];
        let own = &calls_from_reports(&[report(1, None, "order", &tags)])[0];
        let mut again = report_call(own);
        again.name = String::new();
        let back = &calls_from_reports(&[again])[0];
        assert_eq!(
            (&back.method, &back.path, &back.callee),
            (&"PUT".to_owned(), &"/x?y=1".to_owned(), &own.callee)
        );
        assert_eq!(back.payload, own.payload);
    }

    #[test]
    fn spans_without_requests_are_no_calls() {
        assert!(calls_from_reports(&[report(1, None, "order", &[("http.path", "/")])]).is_empty());
        assert!(calls_from_reports(&[report(1, None, "order", &[("req", "no url")])]).is_empty());
        assert!(calls_from_reports(&[report(1, None, "", &[("req", "{\"url\":\"/\"}")])]).is_empty());
    }
}
