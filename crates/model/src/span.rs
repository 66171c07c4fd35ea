//! What the mesh saw of one call.

use serde::{Deserialize, Serialize};

use crate::call_error::CallError;
use crate::ids::{InstanceId, NodeId, ServiceName, SpanId, TraceId};
use crate::perturbation::TargetId;

/// One call, or one connection where the mesh does not read calls, seen from the caller's side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: TraceId,
    /// Its own id; the callee sees it as its parent.
    pub id: SpanId,
    /// The call it was made in, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SpanId>,
    /// How the parent was found.
    #[serde(default)]
    pub parentage: Parentage,
    /// Who called.
    pub caller: InstanceId,
    /// The node of the caller.
    #[serde(default)]
    pub caller_node: NodeId,
    /// The service that was called.
    pub callee: ServiceName,
    /// The instance that was chosen; none when the call did not get that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee_instance: Option<InstanceId>,
    /// The node of the callee's instance.
    #[serde(default)]
    pub callee_node: NodeId,
    /// The callee's port as the caller sees it.
    pub port: u16,
    /// What was spoken.
    pub wire: Wire,
    /// The method of the request; empty for a connection.
    pub method: String,
    /// The path with its query; empty for a connection.
    pub path: String,
    /// Microseconds since 1970 at the first byte from the caller.
    pub start_us: u64,
    /// Microseconds until the last byte of the answer was given to the caller.
    pub duration_us: u64,
    /// Microseconds from the start until the first byte of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Bytes of the request's body, or from the caller of a connection.
    pub request_bytes: u64,
    /// Bytes of the answer's body, or to the caller of a connection.
    pub response_bytes: u64,
    /// The HTTP status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The gRPC status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// Why the call did not end as it should.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<CallError>,
    /// Rules that touched the call, by their numbers in the wiring.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<u32>,
    /// The name by which the call is known in every run, where calls are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetId>,
    /// Headers and bodies, when these are recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<Payload>>,
}

impl Span {
    /// Whether the call failed: an error of its own, a status of 500 and above, or a gRPC status but 0.
    pub fn failed(&self) -> bool {
        self.error.is_some()
            || self.status.is_some_and(|s| s >= 500)
            || self.grpc_status.is_some_and(|s| s != 0)
    }

    /// Method and path without the query, for people.
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
    /// The call came without context and nothing was in flight: it starts a trace.
    #[default]
    Root,
    /// The caller handed on the context.
    Propagated,
    /// The caller handled just one request at that time, so the call must belong to it.
    Inferred,
    /// The caller handled several requests and handed on nothing.
    Unknown,
}

/// What was spoken on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// HTTP/1.0 or 1.1.
    Http1,
    /// HTTP/2, gRPC included.
    Http2,
    /// A WebSocket, from its upgrade to its end.
    WebSocket,
    /// Bytes.
    Tcp,
    /// TLS that was passed through.
    Tls,
}

/// Headers and bodies of a call, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// Headers of the request, in their order; values are text, other bytes replaced.
    pub request_headers: Vec<(String, String)>,
    /// Headers of the answer.
    pub response_headers: Vec<(String, String)>,
    /// The first bytes of the request's body.
    #[serde(default, with = "bytes_as_base64")]
    pub request_body: Vec<u8>,
    /// The first bytes of the answer's body.
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
