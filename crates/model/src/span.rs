//! What the mesh recorded of one call.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::call_error::CallError;
use crate::grpc::{self, BodySide, DecodedBody, Descriptors, GrpcCode};
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
    /// Whether the call reaches over the beginning or the end of its trial.
    #[serde(default, skip_serializing_if = "Extent::is_whole")]
    pub extent: Extent,
    /// Headers and bodies, if these are recorded; never the bytes of a connection that is not HTTP.
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

    /// How the call ended, in the words of its protocol, the same in every run: `503`, `UNAVAILABLE`,
    /// `reset by callee`; empty for a connection that just ended.
    pub fn describe_status(&self) -> String {
        let grpc = self.grpc_status.map(GrpcCode);
        // A gRPC call has a good HTTP status however it ended, so that says nothing.
        let status = self.status.filter(|status| grpc.is_none() || !(200..300).contains(status));
        let words = [
            status.map(|status| status.to_string()),
            grpc.map(|code| code.to_string()),
            self.error.as_ref().map(ToString::to_string),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// The same with the message of a failed gRPC call: `UNAVAILABLE: no stock`.
    pub fn describe_failure(&self) -> String {
        let mut text = self.describe_status();
        if let Some(message) = self.grpc_message() {
            text.push_str(": ");
            text.push_str(&message);
        }
        text
    }

    /// The same with what else a reader of one call wants to know: the message of gRPC, and whether the call reaches
    /// over the bounds of its trial.
    pub fn describe_ending(&self) -> String {
        let mut text = self.describe_failure();
        if !self.extent.is_whole() {
            let words = match (self.extent.continued, self.extent.open) {
                (true, true) => "continued, still open at the end",
                (true, false) => "continued",
                (false, _) => "still open at the end",
            };
            let gap = if text.is_empty() { "" } else { " " };
            text.push_str(&format!("{gap}({words})"));
        }
        text
    }

    /// What the callee said about a failed gRPC call, where payload was recorded.
    pub fn grpc_message(&self) -> Option<String> {
        self.grpc_status.filter(|code| *code != 0)?;
        let headers = &self.payload.as_ref()?.response_headers;
        // Trailers stand behind headers, and the last word counts.
        let (_, value) = headers.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case("grpc-message"))?;
        Some(grpc::decode_message(value)).filter(|message| !message.is_empty())
    }

    /// Decodes the bodies of a gRPC call, for those who read them. What was decoded before stays.
    pub fn decode_bodies(&mut self, descriptors: &Descriptors) {
        if self.payload.as_deref().is_none_or(|payload| payload.decoded.is_some()) || !grpc::is_grpc(self) {
            return;
        }
        let decoded = DecodedBodies {
            request: grpc::decode_body(self, BodySide::Request, descriptors),
            response: grpc::decode_body(self, BodySide::Response, descriptors),
        };
        if let Some(payload) = self.payload.as_deref_mut() {
            payload.decoded = Some(Box::new(decoded)).filter(|decoded| **decoded != DecodedBodies::default());
        }
    }

    /// What is recorded of the request, as text: the messages of gRPC as JSON if they were decoded.
    pub fn request_text(&self) -> Option<Cow<'_, str>> {
        self.payload.as_deref().map(|payload| payload.text(BodySide::Request))
    }

    /// What is recorded of the response, as text: the messages of gRPC as JSON if they were decoded.
    pub fn response_text(&self) -> Option<Cow<'_, str>> {
        self.payload.as_deref().map(|payload| payload.text(BodySide::Response))
    }

    /// Whether something was called. A question for the address of an undeclared host is recorded, but is no call.
    pub fn is_traffic(&self) -> bool {
        self.error != Some(CallError::UndeclaredHost)
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

/// Whether a call reaches over the beginning or the end of its trial. Its times and bytes are those of one trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Extent {
    /// It began in an earlier trial, on a connection between instances that went on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continued: bool,
    /// It was still open when the trial ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

impl Extent {
    /// Whether the call began and ended within its trial.
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }
}

/// Finds the call that each call was made in whose parent is not among the spans: a service that traces itself hands on
/// a span of its own, which it may have reported elsewhere. The call is then taken for part of the latest call of the
/// same trace that its caller was handling.
pub fn adopt_orphans(spans: &mut [Span]) {
    let known: HashSet<SpanId> = spans.iter().map(|span| span.id).collect();
    let is_orphan = |span: &Span| span.parent.is_some_and(|parent| !known.contains(&parent));
    if !spans.iter().any(is_orphan) {
        return;
    }
    // By trace and handling instance: start, end and id of each call.
    type Handled = Vec<(u64, u64, SpanId)>;
    let mut handled: HashMap<(TraceId, InstanceId), Handled> = HashMap::new();
    for span in spans.iter() {
        if let Some(callee) = &span.callee_instance {
            let time = (span.start_us, span.start_us.saturating_add(span.duration_us), span.id);
            handled.entry((span.trace, callee.clone())).or_default().push(time);
        }
    }
    handled.values_mut().for_each(|calls| calls.sort_unstable());
    for span in spans.iter_mut().filter(|span| is_orphan(span)) {
        let Some(calls) = handled.get(&(span.trace, span.caller.clone())) else { continue };
        let before = calls.partition_point(|(start, ..)| *start <= span.start_us);
        let open = calls[..before].iter().rev().take(MAX_HANDLED);
        let found = open.into_iter().find(|(_, end, id)| *end >= span.start_us && *id != span.id);
        if let Some((.., id)) = found {
            // Its caller did propagate the context: `parentage` stays.
            span.parent = Some(*id);
        }
    }
}

