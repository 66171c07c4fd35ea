//! The critical path: which span each moment of a trace was spent waiting for.
//!
//! From the end backwards: before the last child ended, the time is that child's; between children it is
//! the span's own. What a child does after its parent ended delays nobody, so it is left out.

use super::TraceTree;

/// A stretch of time that one span took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalStep {
    /// Which of the tree's spans.
    pub span: usize,
    /// Microseconds since 1970 of its begin.
    pub start_us: u64,
    /// Microseconds since 1970 of its end.
    pub end_us: u64,
}

/// The steps of the critical path, in the order of time and without gaps within the root.
///
/// Times are corrected by as many microseconds as `corrections` says for each span; none for raw times.
pub fn critical_path(tree: &TraceTree, corrections: &[i64]) -> Vec<CriticalStep> {
    let mut steps = Vec::new();
    let mut stack: Vec<Frame> = Vec::new();
    let Some(root) = tree.root else { return steps };
    let top = match times(tree, corrections, root) {
        Some((start, end)) => Some((start, end)),
        // A root that was not reported lasts as long as what is below it.
        None => {
            let children = tree.nodes[root].children.iter();
            let times: Vec<_> = children.filter_map(|child| times(tree, corrections, *child)).collect();
            let start = times.iter().map(|(start, _)| *start).min();
            start.zip(times.iter().map(|(_, end)| *end).max())
        }
    };
    let Some((start, end)) = top else { return steps };
    stack.push(Frame::new(tree, corrections, root, start, end));
    while let Some(frame) = stack.last_mut() {
        let span = tree.nodes[frame.node].span;
        let mut step = |start_us, end_us| {
            if let Some(span) = span.filter(|_| start_us < end_us) {
                steps.push(CriticalStep { span, start_us, end_us });
            }
        };
        if let Some((start, end, child)) = frame.next_child() {
            step(end, frame.cursor);
            frame.cursor = start;
            stack.push(Frame::new(tree, corrections, child, start, end));
        } else {
            step(frame.start, frame.cursor);
            stack.pop();
        }
    }
    steps.reverse();
    steps
}

/// A span that is being looked at, from its end backwards.
struct Frame {
    node: usize,
    start: u64,
    /// What is later is settled.
    cursor: u64,
    /// Children by their end, the latest last.
    children: Vec<(u64, u64, usize)>,
}

impl Frame {
    fn new(tree: &TraceTree, corrections: &[i64], node: usize, start: u64, end: u64) -> Self {
        let within = |child: &usize| {
            let (child_start, child_end) = times(tree, corrections, *child)?;
            let (child_start, child_end) = (child_start.max(start), child_end.min(end));
            (child_start < child_end).then_some((child_end, child_start, *child))
        };
        let mut children: Vec<_> = tree.nodes[node].children.iter().filter_map(within).collect();
        // Of those that end together the longest comes first.
        children.sort_by(|left, right| left.0.cmp(&right.0).then(right.1.cmp(&left.1)));
        Self { node, start, cursor: end, children }
    }

    /// The child that ended last before the cursor.
    fn next_child(&mut self) -> Option<(u64, u64, usize)> {
        while let Some((end, start, child)) = self.children.pop() {
            if end <= self.cursor {
                return Some((start, end, child));
            }
        }
        None
    }
}

/// When a node's span started and ended; none where that is not known.
fn times(tree: &TraceTree, corrections: &[i64], node: usize) -> Option<(u64, u64)> {
    let index = tree.nodes.get(node)?.span?;
    let span = tree.spans.get(index)?;
    let start = span.start_us?.saturating_add_signed(corrections.get(index).copied().unwrap_or_default());
    Some((start, start.saturating_add(span.duration_us?)))
}
