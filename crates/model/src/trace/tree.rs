//! The tree of a trace.
//!
//! Clients are found by their id; servers that share one by id and endpoint, since several may have
//! answered. What is below a shared id was done by the server, unless the client's own service did it. Every span has
//! its place, also without a parent, with a wrong one, or in a circle.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use super::{Endpoint, ReportedSpan, SpanKind, merge_pieces};
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
    /// Parents that spans name and nobody reported: the trace is broken there.
    pub missing: BTreeSet<SpanId>,
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
        let nodes = Vec::with_capacity(spans.len() + 1);
        let mut tree = Self { nodes, spans, root: None, missing: BTreeSet::new() };
        if tree.spans.is_empty() {
            return tree;
        }
        let places = Places::new(&tree.spans);
        // Of several spans without a parent the earliest becomes the root, and the others its children.
        let parentless = |(index, span): (usize, &ReportedSpan)| {
            // A server whose client never reported may be the first that did.
            let is_first = !span.shared || !places.own.contains_key(&span.id);
            (span.parent.is_none() && is_first).then_some((Reverse(span.start_us.map(Reverse)), index))
        };
        let root = tree.spans.iter().enumerate().filter_map(parentless).min().map(|(_, index)| index);
        for (index, span) in tree.spans.iter().enumerate() {
            let parent = places.parent(index, span, &tree.spans).filter(|_| Some(index) != root);
            if let Some(missing) = span.parent.filter(|parent| !places.has(*parent)) {
                tree.missing.insert(missing);
            }
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

    /// The span that stands for the whole: the root, or the earliest of those without a parent where the root was not
    /// reported.
    pub fn first_span(&self) -> Option<&ReportedSpan> {
        let root = self.root?;
        let earliest = || {
            let top = self.nodes.get(root)?.children.iter().filter_map(|child| self.span(*child));
            top.min_by_key(|span| (span.start_us.is_none(), span.start_us))
        };
        self.span(root).or_else(earliest)
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

/// Gives servers that share the id of their client ids of their own, below the client, for formats in which an id means
/// one span. The pieces of spans are joined.
pub fn separate_shared_ids(spans: Vec<ReportedSpan>) -> Vec<ReportedSpan> {
    let tree = TraceTree::new(spans);
    let mut used: HashSet<SpanId> = tree.spans.iter().map(|span| span.id).collect();
    let client_of = |index: usize| {
        let parent = tree.nodes.get(index)?.parent?;
        tree.spans.get(parent).filter(|client| tree.spans[index].shared && client.id == tree.spans[index].id)
    };
    let ids: Vec<SpanId> = (0..tree.spans.len())
        .map(|index| {
            let mut id = tree.spans[index].id;
            if client_of(index).is_some() {
                // The same trace gets the same ids whenever it is written.
                while !used.insert(id) {
                    id = SpanId(id.0.wrapping_mul(ID_STEP).wrapping_add(1));
                }
            }
            id
        })
        .collect();
    let separated = tree.spans.iter().enumerate().map(|(index, span)| {
        let mut span = span.clone();
        if let Some(client) = client_of(index) {
            (span.parent, span.shared) = (Some(client.id), false);
        } else if let Some(above) = tree.nodes.get(index).and_then(|node| node.parent)
            && tree.spans.get(above).is_some_and(|above| Some(above.id) == span.parent)
        {
            span.parent = ids.get(above).copied();
        }
        span.id = ids[index];
        span
    });
    separated.collect()
}

/// Spreads ids that must differ from those of a trace (the golden ratio in 64 bits).
const ID_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Indexes to look up the parent of a span.
struct Places<'a> {
    own: HashMap<SpanId, usize>,
    shared: HashMap<(SpanId, &'a Endpoint), usize>,
    shared_by_service: HashMap<(SpanId, Option<&'a str>), usize>,
    shared_by_id: HashMap<SpanId, Vec<usize>>,
}

/// Servers with one id among which the one is looked for that was at work at a time. Nobody calls more at once and
/// means well.
const COMPARED: usize = 64;

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
                places.shared_by_id.entry(span.id).or_default().push(index);
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
            let by_endpoint = self.shared.get(&(parent, &span.local));
            let by_service = self.shared_by_service.get(&(parent, service)).filter(|_| service.is_some());
            let own = self.own.get(&parent).copied();
            // A client hands its work to the server: below it is only what its own service did beside the call.
            let is_clients = |own: &usize| {
                spans.get(*own).is_some_and(|own| {
                    own.kind != Some(SpanKind::Client) || own.local.service.as_deref() == service
                })
            };
            by_endpoint
                .or(by_service)
                .copied()
                .or_else(|| own.filter(is_clients))
                .or_else(|| self.server_at(parent, span, spans))
                .or(own)
        });
        found.filter(|found| *found != index && *found < spans.len())
    }

    /// The server with a shared id that was at work when a span started, or the first one.
    fn server_at(&self, id: SpanId, span: &ReportedSpan, spans: &[ReportedSpan]) -> Option<usize> {
        let servers = self.shared_by_id.get(&id)?;
        let is_at_work = |server: &&usize| {
            let time = spans.get(**server).and_then(|server| Some((server.start_us?, server.duration_us?)));
            let (Some((start, duration)), Some(at)) = (time, span.start_us) else { return false };
            (start..=start.saturating_add(duration)).contains(&at)
        };
        servers.iter().take(COMPARED).find(is_at_work).or_else(|| servers.first()).copied()
    }

    /// Whether anybody reported a span with this id.
    fn has(&self, id: SpanId) -> bool {
        self.own.contains_key(&id) || self.shared_by_id.contains_key(&id)
    }
}
