//! Who calls whom, by the rules of Zipkin's dependency linker.
//!
//! A call counts once, at its server. Clients count only where nothing below them was reported, which
//! stands for services without a tracer. Messages are links to and from the broker. A span of no kind that
//! knows both sides is taken for a client.

use std::collections::HashMap;

use faultscope_model::trace::{ReportedSpan, SpanKind};
use serde::{Deserialize, Serialize};

use super::{Tree, failed};

/// How often one service called another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DependencyLink {
    /// Who called.
    pub parent: String,
    /// Who was called.
    pub child: String,
    /// How often.
    pub call_count: u64,
    /// How often it failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub error_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Adds up the links of traces.
#[derive(Debug, Default)]
pub struct Linker {
    places: HashMap<(String, String), usize>,
    links: Vec<DependencyLink>,
}

impl Linker {
    /// Adds the links of one trace.
    pub fn add(&mut self, tree: &Tree) {
        for at in tree.breadth_first() {
            if let Some(span) = tree.span(at) {
                self.add_span(tree, at, span);
            }
        }
    }

    /// Adds a link that was counted elsewhere.
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
            }
        }
    }

    /// The links, in the order in which they were first seen.
    pub fn links(self) -> Vec<DependencyLink> {
        self.links
    }

    fn count(&mut self, parent: &str, child: &str, is_error: bool) {
        self.add_link(DependencyLink {
            parent: parent.to_lowercase(),
            child: child.to_lowercase(),
            call_count: 1,
            error_count: is_error.into(),
        });
    }

    fn add_span(&mut self, tree: &Tree, at: usize, span: &ReportedSpan) {
        // What is below a client knows better who was called.
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
        let mut is_error = failed(span);
        let (mut parent, child) = match kind {
            SpanKind::Server | SpanKind::Consumer if tree.root == Some(at) && remote.is_none() => return,
            SpanKind::Server | SpanKind::Consumer => (remote, service),
            SpanKind::Client | SpanKind::Producer => (service, remote),
        };
        if matches!(kind, SpanKind::Producer | SpanKind::Consumer) {
            if let (Some(parent), Some(child)) = (parent, child) {
                self.count(parent, child, is_error);
            }
            return;
        }
        let ancestor = remote_ancestor(tree, at);
        if let Some(ancestor) = ancestor
            && let Some(above) = ancestor.local.service.as_deref()
        {
            // The call that led here was not reported; whether it failed is not known.
            if kind == SpanKind::Client && service.is_some_and(|service| service != above) {
                self.count(above, service.unwrap_or_default(), false);
            }
            if kind == SpanKind::Server || parent.is_none() {
                parent = Some(above);
            }
            let is_its_client = ancestor.kind == Some(SpanKind::Client)
                && (span.parent == Some(ancestor.id) || (span.shared && span.id == ancestor.id));
            is_error |= is_its_client && failed(ancestor);
        }
        if let (Some(parent), Some(child)) = (parent, child) {
            self.count(parent, child, is_error);
        }
    }
}

/// The nearest span above that is one side of a call; local spans may lie between.
fn remote_ancestor(tree: &Tree, at: usize) -> Option<&ReportedSpan> {
    let mut above = tree.nodes[at].parent;
    while let Some(node) = above {
        if let Some(span) = tree.span(node).filter(|span| span.kind.is_some()) {
            return Some(span);
        }
        above = tree.nodes[node].parent;
    }
    None
}
