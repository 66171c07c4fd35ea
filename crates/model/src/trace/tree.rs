//! The tree of a trace.
//!
//! Clients are found by id; servers that share it by id and endpoint, since several may have
//! answered. Every span gets a place, even without a parent, with a wrong one, or in a cycle.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

use super::{Endpoint, ReportedSpan, merge_pieces};
use crate::ids::SpanId;

/// A trace as a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceTree {
    /// The spans, joined from their pieces.
    pub spans: Vec<ReportedSpan>,
    /// One node for each span in the same order, then the virtual root if no span is the root.
    pub nodes: Vec<TraceNode>,
    /// Index of the root; none for a trace without spans.
    pub root: Option<usize>,
}

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceNode {
    /// Index of its span; none for the virtual root.
    pub span: Option<usize>,
    /// Index of the parent node.
    pub parent: Option<usize>,
    /// Indexes of the child nodes, by start; those without a start first.
    pub children: Vec<usize>,
}

impl TraceTree {
    /// Builds the tree from the spans of one trace.
    pub fn new(spans: Vec<ReportedSpan>) -> Self {
        let spans = merge_pieces(spans);
        let mut tree = Self { nodes: Vec::with_capacity(spans.len() + 1), spans, root: None };
        if tree.spans.is_empty() {
            return tree;
        }
        let places = Places::new(&tree.spans);
        // Of several spans without a parent the earliest becomes the root, and the others its children.
        let parentless = |(index, span): (usize, &ReportedSpan)| {
            (span.parent.is_none() && !span.shared).then_some((Reverse(span.start_us.map(Reverse)), index))
        };
        let root = tree.spans.iter().enumerate().filter_map(parentless).min().map(|(_, index)| index);
        for (index, span) in tree.spans.iter().enumerate() {
            let parent = places.parent(index, span, &tree.spans).filter(|_| Some(index) != root);
            tree.nodes.push(TraceNode { span: Some(index), parent, children: Vec::new() });
        }
        let root = root.unwrap_or_else(|| {
            tree.nodes.push(TraceNode::default());
            tree.nodes.len() - 1
        });
        tree.root = Some(root);
        tree.break_circles(root);
        tree.adopt(root);
        tree
    }

    /// The span of a node.
    pub fn span(&self, node: usize) -> Option<&ReportedSpan> {
        self.spans.get(self.nodes.get(node)?.span?)
    }

    /// The nodes with a span, breadth first.
    pub fn breadth_first(&self) -> Vec<usize> {
        let mut queue: VecDeque<usize> = self.root.into_iter().collect();
        let mut out = Vec::with_capacity(self.spans.len());
        while let Some(at) = queue.pop_front() {
            let Some(node) = self.nodes.get(at) else { continue };
            if node.span.is_some() {
                out.push(at);
            }
            queue.extend(&node.children);
        }
        out
    }

    /// The nodes with a span, depth first with their depth: the order of a waterfall.
    pub fn depth_first(&self) -> Vec<(usize, usize)> {
        let mut stack: Vec<(usize, usize)> = self.root.map(|root| (root, 0)).into_iter().collect();
        let mut out = Vec::with_capacity(self.spans.len());
        while let Some((at, depth)) = stack.pop() {
            let Some(node) = self.nodes.get(at) else { continue };
            let below = depth + usize::from(node.span.is_some());
            if node.span.is_some() {
                out.push((at, depth));
            }
            stack.extend(node.children.iter().rev().map(|child| (*child, below)));
        }
        out
    }

    /// Cuts cycles at their earliest span, so that every path upwards ends.
    fn break_circles(&mut self, root: usize) {
        const NEW: u8 = 0;
        const ON_THE_WAY: u8 = 1;
        const DONE: u8 = 2;
        let mut state = vec![NEW; self.nodes.len()];
        for first in 0..self.nodes.len() {
            let mut way = Vec::new();
            let mut at = first;
            let met = loop {
                match state[at] {
                    DONE => break None,
                    ON_THE_WAY => break Some(at),
                    _ => {}
                }
                state[at] = ON_THE_WAY;
                way.push(at);
                match self.nodes[at].parent {
                    Some(parent) => at = parent,
                    None => break None,
                }
            };
            if let Some(met) = met {
                let circle = way.iter().skip_while(|at| **at != met);
                let start =
                    |at: &&usize| Reverse(self.span(**at).and_then(|span| span.start_us).map(Reverse));
                if let Some(earliest) = circle.min_by_key(start) {
                    self.nodes[*earliest].parent = None;
                }
            }
            for at in way {
                state[at] = DONE;
            }
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if at != root && node.parent.is_none() {
                node.parent = Some(root);
            }
        }
    }

    fn adopt(&mut self, root: usize) {
        for at in 0..self.nodes.len() {
            if let Some(parent) = self.nodes[at].parent.filter(|_| at != root) {
                self.nodes[parent].children.push(at);
            }
        }
        let spans = &self.spans;
        for node in &mut self.nodes {
            // The index of a node is the index of its span.
            node.children.sort_by_key(|at| spans.get(*at).and_then(|span| span.start_us));
        }
    }
}

/// Indexes to look up the parent of a span.
struct Places<'a> {
    own: HashMap<SpanId, usize>,
    shared: HashMap<(SpanId, &'a Endpoint), usize>,
    shared_by_service: HashMap<(SpanId, Option<&'a str>), usize>,
    shared_by_id: HashMap<SpanId, usize>,
}

impl<'a> Places<'a> {
    fn new(spans: &'a [ReportedSpan]) -> Self {
        let mut places = Self {
            own: HashMap::new(),
            shared: HashMap::new(),
            shared_by_service: HashMap::new(),
            shared_by_id: HashMap::new(),
        };
        for (index, span) in spans.iter().enumerate() {
            if span.shared {
                places.shared.entry((span.id, &span.local)).or_insert(index);
                let service = span.local.service.as_deref();
                places.shared_by_service.entry((span.id, service)).or_insert(index);
                places.shared_by_id.entry(span.id).or_insert(index);
            } else {
                places.own.entry(span.id).or_insert(index);
            }
        }
        places
    }

    /// The best parent: the most specific match wins.
    fn parent(&self, index: usize, span: &'a ReportedSpan, spans: &[ReportedSpan]) -> Option<usize> {
        // A server that shares its client's id is a child of that client.
        let client = self.own.get(&span.id).filter(|_| span.shared);
        let found = client.copied().or_else(|| {
            let parent = span.parent?;
            let service = span.local.service.as_deref();
            self.shared
                .get(&(parent, &span.local))
                .or_else(|| self.shared_by_service.get(&(parent, service)).filter(|_| service.is_some()))
                .or_else(|| self.own.get(&parent))
                .or_else(|| self.shared_by_id.get(&parent))
                .copied()
        });
        found.filter(|found| *found != index && *found < spans.len())
    }
}
