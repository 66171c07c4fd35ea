//! The memory of traces while they are read: each is bounded, and all queries share one budget.

use faultscope_model::trace::ReportedSpan;

use crate::budget::{Budget, Hold};
use crate::weight::weigh_span;

/// The most bytes of one trace in memory. Later spans are left out, and the last one says so. An ordinary span takes
/// one to two KiB.
const MAX_TRACE_BYTES: usize = 48 << 20;

/// The tag of the last span of a trace that was cut.
const CUT: &str = "faultscope.cut";

/// The memory that a query may take for traces.
#[derive(Debug)]
pub(crate) struct TraceMemory {
    hold: Hold,
    /// How many copies of a trace its answer needs.
    copies: usize,
    /// Bytes of traces that are kept until the answer.
    kept: usize,
}

/// The spans of one trace while they are read.
#[derive(Debug)]
pub(super) struct TraceSpans<'m> {
    memory: &'m mut TraceMemory,
    spans: Vec<ReportedSpan>,
    bytes: usize,
    full: Option<Full>,
}

/// Why no more spans are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    /// The trace is too large.
    TooLarge,
    /// Other queries have the memory.
    NoRoom,
}

/// Other queries have the memory.
#[derive(Debug)]
pub(super) struct NoRoom;

impl TraceMemory {
    pub(crate) fn new(budget: &Budget, copies: usize) -> Self {
        Self { hold: budget.hold_nothing(), copies, kept: 0 }
    }

    /// For readers of their own process.
    pub(super) fn unlimited() -> Self {
        Self::new(&Budget::new(usize::MAX), 1)
    }

    /// Begins to read a trace. The one before is gone, or was kept.
    pub(super) fn begin(&mut self) -> TraceSpans<'_> {
        self.hold.shrink_to(self.kept);
        TraceSpans { memory: self, spans: Vec::new(), bytes: 0, full: None }
    }

    /// Bytes of traces that are kept, instead of those before.
    pub(super) fn keep(&mut self, bytes: usize) {
        // What is kept was held while it was read.
        self.kept = bytes.min(self.hold.bytes());
    }
}

impl TraceSpans<'_> {
    /// Adds a span; false if no more are wanted.
    pub(super) fn add(&mut self, span: ReportedSpan) -> bool {
        if self.full.is_some() {
            return false;
        }
        let bytes = weigh_span(&span);
        if self.bytes + bytes > MAX_TRACE_BYTES && !self.spans.is_empty() {
            self.full = Some(Full::TooLarge);
            return false;
        }
        if !self.memory.hold.grow(bytes.saturating_mul(self.memory.copies)) {
            self.full = Some(Full::NoRoom);
            return false;
        }
        self.bytes += bytes;
        self.spans.push(span);
        true
    }

    /// The spans, as far as they fit.
    pub(super) fn finish(mut self) -> Result<Vec<ReportedSpan>, NoRoom> {
        match self.full {
            Some(Full::NoRoom) => return Err(NoRoom),
            Some(Full::TooLarge) => {
                let n = self.spans.len();
                if let Some(last) = self.spans.last_mut() {
                    let text =
                        format!("the trace has more spans than fit into an answer; these are the first {n}");
                    last.tags.push((CUT.to_owned(), text));
                }
            }
            None => {}
        }
        Ok(self.spans)
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::{SpanId, TraceId};

    use super::*;

    fn span(id: u64, bytes: usize) -> ReportedSpan {
        let mut span = ReportedSpan::new(TraceId(7), SpanId(id));
        span.tags.push(("text".into(), "x".repeat(bytes)));
        span
    }

    #[test]
    fn a_trace_that_is_too_large_is_cut_and_says_so() {
        let mut memory = TraceMemory::unlimited();
        let mut trace = memory.begin();
        let added = (1..=60).filter(|id| trace.add(span(*id, 1 << 20))).count();
        assert!((40..48).contains(&added), "{added}");
        let spans = trace.finish().unwrap();
        assert_eq!(spans.len(), added);
        assert!(spans.last().unwrap().tag(CUT).unwrap().ends_with(&format!("first {added}")));
        let mut small = memory.begin();
        assert!(small.add(span(1, 10)));
        assert_eq!(small.finish().unwrap().last().unwrap().tag(CUT), None);
    }

    #[test]
    fn queries_share_one_budget_and_give_it_back() {
        let budget = Budget::new(8 << 20);
        let (mut first, mut second) = (TraceMemory::new(&budget, 2), TraceMemory::new(&budget, 1));
        let mut trace = first.begin();
        assert!(trace.add(span(1, 3 << 20)), "it counts twice");
        assert_eq!(trace.finish().unwrap().len(), 1);
        let mut other = second.begin();
        assert!(!other.add(span(1, 3 << 20)));
        assert!(other.finish().is_err());
        first.begin().finish().unwrap();
        let mut other = second.begin();
        assert!(other.add(span(1, 3 << 20)), "the first trace is gone");
    }
}
