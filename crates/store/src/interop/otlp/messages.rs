//! The messages of OTLP traces: one set of types for protobuf and JSON.
//!
//! Only fields that are kept are declared; both formats skip unknown fields. Single spans are decoded
//! with these; the lists around them are walked (see [`super::containers`]).

use prost::Message;
use serde::{Deserialize, Serialize};

use super::scalars::{big, hex, nullable};
pub(super) use super::value::{KeyValue, Value};

/// The reporting service.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::interop) struct Resource {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
}

/// The library that created the spans.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::interop) struct Scope {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub(super) version: String,
}

/// A span.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::interop) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(with = "hex")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(with = "hex")]
    pub(super) span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub(super) trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    #[serde(with = "hex", skip_serializing_if = "Vec::is_empty")]
    pub(super) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    pub(super) kind: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(with = "big")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    #[serde(with = "big")]
    pub(super) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<Event>,
    #[prost(message, repeated, tag = "13")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(super) links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub(super) status: Option<Status>,
}

/// An event in a span.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::interop) struct Event {
    #[prost(fixed64, tag = "1")]
    #[serde(with = "big")]
    pub(super) time_unix_nano: u64,
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub(super) attributes: Vec<KeyValue>,
}

/// A link to another span.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::interop) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(with = "hex")]
    pub(super) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(with = "hex")]
    pub(super) span_id: Vec<u8>,
}

/// The status: 0 unset, 1 ok, 2 error.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::interop) struct Status {
    #[prost(string, tag = "2")]
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    #[prost(int32, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) code: i32,
}

/// All spans of a body; only encoded, never decoded as a whole.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::interop) struct TracesData {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::interop) resource_spans: Vec<ResourceSpans>,
}

/// The spans of one reporter.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::interop) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

/// The spans of one library.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::interop) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(super) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}
