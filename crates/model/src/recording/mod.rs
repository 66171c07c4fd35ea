//! A recording: the requests that reached an application from outside, with the answers they got.
//!
//! It is computed from the calls of a trace or of a run. What callers outside sent can be sent again; what services
//! called in turn follows from it.

mod from_reports;
mod mapping;
mod mocks;
mod outcome_sampler;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use from_reports::calls_from_reports;
pub use mapping::ValueMap;
pub use mocks::{
    AskedCall, MatchedAnswer, MatchedBy, MissReason, MockBook, MockMiss, NearestCall, RecordedCall,
};
pub use outcome_sampler::OutcomeSampler;

use crate::call_error::CallError;
use crate::ids::{ServiceName, SpanId, TraceId};
use crate::secrets::REDACTED;
use crate::span::{Span, Wire};

/// A request from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The trace that it started.
    pub trace: TraceId,
    /// Its call.
    pub span: SpanId,
    /// The service that was called.
    pub callee: ServiceName,
    /// The port of the service.
    pub port: u16,
    /// The protocol.
    pub wire: Wire,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// All headers that may be sent again: none of the connection, of its length or of tracing.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// When it was sent, in microseconds since 1970.
    pub start_us: u64,
    /// Until the answer was there.
    pub duration_us: u64,
    /// The answer.
    pub answer: Answer,
}

impl RecordedRequest {
    /// When the answer was there, in microseconds since 1970.
    pub fn end_us(&self) -> u64 {
        self.start_us.saturating_add(self.duration_us)
    }

    /// Callee, method and path without the query: `order POST /orders`.
    pub fn operation(&self) -> String {
        format!("{} {} {}", self.callee, self.method, self.path.split('?').next().unwrap_or_default())
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The HTTP status; none if there was no answer.
    pub status: Option<u16>,
    /// The gRPC status.
    pub grpc_status: Option<u16>,
    /// Why the call did not complete normally.
    pub error: Option<CallError>,
    /// Headers, and behind them trailers.
    pub headers: Vec<(String, String)>,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// The size of the body.
    pub bytes: u64,
    /// The body as JSON, where it is a message of gRPC that could be decoded.
    pub decoded: Option<String>,
}

impl Answer {
    /// Whether all of the body is there.
    pub fn is_whole(&self) -> bool {
        self.body.len() as u64 == self.bytes
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Requests that can be sent again, in the order of their start.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recording {
    /// The requests.
    pub requests: Vec<RecordedRequest>,
    /// Calls from outside that cannot be sent again.
    pub left_out: Vec<LeftOut>,
    /// Calls of services to what is no service of the application: their answers take its place.
    pub outgoing: Vec<RecordedCall>,
}

/// A call from outside that cannot be sent again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The trace.
    pub trace: TraceId,
    /// What was called.
    pub operation: String,
    /// Why it is left out.
    #[serde(flatten)]
    pub reason: LeftOutReason,
}

/// Why a call cannot be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum LeftOutReason {
    /// Its protocol has no requests that the mesh reads.
    NotHttp,
    /// Only its timing was recorded.
    NoPayload,
    /// Only the beginning of the request's body was recorded.
    CutRequest {
        /// Bytes that were recorded.
        recorded: u64,
        /// The size of the body.
        size: u64,
    },
    /// It began before the recording.
    Continued,
    /// A secret in it was discarded.
    DiscardedSecret,
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp => f.write_str("is not HTTP"),
            Self::NoPayload => f.write_str("was recorded without headers and bodies"),
            Self::CutRequest { recorded, size } => {
                write!(f, "has a body of {size} bytes, of which {recorded} were recorded")
            }
            Self::Continued => f.write_str("began before the recording"),
            Self::DiscardedSecret => f.write_str("holds a secret that was discarded"),
        }
    }
}

impl Recording {
    /// The requests among calls: those of callers that are no service of the application; and what its services called
    /// outside of it. Secrets must be restored.
    pub fn from_calls(
        calls: impl IntoIterator<Item = Span>,
        is_service: impl Fn(&ServiceName) -> bool,
    ) -> Self {
        let mut recording = Self::default();
        for call in calls {
            if !call.is_traffic() {
                continue;
            }
            match (is_service(&call.caller.service), is_service(&call.callee)) {
                (false, true) => {}
                (true, false) => {
                    recording.outgoing.push(RecordedCall::from_call(call));
                    continue;
                }
                (true, true) | (false, false) => continue,
            }
            let (trace, operation) = (call.trace, format!("{} {}", call.callee, call.operation()));
            match request_of(call) {
                Ok(request) => recording.requests.push(request),
                Err(reason) => recording.left_out.push(LeftOut { trace, operation, reason }),
            }
        }
        recording.requests.sort_by_key(|request| (request.start_us, request.span));
        recording
    }
}

