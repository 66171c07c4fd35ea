//! Traces: what instrumented services report, what the mesh records, and how both are joined.
//!
//! The rules are Zipkin's, because its reporters are what most services have: a span may come in pieces, and
//! the two sides of a call may share one id.
//!
//! ```text
//! Span -> report_call ----v
//! ReportedSpan -> group_by_trace -> TraceTree -> clock_corrections -> critical_path
//!                                            \-> Linker -> DependencyLink, CallEdge
//! ```
//!
//! Nothing here reads or writes a format on the wire: `faultscope-store` decodes and stores spans.

mod clock_skew;
mod critical_path;
mod dependencies;
mod merge;
mod mesh_call;
mod query;
mod reported;
mod tree;

#[cfg(test)]
mod tests;

pub use clock_skew::clock_corrections;
pub use critical_path::{CriticalStep, critical_path};
pub use dependencies::{CallEdge, DependencyLink, Linker};
pub use merge::{group_by_trace, merge_pieces};
pub use mesh_call::{is_mesh_call, report_call};
pub use query::TraceQuery;
pub use reported::{Endpoint, INSTANCE_TAG, ReportedSpan, SpanKind};
pub use tree::{TraceNode, TraceTree, separate_shared_ids};

/// Whether the span failed: by its status, or by a tag `error` other than `false`.
pub fn has_failed(span: &ReportedSpan) -> bool {
    span.failed || span.tag("error").is_some_and(|error| error != "false")
}

/// The start of a trace: that of its root, or else the earliest; none if no span has a start.
pub fn trace_start_us(spans: &[ReportedSpan]) -> Option<u64> {
    let earliest = |is_wanted: &dyn Fn(&&ReportedSpan) -> bool| {
        spans.iter().filter(is_wanted).filter_map(|span| span.start_us).min()
    };
    // A server that shares its client's id may miss the parent and come first.
    earliest(&|span| span.parent.is_none() && !span.shared)
        .or_else(|| earliest(&|span| span.parent.is_none()))
        .or_else(|| earliest(&|_| true))
}
