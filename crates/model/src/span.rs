//! What the mesh recorded of one call.

use serde::{Deserialize, Serialize};

use crate::call_error::CallError;
use crate::ids::{InstanceId, NodeId, ServiceName, SpanId, TraceId};
use crate::perturbation::TargetId;

/// One call, seen from the caller's side; one connection where the mesh does not parse calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// Sent to the callee as the parent of its own spans.
    pub id: SpanId,
    /// The call in whose handling it was made, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// How certain the parent is.
    #[serde(default)]
    pub parentage: Parentage,
    /// The calling instance.
    pub caller: InstanceId,
    /// The node of the caller.
    #[serde(default)]
    pub caller_node: NodeId,
    /// The service that was called.
    pub callee: ServiceName,
    /// The instance that was chosen; none if the call failed before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee_instance: Option<InstanceId>,
    /// The node of the callee's instance.
    #[serde(default)]
    pub callee_node: NodeId,
    /// The callee's port as the caller addressed it.
    pub port: u16,
    /// The protocol as it was detected.
    pub wire: Wire,
    /// The method of the request; empty for a connection.
    pub method: String,
    /// The path with its query; empty for a connection.
    pub path: String,
    /// The first byte from the caller, in microseconds since 1970.
    pub start_us: u64,
    /// Until the caller got the last byte of the response.
    pub duration_us: u64,
    /// From the start to the first byte of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Size of the request body; for a connection, bytes from the caller.
    pub request_bytes: u64,
    /// Size of the response body; for a connection, bytes to the caller.
    pub response_bytes: u64,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The gRPC status, if the response has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Why the call did not complete normally.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// Rules that matched the call, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<u32>,
    /// The stable name of the call, the same in every run; only where calls are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetId>,
    /// Headers and bodies, if these are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<Payload>>,
}

impl Span {
    /// Whether the call failed: an error, a status of 500 or above, or a gRPC status other than 0.
    pub fn failed(&self) -> bool {
        self.error.is_some()
            || self.status.is_some_and(|s| s >= 500)
            || self.grpc_status.is_some_and(|s| s != 0)
    }

    /// Method and path without the query; for a connection, its protocol.
    pub fn operation(&self) -> String {
        match self.wire {
            Wire::Http1 | Wire::Http2 | Wire::WebSocket => {
                format!("{} {}", self.method, self.path.split('?').next().unwrap_or_default())
            }
            Wire::Tcp => "connection".to_owned(),
            Wire::Tls => "tls connection".to_owned(),
        }
    }
}

/// How the parent of a span was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parentage {
    /// The call carried no context and its caller handled no request: it starts a trace.
    #[default]
    Root,
    /// The caller propagated the context.
    Propagated,
    /// The caller handled exactly one request at that time, so the call must belong to it.
    Inferred,
    /// The caller handled several requests and propagated no context.
    Unknown,
}

/// The protocol on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2, gRPC included.
    Http2,
    /// A WebSocket, from its upgrade to its end.
    WebSocket,
    /// Any other bytes.
    Tcp,
    /// TLS that was passed through.
    Tls,
}

/// Headers and bodies of a call, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// Headers of the request, in order; bytes that are not UTF-8 are replaced.
    pub request_headers: Vec<(String, String)>,
    /// Headers of the response, likewise.
    pub response_headers: Vec<(String, String)>,
    /// The beginning of the request body.
    #[serde(default, with = "bytes_as_base64")]
    pub request_body: Vec<u8>,
    /// The beginning of the response body.
    #[serde(default, with = "bytes_as_base64")]
    pub response_body: Vec<u8>,
}

mod bytes_as_base64 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
