//! Zipkin v2 as protobuf: `zipkin.proto3.ListOfSpans`, both ways.

use std::borrow::Cow;
use std::net::IpAddr;

use faultscope_model::trace::{self, ReportedSpan, SpanKind};
use prost::Message;

use super::write::error_tag;
use super::{V2_PROTO, too_many};
use crate::interop::draft::{Draft, lower, set_ip_bytes, set_service};
use crate::interop::protobuf::Fields;
use crate::interop::{DecodeError, Decoded, Limits};

/// Reads a list of spans.
pub fn v2_proto(body: &[u8], limits: &Limits) -> Result<Decoded, DecodeError> {
    let mut out = Decoded::default();
    let mut index = 0;
    for field in Fields::new(body) {
        let field = field.map_err(|reason| DecodeError::malformed(V2_PROTO, reason))?;
        if field.number != 1 || !field.is_bytes {
            continue;
        }
        if index >= limits.items {
            return Err(too_many(limits));
        }
        if field.bytes.len() > limits.item_bytes {
            out.reject(index, format!("it is over the limit of {} bytes", limits.item_bytes));
        } else {
            let span = Span::decode(field.bytes).map_err(|error| error.to_string());
            out.add(index, span.and_then(|span| span.read(limits)), limits)?;
        }
        index += 1;
    }
    // Many a thing that is no list of spans reads as one with fields of the future.
    if index == 0 && !body.is_empty() {
        return Err(DecodeError::malformed(V2_PROTO, "there is no span in it"));
    }
    Ok(out)
}

/// The spans as one `ListOfSpans`.
pub fn to_proto(spans: &[ReportedSpan]) -> Vec<u8> {
    ListOfSpans { spans: spans.iter().map(Span::write).collect() }.encode_to_vec()
}

