//! The critical path: which span a trace was waiting for at each moment.
//!
//! Walks backwards from the end: the time until the last child ended belongs to that child, the time between
//! children to the span itself. A child that outlives its parent delays nobody, so that part is left out.

use super::TraceTree;

/// A period of the critical path during which one span was running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CriticalStep {
    /// Index into the spans of the tree.
    pub span: usize,
    /// Begin in microseconds since 1970.
    pub start_us: u64,
    /// End in microseconds since 1970.
    pub end_us: u64,
}

/// The steps of the critical path in chronological order, without gaps within the root.
///
/// `corrections` are added to the times of each span; an empty slice means raw times.
pub fn critical_path(tree: &TraceTree, corrections: &[i64]) -> Vec<CriticalStep> {
    let mut steps = Vec::new();
    let mut stack: Vec<Frame> = Vec::new();
    let Some(root) = tree.root else { return steps };
    let top = match times(tree, corrections, root) {
        Some((start, end)) => Some((start, end)),
        // A root that was not reported lasts as long as its children.
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

/// A span whose children are visited from the last to the first.
struct Frame {
    node: usize,
    start: u64,
    /// Everything after this time is already assigned.
    cursor: u64,
    /// Children sorted by their end, the latest last.
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
        // Among children that end together the longest comes first.
        children.sort_by(|left, right| left.0.cmp(&right.0).then(right.1.cmp(&left.1)));
        Self { node, start, cursor: end, children }
    }

    /// The last child that ended before the cursor.
    fn next_child(&mut self) -> Option<(u64, u64, usize)> {
        while let Some((end, start, child)) = self.children.pop() {
            if end <= self.cursor {
                return Some((start, end, child));
            }
        }
        None
    }
}

/// Start and end of a node's span; none if they are unknown.
fn times(tree: &TraceTree, corrections: &[i64], node: usize) -> Option<(u64, u64)> {
    let index = tree.nodes.get(node)?.span?;
    let span = tree.spans.get(index)?;
    let start = span.start_us?.saturating_add_signed(corrections.get(index).copied().unwrap_or_default());
    Some((start, start.saturating_add(span.duration_us?)))
}
