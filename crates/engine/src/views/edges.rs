//! Calls between services: edges grouped by caller, in an order that reads from the outside in.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::ServiceName;
use faultscope_model::trace::CallEdge;
use faultscope_store::Edge;
use serde::Serialize;

use super::archive::Archive;
use super::error::ViewError;

/// The caller of requests that people make in `up`.
const USER: &str = "user";

/// All edges of one caller, the busiest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallerEdges<'e, E> {
    /// The calling service.
    pub caller: &'e str,
    /// Its edges.
    pub edges: Vec<&'e E>,
}

/// The service map of a run: callers nearest to the test or the user first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServiceMap<'e> {
    /// Number of services, including the test.
    pub services: usize,
    /// Number of edges.
    pub edges: usize,
    /// The edges by caller.
    pub callers: Vec<CallerEdges<'e, Edge>>,
}

/// Calls between services in traces of a time window, with rates and error shares.
pub fn list_edges(archive: &Archive, end_us: u64, lookback_us: u64) -> Result<Vec<CallEdge>, ViewError> {
    Ok(archive.spans().edges(end_us, lookback_us)?)
}

/// Edges by caller; services that nobody calls come first.
pub fn group_by_caller<'e>(edges: &'e [CallEdge]) -> Vec<CallerEdges<'e, CallEdge>> {
    let is_called = |name: &str| edges.iter().any(|edge| edge.child == name && edge.parent != name);
    let mut callers: BTreeMap<(bool, &str), Vec<&CallEdge>> = BTreeMap::new();
    for edge in edges {
        callers.entry((is_called(&edge.parent), &edge.parent)).or_default().push(edge);
    }
    let group = |((_, caller), mut edges): ((bool, &'e str), Vec<&'e CallEdge>)| {
        edges.sort_by(|a, b| b.call_count.cmp(&a.call_count).then(a.child.cmp(&b.child)));
        CallerEdges { caller, edges }
    };
    callers.into_iter().map(group).collect()
}

impl<'e> ServiceMap<'e> {
    /// The map of the edges of a run.
    pub fn new(edges: &'e [Edge]) -> Self {
        let depths = depths(edges);
        let mut callers: BTreeMap<(usize, &str), Vec<&Edge>> = BTreeMap::new();
        for edge in edges {
            let caller = edge.caller.as_str();
            // Callers that cannot be reached from the test come last.
            let depth = depths.get(caller).copied().unwrap_or(usize::MAX);
            callers.entry((depth, caller)).or_default().push(edge);
        }
        let services: BTreeSet<_> = edges.iter().flat_map(|edge| [&edge.caller, &edge.callee]).collect();
        let group = |((_, caller), mut edges): ((usize, &'e str), Vec<&'e Edge>)| {
            edges.sort_by(|a, b| b.calls.cmp(&a.calls).then(a.callee.cmp(&b.callee)));
            CallerEdges { caller, edges }
        };
        let callers = callers.into_iter().map(group).collect();
        Self { services: services.len(), edges: edges.len(), callers }
    }
}

/// The distance of each service from the test or the user, by the shortest path.
fn depths(edges: &[Edge]) -> BTreeMap<&str, usize> {
    let mut depth: BTreeMap<&str, usize> = BTreeMap::from([(ServiceName::TEST, 0), (USER, 0)]);
    loop {
        let mut changed = false;
        for edge in edges {
            let Some(&from) = depth.get(edge.caller.as_str()) else { continue };
            let known = depth.entry(edge.callee.as_str()).or_insert(usize::MAX);
            if *known > from + 1 {
                *known = from + 1;
                changed = true;
            }
        }
        if !changed {
            return depth;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(caller: &str, callee: &str, calls: u64) -> Edge {
        let name = |text: &str| text.parse().unwrap();
        Edge { caller: name(caller), callee: name(callee), calls, errors: 0, p50_us: 1, p99_us: 1 }
    }

    #[test]
    fn callers_near_the_test_come_first_and_their_busiest_edges() {
        let edges = [
            edge("alone", "stock", 9),
            edge("order", "pay", 1),
            edge("order", "stock", 3),
            edge("pay", "order", 2),
            edge("test", "order", 1),
        ];
        let map = ServiceMap::new(&edges);
        assert_eq!((map.services, map.edges), (5, 5));
        let shown: Vec<_> = map
            .callers
            .iter()
            .map(|group| {
                let callees: Vec<_> = group.edges.iter().map(|edge| edge.callee.as_str()).collect();
                format!("{}: {}", group.caller, callees.join(" "))
            })
            .collect();
        assert_eq!(shown, ["test: order", "order: stock pay", "pay: order", "alone: stock"]);
    }

    #[test]
    fn those_that_nobody_calls_come_first() {
        let edge = |parent: &str, child: &str, call_count: u64| CallEdge {
            parent: parent.into(),
            child: child.into(),
            call_count,
            calls_per_second: 1.0,
            error_count: 0,
            error_share: 0.0,
            p50_us: None,
            p99_us: None,
        };
        // A service that only calls itself is called by nobody else.
        let edges = [edge("a", "b", 1), edge("web", "a", 5), edge("web", "b", 7), edge("zoo", "zoo", 1)];
        let groups = group_by_caller(&edges);
        let shown: Vec<_> =
            groups.iter().map(|group| (group.caller, group.edges[0].child.as_str())).collect();
        assert_eq!(shown, [("web", "b"), ("zoo", "zoo"), ("a", "b")]);
    }
}
