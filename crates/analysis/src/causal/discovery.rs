//! Finds the graph behind observations.

use serde::{Deserialize, Serialize};

use super::error::CausalError;
use super::graph::{CausalGraph, Edge};
use super::matrix::Matrix;
use super::observations::{Observations, standardize};
use super::prior::{Constraints, Prior};
use super::screening::{DroppedColumn, Screening};
use super::wide::{add_multiple, vectorize};
use super::{dag_gnn, dagma, lingam};

/// How a graph is found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Linear effects, noise that is not normal; needs no scale and draws nothing at random.
    #[default]
    DirectLingam,
    /// Linear effects by optimisation; depends on the scale of the columns.
    DagmaLinear,
    /// Effects by neural networks; slow.
    DagmaMlp,
    /// A graph neural network; slow.
    DagGnn,
}

/// What to find, and what is known before.
#[derive(Debug, Clone, Default)]
pub struct DiscoveryOptions {
    /// How the graph is found.
    pub method: Method,
    /// What is known.
    pub priors: Vec<Prior>,
    /// The seed of methods that draw at random.
    pub seed: u64,
}

/// A graph and what must be known to trust it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Discovery {
    /// How it was found.
    pub method: Method,
    /// The number of rows.
    pub rows: usize,
    /// The seed, if anything was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The graph of all columns that were not dropped.
    pub graph: CausalGraph,
    /// The columns in causal order.
    pub order: Vec<String>,
    /// Columns that could not be used.
    pub dropped: Vec<DroppedColumn>,
    /// Reasons to doubt the graph.
    pub cautions: Vec<Caution>,
}

/// A reason to doubt a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Caution {
    /// The noise of these columns looks normal, so the direction of edges between them is arbitrary.
    NormalNoise {
        /// At least two columns.
        columns: Vec<String>,
    },
    /// The noise of two columns is correlated: something that was not measured may influence both.
    CommonCause {
        /// A column.
        first: String,
        /// Another column.
        second: String,
        /// The correlation of their residuals.
        correlation: f64,
    },
    /// The method depends on the scale of the columns, so they were standardised.
    Standardized,
    /// Edges up to this weight were removed to break cycles.
    BrokenCycles {
        /// The threshold.
        threshold: f64,
    },
    /// The optimiser used up its iterations before it settled.
    Unsettled,
}

/// The least correlation of residuals that is reported, if it is significant as well.
const NOTABLE_CORRELATION: f64 = 0.3;
/// Standard errors beyond which a correlation is significant among thousands of pairs.
const SIGNIFICANT: f64 = 5.0;
/// The most correlated pairs that are reported.
const MAX_PAIRS: usize = 10;

/// Finds the graph behind observations.
pub fn discover(observations: &Observations, options: &DiscoveryOptions) -> Result<Discovery, CausalError> {
    let screening = Screening::new(observations, &options.priors)?;
    let selected = observations.select(&screening.kept);
    let names = selected.names().to_vec();
    let constraints = Constraints::resolve(&options.priors, &names, &screening.dropped_names())?;
    let columns = &screening.standardized;
    let mut cautions = Vec::new();
    let weights = match options.method {
        Method::DirectLingam => {
            let found = lingam::find_graph(columns, &constraints);
            if found.normal.len() > 1 {
                let columns = found.normal.iter().map(|&at| names[at].clone()).collect();
                cautions.push(Caution::NormalNoise { columns });
            }
            found.weights
        }
        Method::DagmaLinear => {
            let found = dagma::linear::find_graph(&Matrix::second_moments(columns), &constraints)?;
            cautions.push(Caution::Standardized);
            if found.threshold > dagma::linear::THRESHOLD {
                cautions.push(Caution::BrokenCycles { threshold: found.threshold });
            }
            refit(columns, &found.weights)
        }
        Method::DagmaMlp => {
            slow(dagma::mlp::find_graph(columns, &constraints, options.seed)?, columns, &mut cautions)
        }
        Method::DagGnn => {
            slow(dag_gnn::find_graph(columns, &constraints, options.seed)?, columns, &mut cautions)
        }
    };
    cautions.extend(find_common_causes(columns, &weights, &names));
    let edges = (0..names.len()).flat_map(|to| (0..names.len()).map(move |from| (to, from)));
    let edges = edges.filter(|&at| weights[at] != 0.0).map(|(to, from)| Edge {
        from,
        to,
        weight: weights[(to, from)] * screening.deviations[to] / screening.deviations[from],
    });
    let graph = CausalGraph::new(names.clone(), edges.collect())?;
    let order = graph.order().iter().map(|&at| names[at].clone()).collect();
    let seed = matches!(options.method, Method::DagmaMlp | Method::DagGnn).then_some(options.seed);
    let (method, rows) = (options.method, observations.rows());
    Ok(Discovery { method, rows, seed, graph, order, dropped: screening.dropped, cautions })
}

