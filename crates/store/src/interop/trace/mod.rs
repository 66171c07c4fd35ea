//! What the spans of a trace mean together, by Zipkin's rules: pieces joined, a tree, clocks compared, who
//! called whom, what took the time.

mod critical;
mod links;
mod merge;
mod skew;
mod tree;

pub use critical::{Step, critical_path};
pub use links::{CallEdge, DependencyLink, Linker};
pub use merge::{group, merge};
pub use skew::corrections;
pub use tree::{Node, Tree};

use faultscope_model::trace::ReportedSpan;

/// Whether the span failed: by its status, or by a tag `error` with any text but `false`.
pub fn failed(span: &ReportedSpan) -> bool {
    span.failed || span.tag("error").is_some_and(|error| error != "false")
}

/// When a trace started: its root's start, or else the earliest; none when no span has a start.
pub fn start_us(spans: &[ReportedSpan]) -> Option<u64> {
    let mut earliest: Option<u64> = None;
    for span in spans {
        let Some(start) = span.start_us else { continue };
        if span.parent.is_none() {
            return Some(start);
        }
        earliest = Some(earliest.map_or(start, |earliest| earliest.min(start)));
    }
    earliest
}
