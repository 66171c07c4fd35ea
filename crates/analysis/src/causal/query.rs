//! What happens if columns are set: means, intervals and limits.
//!
//! All queries of a model share their random numbers: noise is drawn by place, not by turn. So two queries differ by
//! what was asked and not by chance, and a curve over many levels is as smooth as the mechanisms are.

use serde::{Deserialize, Serialize};

use super::error::CausalError;
use super::mechanism::REPLICAS;
use super::model::StructuralModel;
use super::observations::mean;
use super::random::draw_at;

/// Draws of the noise behind a mean.
const SAMPLES: usize = 100;
/// Draws behind each replica; replicas are compared with the model itself on the same draws, so few are enough.
const REPLICA_SAMPLES: usize = 8;
/// The share of replicas, and of single observations, inside an interval.
const LEVEL: f64 = 0.9;
/// The most levels of a sweep.
pub const MAX_LEVELS: usize = 10_000;

/// A column that is set to a value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// The column.
    pub column: String,
    /// Its value.
    pub value: f64,
}

/// What a node will be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// The node.
    pub node: String,
    /// Its mean.
    pub mean: f64,
    /// Nine of ten models that the data allows have their mean in here.
    pub mean_interval: [f64; 2],
    /// Nine of ten single observations are in here.
    pub observation_interval: [f64; 2],
}

/// The answer to an intervention.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Intervention {
    /// What was set.
    pub set: Vec<Setting>,
    /// Columns that were set outside of what was observed: the answer goes beyond the data.
    pub beyond_data: Vec<String>,
    /// What follows, for each node that was asked for.
    pub predictions: Vec<Prediction>,
}

/// Raises one column step by step while others are held.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The column that is raised.
    pub column: String,
    /// The first level.
    pub from: f64,
    /// The last level.
    pub to: f64,
    /// The difference between two levels.
    pub step: f64,
    /// What is held.
    pub held: Vec<Setting>,
}

/// Where a node first exceeds a threshold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit {
    /// The node.
    pub node: String,
    /// The threshold.
    pub threshold: f64,
    /// The column that was raised.
    pub column: String,
    /// The first level whose mean exceeds the threshold; none up to the last level.
    pub limit: Option<f64>,
    /// Nine of ten models that the data allows have their limit in here; none is beyond the last level.
    pub interval: [Option<f64>; 2],
    /// The largest level that was observed, if the sweep goes beyond it.
    pub observed_up_to: Option<f64>,
    /// The mean at every level.
    pub curve: Vec<CurvePoint>,
}

/// The mean of a node at one level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The level.
    pub level: f64,
    /// The mean.
    pub mean: f64,
    /// The interval of the mean.
    pub interval: [f64; 2],
}

/// All nodes over all levels of a sweep. Limits of many nodes are read from it without asking the model again.
#[derive(Debug, Clone)]
pub struct SweepAnswer {
    column: String,
    levels: Vec<Means>,
    values: Vec<f64>,
    observed_up_to: Option<f64>,
}

/// Means of all nodes, of the model and of its replicas.
#[derive(Debug, Clone)]
struct Means {
    own: Vec<f64>,
    /// By replica, then by node.
    replicas: Vec<Vec<f64>>,
}

impl StructuralModel {
    /// Predicts these nodes if columns are set.
    pub fn intervene(&self, set: &[Setting], nodes: &[String]) -> Result<Intervention, CausalError> {
        let fixed = self.resolve(set)?;
        let samples = self.propagate(&fixed, SAMPLES, None);
        let means = self.means(&fixed, &samples);
        let mut predictions = Vec::new();
        for node in nodes {
            let at = self.graph.position(node)?;
            let mut sorted = samples[at].clone();
            sorted.sort_by(f64::total_cmp);
            predictions.push(Prediction {
                node: node.clone(),
                mean: means.own[at],
                mean_interval: means.interval(at),
                observation_interval: ends(&sorted),
            });
        }
        let is_beyond =
            |at: usize, value: f64| !(self.nodes[at].range[0]..=self.nodes[at].range[1]).contains(&value);
        let beyond =
            fixed.iter().enumerate().filter(|(at, value)| value.is_some_and(|value| is_beyond(*at, value)));
        let beyond_data = beyond.map(|(at, _)| self.graph.nodes()[at].clone()).collect();
        Ok(Intervention { set: set.to_vec(), beyond_data, predictions })
    }

    /// Raises a column and predicts every node at every level.
    pub fn sweep(&self, sweep: &Sweep) -> Result<SweepAnswer, CausalError> {
        let column = self.graph.position(&sweep.column)?;
        let Sweep { from, to, step, .. } = *sweep;
        if !(step > 0.0 && from <= to && (to - from) / step < MAX_LEVELS as f64) {
            let problem = format!("a sweep goes up in at most {MAX_LEVELS} steps");
            return Err(CausalError::BadQuery(problem));
        }
        let mut fixed = self.resolve(&sweep.held)?;
        let count = ((to - from) / step + 1e-9).floor() as usize + 1;
        let values: Vec<f64> = (0..count).map(|at| from + step * at as f64).collect();
        let levels = values.iter().map(|&level| {
            fixed[column] = Some(level);
            let samples = self.propagate(&fixed, SAMPLES, None);
            self.means(&fixed, &samples)
        });
        let levels = levels.collect();
        let observed = self.nodes[column].range[1];
        let observed_up_to = (to > observed).then_some(observed);
        Ok(SweepAnswer { column: sweep.column.clone(), levels, values, observed_up_to })
    }