#[derive(Clone, PartialEq, Message)]
struct ListOfSpans {
    #[prost(message, repeated, tag = "1")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    parent_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    id: Vec<u8>,
    #[prost(int32, tag = "4")]
    kind: i32,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(fixed64, tag = "6")]
    timestamp: u64,
    #[prost(uint64, tag = "7")]
    duration: u64,
    #[prost(message, optional, tag = "8")]
    local_endpoint: Option<Endpoint>,
    #[prost(message, optional, tag = "9")]
    remote_endpoint: Option<Endpoint>,
    #[prost(message, repeated, tag = "10")]
    annotations: Vec<Annotation>,
    #[prost(message, repeated, tag = "11")]
    tags: Vec<Tag>,
    #[prost(bool, tag = "12")]
    debug: bool,
    #[prost(bool, tag = "13")]
    shared: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Endpoint {
    #[prost(string, tag = "1")]
    service_name: String,
    #[prost(bytes = "vec", tag = "2")]
    ipv4: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    ipv6: Vec<u8>,
    #[prost(int32, tag = "4")]
    port: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Annotation {
    #[prost(fixed64, tag = "1")]
    timestamp: u64,
    #[prost(string, tag = "2")]
    value: String,
}

/// An entry of the map; as a message of its own it keeps its place.
#[derive(Clone, PartialEq, Message)]
struct Tag {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

// === impl Span ===

impl Span {
    fn read(self, limits: &Limits) -> Result<ReportedSpan, String> {
        let mut draft = Draft::new(limits);
        match self.trace_id.len() {
            8 | 16 => draft.span.trace.0 = big_endian(&self.trace_id),
            0 => return Err("trace_id is missing".to_owned()),
            n => return Err(format!("trace_id has {n} bytes instead of 8 or 16")),
        }
        if draft.span.trace.0 == 0 {
            return Err("trace_id is all zeros".to_owned());
        }
        match self.id.len() {
            // At most eight bytes were read, so the value fits.
            8 => draft.span.id.0 = big_endian(&self.id) as u64,
            0 => return Err("id is missing".to_owned()),
            n => return Err(format!("id has {n} bytes instead of 8")),
        }
        match self.parent_id.len() {
            8 => draft.span.parent = Some(faultscope_model::SpanId(big_endian(&self.parent_id) as u64)),
            0 => {}
            n => return Err(format!("parent_id has {n} bytes instead of 8")),
        }
        draft.span.kind = match self.kind {
            1 => Some(SpanKind::Client),
            2 => Some(SpanKind::Server),
            3 => Some(SpanKind::Producer),
            4 => Some(SpanKind::Consumer),
            // Kinds of the future are read as none, as protobuf asks.
            _ => None,
        };
        draft.name(Cow::Owned(self.name));
        draft.start(i64::try_from(self.timestamp).map_err(|_| "timestamp is too large")?);
        draft.duration(i64::try_from(self.duration).map_err(|_| "duration is too large")?);
        draft.span.local = Endpoint::read(self.local_endpoint, limits)?;
        draft.span.remote = Endpoint::read(self.remote_endpoint, limits)?;
        for Annotation { timestamp, value } in self.annotations {
            let us = i64::try_from(timestamp).map_err(|_| "an annotation's timestamp is too large")?;
            draft.annotation(us, Cow::Owned(value));
        }
        for Tag { key, value } in self.tags {
            draft.tag(Cow::Owned(key), Cow::Owned(value));
        }
        draft.span.debug = self.debug;
        draft.span.shared = self.shared;
        draft.finish()
    }

    fn write(span: &ReportedSpan) -> Self {
        let trace = span.trace.0;
        let tag = |(key, value): &(String, String)| Tag { key: key.clone(), value: value.clone() };
        let mut tags: Vec<_> = span.tags.iter().map(tag).collect();
        tags.extend(error_tag(span).map(|error| Tag { key: "error".to_owned(), value: error.to_owned() }));
        Self {
            trace_id: match u64::try_from(trace) {
                Ok(low) => low.to_be_bytes().to_vec(),
                Err(_) => trace.to_be_bytes().to_vec(),
            },
            parent_id: span.parent.map(|parent| parent.0.to_be_bytes().to_vec()).unwrap_or_default(),
            id: span.id.0.to_be_bytes().to_vec(),
            kind: match span.kind {
                None => 0,
                Some(SpanKind::Client) => 1,
                Some(SpanKind::Server) => 2,
                Some(SpanKind::Producer) => 3,
                Some(SpanKind::Consumer) => 4,
            },
            name: lower(Cow::Borrowed(&span.name)),
            timestamp: span.start_us.unwrap_or_default(),
            duration: span.duration_us.unwrap_or_default(),
            local_endpoint: Endpoint::write(&span.local),
            remote_endpoint: Endpoint::write(&span.remote),
            annotations: span
                .annotations
                .iter()
                .map(|(timestamp, value)| Annotation { timestamp: *timestamp, value: value.clone() })
                .collect(),
            tags,
            debug: span.debug,
            shared: span.shared,
        }
    }
}

// === impl Endpoint ===

impl Endpoint {
    fn read(endpoint: Option<Self>, limits: &Limits) -> Result<trace::Endpoint, String> {
        let mut out = trace::Endpoint::default();
        let Some(Self { service_name, ipv4, ipv6, port }) = endpoint else { return Ok(out) };
        set_service(&mut out, Cow::Owned(service_name), limits);
        set_ip_bytes(&mut out, &ipv4);
        set_ip_bytes(&mut out, &ipv6);
        if port > 0 {
            out.port = Some(u16::try_from(port).map_err(|_| format!("{port} is not a port"))?);
        }
        Ok(out)
    }

    fn write(endpoint: &trace::Endpoint) -> Option<Self> {
        if endpoint.is_empty() {
            return None;
        }
        let bytes = |ip: Option<IpAddr>| match ip {
            Some(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
            None => Vec::new(),
        };
        Some(Self {
            service_name: endpoint
                .service
                .as_deref()
                .map(|name| lower(Cow::Borrowed(name)))
                .unwrap_or_default(),
            ipv4: bytes(endpoint.ipv4),
            ipv6: bytes(endpoint.ipv6),
            port: endpoint.port.unwrap_or_default().into(),
        })
    }
}

fn big_endian(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}
