//! The languages of tracers: Zipkin v1 and v2, OpenTelemetry, Jaeger.
//!
//! Plain functions, bytes in and data out. Nothing here opens a socket, reads a clock or keeps state; all
//! input is outside data, so every size, count and depth is bounded and nothing panics. One bad span never
//! takes its batch along: decoders keep the good ones and say what was wrong with the others.
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

/// The old path of what is now in `faultscope_model::trace`.
pub mod trace {
    pub use faultscope_model::trace::{
        CallEdge, CriticalStep as Step, DependencyLink, Linker, TraceNode as Node, TraceTree as Tree,
        clock_corrections as corrections, critical_path, group_by_trace as group, has_failed as failed,
        merge_pieces as merge, trace_start_us as start_us,
    };
}

/// The old path of what is now in `faultscope_model::trace`.
pub mod mesh {
    pub use faultscope_model::trace::{is_mesh_call as is_mesh, report_call as reported};
}

#[cfg(test)]
mod tests;

use faultscope_model::trace::ReportedSpan;

pub use body::{MetricFormat, Room, SpanFormat, grpc_message, inflate, inflate_within};
pub use draft::{read_span_id, read_trace_id, zipkin_trace_id};
pub use exposition::{Asked, read_exposition};

/// How much of what comes in is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a body, after decompression.
    pub body_bytes: usize,
    /// Bytes of one span or metric as it was encoded.
    pub item_bytes: usize,
    /// Spans or metric points of one body.
    pub items: usize,
    /// Tags of a span, attributes of a point.
    pub tags: usize,
    /// Annotations or events of a span.
    pub annotations: usize,
    /// Bytes of one name, key or value; what is longer is cut.
    pub text_bytes: usize,
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
        }
    }
}

/// How many rejections are told one by one.
const TOLD: usize = 100;

/// What a body held.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch<T> {
    /// The good ones, in their order.
    pub items: Vec<T>,
    /// What was wrong with the first of the others.
    pub rejected: Vec<Rejected>,
    /// How many others there were.
    pub n_rejected: usize,
}

/// The spans of a body.
pub type Decoded = Batch<ReportedSpan>;

/// One span or metric that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its place in the body, from 0.
    pub index: usize,
    /// What was wrong with it.
    pub reason: String,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { items: Vec::new(), rejected: Vec::new(), n_rejected: 0 }
    }
}

impl<T> Batch<T> {
    /// One sentence about what was rejected, for the sender; none when all was good.
    pub fn complaint(&self) -> Option<String> {
        let first = self.rejected.first()?;
        let of = self.items.len() + self.n_rejected;
        let n = self.n_rejected;
        Some(format!("{n} of {of} were not taken; the first is number {}: {}", first.index, first.reason))
    }

    pub(crate) fn reject(&mut self, index: usize, reason: impl Into<String>) {
        self.n_rejected += 1;
        if self.rejected.len() < TOLD {
            self.rejected.push(Rejected { index, reason: reason.into() });
        }
    }

    fn take(&mut self, index: usize, item: Result<T, String>) {
        match item {
            Ok(item) => self.items.push(item),
            Err(reason) => self.reject(index, reason),
        }
    }
}

/// Why a whole body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not what its sender says it is.
    #[error("not readable as {format}: {reason}")]
    Malformed {
        /// What it was read as.
        format: &'static str,
        /// What was wrong.
        reason: String,
    },
    /// It is another version of the format than the route takes.
    #[error("expected {expected}, but received {found}")]
    WrongFormat {
        /// What the route takes.
        expected: &'static str,
        /// What it looks like.
        found: &'static str,
    },
    /// It is larger than what is taken.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it may be.
        limit: usize,
    },
    /// There is no memory for it now.
    #[error("too many large bodies are being read; try again")]
    NoRoom,
    /// Its content type or encoding is not known.
    #[error("{what} `{text}` is not taken here")]
    Unsupported {
        /// Which header says so.
        what: &'static str,
        /// What it says.
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