    /// Raises a column until the mean of a node exceeds a threshold.
    pub fn find_limit(&self, sweep: &Sweep, node: &str, threshold: f64) -> Result<Limit, CausalError> {
        Ok(self.sweep(sweep)?.limit(self.graph.position(node)?, node, threshold))
    }

    /// Means of all nodes if columns are set.
    pub(crate) fn mean_values(&self, set: &[Setting]) -> Result<Vec<f64>, CausalError> {
        Ok(self.propagate(&self.resolve(set)?, SAMPLES, None).iter().map(|values| mean(values)).collect())
    }

    /// The value that each node is set to.
    fn resolve(&self, set: &[Setting]) -> Result<Vec<Option<f64>>, CausalError> {
        let mut fixed = vec![None; self.nodes.len()];
        for Setting { column, value } in set {
            let at = self.graph.position(column)?;
            if !value.is_finite() {
                return Err(CausalError::BadQuery(format!("`{column}` is not set to a finite number")));
            }
            if fixed[at].replace(*value).is_some() {
                return Err(CausalError::BadQuery(format!("`{column}` is set twice")));
            }
        }
        Ok(fixed)
    }

    /// Draws of all nodes, causes before effects.
    fn propagate(&self, fixed: &[Option<f64>], samples: usize, replica: Option<usize>) -> Vec<Vec<f64>> {
        let mut drawn: Vec<Vec<f64>> = vec![Vec::new(); self.nodes.len()];
        let mut causes = Vec::new();
        for &at in self.graph.order() {
            let node = &self.nodes[at];
            let value_of = |sample: usize| {
                if let Some(value) = fixed[at] {
                    return value;
                }
                let Some(form) = &node.mechanism else {
                    // Roots share the drawn row, so that what was set together stays together.
                    return node.noise[draw_at(self.seed, [sample, 0], node.noise.len())];
                };
                causes.clear();
                causes.extend(node.parents.iter().map(|&parent| drawn[parent][sample]));
                form.predict(&causes, replica)
                    + node.noise[draw_at(self.seed, [sample, at + 1], node.noise.len())]
            };
            drawn[at] = (0..samples).map(value_of).collect();
        }
        drawn
    }

    /// Means of the model and of its replicas.
    fn means(&self, fixed: &[Option<f64>], samples: &[Vec<f64>]) -> Means {
        let own: Vec<f64> = samples.iter().map(|values| mean(values)).collect();
        let few: Vec<f64> = samples.iter().map(|values| mean(&values[..REPLICA_SAMPLES])).collect();
        let replica = |at: usize| -> Vec<f64> {
            let drawn = self.propagate(fixed, REPLICA_SAMPLES, Some(at));
            let moved = drawn.iter().zip(&own).zip(&few).map(|((values, own), few)| own + mean(values) - few);
            moved.collect()
        };
        Means { replicas: (0..REPLICAS).map(replica).collect(), own }
    }
}

impl Means {
    fn interval(&self, node: usize) -> [f64; 2] {
        let mut sorted: Vec<f64> = self.replicas.iter().map(|means| means[node]).collect();
        sorted.sort_by(f64::total_cmp);
        ends(&sorted)
    }
}

impl SweepAnswer {
    /// Where a node, by its place in the graph and its name, first exceeds a threshold.
    pub fn limit(&self, node: usize, name: &str, threshold: f64) -> Limit {
        let crossing = |means: &dyn Fn(&Means) -> f64| {
            self.levels.iter().position(|level| means(level) > threshold).map(|at| self.values[at])
        };
        let mut limits: Vec<f64> = (0..REPLICAS)
            .map(|replica| crossing(&|level| level.replicas[replica][node]).unwrap_or(f64::INFINITY))
            .collect();
        limits.sort_by(f64::total_cmp);
        let point = |(means, &level): (&Means, &f64)| CurvePoint {
            level,
            mean: means.own[node],
            interval: means.interval(node),
        };
        Limit {
            node: name.to_owned(),
            threshold,
            column: self.column.clone(),
            limit: crossing(&|level| level.own[node]),
            interval: ends(&limits).map(|end| Some(end).filter(|end| end.is_finite())),
            observed_up_to: self.observed_up_to,
            curve: self.levels.iter().zip(&self.values).map(point).collect(),
        }
    }
}

/// Both ends of the middle [`LEVEL`] of sorted values.
fn ends(sorted: &[f64]) -> [f64; 2] {
    let tail = (1.0 - LEVEL) / 2.0;
    let last = sorted.len().saturating_sub(1) as f64;
    [tail, 1.0 - tail].map(|share| sorted.get((last * share).round() as usize).copied().unwrap_or(f64::NAN))
}
