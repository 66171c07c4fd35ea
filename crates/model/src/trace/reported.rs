//! Spans as instrumented services report them: the common ground of Zipkin and OpenTelemetry.
//!
//! What the mesh sees is a [`crate::Span`]; what services and tracers say of themselves is a
//! [`ReportedSpan`]. Both carry the same ids, so that they join in one tree.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ids::{SpanId, TraceId};

/// The tag that names the instance which reported a span, where the tool started that instance itself.
pub const INSTANCE_TAG: &str = "faultscope.instance";

/// One report about a span. A span may come in several pieces, and client and server may share one id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportedSpan {
    /// The trace.
    pub trace: TraceId,
    /// The span within it.
    pub id: SpanId,
    /// The span it was made in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// Which side reports; none for work inside one service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<SpanKind>,
    /// What was done; lower case for Zipkin reporters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Microseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_us: Option<u64>,
    /// Microseconds, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Who reports.
    #[serde(default, skip_serializing_if = "Endpoint::is_empty")]
    pub local: Endpoint,
    /// The other side.
    #[serde(default, skip_serializing_if = "Endpoint::is_empty")]
    pub remote: Endpoint,
    /// The id was taken over from the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The trace was to be kept whatever sampling said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub debug: bool,
    /// Whether it failed, where the reporter says so in its own field (OpenTelemetry's status).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Tags or attributes, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<(String, String)>,
    /// Moments within the span: microseconds since 1970 and what happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<(u64, String)>,
}

/// Which side of a call or message reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanKind {
    /// It called.
    Client,
    /// It was called.
    Server,
    /// It sent a message.
    Producer,
    /// It received a message.
    Consumer,
}

/// One side of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Endpoint {
    /// The service's name; lower case for Zipkin reporters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Its IPv4 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<IpAddr>,
    /// Its IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<IpAddr>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl Endpoint {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ReportedSpan {
    /// A report with nothing but its ids.
    pub fn new(trace: TraceId, id: SpanId) -> Self {
        Self {
            trace,
            id,
            parent: None,
            kind: None,
            name: String::new(),
            start_us: None,
            duration_us: None,
            local: Endpoint::default(),
            remote: Endpoint::default(),
            shared: false,
            debug: false,
            failed: false,
            tags: Vec::new(),
            annotations: Vec::new(),
        }
    }

    /// Brings the span into the form that holds for every span, however it was made: no parent of zeros or of
    /// its own id, no `shared` on the client's side, annotations in order and once.
    pub fn normalize(&mut self) {
        if self.parent == Some(self.id) || self.parent == Some(SpanId(0)) {
            self.parent = None;
        }
        if self.kind == Some(SpanKind::Client) {
            self.shared = false;
        }
        if self.annotations.len() > 1 {
            self.annotations.sort();
            self.annotations.dedup();
        }
    }

    /// The value of a tag.
    pub fn tag(&self, name: &str) -> Option<&str> {
        self.tags.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}
