//! Arrow strengths (Janzing et al. 2013): how much variance a node loses when one cause is replaced by noise.

use serde::{Deserialize, Serialize};

use super::graph::CausalGraph;
use super::mechanism::Form;
use super::model::Node;
use super::observations::variance;

/// Rows, and draws of a cause for each of them, of which a strength is the mean: its error is about 3 %.
const ROWS: usize = 40;
const DRAWS: usize = 40;

/// An edge with its strength.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arrow {
    /// The cause.
    pub from: String,
    /// The effect.
    pub to: String,
    /// The strength as a share of the effect's variance. Shares of correlated causes may add up to more than 1.
    pub share: f64,
}

/// Measures all arrows, in the order of the graph's edges.
pub(crate) fn measure_arrows(graph: &CausalGraph, nodes: &[Node], columns: &[Vec<f64>]) -> Vec<Arrow> {
    let name = |at: usize| graph.nodes()[at].clone();
    let mut arrows = Vec::with_capacity(graph.edges().len());
    for (at, node) in nodes.iter().enumerate() {
        let Some(form) = &node.mechanism else { continue };
        let causes: Vec<&[f64]> = node.parents.iter().map(|&parent| columns[parent].as_slice()).collect();
        let shares = measure_shares(form, &causes, &columns[at]);
        let of_node = node.parents.iter().zip(shares);
        arrows.extend(of_node.map(|(&from, share)| Arrow { from: name(from), to: name(at), share }));
    }
    arrows
}

/// The strengths of all causes of one target, as shares of its variance.
pub(crate) fn measure_shares(form: &Form, causes: &[&[f64]], target: &[f64]) -> Vec<f64> {
    let whole = variance(target).max(f64::MIN_POSITIVE);
    let least = target.iter().copied().fold(f64::INFINITY, f64::min);
    let most = target.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let measure = |cause: usize| match form.linear_coefficient(cause) {
        Some(coefficient) => coefficient * coefficient * variance(causes[cause]),
        None => measure_by_drawing(form, causes, cause, [least, most]),
    };
    (0..causes.len()).map(|cause| measure(cause) / whole).collect()
}

/// The mean variance over draws of one cause, the others as they were observed together.
fn measure_by_drawing(form: &Form, causes: &[&[f64]], cause: usize, [least, most]: [f64; 2]) -> f64 {
    let rows = causes[cause].len();
    let spread = |count: usize| (0..count.min(rows)).map(move |at| at * rows / count.min(rows));
    // Sorted, so that evenly spaced draws are quantiles of the cause.
    let mut marginal = causes[cause].to_vec();
    marginal.sort_by(f64::total_cmp);
    let mut total = 0.0;
    for row in spread(ROWS) {
        let mut values: Vec<f64> = causes.iter().map(|column| column[row]).collect();
        let drawn: Vec<f64> = spread(DRAWS)
            .map(|draw| {
                values[cause] = marginal[draw];
                // Causes that never occurred together may have any effect; no more than was ever seen counts.
                form.predict(&values, None).clamp(least, most)
            })
            .collect();
        total += variance(&drawn);
    }
    total / ROWS.min(rows) as f64
}
