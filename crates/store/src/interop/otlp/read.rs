//! Decodes OTLP traces.
//!
//! `service.name` becomes the endpoint, everything else a tag: the span's own attributes first, then its
//! scope, then its resource. Old and new names of the semantic conventions stay as reported.

use std::borrow::Cow;
use std::net::IpAddr;

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};

use super::containers::{Item, Sink, walk_json, walk_proto};
use super::messages::{Event, Link, Resource, Scope, Span, Status};
use super::tags;
use super::value::plain_object;
use crate::interop::draft::{Draft, cut, set_ip_text};
use crate::interop::{DecodeError, Decoded, Limits};

/// The most links of a span.
const LINKS: usize = 128;

/// Attributes with the name of the other side, the best first.
const PEER_NAMES: [&str; 6] =
    ["peer.service", "server.address", "net.peer.name", "messaging.system", "db.system.name", "db.system"];
const PEER_ADDRESSES: [&str; 3] = ["network.peer.address", "net.sock.peer.addr", "net.peer.ip"];
const PEER_PORTS: [&str; 4] = ["server.port", "network.peer.port", "net.peer.port", "net.sock.peer.port"];

/// Reads an `ExportTraceServiceRequest` as protobuf.
pub fn traces_proto(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::new(limits);
    walk_proto(body, limits, &mut reading)?;
    Ok(reading.out)
}

/// Reads an `ExportTraceServiceRequest` as JSON.
pub fn traces_json(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut reading = Reading::new(limits);
    walk_json(body, false, limits, &mut reading)?;
    Ok(reading.out)
}

struct Reading<'l> {
    limits: &'l Limits,
    out: Decoded,
    index: usize,
    service: Option<String>,
    resource: Vec<(String, String)>,
    scope: Vec<(String, String)>,
}

impl<'l> Reading<'l> {
    fn new(limits: &'l Limits) -> Self {
        Self {
            limits,
            out: Decoded::default(),
            index: 0,
            service: None,
            resource: Vec::new(),
            scope: Vec::new(),
        }
    }
}

impl Sink for Reading<'_> {
    fn restart(&mut self) {
        *self = Self::new(self.limits);
    }

    fn resource(&mut self, resource: Resource) {
        self.service = None;
        self.scope.clear();
        self.resource.clear();
        for attribute in resource.attributes.iter().take(self.limits.tags) {
            let text = cut(attribute.text(), self.limits);
            if attribute.key == "service.name" {
                self.service = Some(text.into_owned()).filter(|name| !name.is_empty());
            } else {
                self.resource.push((attribute.key.clone(), text.into_owned()));
            }
        }
    }

    fn scope(&mut self, scope: Scope) {
        self.scope.clear();
        for (key, value) in [(tags::SCOPE_NAME, scope.name), (tags::SCOPE_VERSION, scope.version)] {
            if !value.is_empty() {
                self.scope.push((key.to_owned(), cut(Cow::Owned(value), self.limits).into_owned()));
            }
        }
    }

    fn item(&mut self, item: Item<'_>) -> Result<(), DecodeError> {
        let index = self.index;
        self.index += 1;
        if index >= self.limits.items {
            return Err(DecodeError::TooLarge { what: "the number of spans", limit: self.limits.items });
        }
        let span = item.decode::<Span>(self.limits.item_bytes).and_then(|span| self.read(span));
        self.out.add(index, span, self.limits)
    }
}

impl Reading<'_> {
    fn read(&self, span: Span) -> Result<ReportedSpan, String> {
        let mut draft = Draft::new(self.limits);
        draft.span.trace =
            TraceId(id("traceId", &span.trace_id, 16)?.ok_or("traceId is missing or all zeros")?);
        // Eight bytes were read, so the values fit.
        draft.span.id =
            SpanId(id("spanId", &span.span_id, 8)?.ok_or("spanId is missing or all zeros")? as u64);
        draft.span.parent = id("parentSpanId", &span.parent_span_id, 8)?.map(|parent| SpanId(parent as u64));
        draft.span.kind = match span.kind {
            2 => Some(SpanKind::Server),
            3 => Some(SpanKind::Client),
            4 => Some(SpanKind::Producer),
            5 => Some(SpanKind::Consumer),
            _ => None,
        };
        draft.span.name = cut(Cow::Owned(span.name), self.limits).into_owned();
        let (start, end) = (span.start_time_unix_nano, span.end_time_unix_nano);
        draft.span.start_us = Some(start / 1_000).filter(|us| *us > 0);
        draft.span.duration_us = match end.checked_sub(start) {
            // The duration of a span that ends before it starts is unknown.
            Some(ns) if start > 0 => Some((ns / 1_000).max(1)),
            _ => None,
        };
        for attribute in span.attributes {
            let (key, value) = attribute.into_texts();
            draft.tag(Cow::Owned(key), Cow::Owned(value));
        }
        for event in &span.events {
            read_event(&mut draft, event);
        }
        read_links(&mut draft, &span.links);
        if !span.trace_state.is_empty() {
            draft.tag(Cow::Borrowed(tags::TRACE_STATE), Cow::Owned(span.trace_state));
        }
        read_status(&mut draft, span.status.unwrap_or_default());
        for (key, value) in self.scope.iter().chain(&self.resource) {
            draft.tag_if_new(Cow::Borrowed(key), Cow::Borrowed(value));
        }
        draft.span.local.service.clone_from(&self.service);
        find_endpoints(&mut draft.span);
        draft.finish()
    }
}

