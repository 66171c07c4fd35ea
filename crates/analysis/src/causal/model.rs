//! Structural causal models: a graph and one mechanism for each of its nodes.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::error::CausalError;
use super::graph::CausalGraph;
use super::mechanism::{Form, Learned, Shape, ShapeScore, learn};
use super::observations::Observations;
use super::prior::Prior;
use super::strength::{Arrow, measure_arrows, measure_shares};

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
        let fit_one = |at: usize| {
            let parents: Vec<usize> = graph.parents(at).collect();
            let node = learner.learn(parents, at);
            match options.cut {
                Some(least) => learner.cut_weak(node, at, least, |from| options.requires(graph, from, at)),
                None => (node, Vec::new()),
            }
        };
        let fitted: Vec<(Node, Vec<(usize, f64)>)> = (0..places.len()).into_par_iter().map(fit_one).collect();
        let name = |at: usize| graph.nodes()[at].clone();
        let mut cut = Vec::new();
        let mut nodes = Vec::new();
        for (at, (node, weak)) in fitted.into_iter().enumerate() {
            cut.extend(weak.into_iter().map(|(from, share)| Arrow { from: name(from), to: name(at), share }));
            nodes.push(node);
        }
        let graph = graph.retain(|edge| nodes[edge.to].parents.contains(&edge.from));
        let arrows = measure_arrows(&graph, &nodes, columns.columns());
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
    fn learn(&self, parents: Vec<usize>, at: usize) -> Node {
        let target = &self.columns[at];
        let least = target.iter().copied().fold(f64::INFINITY, f64::min);
        let range = [least, target.iter().copied().fold(f64::NEG_INFINITY, f64::max)];
        if parents.is_empty() {
            let noise = thin(target);
            return Node { parents, mechanism: None, shape: None, scores: Vec::new(), noise, range };
        }
        let causes = self.causes(&parents);
        let Learned { shape, form, scores, residuals } =
            learn(&causes, &self.categories(&parents), target, self.seed);
        let noise = thin(&residuals);
        Node { parents, mechanism: Some(form), shape: Some(shape), scores, noise, range }
    }

    /// Takes the weakest cause away and fits again, until no weak one is left. One at a time: of two causes that say
    /// the same, either looks weak beside the other, and cutting both would leave nothing.
    fn cut_weak(
        &self,
        node: Node,
        at: usize,
        least: f64,
        is_required: impl Fn(usize) -> bool,
    ) -> (Node, Vec<(usize, f64)>) {
        let (Some(shape), Some(mut form)) = (node.shape, node.mechanism.clone()) else {
            return (node, Vec::new());
        };
        // Trees take too long to be grown after each cut.
        let quick = if shape == Shape::Boosted { Shape::Queueing } else { shape };
        let mut parents = node.parents.clone();
        let mut cut = Vec::new();
        while !parents.is_empty() {
            let shares = measure_shares(&form, &self.causes(&parents), &self.columns[at]);
            let candidates =
                shares.into_iter().enumerate().filter(|(place, _)| !is_required(parents[*place]));
            let weakest = candidates.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share < least);
            let Some((place, share)) = weakest else { break };
            cut.push((parents.remove(place), share));
            form = Form::fit_by_level(
                quick,
                &self.causes(&parents),
                &self.categories(&parents),
                &self.columns[at],
            );
        }
        if cut.is_empty() { (node, cut) } else { (self.learn(parents, at), cut) }
    }

    fn causes(&self, parents: &[usize]) -> Vec<&[f64]> {
        parents.iter().map(|&parent| self.columns[parent].as_slice()).collect()
    }

    /// Places of categories among the parents.
    fn categories(&self, parents: &[usize]) -> Vec<usize> {
        (0..parents.len()).filter(|&place| self.is_category[parents[place]]).collect()
    }
}

impl FitOptions {
    fn requires(&self, graph: &CausalGraph, cause: usize, effect: usize) -> bool {
        let [cause, effect] = [cause, effect].map(|at| &graph.nodes()[at]);
        let is_this = |prior: &Prior| matches!(prior, Prior::RequiredEdge { from, to } if (from, to) == (cause, effect));
        self.required.iter().any(is_this)
    }
}

/// At most [`MAX_NOISE`] of the values, evenly chosen.
fn thin(values: &[f64]) -> Vec<f64> {
    let kept = values.len().min(MAX_NOISE);
    (0..kept).map(|at| values[at * values.len() / kept]).collect()
}
