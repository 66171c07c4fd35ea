//! Writes Zipkin v2 JSON.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;

use faultscope_model::SpanId;
use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::interop::draft::{lower, zipkin_trace_id};

/// The spans as one list.
pub fn to_json(spans: &[ReportedSpan]) -> Vec<u8> {
    written(&SpanList(spans))
}

/// Writes the spans as one list.
pub(crate) fn write_json(spans: &[ReportedSpan], out: &mut impl io::Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, &SpanList(spans))?)
}

/// Traces as a list of lists.
pub fn traces_to_json<T: AsRef<[ReportedSpan]>>(traces: &[T]) -> Vec<u8> {
    let lists: Vec<_> = traces.iter().map(|spans| SpanList(spans.as_ref())).collect();
    written(&lists)
}

/// One span per line.
pub fn to_lines(spans: &[ReportedSpan]) -> Vec<u8> {
    let mut out = Vec::new();
    for span in spans {
        out.append(&mut written(&SpanOut(span)));
        out.push(b'\n');
    }
    out
}

/// Plain data with text keys always has a JSON form.
fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// The value of the `error` tag for a span that says so only by its status.
pub(super) fn error_tag(span: &ReportedSpan) -> Option<&'static str> {
    (span.failed && span.tag("error").is_none()).then_some("true")
}

/// How Zipkin writes a kind.
pub(super) fn kind_text(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Client => "CLIENT",
        SpanKind::Server => "SERVER",
        SpanKind::Producer => "PRODUCER",
        SpanKind::Consumer => "CONSUMER",
    }
}

struct SpanList<'a>(&'a [ReportedSpan]);

impl Serialize for SpanList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for span in self.0 {
            list.serialize_element(&SpanOut(span))?;
        }
        list.end()
    }
}

struct SpanOut<'a>(&'a ReportedSpan);

impl Serialize for SpanOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let span = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("traceId", &zipkin_trace_id(span.trace))?;
        if let Some(parent) = span.parent.filter(|parent| *parent != SpanId(0)) {
            map.serialize_entry("parentId", &parent)?;
        }
        map.serialize_entry("id", &span.id)?;
        if let Some(kind) = span.kind {
            map.serialize_entry("kind", kind_text(kind))?;
        }
        if !span.name.is_empty() {
            map.serialize_entry("name", &lower(Cow::Borrowed(&span.name)))?;
        }
        if let Some(us) = span.start_us {
            map.serialize_entry("timestamp", &us)?;
        }
        if let Some(us) = span.duration_us {
            map.serialize_entry("duration", &us)?;
        }
        if !span.local.is_empty() {
            map.serialize_entry("localEndpoint", &EndpointOut(&span.local))?;
        }
        if !span.remote.is_empty() {
            map.serialize_entry("remoteEndpoint", &EndpointOut(&span.remote))?;
        }
        if !span.annotations.is_empty() {
            map.serialize_entry("annotations", &AnnotationsOut(&span.annotations))?;
        }
        if !span.tags.is_empty() || span.failed {
            map.serialize_entry("tags", &TagsOut(span))?;
        }
        if span.debug {
            map.serialize_entry("debug", &true)?;
        }
        if span.shared {
            map.serialize_entry("shared", &true)?;
        }
        map.end()
    }
}

struct EndpointOut<'a>(&'a Endpoint);

impl Serialize for EndpointOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Endpoint { service, ipv4, ipv6, port } = self.0;
        let mut map = serializer.serialize_map(None)?;
        if let Some(service) = service {
            map.serialize_entry("serviceName", &lower(Cow::Borrowed(service)))?;
        }
        let mut ip = |key, ip: &Option<IpAddr>| match ip {
            Some(ip) => map.serialize_entry(key, ip),
            None => Ok(()),
        };
        ip("ipv4", ipv4)?;
        ip("ipv6", ipv6)?;
        if let Some(port) = port {
            map.serialize_entry("port", port)?;
        }
        map.end()
    }
}

struct AnnotationsOut<'a>(&'a [(u64, String)]);

impl Serialize for AnnotationsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Annotation<'a> {
            timestamp: u64,
            value: &'a str,
        }
        serializer
            .collect_seq(self.0.iter().map(|(timestamp, value)| Annotation { timestamp: *timestamp, value }))
    }
}

struct TagsOut<'a>(&'a ReportedSpan);

impl Serialize for TagsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in &self.0.tags {
            map.serialize_entry(key, value)?;
        }
        if let Some(error) = error_tag(self.0) {
            map.serialize_entry("error", error)?;
        }
        map.end()
    }
}
