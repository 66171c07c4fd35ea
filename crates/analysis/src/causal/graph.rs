//! Causal graphs: named nodes, weighted edges, no cycles.

use serde::{Deserialize, Serialize};

use super::error::CausalError;
use super::prior::find_cycle;

/// The version of the JSON form.
const FORMAT: u32 = 1;

/// An edge from a cause to its effect, by places of nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The cause.
    pub from: usize,
    /// The effect.
    pub to: usize,
    /// The direct effect of one unit of the cause, in units of the effect; NaN if the edge has no linear weight.
    pub weight: f64,
}

/// A directed graph without cycles. Its JSON names nodes instead of counting them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "GraphFile", into = "GraphFile")]
pub struct CausalGraph {
    nodes: Vec<String>,
    edges: Vec<Edge>,
    order: Vec<usize>,
}

impl CausalGraph {
    /// Sorts the edges by effect and cause, and refuses cycles.
    pub fn new(nodes: Vec<String>, mut edges: Vec<Edge>) -> Result<Self, CausalError> {
        if let Some(edge) = edges.iter().find(|edge| edge.from.max(edge.to) >= nodes.len()) {
            let (from, to) = (edge.from, edge.to);
            return Err(CausalError::Inconsistent(format!(
                "an edge from node {from} to node {to} that is not there"
            )));
        }
        edges.sort_by_key(|edge| (edge.to, edge.from));
        if let Some(twice) =
            edges.windows(2).find(|pair| (pair[0].from, pair[0].to) == (pair[1].from, pair[1].to))
        {
            let Edge { from, to, .. } = twice[0];
            return Err(CausalError::Inconsistent(format!(
                "two edges from {} to {}",
                nodes[from], nodes[to]
            )));
        }
        if let Some(cycle) = find_cycle(nodes.len(), edges.iter().map(|edge| (edge.from, edge.to))) {
            let start = cycle.first().map(|&at| nodes[edges[at].from].clone());
            let rest = cycle.iter().map(|&at| nodes[edges[at].to].clone());
            return Err(CausalError::CyclicGraph(start.into_iter().chain(rest).collect()));
        }
        let order = sort_topologically(nodes.len(), &edges);
        Ok(Self { nodes, edges, order })
    }

    /// Names of the nodes.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The edges, sorted by effect, then by cause.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The nodes, causes before effects.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The direct causes of a node.
    pub fn parents(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.edges.iter().filter(move |edge| edge.to == node).map(|edge| edge.from)
    }

    /// The place of a node.
    pub fn position(&self, name: &str) -> Result<usize, CausalError> {
        let unknown = || CausalError::UnknownColumn(name.to_owned());
        self.nodes.iter().position(|known| known == name).ok_or_else(unknown)
    }

    /// The same nodes with only those edges that the condition accepts.
    pub fn retain(&self, keep: impl Fn(&Edge) -> bool) -> Self {
        let edges: Vec<Edge> = self.edges.iter().filter(|edge| keep(edge)).copied().collect();
        let order = sort_topologically(self.nodes.len(), &edges);
        Self { nodes: self.nodes.clone(), edges, order }
    }
}

/// Causes before effects; of several possible orders the one with the least numbers first.
fn sort_topologically(nodes: usize, edges: &[Edge]) -> Vec<usize> {
    let mut entering = vec![0usize; nodes];
    edges.iter().for_each(|edge| entering[edge.to] += 1);
    let mut free: std::collections::BTreeSet<usize> = (0..nodes).filter(|&at| entering[at] == 0).collect();
    let mut order = Vec::with_capacity(nodes);
    while let Some(at) = free.pop_first() {
        order.push(at);
        for edge in edges.iter().filter(|edge| edge.from == at) {
            entering[edge.to] -= 1;
            if entering[edge.to] == 0 {
                free.insert(edge.to);
            }
        }
    }
    order
}

/// The JSON form.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct GraphFile {
    format: u32,
    nodes: Vec<String>,
    edges: Vec<NamedEdge>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct NamedEdge {
    from: String,
    to: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
}

impl From<CausalGraph> for GraphFile {
    fn from(graph: CausalGraph) -> Self {
        let name = |at: usize| graph.nodes[at].clone();
        let named = |edge: &Edge| NamedEdge {
            from: name(edge.from),
            to: name(edge.to),
            weight: Some(edge.weight).filter(|weight| weight.is_finite()),
        };
        Self { format: FORMAT, edges: graph.edges.iter().map(named).collect(), nodes: graph.nodes.clone() }
    }
}

impl TryFrom<GraphFile> for CausalGraph {
    type Error = CausalError;

    fn try_from(file: GraphFile) -> Result<Self, CausalError> {
        if file.format != FORMAT {
            let found = file.format;
            return Err(CausalError::Inconsistent(format!(
                "format {found} of a graph is not known, only {FORMAT}"
            )));
        }
        let places: std::collections::HashMap<&str, usize> =
            file.nodes.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        if places.len() != file.nodes.len() {
            return Err(CausalError::Inconsistent("two nodes have the same name".into()));
        }
        let place = |name: &String| {
            places.get(name.as_str()).copied().ok_or_else(|| CausalError::UnknownColumn(name.clone()))
        };
        let edge = |edge: &NamedEdge| {
            Ok(Edge {
                from: place(&edge.from)?,
                to: place(&edge.to)?,
                weight: edge.weight.unwrap_or(f64::NAN),
            })
        };
        let edges = file.edges.iter().map(edge).collect::<Result<Vec<_>, CausalError>>()?;
        Self::new(file.nodes.clone(), edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(usize, usize)]) -> Result<CausalGraph, CausalError> {
        let edges = edges.iter().map(|&(from, to)| Edge { from, to, weight: 0.5 }).collect();
        CausalGraph::new(["a", "b", "c"].map(str::to_owned).to_vec(), edges)
    }

    #[test]
    fn causes_come_before_effects_and_cycles_are_named() {
        assert_eq!(graph(&[(2, 0), (0, 1)]).unwrap().order(), [2, 0, 1]);
        let error = graph(&[(0, 1), (1, 2), (2, 0)]).unwrap_err();
        assert_eq!(error.to_string(), "the graph is cyclic: a -> b -> c -> a");
        assert_eq!(graph(&[(1, 1)]).unwrap_err(), CausalError::CyclicGraph(vec!["b".into(), "b".into()]));
        assert!(matches!(graph(&[(0, 3)]), Err(CausalError::Inconsistent(_))));
        assert!(matches!(graph(&[(0, 1), (0, 1)]), Err(CausalError::Inconsistent(_))));
    }

    #[test]
    fn json_names_nodes_and_comes_back() {
        let written = serde_json::to_string(&graph(&[(0, 1)]).unwrap()).unwrap();
        assert_eq!(
            written,
            r#"{"format":1,"nodes":["a","b","c"],"edges":[{"from":"a","to":"b","weight":0.5}]}"#
        );
        assert_eq!(serde_json::from_str::<CausalGraph>(&written).unwrap(), graph(&[(0, 1)]).unwrap());
        let hostile = [
            r#"{"format":2,"nodes":[],"edges":[]}"#,
            r#"{"format":1,"nodes":["a","a"],"edges":[]}"#,
            r#"{"format":1,"nodes":["a"],"edges":[{"from":"a","to":"b"}]}"#,
            r#"{"format":1,"nodes":["a"],"edges":[{"from":"a","to":"a"}]}"#,
        ];
        for text in hostile {
            assert!(serde_json::from_str::<CausalGraph>(text).is_err(), "{text}");
        }
    }
}
