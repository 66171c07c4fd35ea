//! Decodes Jaeger's responses: the older JSON of `/api/traces`, which its UI also saves to files, and the
//! newer one of `/api/v3/traces`.

use std::borrow::Cow;
use std::collections::HashMap;

use faultscope_model::trace::{ReportedSpan, SpanKind};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::interop::draft::{Draft, cut, read_span_id, read_trace_id, set_ip_text};
use crate::interop::json::plain;
use crate::interop::otlp::{self, find_endpoints};
use crate::interop::{DecodeError, Decoded, Limits};

const JSON: &str = "Jaeger JSON";

/// Decodes the response of `/api/traces`: traces of spans and the processes that reported them.
pub fn read_v1(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let answer: Answer<'_> =
        serde_json::from_slice(body).map_err(|error| DecodeError::malformed(JSON, plain(&error)))?;
    let mut out = Decoded::default();
    let mut index = 0;
    // Process tags are copied to each of its spans: without a budget, many tiny spans could multiply a large one.
    let mut budget = limits.body_bytes.saturating_mul(4);
    for trace in answer.data.into_iter().flatten() {
        for raw in trace.spans.into_iter().flatten() {
            if index >= limits.items {
                return Err(DecodeError::TooLarge { what: "the number of spans", limit: limits.items });
            }
            let span = serde_json::from_str::<Span<'_>>(raw.get()).map_err(|error| plain(&error));
            let span = span.and_then(|span| {
                let process = span.process_id.as_deref().and_then(|id| trace.processes.as_ref()?.get(id));
                let weight = process.map_or(0, Process::weight);
                budget = budget.checked_sub(weight).ok_or("the tags of its process are too large")?;
                span.read(process, limits)
            });
            out.add(index, span, limits)?;
            index += 1;
        }
    }
    Ok(out)
}

/// Decodes the response of `/api/v3/traces`: OTLP in a wrapper, one object or one per line.
pub fn read_v3(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        result: Option<&'a RawValue>,
    }
    let mut out = Decoded::default();
    for answer in serde_json::Deserializer::from_slice(body).into_iter::<Answer<'_>>() {
        let answer = answer.map_err(|error| DecodeError::malformed(JSON, plain(&error)))?;
        let Some(result) = answer.result else { continue };
        let mut part = otlp::traces_json(result.get().as_bytes(), limits)?;
        if out.items.len() + part.items.len() > limits.items {
            return Err(DecodeError::TooLarge { what: "the number of spans", limit: limits.items });
        }
        out.count_bytes(part.bytes, limits)?;
        out.items.append(&mut part.items);
        // Includes rejections that were not listed.
        out.n_rejected += part.n_rejected - part.rejected.len();
        for rejected in part.rejected {
            out.reject(rejected.index, rejected.reason);
        }
    }
    Ok(out)
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    data: Option<Vec<Trace<'a>>>,
}

#[derive(Deserialize)]
struct Trace<'a> {
    #[serde(borrow)]
    spans: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    processes: Option<HashMap<Cow<'a, str>, Process<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Process<'a> {
    #[serde(borrow)]
    service_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tags: Option<Vec<Tag<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(rename = "traceID", borrow)]
    trace_id: Cow<'a, str>,
    #[serde(rename = "spanID", borrow)]
    span_id: Cow<'a, str>,
    #[serde(rename = "parentSpanID", borrow)]
    parent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    references: Option<Vec<Reference<'a>>>,
    start_time: Option<u64>,
    duration: Option<u64>,
    flags: Option<u32>,
    #[serde(borrow)]
    tags: Option<Vec<Tag<'a>>>,
    #[serde(borrow)]
    logs: Option<Vec<Log<'a>>>,
    #[serde(rename = "processID", borrow)]
    process_id: Option<Cow<'a, str>>,
    /// Given instead of its id if a span stands alone.
    #[serde(borrow)]
    process: Option<Process<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference<'a> {
    #[serde(borrow)]
    ref_type: Option<Cow<'a, str>>,
    #[serde(rename = "traceID", borrow)]
    trace_id: Cow<'a, str>,
    #[serde(rename = "spanID", borrow)]
    span_id: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Tag<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
    value: Value,
}

#[derive(Deserialize)]
struct Log<'a> {
    timestamp: u64,
    #[serde(borrow)]
    fields: Option<Vec<Tag<'a>>>,
}

