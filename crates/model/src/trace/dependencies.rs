//! Who calls whom, by the rules of Zipkin's dependency linker.
//!
//! A call is counted once, at its server. A client is counted only if nothing below it was reported, which
//! means that the callee has no tracer. Messages are links to and from the broker. A span without a kind that
//! names both sides is treated as a client.
//!
//! Where the mesh recorded the calls of a trace, each of them is counted as it is; the tracers only contribute what
//! did not pass the mesh.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{ReportedSpan, SpanKind, TraceTree, has_failed, is_mesh_call};

/// The calls from one service to another, in the shape of Zipkin's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DependencyLink {
    /// The calling service.
    pub parent: String,
    /// The called service.
    pub child: String,
    /// Number of calls.
    pub call_count: u64,
    /// Number of failed calls.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub error_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The calls from one service to another, with rates and durations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallEdge {
    /// The calling service.
    pub parent: String,
    /// The called service.
    pub child: String,
    /// Number of calls.
    pub call_count: u64,
    /// Calls per second, between the first and the last call of any edge.
    pub calls_per_second: f64,
    /// Number of failed calls.
    pub error_count: u64,
    /// The share of calls that failed, 0 to 1.
    pub error_share: f64,
    /// Median duration; none if no call has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// 99th percentile of the durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
}

/// Collects the links of many traces.
#[derive(Debug, Default)]
pub struct Linker {
    places: HashMap<(String, String), usize>,
    links: Vec<DependencyLink>,
    /// Durations of the calls of each link.
    durations: Vec<Vec<u64>>,
    /// Start of the first and of the last call.
    time: Option<(u64, u64)>,
}

impl Linker {
    /// Adds the links of one trace.
    pub fn add(&mut self, tree: &TraceTree) {
        let is_seen = tree.spans.iter().any(is_mesh_call);
        for at in tree.breadth_first() {
            match tree.span(at) {
                Some(span) if is_seen => self.add_seen(tree, at, span),
                Some(span) => self.add_span(tree, at, span),
                None => {}
            }
        }
    }

    /// Adds a link that was counted elsewhere, as by an imported Zipkin.
    pub fn add_link(&mut self, link: DependencyLink) {
        let key = (link.parent.clone(), link.child.clone());
        match self.places.get(&key).and_then(|at| self.links.get_mut(*at)) {
            Some(known) => {
                known.call_count = known.call_count.saturating_add(link.call_count);
                known.error_count = known.error_count.saturating_add(link.error_count);
            }
            None => {
                self.places.insert(key, self.links.len());
                self.links.push(link);
                self.durations.push(Vec::new());
            }
        }
    }

    /// The links in the order in which they were first added.
    pub fn links(self) -> Vec<DependencyLink> {
        self.links
    }

    /// The links with rates and durations, sorted by name.
    pub fn edges(self) -> Vec<CallEdge> {
        let seconds = self.time.map_or(1.0, |(first, last)| ((last - first) as f64 / 1e6).max(1.0));
        let edge = |(link, mut durations): (DependencyLink, Vec<u64>)| {
            durations.sort_unstable();
            let quantile = |percent: usize| {
                let rank = (durations.len() * percent).div_ceil(100).max(1);
                durations.get(rank - 1).copied()
            };
            let calls = link.call_count as f64;
            CallEdge {
                calls_per_second: calls / seconds,
                error_share: link.error_count as f64 / calls.max(1.0),
                p50_us: quantile(50),
                p99_us: quantile(99),
                parent: link.parent,
                child: link.child,
                call_count: link.call_count,
                error_count: link.error_count,
            }
        };
        let mut edges: Vec<_> = self.links.into_iter().zip(self.durations).map(edge).collect();
        edges.sort_by(|a, b| (&a.parent, &a.child).cmp(&(&b.parent, &b.child)));
        edges
    }

