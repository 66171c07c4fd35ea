//! The calls of a run as trees: each call below the one in whose handling it was made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::{Span, SpanId, TraceId};
use serde::Serialize;

use super::span_metrics::{MetricsJoin, SpanMetrics};

/// Deeper calls are left out: a cycle in damaged data must not be drawn for ever.
const MAX_DEPTH: usize = 64;

/// One trace of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallTree {
    /// The trace.
    pub trace: TraceId,
    /// Number of calls.
    pub calls: usize,
    /// Whether any of them failed.
    pub failed: bool,
    /// The start of the first call in microseconds since 1970.
    pub start_us: u64,
    /// From there to the end of the last call.
    pub duration_us: u64,
    /// The calls, parents before their children.
    pub rows: Vec<TreeRow>,
}

/// A row of a call tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TreeRow {
    /// Index into the spans from which the trees were built.
    pub call: usize,
    /// The number of its ancestors.
    pub depth: usize,
    /// Whether it is the last child of its parent.
    pub is_last: bool,
    /// Metrics of the called instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<SpanMetrics>,
}

/// All traces as trees: failing ones first, then larger ones.
pub fn call_trees(spans: &[Span], metrics: &MetricsJoin) -> Vec<CallTree> {
    let mut traces: BTreeMap<TraceId, Vec<usize>> = BTreeMap::new();
    for (place, span) in spans.iter().enumerate() {
        traces.entry(span.trace).or_default().push(place);
    }
    let mut trees: Vec<_> =
        traces.into_iter().map(|(trace, places)| grow(trace, spans, &places, metrics)).collect();
    trees.sort_by_key(|tree| (Reverse((tree.failed, tree.calls)), tree.trace));
    trees
}

fn grow(trace: TraceId, spans: &[Span], places: &[usize], metrics: &MetricsJoin) -> CallTree {
    let calls = || places.iter().map(|place| &spans[*place]);
    let start_us = calls().map(|call| call.start_us).min().unwrap_or_default();
    let end_us = calls().map(|call| call.start_us.saturating_add(call.duration_us)).max().unwrap_or_default();
    let recorded: BTreeSet<SpanId> = calls().map(|call| call.id).collect();
    let mut children: BTreeMap<Option<SpanId>, Vec<usize>> = BTreeMap::new();
    for place in places {
        // A parent that was not recorded makes the call a root.
        let parent = spans[*place].parent.filter(|parent| recorded.contains(parent));
        children.entry(parent).or_default().push(*place);
    }
    children
        .values_mut()
        .for_each(|list| list.sort_by_key(|place| (spans[*place].start_us, spans[*place].id)));
    let mut rows = Vec::new();
    let mut stack: Vec<TreeRow> = Vec::new();
    push_children(&mut stack, children.get(&None), 0);
    while let Some(mut row) = stack.pop() {
        let call = &spans[row.call];
        if row.depth <= MAX_DEPTH {
            push_children(&mut stack, children.get(&Some(call.id)), row.depth + 1);
        }
        row.known = metrics.of_call(call);
        rows.push(row);
    }
    let failed = calls().any(Span::failed);
    // Looking up a host that is not declared is recorded, but calls nobody.
    let n_calls = calls().filter(|call| call.is_traffic()).count();
    CallTree { trace, calls: n_calls, failed, start_us, duration_us: end_us - start_us, rows }
}

/// Pushes in reverse, since a stack returns the last one first.
fn push_children(stack: &mut Vec<TreeRow>, children: Option<&Vec<usize>>, depth: usize) {
    let children = children.map(Vec::as_slice).unwrap_or_default();
    for (index, call) in children.iter().enumerate().rev() {
        stack.push(TreeRow { call: *call, depth, is_last: index + 1 == children.len(), known: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::span;

    fn call(trace: u128, id: u64, parent: Option<u64>, start_us: u64) -> Span {
        Span { trace: TraceId(trace), id: SpanId(id), parent: parent.map(SpanId), start_us, ..span() }
    }

    fn rows(tree: &CallTree) -> Vec<(usize, usize, bool)> {
        tree.rows.iter().map(|row| (row.call, row.depth, row.is_last)).collect()
    }

    #[test]
    fn calls_lie_under_the_one_they_were_made_in() {
        // By place: the second child, the root, a call whose parent nobody recorded, a grandchild, the first child.
        let spans = [
            call(1, 2, Some(1), 30),
            call(1, 1, None, 10),
            call(1, 9, Some(77), 40),
            call(1, 4, Some(3), 25),
            call(1, 3, Some(1), 20),
        ];
        let trees = call_trees(&spans, &MetricsJoin::default());
        assert_eq!(rows(&trees[0]), [(1, 0, false), (4, 1, false), (3, 2, true), (0, 1, true), (2, 0, true)]);
        assert_eq!((trees[0].start_us, trees[0].duration_us, trees[0].calls), (10, 31, 5));
    }

    #[test]
    fn failing_traces_come_first_then_larger_ones() {
        let failing = Span { status: Some(503), ..call(3, 1, None, 0) };
        let spans = [call(1, 1, None, 0), call(2, 1, None, 0), call(2, 2, Some(1), 1), failing];
        let order: Vec<_> =
            call_trees(&spans, &MetricsJoin::default()).iter().map(|tree| tree.trace.0).collect();
        assert_eq!(order, [3, 2, 1]);
    }

    #[test]
    fn a_circle_of_damaged_ids_ends() {
        // Two calls of one id, the second one its own parent.
        let spans = [call(1, 1, None, 0), call(1, 1, Some(1), 1)];
        let trees = call_trees(&spans, &MetricsJoin::default());
        assert_eq!(trees[0].rows.len(), MAX_DEPTH + 2);
    }
}
