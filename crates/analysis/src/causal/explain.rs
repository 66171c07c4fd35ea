//! Why a node changes: the share of each causal path, and of each service.
//!
//! A change of the target is passed back along the edges, each cause taking the part of the change that its own change
//! brings about. What reaches a node and is not passed on to another node of the same metric is that node's own share:
//! the response time that a service adds itself, for example, and not by waiting for others.

use serde::Serialize;

use super::error::CausalError;
use super::graph::CausalGraph;
use super::model::StructuralModel;
use super::query::Setting;

/// Paths that are reported.
const MAX_PATHS: usize = 8;
/// Partial paths that are followed; graphs of a thousand nodes have more paths than anyone can read.
const MAX_STEPS: usize = 20_000;
/// Shares below this are left out.
const LEAST_SHARE: f64 = 0.01;

/// What explains a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The node.
    pub target: String,
    /// The two situations that are compared; none if the observed variance is explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Nodes of the same metric by the share that they add themselves, largest first.
    pub own_shares: Vec<OwnShare>,
    /// The causal paths that carry most, from the first cause to the target.
    pub paths: Vec<CausalPath>,
}

/// Two situations and the mean of the target in each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What is set before.
    pub from: Vec<Setting>,
    /// What is set after.
    pub to: Vec<Setting>,
    /// The mean before.
    pub before: f64,
    /// The mean after.
    pub after: f64,
}

/// What a node adds itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OwnShare {
    /// The node.
    pub node: String,
    /// The service it belongs to, if its name has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The share of the target's change or variance.
    pub share: f64,
}

/// A causal path with the share that it carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CausalPath {
    /// Names of its nodes, the first cause first.
    pub nodes: Vec<String>,
    /// The share of the target's change or variance.
    pub share: f64,
}

/// The metric and the service of a column such as `RT_orders`.
pub fn split_name(column: &str) -> Option<(&str, &str)> {
    column.split_once('_').filter(|(metric, service)| !metric.is_empty() && !service.is_empty())
}

impl StructuralModel {
    /// Explains how a node changes from one situation to another.
    pub fn explain_change(
        &self,
        target: &str,
        from: &[Setting],
        to: &[Setting],
    ) -> Result<Explanation, CausalError> {
        let node = self.graph.position(target)?;
        let [before, after] = [self.mean_values(from)?, self.mean_values(to)?];
        let fixed: Vec<&String> = from.iter().chain(to).map(|setting| &setting.column).collect();
        let parts = |at: usize| match fixed.contains(&&self.graph.nodes()[at]) {
            true => Vec::new(),
            false => self.split_change(at, &before, &after),
        };
        let change =
            Change { from: from.to_vec(), to: to.to_vec(), before: before[node], after: after[node] };
        Ok(Explanation { change: Some(change), ..trace_back(&self.graph, node, parts) })
    }

    /// Explains the observed variance of a node by the strengths of arrows.
    pub fn explain(&self, target: &str) -> Result<Explanation, CausalError> {
        let node = self.graph.position(target)?;
        let parts = |at: usize| {
            let arrows = self.graph.edges().iter().zip(&self.arrows).filter(|(edge, _)| edge.to == at);
            let shares: Vec<(usize, f64)> = arrows.map(|(edge, arrow)| (edge.from, arrow.share)).collect();
            // Correlated causes may claim more than there is.
            let total: f64 = shares.iter().map(|(_, share)| share).sum();
            shares.into_iter().map(|(from, share)| (from, share / total.max(1.0))).collect()
        };
        Ok(trace_back(&self.graph, node, parts))
    }

    /// How much each cause contributes to the change of a node, as shares: the mean over orders in which the causes
    /// change one after the other, forwards and backwards from each (for two causes their Shapley values).
    fn split_change(&self, at: usize, before: &[f64], after: &[f64]) -> Vec<(usize, f64)> {
        let node = &self.nodes[at];
        let Some(form) = &node.mechanism else { return Vec::new() };
        let count = node.parents.len();
        let mut parts = vec![0.0; count];
        for start in 0..count {
            for backwards in [false, true] {
                let mut values: Vec<f64> = node.parents.iter().map(|&parent| before[parent]).collect();
                let mut last = form.predict(&values, None);
                for turn in 0..count {
                    let place =
                        if backwards { (start + count - turn) % count } else { (start + turn) % count };
                    values[place] = after[node.parents[place]];
                    let next = form.predict(&values, None);
                    parts[place] += (next - last) / (2 * count) as f64;
                    last = next;
                }
            }
        }
        let total: f64 = parts.iter().sum();
        let size: f64 = parts.iter().map(|part| part.abs()).sum();
        // Where changes cancel out, shares of the sum would be arbitrarily large.
        let unit = if total.abs() < 0.1 * size { size } else { total };
        if unit == 0.0 {
            return Vec::new();
        }
        node.parents.iter().copied().zip(parts.into_iter().map(|part| part / unit)).collect()
    }
}

/// Passes the whole of the target back along `parts`: the causes of a node with their shares.
fn trace_back(graph: &CausalGraph, target: usize, parts: impl Fn(usize) -> Vec<(usize, f64)>) -> Explanation {
    let names = graph.nodes();
    let metric = |at: usize| split_name(&names[at]).map(|(metric, _)| metric);
    let is_alike = |at: usize| at == target || (metric(at).is_some() && metric(at) == metric(target));
    let mut amounts = vec![0.0; names.len()];
    amounts[target] = 1.0;
    let mut own_shares = Vec::new();
    let mut shares: Vec<Vec<(usize, f64)>> = vec![Vec::new(); names.len()];
    for &at in graph.order().iter().rev() {
        let amount = amounts[at];
        if amount == 0.0 {
            continue;
        }
        shares[at] = parts(at);
        let mut own = amount;
        for &(cause, share) in &shares[at] {
            amounts[cause] += amount * share;
            if is_alike(cause) {
                own -= amount * share;
            }
        }
        if is_alike(at) && own.abs() >= LEAST_SHARE {
            let service = split_name(&names[at]).map(|(_, service)| service.to_owned());
            own_shares.push(OwnShare { node: names[at].clone(), service, share: own });
        }
    }
    own_shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    let paths = heaviest_paths(names, target, &shares);
    Explanation { target: names[target].clone(), change: None, own_shares, paths }
}

/// The paths that carry most, found from the target backwards, heaviest beginning first.
fn heaviest_paths(names: &[String], target: usize, shares: &[Vec<(usize, f64)>]) -> Vec<CausalPath> {
    let mut open: Vec<(f64, Vec<usize>)> = vec![(1.0, vec![target])];
    let mut paths: Vec<CausalPath> = Vec::new();
    for _ in 0..MAX_STEPS {
        let Some(heaviest) = (0..open.len()).max_by(|&a, &b| open[a].0.abs().total_cmp(&open[b].0.abs()))
        else {
            break;
        };
        let (share, path) = open.swap_remove(heaviest);
        let causes = path.last().map_or(&[][..], |&at| shares[at].as_slice());
        if causes.is_empty() && path.len() > 1 {
            let nodes = path.iter().rev().map(|&at| names[at].clone()).collect();
            paths.push(CausalPath { nodes, share });
            if paths.len() == MAX_PATHS {
                break;
            }
        }
        for &(cause, part) in causes.iter().filter(|(_, part)| (share * part).abs() >= LEAST_SHARE) {
            let longer = path.iter().copied().chain([cause]).collect();
            open.push((share * part, longer));
        }
    }
    paths.sort_by(|a, b| b.share.abs().total_cmp(&a.share.abs()));
    paths
}