/// An id of this many bytes; none if it is empty or zero.
fn id(what: &str, bytes: &[u8], length: usize) -> Result<Option<u128>, String> {
    if !bytes.is_empty() && bytes.len() != length {
        return Err(format!("{what} has {} bytes instead of {length}", bytes.len()));
    }
    let id = bytes.iter().fold(0, |value: u128, byte| value << 8 | u128::from(*byte));
    Ok(Some(id).filter(|id| *id != 0))
}

/// An event becomes an annotation: its name, followed by its attributes as JSON.
fn read_event(draft: &mut Draft<'_>, event: &Event) {
    let us = i64::try_from(event.time_unix_nano / 1_000).unwrap_or(i64::MAX);
    let text = if event.attributes.is_empty() {
        Cow::Borrowed(event.name.as_str())
    } else {
        let name = serde_json::Value::from(event.name.as_str());
        Cow::Owned(format!("{name}:{}", plain_object(&event.attributes)))
    };
    draft.annotation(us, text);
}

fn read_links(draft: &mut Draft<'_>, links: &[Link]) {
    let mut text = String::new();
    for link in links.iter().take(LINKS) {
        if let (Ok(Some(trace)), Ok(Some(span))) = (id("", &link.trace_id, 16), id("", &link.span_id, 8)) {
            let comma = if text.is_empty() { "" } else { "," };
            text.push_str(&format!("{comma}{trace:032x}-{span:016x}"));
        }
    }
    if !text.is_empty() {
        draft.tag(Cow::Borrowed(tags::LINKS), Cow::Owned(text));
    }
}

/// A failed span also gets the tag `error`, which Zipkin's searches and graphs use.
fn read_status(draft: &mut Draft<'_>, Status { message, code }: Status) {
    match code {
        1 => draft.tag(Cow::Borrowed(tags::STATUS_CODE), Cow::Borrowed("OK")),
        2 => {
            draft.span.failed = true;
            if draft.span.tag(tags::ERROR).is_none() {
                draft.tag(Cow::Borrowed(tags::ERROR), Cow::Owned(message));
            } else if !message.is_empty() {
                draft.tag(Cow::Borrowed(tags::STATUS_DESCRIPTION), Cow::Owned(message));
            }
        }
        _ => {}
    }
}

/// Finds the two sides of a call by the attributes of the semantic conventions.
pub(in crate::interop) fn find_endpoints(span: &mut ReportedSpan) {
    let text = |keys: &[&str]| keys.iter().find_map(|key| span.tag(key)).filter(|text| !text.is_empty());
    let port = |keys: &[&str]| text(keys).and_then(|port| port.parse::<u16>().ok()).filter(|port| *port != 0);
    let mut remote = Endpoint::default();
    match span.kind {
        Some(SpanKind::Client | SpanKind::Producer | SpanKind::Consumer) => {
            if let Some(address) = text(&PEER_ADDRESSES) {
                set_ip_text(&mut remote, address);
            }
            match text(&PEER_NAMES) {
                Some(name) if name.parse::<IpAddr>().is_ok() => set_ip_text(&mut remote, name),
                name => remote.service = name.map(str::to_owned),
            }
            remote.port = port(&PEER_PORTS);
        }
        Some(SpanKind::Server) => {
            remote.service = text(&["peer.service"]).map(str::to_owned);
            for key in PEER_ADDRESSES.iter().chain(&["client.address"]) {
                if let Some(address) = text(&[key]) {
                    set_ip_text(&mut remote, address);
                }
            }
            remote.port = port(&["client.port", "network.peer.port", "net.peer.port", "net.sock.peer.port"]);
        }
        None => {}
    }
    let mut local = std::mem::take(&mut span.local);
    let text = |key| span.tag(key).filter(|text| !text.is_empty());
    if let Some(address) = text("net.host.ip") {
        set_ip_text(&mut local, address);
    }
    local.port = text("net.host.port").and_then(|port| port.parse().ok()).filter(|port| *port != 0);
    span.local = local;
    span.remote = remote;
}