    /// Counts a call and the duration of its span.
    fn count_call(&mut self, parent: &str, child: &str, is_error: bool, span: &ReportedSpan) {
        self.count(parent, child, is_error);
        let place = self.places.get(&(parent.to_lowercase(), child.to_lowercase()));
        if let Some(durations) = place.and_then(|at| self.durations.get_mut(*at)) {
            durations.extend(span.duration_us);
        }
        if let Some(start) = span.start_us {
            let (first, last) = self.time.unwrap_or((start, start));
            self.time = Some((first.min(start), last.max(start)));
        }
    }

    /// Adds a span of a trace whose calls the mesh recorded.
    fn add_seen(&mut self, tree: &TraceTree, at: usize, span: &ReportedSpan) {
        let (service, remote) = (span.local.service.as_deref(), span.remote.service.as_deref());
        let (Some(service), Some(remote)) = (service, remote) else { return };
        match span.kind {
            _ if is_mesh_call(span) => self.count_call(service, remote, has_failed(span), span),
            // Nothing below it: the call did not pass the mesh and its callee has no tracer.
            Some(SpanKind::Client | SpanKind::Producer) if tree.nodes[at].children.is_empty() => {
                self.count_call(service, remote, has_failed(span), span);
            }
            Some(SpanKind::Consumer) => self.count_call(remote, service, has_failed(span), span),
            _ => {}
        }
    }

    fn count(&mut self, parent: &str, child: &str, is_error: bool) {
        self.add_link(DependencyLink {
            parent: parent.to_lowercase(),
            child: child.to_lowercase(),
            call_count: 1,
            error_count: is_error.into(),
        });
    }

    fn add_span(&mut self, tree: &TraceTree, at: usize, span: &ReportedSpan) {
        // A span below the client knows better who was called.
        if span.kind == Some(SpanKind::Client) && !tree.nodes[at].children.is_empty() {
            return;
        }
        let service = span.local.service.as_deref();
        let remote = span.remote.service.as_deref();
        let kind = match span.kind {
            Some(kind) => kind,
            None if service.is_some() && remote.is_some() => SpanKind::Client,
            None => return,
        };
        let mut is_error = has_failed(span);
        let (mut parent, child) = match kind {
            SpanKind::Server | SpanKind::Consumer if tree.root == Some(at) && remote.is_none() => return,
            SpanKind::Server | SpanKind::Consumer => (remote, service),
            SpanKind::Client | SpanKind::Producer => (service, remote),
        };
        if matches!(kind, SpanKind::Producer | SpanKind::Consumer) {
            if let (Some(parent), Some(child)) = (parent, child) {
                self.count_call(parent, child, is_error, span);
            }
            return;
        }
        let ancestor = remote_ancestor(tree, at);
        if let Some(ancestor) = ancestor
            && let Some(above) = ancestor.local.service.as_deref()
        {
            // The client was not reported, so whether the call failed is unknown.
            if kind == SpanKind::Client && service.is_some_and(|service| service != above) {
                self.count(above, service.unwrap_or_default(), false);
            }
            if kind == SpanKind::Server || parent.is_none() {
                parent = Some(above);
            }
            let is_its_client = ancestor.kind == Some(SpanKind::Client)
                && (span.parent == Some(ancestor.id) || (span.shared && span.id == ancestor.id));
            is_error |= is_its_client && has_failed(ancestor);
        }
        if let (Some(parent), Some(child)) = (parent, child) {
            self.count_call(parent, child, is_error, span);
        }
    }
}

/// The nearest ancestor that is one side of a call; internal spans may lie between.
fn remote_ancestor(tree: &TraceTree, at: usize) -> Option<&ReportedSpan> {
    let mut above = tree.nodes[at].parent;
    while let Some(node) = above {
        if let Some(span) = tree.span(node).filter(|span| span.kind.is_some()) {
            return Some(span);
        }
        above = tree.nodes[node].parent;
    }
    None
}