fn request_of(call: Span) -> Result<RecordedRequest, LeftOutReason> {
    if !matches!(call.wire, Wire::Http1 | Wire::Http2) {
        return Err(LeftOutReason::NotHttp);
    }
    if call.extent.continued {
        return Err(LeftOutReason::Continued);
    }
    let payload = *call.payload.ok_or(LeftOutReason::NoPayload)?;
    let recorded = payload.request_body.len() as u64;
    if recorded != call.request_bytes {
        return Err(LeftOutReason::CutRequest { recorded, size: call.request_bytes });
    }
    let is_redacted = |(_, value): &(String, String)| value == REDACTED;
    if payload.request_headers.iter().any(is_redacted) || payload.request_body == REDACTED.as_bytes() {
        return Err(LeftOutReason::DiscardedSecret);
    }
    let decoded = payload.decoded.and_then(|bodies| bodies.response).map(|body| body.to_string());
    Ok(RecordedRequest {
        trace: call.trace,
        span: call.id,
        callee: call.callee,
        port: call.port,
        wire: call.wire,
        method: call.method,
        path: call.path,
        headers: payload.request_headers.into_iter().filter(|(name, _)| may_be_sent_again(name)).collect(),
        body: payload.request_body,
        start_us: call.start_us,
        duration_us: call.duration_us,
        answer: Answer {
            status: call.status,
            grpc_status: call.grpc_status,
            error: call.error,
            headers: payload.response_headers,
            body: payload.response_body,
            bytes: call.response_bytes,
            decoded,
        },
    })
}

/// Whether a header of a request belongs to the request, not to its connection or its trace.
fn may_be_sent_again(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_tracing =
        matches!(name.as_str(), "traceparent" | "tracestate" | "b3") || name.starts_with("x-b3-");
    let is_connection = matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "content-length"
            | "upgrade"
            | "expect"
    );
    !is_tracing && !is_connection && !name.starts_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Payload;

    fn call(caller: &str, callee: &str, start_us: u64) -> Span {
        let json = serde_json::json!({
            "trace": "1", "id": format!("{start_us:x}"), "caller": caller, "callee": callee, "port": 80,
            "wire": "http1", "method": "POST", "path": "/orders?all=1", "start_us": start_us, "duration_us": 5,
            "request_bytes": 2, "response_bytes": 10, "status": 200,
        });
        let mut span: Span = serde_json::from_value(json).unwrap();
        let header = |name: &str| (name.to_owned(), "x".to_owned());
        span.payload = Some(Box::new(Payload {
            request_headers: ["Accept", "Traceparent", "X-B3-TraceId", "Content-Length", "Host"]
                .map(header)
                .to_vec(),
            request_body: b"{}".to_vec(),
            ..Payload::default()
        }));
        span
    }

    #[test]
    fn requests_from_outside_are_kept_in_their_order() {
        let is_service = |name: &ServiceName| ["order", "stock"].contains(&name.as_str());
        let calls = [call("test-1", "order", 9), call("order-1", "stock", 3), call("user-1", "stock", 2)];
        let recording = Recording::from_calls(calls, is_service);
        let starts: Vec<_> = recording.requests.iter().map(|request| request.start_us).collect();
        assert_eq!(starts, [2, 9]);
        let first = &recording.requests[0];
        assert_eq!(
            first.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["Accept", "Host"]
        );
        assert_eq!(first.operation(), "stock POST /orders");
        assert!(!first.answer.is_whole());
    }

    #[test]
    fn calls_to_others_are_kept_for_mocks() {
        let calls = [call("order-1", "pay", 3), call("test-1", "pay", 4), call("pay-1", "order", 5)];
        let recording = Recording::from_calls(calls, |name| name.as_str() == "order");
        assert_eq!(recording.outgoing.iter().map(|call| call.start_us).collect::<Vec<_>>(), [3]);
        assert_eq!(recording.requests.len(), 1, "what a third party calls back is sent again");
    }

    #[test]
    fn what_cannot_be_sent_again_says_why() {
        let changed = |change: fn(&mut Span)| {
            let mut span = call("test-1", "order", 1);
            change(&mut span);
            let recording = Recording::from_calls([span], |name| name.as_str() == "order");
            assert!(recording.requests.is_empty());
            recording.left_out[0].reason
        };
        assert_eq!(changed(|span| span.wire = Wire::Tcp), LeftOutReason::NotHttp);
        assert_eq!(changed(|span| span.payload = None), LeftOutReason::NoPayload);
        assert_eq!(changed(|span| span.extent.continued = true), LeftOutReason::Continued);
        let cut = LeftOutReason::CutRequest { recorded: 2, size: 9000 };
        assert_eq!(changed(|span| span.request_bytes = 9000), cut);
        assert_eq!(cut.to_string(), "has a body of 9000 bytes, of which 2 were recorded");
        let hide = |span: &mut Span| {
            let payload = span.payload.as_deref_mut().unwrap();
            payload.request_headers.push(("Authorization".into(), REDACTED.into()));
        };
        assert_eq!(changed(hide), LeftOutReason::DiscardedSecret);
    }
}
