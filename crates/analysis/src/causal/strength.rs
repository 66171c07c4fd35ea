//! Arrow strengths (Janzing et al. 2013): how much variance a node loses when one cause is replaced by noise.

use serde::{Deserialize, Serialize};

use super::graph::CausalGraph;
use super::mechanism::Form;
use super::model::{Node, child_variance};
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
    let measure = |edge: &super::graph::Edge| {
        let node = &nodes[edge.to];
        let causes: Vec<&[f64]> = node.parents.iter().map(|&parent| columns[parent].as_slice()).collect();
        let place = node.parents.iter().position(|&parent| parent == edge.from).unwrap_or_default();
        let strength = node.mechanism.as_ref().map_or(0.0, |form| measure_arrow(form, &causes, place));
        let share = strength / child_variance(&columns[edge.to]);
        Arrow { from: graph.nodes()[edge.from].clone(), to: graph.nodes()[edge.to].clone(), share }
    };
    graph.edges().iter().map(measure).collect()
}

/// The mean variance over draws of one cause, the others as they were observed together.
fn measure_arrow(form: &Form, causes: &[&[f64]], cause: usize) -> f64 {
    if let Some(coefficient) = form.linear_coefficient(cause) {
        return coefficient * coefficient * variance(causes[cause]);
    }
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
                form.predict(&values, None)
            })
            .collect();
        total += variance(&drawn);
    }
    total / ROWS.min(rows) as f64
}
