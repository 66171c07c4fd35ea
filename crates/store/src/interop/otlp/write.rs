//! Encodes OTLP traces, for forwarding and for Jaeger's newer clients.

use std::collections::HashMap;

use faultscope_model::trace::{ReportedSpan, SpanKind};
use prost::Message;

use super::messages::{
    Event, KeyValue, Link, Resource, ResourceSpans, Scope, ScopeSpans, Span, Status, TracesData, Value,
};
use super::tags;
use super::value::from_plain;
use crate::interop::draft::{read_span_id, read_trace_id};

/// Prefixes of tags that describe the resource rather than the span.
const RESOURCE: [&str; 10] = [
    "service.",
    "telemetry.",
    "host.",
    "k8s.",
    "container.",
    "os.",
    "cloud.",
    "deployment.",
    "faas.",
    "process.",
];

/// Tags that the semantic conventions define as numbers.
const NUMBERS: [&str; 11] = [
    "http.response.status_code",
    "http.status_code",
    "http.request.body.size",
    "http.response.body.size",
    "server.port",
    "client.port",
    "network.peer.port",
    "net.peer.port",
    "net.host.port",
    "rpc.grpc.status_code",
    "messaging.batch.message_count",
];

/// The spans as an `ExportTraceServiceRequest` in protobuf.
pub fn to_proto(spans: &[ReportedSpan]) -> Vec<u8> {
    to_data(spans).encode_to_vec()
}

/// The spans as an `ExportTraceServiceRequest` in JSON.
pub fn to_json(spans: &[ReportedSpan]) -> Vec<u8> {
    // Plain data with text keys can always be serialized as JSON.
    serde_json::to_vec(&to_data(spans)).unwrap_or_default()
}

/// The spans, grouped by resource.
pub(in crate::interop) fn to_data(spans: &[ReportedSpan]) -> TracesData {
    type Key<'a> = Vec<(&'a str, &'a str)>;
    let mut data = TracesData::default();
    let mut resources: HashMap<Key<'_>, usize> = HashMap::new();
    let mut scopes: HashMap<(usize, &str, &str), usize> = HashMap::new();
    for span in spans {
        let service = span.local.service.as_deref().map(|service| ("service.name", service));
        let pairs = span.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let key: Key<'_> = service.into_iter().chain(pairs.filter(|(key, _)| is_resource(key))).collect();
        let resource = *resources.entry(key).or_insert_with_key(|key| {
            let attributes = key.iter().map(|(key, value)| attribute(key, value)).collect();
            data.resource_spans
                .push(ResourceSpans { resource: Some(Resource { attributes }), scope_spans: Vec::new() });
            data.resource_spans.len() - 1
        });
        let name = span.tag(tags::SCOPE_NAME).unwrap_or_default();
        let version = span.tag(tags::SCOPE_VERSION).unwrap_or_default();
        let Some(group) = data.resource_spans.get_mut(resource) else { continue };
        let scope = *scopes.entry((resource, name, version)).or_insert_with(|| {
            let scope = Scope { name: name.to_owned(), version: version.to_owned() };
            group.scope_spans.push(ScopeSpans { scope: Some(scope), spans: Vec::new() });
            group.scope_spans.len() - 1
        });
        if let Some(group) = group.scope_spans.get_mut(scope) {
            group.spans.push(write(span));
        }
    }
    data
}

fn is_resource(key: &str) -> bool {
    RESOURCE.iter().any(|beginning| key.starts_with(beginning))
}

fn attribute(key: &str, value: &str) -> KeyValue {
    let number = NUMBERS.contains(&key).then(|| value.parse().ok()).flatten();
    KeyValue::new(key, number.map_or_else(|| Value::String(value.to_owned()), Value::Int))
}

