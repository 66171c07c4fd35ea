//! Structural causal models: a graph and one mechanism for each of its nodes.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::error::CausalError;
use super::graph::CausalGraph;
use super::mechanism::{Form, Learned, Shape, ShapeScore, learn};
use super::observations::{Observations, variance};
use super::prior::Prior;
use super::strength::{Arrow, measure_arrows};

/// The version of the JSON form.
const FORMAT: u32 = 1;

/// Residuals that are kept of each node: enough for the tails that intervals need.
const MAX_NOISE: usize = 500;

/// How a model is fitted.
#[derive(Debug, Clone, Default)]
pub struct FitOptions {
    /// Edges whose share of the child's variance is below this are cut, and the children fitted again.
    pub cut: Option<f64>,
    /// Edges that are never cut.
    pub required: Vec<Prior>,
    /// Columns whose values are categories: mechanisms are fitted for each of them.
    pub categories: Vec<String>,
    /// The seed of folds and draws.
    pub seed: u64,
}

/// A graph with mechanisms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructuralModel {
    format: u32,
    /// The graph, without the edges that were cut.
    pub graph: CausalGraph,
    /// The number of rows that it was fitted on.
    pub rows: usize,
    /// The seed of folds and draws.
    pub seed: u64,
    /// Strengths of all edges.
    pub arrows: Vec<Arrow>,
    /// Edges that were cut, with the strengths they had.
    #[serde(default)]
    pub cut: Vec<Arrow>,
    /// The nodes, in the order of the graph.
    pub(crate) nodes: Vec<Node>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) parents: Vec<usize>,
    /// None for a node without causes: its values are the noise.
    pub(crate) mechanism: Option<Form>,
    pub(crate) shape: Option<Shape>,
    pub(crate) scores: Vec<ShapeScore>,
    /// A sample of observed values of a root, or of what a mechanism leaves unexplained.
    pub(crate) noise: Vec<f64>,
    /// The least and the largest observed value.
    pub(crate) range: [f64; 2],
}

/// What is known about the mechanism of one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeSummary {
    /// The name.
    pub node: String,
    /// Names of its causes.
    pub causes: Vec<String>,
    /// The chosen shape; none for a node without causes.
    pub shape: Option<Shape>,
    /// The share of the variance that the mechanism explains on rows it was not fitted on.
    pub explained: Option<f64>,
    /// The errors of all shapes that were tried.
    pub scores: Vec<ShapeScore>,
}

impl StructuralModel {
    /// Learns all mechanisms, measures the arrows, cuts weak ones and fits their children again.
    pub fn fit(
        observations: &Observations,
        graph: &CausalGraph,
        options: &FitOptions,
    ) -> Result<Self, CausalError> {
        let places: Vec<usize> =
            graph.nodes().iter().map(|name| observations.position(name)).collect::<Result<_, _>>()?;
        let columns = observations.select(&places);
        for category in &options.categories {
            graph.position(category)?;
        }
        let is_category: Vec<bool> =
            graph.nodes().iter().map(|name| options.categories.contains(name)).collect();
        let learner = Learner { columns: columns.columns(), is_category, seed: options.seed };
        let mut graph = graph.clone();
        let mut nodes: Vec<Node> =
            (0..graph.nodes().len()).into_par_iter().map(|at| learner.learn(&graph, at)).collect();
        let mut arrows = measure_arrows(&graph, &nodes, columns.columns());
        let mut cut = Vec::new();
        if let Some(least) = options.cut {
            let is_required = |arrow: &Arrow| {
                let is_this = |prior: &Prior| matches!(prior, Prior::RequiredEdge { from, to } if (from, to) == (&arrow.from, &arrow.to));
                options.required.iter().any(is_this)
            };
            (cut, _) = arrows.into_iter().partition(|arrow| arrow.share < least && !is_required(arrow));
            let name = |at: usize| &graph.nodes()[at];
            let is_cut = |from: usize, to: usize| {
                cut.iter().any(|arrow: &Arrow| (&arrow.from, &arrow.to) == (name(from), name(to)))
            };
            let smaller = graph.retain(|edge| !is_cut(edge.from, edge.to));
            let changed: Vec<usize> = (0..nodes.len())
                .filter(|&at| smaller.parents(at).count() != graph.parents(at).count())
                .collect();
            graph = smaller;
            let refitted: Vec<Node> = changed.par_iter().map(|&at| learner.learn(&graph, at)).collect();
            changed.iter().zip(refitted).for_each(|(&at, node)| nodes[at] = node);
            arrows = measure_arrows(&graph, &nodes, columns.columns());
        }
        Ok(Self { format: FORMAT, graph, rows: observations.rows(), seed: options.seed, arrows, cut, nodes })
    }

