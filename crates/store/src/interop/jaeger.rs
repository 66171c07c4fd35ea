//! Encodes Jaeger's formats: the older JSON of `/api/traces` and the newer one of `/api/v3`.

use std::collections::HashMap;

use faultscope_model::TraceId;
use faultscope_model::trace::{ReportedSpan, SpanKind, group_by_trace, separate_shared_ids};
use serde::Serialize;

use super::otlp::to_data;

mod read;

pub use read::{read_v1, read_v3};

/// The response of `/api/traces` and `/api/traces/{id}`.
pub fn v1_traces<T: AsRef<[ReportedSpan]>>(traces: &[T]) -> Vec<u8> {
    // An id means one span to Jaeger, so a server that shares its client's gets one of its own.
    let traces: Vec<_> = traces.iter().map(|spans| separate_shared_ids(spans.as_ref().to_vec())).collect();
    v1_answer(traces.iter().filter_map(|spans| Trace::new(spans)).collect())
}

/// One trace of `/api/traces`; none without spans.
pub(crate) fn v1_trace(spans: Vec<ReportedSpan>) -> Option<Vec<u8>> {
    let spans = separate_shared_ids(spans);
    Trace::new(&spans).map(|trace| written(&trace))
}

/// The resources of a trace as `/api/v3/traces` lists them, separated by commas; none without spans.
pub(crate) fn v3_resources(spans: Vec<ReportedSpan>) -> Option<Vec<u8>> {
    let separated: Vec<_> = group_by_trace(spans, true).into_iter().flat_map(separate_shared_ids).collect();
    let text = written(&to_data(&separated).resource_spans);
    // Without the brackets of their list.
    text.get(1..text.len().saturating_sub(1)).filter(|list| !list.is_empty()).map(<[u8]>::to_vec)
}

/// Wraps names, links and the like as all older responses are.
pub fn v1_answer<T: Serialize>(data: Vec<T>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<T> {
        total: usize,
        limit: usize,
        offset: usize,
        errors: Option<()>,
        data: Vec<T>,
    }
    written(&Answer { total: data.len(), limit: 0, offset: 0, errors: None, data })
}

/// An error in the format of older clients.
pub fn v1_error(status: u16, message: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Failure<'a> {
        code: u16,
        msg: &'a str,
    }
    #[derive(Serialize)]
    struct Answer<'a> {
        data: Option<()>,
        total: usize,
        limit: usize,
        offset: usize,
        errors: [Failure<'a>; 1],
    }
    let errors = [Failure { code: status, msg: message }];
    written(&Answer { data: None, total: 0, limit: 0, offset: 0, errors })
}

/// The response of `/api/v3/traces` and `/api/v3/traces/{id}`: OTLP in a wrapper.
pub fn v3_traces(spans: &[ReportedSpan]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<T> {
        result: T,
    }
    let separated: Vec<_> =
        group_by_trace(spans.to_vec(), true).into_iter().flat_map(separate_shared_ids).collect();
    written(&Answer { result: to_data(&separated) })
}

/// Plain data with text keys can always be serialized as JSON.
fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace<'a> {
    #[serde(rename = "traceID")]
    trace_id: String,
    spans: Vec<Span<'a>>,
    processes: serde_json::Map<String, serde_json::Value>,
    warnings: Option<()>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(rename = "traceID")]
    trace_id: String,
    #[serde(rename = "spanID")]
    span_id: String,
    flags: u32,
    operation_name: &'a str,
    references: Vec<Reference>,
    start_time: u64,
    duration: u64,
    tags: Vec<Tag<'a>>,
    logs: Vec<Log<'a>>,
    #[serde(rename = "processID")]
    process_id: String,
    warnings: Option<()>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    ref_type: &'static str,
    #[serde(rename = "traceID")]
    trace_id: String,
    #[serde(rename = "spanID")]
    span_id: String,
}

#[derive(Serialize)]
struct Tag<'a> {
    key: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    value: serde_json::Value,
}

#[derive(Serialize)]
struct Log<'a> {
    timestamp: u64,
    fields: [Tag<'a>; 1],
}

impl<'a> Trace<'a> {
    fn new(spans: &'a [ReportedSpan]) -> Option<Self> {
        // Where ids of both lengths occur, the longest is shown.
        let trace = spans.iter().map(|span| span.trace).max()?;
        let mut known: HashMap<&faultscope_model::trace::Endpoint, String> = HashMap::new();
        let mut processes = serde_json::Map::new();
        let spans = spans.iter().map(|span| {
            let next = format!("p{}", known.len() + 1);
            let process = known.entry(&span.local).or_insert_with(|| {
                processes.insert(next.clone(), process(&span.local));
                next
            });
            Span::new(span, trace, process.clone())
        });
        let spans = spans.collect();
        Some(Self { trace_id: trace_text(trace), spans, processes, warnings: None })
    }
}

/// Jaeger writes trace ids with 32 digits, also when the high half is zero.
fn trace_text(trace: TraceId) -> String {
    trace.to_string()
}

fn process(endpoint: &faultscope_model::trace::Endpoint) -> serde_json::Value {
    let mut tags = Vec::new();
    if let Some(ip) = endpoint.ipv4.or(endpoint.ipv6) {
        tags.push(Tag { key: "ip", kind: "string", value: ip.to_string().into() });
    }
    if let Some(port) = endpoint.port {
        tags.push(Tag { key: "port", kind: "int64", value: port.into() });
    }
    let tags = serde_json::to_value(tags).unwrap_or_default();
    serde_json::json!({ "serviceName": endpoint.service.as_deref().unwrap_or("unknown"), "tags": tags })
}

impl<'a> Span<'a> {
    fn new(span: &'a ReportedSpan, trace: TraceId, process_id: String) -> Self {
        let text = |key, value: &str| Tag { key, kind: "string", value: value.into() };
        let mut tags: Vec<_> = span.tags.iter().map(|(key, value)| text(key.as_str(), value)).collect();
        let failed = span.failed || span.tag("error").is_some_and(|error| error != "false");
        tags.retain(|tag| tag.key != "error");
        if failed {
            // Jaeger marks failures by a boolean; the message of Zipkin's reporters is kept beside it.
            tags.push(Tag { key: "error", kind: "bool", value: true.into() });
            let message = span.tag("error").filter(|error| !matches!(*error, "" | "true"));
            tags.extend(message.map(|message| text("error.message", message)));
        }
        let kind = span.kind.map(|kind| match kind {
            SpanKind::Client => "client",
            SpanKind::Server => "server",
            SpanKind::Producer => "producer",
            SpanKind::Consumer => "consumer",
        });
        tags.extend(kind.map(|kind| text("span.kind", kind)));
        if span.tag("peer.service").is_none() {
            tags.extend(span.remote.service.as_deref().map(|service| text("peer.service", service)));
        }
        let reference = |parent: faultscope_model::SpanId| Reference {
            ref_type: "CHILD_OF",
            trace_id: trace_text(trace),
            span_id: parent.to_string(),
        };
        let log = |(timestamp, value): &'a (u64, String)| Log {
            timestamp: *timestamp,
            fields: [text("event", value)],
        };
        Self {
            trace_id: trace_text(trace),
            span_id: span.id.to_string(),
            flags: 1 | u32::from(span.debug) << 1,
            operation_name: &span.name,
            references: span.parent.map(reference).into_iter().collect(),
            start_time: span.start_us.unwrap_or_default(),
            duration: span.duration_us.unwrap_or_default(),
            tags,
            logs: span.annotations.iter().map(log).collect(),
            process_id,
            warnings: None,
        }
    }
}
