//! Answers in the place of services that are not there. What these are is up to the owner of the slot; what is not
//! answered by it is answered with an error, and nothing is ever dialled for it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use faultscope_model::span::Wire;
use faultscope_model::{ServiceName, TraceId};

/// The bytes of a request's body that are looked at; what is beyond is read and left.
pub(crate) const MAX_REQUEST: usize = 16 << 20;

/// Stands for services that are not there.
pub trait Mocks: fmt::Debug + Send + Sync {
    /// Whether calls to this service are answered here. Stays the same for as long as it is used.
    fn stands_for(&self, callee: &ServiceName) -> bool;

    /// The reply to a request; called on a worker thread, so it must not block.
    fn reply(&self, request: &MockRequest<'_>) -> MockReply;

    /// Notes a connection whose requests cannot be read: it is reset.
    fn refuse_connection(&self, callee: &ServiceName);
}

/// A request to a service that is not there.
#[derive(Debug, Clone, Copy)]
pub struct MockRequest<'a> {
    /// The trace that it is part of.
    pub trace: TraceId,
    /// The service that is called.
    pub callee: &'a ServiceName,
    /// The protocol.
    pub wire: Wire,
    /// Whether it is a call of gRPC.
    pub is_grpc: bool,
    /// Whether it is an exporter's report to a collector.
    pub is_export: bool,
    /// The method.
    pub method: &'a str,
    /// The path with its query.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// How a request is replied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MockReply {
    /// By this answer.
    Answer(MockAnswer),
    /// The connection or stream is reset.
    Reset,
    /// There is no answer: this says so.
    Miss(MockAnswer),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MockAnswer {
    /// The time until it begins.
    pub after: Duration,
    /// The HTTP status.
    pub status: u16,
    /// The headers; those of the connection and of its length are left out.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The trailers; only HTTP/2 sends them.
    pub trailers: Vec<(String, String)>,
}

impl MockAnswer {
    /// The headers that belong to the answer, not to the connection on which it was recorded.
    pub(crate) fn own_headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.headers.iter().filter(|(name, _)| {
            let name = name.to_ascii_lowercase();
            let is_connection = matches!(
                name.as_str(),
                "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
            );
            !is_connection && name != "content-length" && !name.starts_with(':')
        });
        own.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The length that the answer to a HEAD request speaks of.
    pub(crate) fn declared_length(&self) -> Option<&str> {
        let length = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        length.map(|(_, value)| value.as_str())
    }

    pub(crate) fn grpc_status(&self) -> Option<u16> {
        let mut all = self.trailers.iter().chain(&self.headers);
        let (_, value) = all.find(|(name, _)| name.eq_ignore_ascii_case("grpc-status"))?;
        value.trim().parse().ok()
    }
}