    /// What is known about each mechanism, in the order of the graph's nodes.
    pub fn summarize(&self) -> Vec<NodeSummary> {
        let summarize = |(at, node): (usize, &Node)| NodeSummary {
            node: self.graph.nodes()[at].clone(),
            causes: node.parents.iter().map(|&parent| self.graph.nodes()[parent].clone()).collect(),
            shape: node.shape,
            explained: node
                .scores
                .iter()
                .find(|score| Some(score.shape) == node.shape)
                .map(|score| 1.0 - score.error),
            scores: node.scores.clone(),
        };
        self.nodes.iter().enumerate().map(summarize).collect()
    }

    /// Refuses a model from outside that does not fit together: every query on a checked one ends.
    pub fn check(&self) -> Result<(), CausalError> {
        let wrong = |problem: String| Err(CausalError::Inconsistent(problem));
        if self.format != FORMAT {
            return wrong(format!("format {} of a model is not known, only {FORMAT}", self.format));
        }
        if self.nodes.len() != self.graph.nodes().len() {
            return wrong(format!("{} mechanisms for {} nodes", self.nodes.len(), self.graph.nodes().len()));
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let name = &self.graph.nodes()[at];
            if !node.parents.iter().copied().eq(self.graph.parents(at)) {
                return wrong(format!("the causes of `{name}` are not those of the graph"));
            }
            let is_sound = match &node.mechanism {
                Some(form) => form.is_sound(node.parents.len(), node.parents.len()),
                None => node.parents.is_empty(),
            };
            let is_finite = node.noise.iter().chain(&node.range).all(|value| value.is_finite());
            if !is_sound || !is_finite || node.noise.is_empty() {
                return wrong(format!("the mechanism of `{name}` is not usable"));
            }
        }
        Ok(())
    }
}

struct Learner<'a> {
    columns: &'a [Vec<f64>],
    is_category: Vec<bool>,
    seed: u64,
}

impl Learner<'_> {
    fn learn(&self, graph: &CausalGraph, at: usize) -> Node {
        let target = &self.columns[at];
        let parents: Vec<usize> = graph.parents(at).collect();
        let least = target.iter().copied().fold(f64::INFINITY, f64::min);
        let range = [least, target.iter().copied().fold(f64::NEG_INFINITY, f64::max)];
        if parents.is_empty() {
            let noise = thin(target);
            return Node { parents, mechanism: None, shape: None, scores: Vec::new(), noise, range };
        }
        let causes: Vec<&[f64]> = parents.iter().map(|&parent| self.columns[parent].as_slice()).collect();
        let categories: Vec<usize> =
            (0..parents.len()).filter(|&place| self.is_category[parents[place]]).collect();
        let Learned { shape, form, scores, residuals } = learn(&causes, &categories, target, self.seed);
        let noise = thin(&residuals);
        Node { parents, mechanism: Some(form), shape: Some(shape), scores, noise, range }
    }
}

/// At most [`MAX_NOISE`] of the values, evenly chosen.
fn thin(values: &[f64]) -> Vec<f64> {
    let kept = values.len().min(MAX_NOISE);
    (0..kept).map(|at| values[at * values.len() / kept]).collect()
}

/// The variance of a node that arrows are measured in.
pub(crate) fn child_variance(column: &[f64]) -> f64 {
    variance(column).max(f64::MIN_POSITIVE)
}