/// What a slow method found: weights by cause and effect, zero where there is no edge.
#[derive(Debug)]
pub(crate) struct SlowlyFound {
    pub(crate) weights: Matrix,
    /// The threshold, if it had to be raised to break cycles.
    pub(crate) raised_threshold: Option<f64>,
    pub(crate) settled: bool,
}

fn slow(found: SlowlyFound, columns: &[Vec<f64>], cautions: &mut Vec<Caution>) -> Matrix {
    cautions.push(Caution::Standardized);
    cautions.extend(found.raised_threshold.map(|threshold| Caution::BrokenCycles { threshold }));
    if !found.settled {
        cautions.push(Caution::Unsettled);
    }
    refit(columns, &found.weights)
}

/// Coefficients of least squares, by effect and cause, for the edges of weights by cause and effect. Penalties shrink
/// the weights of an optimiser, and those of networks are no coefficients at all.
fn refit(columns: &[Vec<f64>], weights: &Matrix) -> Matrix {
    let correlations = Matrix::second_moments(columns);
    let size = columns.len();
    let mut refitted = Matrix::zeros(size, size);
    for target in 0..size {
        let causes: Vec<usize> = (0..size).filter(|&from| weights[(from, target)] != 0.0).collect();
        let regression = lingam::Regression { correlations: &correlations, rows: columns[0].len(), target };
        for (&cause, coefficient) in causes.iter().zip(regression.fit(&causes)) {
            refitted[(target, cause)] = if coefficient == 0.0 { f64::MIN_POSITIVE } else { coefficient };
        }
    }
    refitted
}

/// What is left of a column, standardised, when its causes are taken away.
pub(crate) fn residual(columns: &[Vec<f64>], weights: &Matrix, at: usize) -> Vec<f64> {
    let mut rest = columns[at].clone();
    vectorize(|| {
        for (cause, weight) in weights.row(at).iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
            add_multiple(&mut rest, -weight, &columns[cause]);
        }
    });
    standardize(&mut rest);
    rest
}

fn find_common_causes(columns: &[Vec<f64>], weights: &Matrix, names: &[String]) -> Vec<Caution> {
    let residuals: Vec<Vec<f64>> = (0..columns.len()).map(|at| residual(columns, weights, at)).collect();
    let correlations = Matrix::second_moments(&residuals);
    let least = NOTABLE_CORRELATION.max(SIGNIFICANT / (columns[0].len() as f64).sqrt());
    let pairs =
        (0..names.len()).flat_map(|first| (first + 1..names.len()).map(move |second| (first, second)));
    let mut notable: Vec<(usize, usize)> = pairs.filter(|&at| correlations[at].abs() > least).collect();
    notable.sort_by(|&a, &b| correlations[b].abs().total_cmp(&correlations[a].abs()));
    let caution = |&(first, second): &(usize, usize)| Caution::CommonCause {
        first: names[first].clone(),
        second: names[second].clone(),
        correlation: correlations[(first, second)],
    };
    notable.iter().take(MAX_PAIRS).map(caution).collect()
}
