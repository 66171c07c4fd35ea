//! The wire formats of tracers: Zipkin v1 and v2, OpenTelemetry, Jaeger.
//!
//! Plain functions, bytes in and data out. Nothing here opens a socket, reads a clock or keeps state; all
//! input is outside data, so every size, count and depth is bounded and nothing panics. One bad span does not
//! spoil its batch: decoders keep the good ones and report what was wrong with the others.
//!
//! ```text
//! body -> inflate -> SpanFormat::decode -> Decoded{spans, rejected}     what came in
//! spans -> faultscope_model::trace                                      what it means
//! query::{zipkin, jaeger} -> TraceQuery -> query::matches               what is asked
//! spans -> zipkin::{to_json, to_proto}, otlp::{..}, jaeger::{..}        what goes out
//! ```

mod body;
pub mod decoders;
mod draft;
mod exposition;
mod json;
mod protobuf;

pub mod jaeger;
pub mod otlp;
pub mod query;
pub mod zipkin;

#[cfg(test)]
mod tests;

use faultscope_model::trace::ReportedSpan;

use crate::weight::weigh_span;

pub use body::{MetricFormat, Room, SpanFormat, grpc_message, inflate, inflate_within};
pub use draft::{read_span_id, read_trace_id, zipkin_trace_id};
pub use exposition::{ScrapeSource, read_exposition};

/// Limits of received bodies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a body, after decompression.
    pub body_bytes: usize,
    /// The most bytes of one encoded span or metric.
    pub item_bytes: usize,
    /// The most spans or metric points of one body.
    pub items: usize,
    /// The most tags of a span, or attributes of a point.
    pub tags: usize,
    /// The most annotations or events of a span.
    pub annotations: usize,
    /// The most bytes of one name, key or value; longer ones are cut.
    pub text_bytes: usize,
    /// The most bytes that what is decoded from one body may take in memory. A resource is sent once but belongs to
    /// each of its spans, so this can be much more than the body.
    pub decoded_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            item_bytes: 1 << 20,
            items: 100_000,
            tags: 1_024,
            annotations: 1_024,
            text_bytes: 256 << 10,
            decoded_bytes: 64 << 20,
        }
    }
}

/// How many rejections are listed with their reasons.
const MAX_REJECTIONS: usize = 100;

/// The content of a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<T> {
    /// The valid items, in order.
    pub items: Vec<T>,
    /// The first rejected items.
    pub rejected: Vec<Rejected>,
    /// The number of rejected items.
    pub n_rejected: usize,
    /// About how many bytes the items take in memory.
    pub bytes: usize,
}

/// What a decoder yields: its memory is counted as it is gathered.
pub trait Weigh {
    /// About how many bytes it takes in memory.
    fn weigh(&self) -> usize;
}

impl Weigh for ReportedSpan {
    fn weigh(&self) -> usize {
        weigh_span(self)
    }
}

/// The spans of a body.
pub type Decoded = Batch<ReportedSpan>;

/// A rejected span or metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its index in the body.
    pub index: usize,
    /// What was wrong with it.
    pub reason: String,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { items: Vec::new(), rejected: Vec::new(), n_rejected: 0, bytes: 0 }
    }
}

impl<T> Batch<T> {
    /// A message for the sender about rejected items; none if all were valid.
    pub fn complaint(&self) -> Option<String> {
        let first = self.rejected.first()?;
        let of = self.items.len() + self.n_rejected;
        let n = self.n_rejected;
        Some(format!("{n} of {of} were rejected; the first is number {}: {}", first.index, first.reason))
    }

    pub(crate) fn reject(&mut self, index: usize, reason: impl Into<String>) {
        self.n_rejected += 1;
        if self.rejected.len() < MAX_REJECTIONS {
            self.rejected.push(Rejected { index, reason: reason.into() });
        }
    }

    /// Counts memory; an error if all of it together is too much.
    fn count_bytes(&mut self, bytes: usize, limits: &Limits) -> Result<(), DecodeError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > limits.decoded_bytes {
            let limit = limits.decoded_bytes;
            return Err(DecodeError::TooLarge { what: "what the body holds when decoded", limit });
        }
        Ok(())
    }
}

impl<T: Weigh> Batch<T> {
    /// Adds a valid item, or the reason why there is none.
    fn add(&mut self, index: usize, item: Result<T, String>, limits: &Limits) -> Result<(), DecodeError> {
        match item {
            Ok(item) => {
                self.count_bytes(item.weigh(), limits)?;
                self.items.push(item);
            }
            Err(reason) => self.reject(index, reason),
        }
        Ok(())
    }
}

/// Why a whole body was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It does not have the format that its sender claims.
    #[error("not readable as {format}: {reason}")]
    Malformed {
        /// The expected format.
        format: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// It has another version of the format than the route accepts.
    #[error("expected {expected}, but received {found}")]
    WrongFormat {
        /// What the route accepts.
        expected: &'static str,
        /// What was detected.
        found: &'static str,
    },
    /// It exceeds a limit.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// There is not enough memory for it at the moment.
    #[error("too many large bodies are being read; try again")]
    NoRoom,
    /// Its content type or encoding is not supported.
    #[error("{what} `{text}` is not supported")]
    Unsupported {
        /// The header.
        what: &'static str,
        /// Its value.
        text: String,
    },
}

impl DecodeError {
    /// The HTTP status to answer with.
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed { .. } | Self::WrongFormat { .. } => 400,
            Self::TooLarge { .. } => 413,
            Self::NoRoom => 429,
            Self::Unsupported { .. } => 415,
        }
    }

    fn malformed(format: &'static str, reason: impl Into<String>) -> Self {
        Self::Malformed { format, reason: reason.into() }
    }
}