/// Requests of one trace among which the one is looked for that an instance was handling at a moment.
const MAX_HANDLED: usize = 256;

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

impl Wire {
    /// Whether a call can carry trace context. A connection of another protocol cannot, and a pool may have opened it
    /// long before the request that uses it.
    pub fn carries_headers(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2 | Self::WebSocket)
    }

    /// Whether bytes are carried without being read as requests. They begin with a log-in more often than not, so none
    /// of them is ever recorded.
    pub fn is_opaque(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls | Self::WebSocket)
    }
}

/// Headers and bodies of a call, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Payload {
    /// Headers of the request, in order; bytes that are not UTF-8 are replaced.
    pub request_headers: Vec<(String, String)>,
    /// Headers of the answer, and behind them its trailers.
    pub response_headers: Vec<(String, String)>,
    /// The beginning of the request body; for a connection to Redis, the names of its commands.
    #[serde(default, with = "bytes_as_base64")]
    pub request_body: Vec<u8>,
    /// The beginning of the response body.
    #[serde(default, with = "bytes_as_base64")]
    pub response_body: Vec<u8>,
    /// The bodies of a gRPC call, where someone has decoded them. Not stored: descriptors may become known later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoded: Option<Box<DecodedBodies>>,
}

/// The bodies of a gRPC call; none where one is not what gRPC sends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DecodedBodies {
    /// That of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<DecodedBody>,
    /// That of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<DecodedBody>,
}

impl Payload {
    fn text(&self, side: BodySide) -> Cow<'_, str> {
        let decoded = self.decoded.as_deref();
        let (decoded, body) = match side {
            BodySide::Request => (decoded.and_then(|bodies| bodies.request.as_ref()), &self.request_body),
            BodySide::Response => (decoded.and_then(|bodies| bodies.response.as_ref()), &self.response_body),
        };
        match decoded {
            Some(decoded) => Cow::Owned(decoded.to_string()),
            None => String::from_utf8_lossy(body),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u64, parent: Option<u64>, (caller, callee): (&str, &str), time: (u64, u64)) -> Span {
        let json = serde_json::json!({
            "trace": "1", "id": format!("{id:x}"), "caller": caller, "callee": callee, "callee_instance": format!("{callee}-1"),
            "port": 80, "wire": "http2", "method": "POST", "path": "/pkg.Stock/Get", "start_us": time.0,
            "duration_us": time.1, "request_bytes": 0, "response_bytes": 0,
        });
        let mut span: Span = serde_json::from_value(json).unwrap();
        (span.parent, span.parentage) = (parent.map(SpanId), Parentage::Propagated);
        span
    }

    #[test]
    fn endings_are_in_the_words_of_the_protocol() {
        let mut span = call(1, None, ("web-1", "stock"), (0, 1));
        assert_eq!(span.describe_ending(), "");
        span.status = Some(200);
        assert_eq!(span.describe_status(), "200");
        span.grpc_status = Some(14);
        assert_eq!((span.describe_status().as_str(), span.failed()), ("UNAVAILABLE", true));
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let response_headers = vec![header("grpc-status", "14"), header("Grpc-Message", "no%20stock")];
        span.payload = Some(Box::new(Payload { response_headers, ..Payload::default() }));
        assert_eq!(span.describe_ending(), "UNAVAILABLE: no stock");
        assert_eq!(span.describe_status(), "UNAVAILABLE", "messages differ from run to run");
        span.status = Some(503);
        assert_eq!(span.describe_status(), "503 UNAVAILABLE");
        (span.status, span.grpc_status, span.payload) = (None, None, None);
        span.extent = Extent { continued: true, open: true };
        assert_eq!(span.describe_ending(), "(continued, still open at the end)");
    }

    #[test]
    fn orphans_are_adopted_by_the_request_that_was_handled() {
        let mut spans = [
            call(1, None, ("test-1", "front"), (0, 100)),
            call(2, Some(99), ("front-1", "back"), (10, 20)),
            // Made when its caller handled nothing, and one whose parent is there.
            call(3, Some(98), ("front-1", "back"), (200, 20)),
            call(4, Some(2), ("back-1", "db"), (11, 5)),
        ];
        adopt_orphans(&mut spans);
        let parents: Vec<_> = spans.iter().map(|span| span.parent.map(|id| id.0)).collect();
        assert_eq!(parents, [None, Some(1), Some(98), Some(2)]);
        assert_eq!(spans[1].parentage, Parentage::Propagated, "the caller handed the context on");
    }
}