impl Process<'_> {
    fn weight(&self) -> usize {
        let weigh = |tag: &Tag<'_>| tag.key.len() + tag.value.as_str().map_or(8, str::len);
        self.tags.as_ref().map_or(0, |tags| tags.iter().map(weigh).sum())
    }
}

impl Tag<'_> {
    fn text(&self) -> Cow<'_, str> {
        match &self.value {
            Value::String(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }
}

impl Span<'_> {
    fn read(&self, process: Option<&Process<'_>>, limits: &Limits) -> Result<ReportedSpan, String> {
        let mut draft = Draft::new(limits);
        draft.trace(&self.trace_id);
        draft.id(&self.span_id);
        draft.span.parent = self.parent();
        draft.span.name = self
            .operation_name
            .as_ref()
            .map(|name| cut(Cow::Borrowed(name), limits).into_owned())
            .unwrap_or_default();
        draft.span.start_us = self.start_time.filter(|us| *us > 0);
        // Jaeger reports 0 for durations below a microsecond.
        draft.span.duration_us = self.duration.map(|us| us.max(1));
        draft.span.debug = self.flags.is_some_and(|flags| flags & 2 != 0);
        for tag in self.tags.iter().flatten() {
            read_tag(&mut draft, tag);
        }
        for log in self.logs.iter().flatten() {
            read_log(&mut draft, log);
        }
        if draft.span.failed && draft.span.tag("error").is_none() {
            let message =
                ["otel.status_description", "error.message"].iter().find_map(|key| draft.span.tag(key));
            let message = message.unwrap_or_default().to_owned();
            draft.tag(Cow::Borrowed("error"), Cow::Owned(message));
        }
        let Some(process) = process.or(self.process.as_ref()) else { return draft.finish() };
        for tag in process.tags.iter().flatten() {
            draft.tag_if_new(Cow::Borrowed(&tag.key), tag.text());
        }
        let service = process.service_name.as_deref().filter(|name| !name.is_empty());
        draft.span.local.service = service.map(|name| cut(Cow::Borrowed(name), limits).into_owned());
        find_endpoints(&mut draft.span);
        if let Some(ip) = process.tags.iter().flatten().find(|tag| tag.key == "ip") {
            set_ip_text(&mut draft.span.local, &ip.text());
        }
        draft.finish()
    }

    /// The parent; of several, the one in the same trace.
    fn parent(&self) -> Option<faultscope_model::SpanId> {
        let trace = read_trace_id(&self.trace_id).ok();
        let in_trace = |reference: &&Reference<'_>| read_trace_id(&reference.trace_id).ok() == trace;
        let references = || self.references.iter().flatten().filter(in_trace);
        let child = references().find(|reference| reference.ref_type.as_deref() != Some("FOLLOWS_FROM"));
        let found = child.or_else(|| references().next()).map(|reference| &reference.span_id);
        found.or(self.parent_id.as_ref()).and_then(|id| read_span_id(id).ok().flatten())
    }
}

/// Kind and status are in tags of their own.
fn read_tag(draft: &mut Draft<'_>, tag: &Tag<'_>) {
    let text = tag.text();
    match (tag.key.as_ref(), text.as_ref()) {
        ("span.kind", "client") => draft.span.kind = Some(SpanKind::Client),
        ("span.kind", "server") => draft.span.kind = Some(SpanKind::Server),
        ("span.kind", "producer") => draft.span.kind = Some(SpanKind::Producer),
        ("span.kind", "consumer") => draft.span.kind = Some(SpanKind::Consumer),
        ("span.kind", "internal") => {}
        ("error", "true") => draft.span.failed = true,
        ("error", "false") => {}
        (key, _) => draft.tag(Cow::Owned(key.to_owned()), text),
    }
}

/// A log entry becomes an annotation: its event, followed by its other fields as JSON.
fn read_log(draft: &mut Draft<'_>, log: &Log<'_>) {
    let fields = || log.fields.iter().flatten();
    let event = fields().find(|field| field.key == "event").map(Tag::text).unwrap_or_default();
    let others: serde_json::Map<String, Value> = fields()
        .filter(|field| field.key != "event")
        .map(|field| (field.key.clone().into_owned(), field.value.clone()))
        .collect();
    let text = if others.is_empty() {
        event
    } else {
        Cow::Owned(format!("{}:{}", Value::from(event.as_ref()), Value::Object(others)))
    };
    draft.annotation(i64::try_from(log.timestamp).unwrap_or(i64::MAX), text);
}