fn write(span: &ReportedSpan) -> Span {
    let status = status(span);
    let is_message = |key: &str, value: &str| {
        key == tags::ERROR && span.failed && status.as_ref().is_some_and(|status| status.message == value)
    };
    let own = [
        tags::STATUS_CODE,
        tags::STATUS_DESCRIPTION,
        tags::SCOPE_NAME,
        tags::SCOPE_VERSION,
        tags::LINKS,
        tags::TRACE_STATE,
    ];
    let kept = |key: &str, value: &str| !is_resource(key) && !own.contains(&key) && !is_message(key, value);
    let tags = span.tags.iter().filter(|(key, value)| kept(key, value));
    let mut attributes: Vec<_> = tags.map(|(key, value)| attribute(key, value)).collect();
    write_endpoints(span, &mut attributes);
    let start = span.start_us.unwrap_or_default().saturating_mul(1_000);
    let duration = span.duration_us.unwrap_or_default().saturating_mul(1_000);
    Span {
        trace_id: span.trace.0.to_be_bytes().to_vec(),
        span_id: span.id.0.to_be_bytes().to_vec(),
        trace_state: span.tag(tags::TRACE_STATE).unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map(|parent| parent.0.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.clone(),
        kind: match span.kind {
            None => 1,
            Some(SpanKind::Server) => 2,
            Some(SpanKind::Client) => 3,
            Some(SpanKind::Producer) => 4,
            Some(SpanKind::Consumer) => 5,
        },
        start_time_unix_nano: start,
        // An unknown duration stays unknown: the end is left out.
        end_time_unix_nano: if duration == 0 { 0 } else { start.saturating_add(duration) },
        attributes,
        events: span.annotations.iter().map(|(us, text)| event(*us, text)).collect(),
        links: span.tag(tags::LINKS).map(links).unwrap_or_default(),
        status,
    }
}

fn status(span: &ReportedSpan) -> Option<Status> {
    let error = span.tag(tags::ERROR);
    if span.failed || error.is_some_and(|error| error != "false") {
        let message =
            span.tag(tags::STATUS_DESCRIPTION).or(error.filter(|_| span.failed)).unwrap_or_default();
        return Some(Status { message: message.to_owned(), code: 2 });
    }
    (span.tag(tags::STATUS_CODE) == Some("OK")).then(|| Status { message: String::new(), code: 1 })
}

fn write_endpoints(span: &ReportedSpan, attributes: &mut Vec<KeyValue>) {
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value
            && span.tag(key).is_none()
        {
            attributes.push(attribute(key, &value));
        }
    };
    let ip = |endpoint: &faultscope_model::trace::Endpoint| {
        endpoint.ipv4.or(endpoint.ipv6).map(|ip| ip.to_string())
    };
    add("peer.service", span.remote.service.clone());
    add("network.peer.address", ip(&span.remote));
    add("network.peer.port", span.remote.port.map(|port| port.to_string()));
    add("net.host.ip", ip(&span.local));
    add("net.host.port", span.local.port.map(|port| port.to_string()));
}

/// The event of an annotation: its name, and attributes if JSON follows.
fn event(us: u64, text: &str) -> Event {
    let mut event =
        Event { time_unix_nano: us.saturating_mul(1_000), name: text.to_owned(), attributes: Vec::new() };
    if text.starts_with('"')
        && let Ok(serde_json::Value::Object(map)) = serde_json::from_str(&format!("{{{text}}}"))
        && map.len() == 1
        && let Some((name, serde_json::Value::Object(attributes))) = map.into_iter().next()
    {
        event.name = name;
        event.attributes =
            attributes.iter().map(|(key, value)| KeyValue::new(key, from_plain(value))).collect();
    }
    event
}

fn links(text: &str) -> Vec<Link> {
    let link = |text: &str| {
        let (trace, span) = text.split_once('-')?;
        Some(Link {
            trace_id: read_trace_id(trace).ok()?.0.to_be_bytes().to_vec(),
            span_id: read_span_id(span).ok()??.0.to_be_bytes().to_vec(),
        })
    };
    text.split(',').filter_map(link).collect()
}
