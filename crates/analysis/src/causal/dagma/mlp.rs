//! DAGMA with a small neural network for each variable. Slow, and never the default.
//!
//! A variable is predicted from all others by a network with one hidden layer of sigmoids; the weight of an edge is the
//! length of what leaves its cause. Gradients are written out by hand.
//!
//! Budget: thirteen columns of 500 rows take less than a minute of CPU time. The reference takes ten times as many
//! iterations at a tenth of the rate, about 38 minutes for 43 columns, and finds no better graph there.

use super::adam::Adam;
use super::linear::THRESHOLD;
use super::prune::prune_to_acyclic;
use crate::causal::discovery::SlowlyFound;
use crate::causal::error::CausalError;
use crate::causal::matrix::Matrix;
use crate::causal::prior::Constraints;
use crate::causal::random::Random;
use crate::causal::wide::{exp_negative, vectorize};

/// Hidden units of each network.
const HIDDEN: usize = 10;
/// Penalties of the first layer's absolute weights and of all squared weights.
const SPARSITY: f64 = 0.02;
const DECAY: f64 = 0.005;
/// The weight of the data beside that of acyclicity, step by step.
const PATH: [f64; 4] = [0.1, 0.01, 0.001, 0.0001];
const RATE: f64 = 2e-3;
const ITERATIONS: usize = 5000;
const LAST_ITERATIONS: usize = 8000;
const CHECKPOINT: usize = 500;
const TOLERANCE: f64 = 1e-5;
/// Times that a step is taken back with half the rate.
const TRIES: usize = 20;
/// Rows that are used; more cost time in proportion and change little.
const MAX_ROWS: usize = 500;

/// Finds the graph of standardised columns.
pub(crate) fn find_graph(
    columns: &[Vec<f64>],
    constraints: &Constraints,
    seed: u64,
) -> Result<SlowlyFound, CausalError> {
    let problem = Problem::new(columns, constraints);
    let mut parameters = problem.start(seed);
    let mut settled = true;
    for (step, &fit) in PATH.iter().enumerate() {
        let iterations = if step + 1 == PATH.len() { LAST_ITERATIONS } else { ITERATIONS };
        settled = problem.minimize(&mut parameters, fit, iterations)?;
    }
    let size = columns.len();
    let lengths = problem.squared_lengths(&parameters);
    let mut weights = Matrix::from_fn(size, size, |from, to| lengths[(from, to)].sqrt());
    let threshold = prune_to_acyclic(&mut weights, THRESHOLD, &constraints.required);
    // A required edge counts, even if the network makes nothing of it.
    for (from, to) in (0..size * size).map(|at| (at / size, at % size)) {
        if constraints.required.contains(from, to) && weights[(from, to)] == 0.0 {
            weights[(from, to)] = f64::MIN_POSITIVE;
        }
    }
    Ok(SlowlyFound { weights, raised_threshold: (threshold > THRESHOLD).then_some(threshold), settled })
}

/// The data, and which first-layer weights may differ from zero.
struct Problem {
    /// One row for each observation.
    rows: Matrix,
    transposed: Matrix,
    is_allowed: Vec<bool>,
}

/// Flat parameters: first layer (cause by network and unit), its biases, second layer, its biases.
struct Parts {
    first: usize,
    first_bias: usize,
    second: usize,
    second_bias: usize,
    all: usize,
}

impl Problem {
    fn new(columns: &[Vec<f64>], constraints: &Constraints) -> Self {
        let size = columns.len();
        let kept = columns[0].len().min(MAX_ROWS);
        let row = |at: usize| at * columns[0].len() / kept;
        let rows = Matrix::from_fn(kept, size, |i, j| columns[j][row(i)]);
        let is_allowed = (0..size * size * HIDDEN)
            .map(|at| constraints.allows(at / (size * HIDDEN), at % (size * HIDDEN) / HIDDEN))
            .collect();
        Self { transposed: rows.transpose(), rows, is_allowed }
    }

    fn size(&self) -> usize {
        self.rows.columns()
    }

    fn parts(&self) -> Parts {
        let units = self.size() * HIDDEN;
        let first_bias = self.size() * units;
        let second = first_bias + units;
        Parts { first: 0, first_bias, second, second_bias: second + units, all: second + units + self.size() }
    }

    /// The first layer is zero, so that no edge is favoured; the rest is drawn.
    fn start(&self, seed: u64) -> Vec<f64> {
        let parts = self.parts();
        let mut random = Random::new(seed);
        let mut parameters = vec![0.0; parts.all];
        let mut fill = |range: std::ops::Range<usize>, inputs: usize| {
            let bound = (inputs as f64).sqrt().recip();
            parameters[range].iter_mut().for_each(|value| *value = bound * (2.0 * random.unit() - 1.0));
        };
        fill(parts.first_bias..parts.second, self.size());
        fill(parts.second..parts.all, HIDDEN);
        parameters
    }

    /// Descends until the objective settles; says whether it did.
    fn minimize(&self, parameters: &mut [f64], fit: f64, iterations: usize) -> Result<bool, CausalError> {
        let mut rate = RATE;
        let mut adam = Adam::new(parameters.len());
        let mut safe = parameters.to_vec();
        let mut previous = f64::INFINITY;
        let mut tries = 0;
        let mut iteration = 0;
        while iteration < iterations {
            iteration += 1;
            let Some((objective, mut gradient)) = self.objective(parameters, fit) else {
                tries += 1;
                if tries > TRIES {
                    return Err(CausalError::Diverged);
                }
                rate /= 2.0;
                parameters.copy_from_slice(&safe);
                adam = Adam::new(parameters.len());
                continue;
            };
            if iteration % CHECKPOINT == 0 {
                if ((previous - objective) / previous).abs() <= TOLERANCE {
                    return Ok(true);
                }
                previous = objective;
                safe.copy_from_slice(parameters);
            }
            vectorize(|| {
                gradient
                    .iter_mut()
                    .zip(parameters.iter())
                    .for_each(|(slope, value)| *slope += fit * DECAY * value);
            });
            adam.precondition(&mut gradient);
            vectorize(|| crate::causal::wide::add_multiple(parameters, -rate, &gradient));
            let first = &mut parameters[..self.is_allowed.len()];
            first
                .iter_mut()
                .zip(&self.is_allowed)
                .filter(|(_, allowed)| !**allowed)
                .for_each(|(value, _)| *value = 0.0);
        }
        Ok(false)
    }

    /// The squared length of what leaves each cause for each network.
    fn squared_lengths(&self, parameters: &[f64]) -> Matrix {
        let size = self.size();
        Matrix::from_fn(size, size, |from, to| {
            let start = (from * size + to) * HIDDEN;
            parameters[start..start + HIDDEN].iter().map(|weight| weight * weight).sum()
        })
    }

    /// The objective and its gradient, without decay; none outside the region of acyclic graphs.
    fn objective(&self, parameters: &[f64], fit: f64) -> Option<(f64, Vec<f64>)> {
        let (size, rows) = (self.size(), self.rows.rows());
        let parts = self.parts();
        let units = size * HIDDEN;
        let lengths = self.squared_lengths(parameters);
        let mut inverse =
            Matrix::from_fn(size, size, |i, j| if i == j { 1.0 } else { 0.0 } - lengths[(i, j)]);
        let log_determinant = inverse.invert_m_matrix()?;
        let first = Matrix::from_fn(size, units, |i, j| parameters[parts.first + i * units + j]);
        let mut hidden = self.rows.multiply(&first);
        let first_bias = &parameters[parts.first_bias..parts.second];
        vectorize(|| {
            for row in 0..rows {
                for (value, bias) in hidden.row_mut(row).iter_mut().zip(first_bias) {
                    *value = sigmoid(*value + bias);
                }
            }
        });
        let second = &parameters[parts.second..parts.second_bias];
        let second_bias = &parameters[parts.second_bias..];
        let errors = Matrix::from_fn(rows, size, |row, to| {
            let units = &hidden.row(row)[to * HIDDEN..(to + 1) * HIDDEN];
            let weights = &second[to * HIDDEN..(to + 1) * HIDDEN];
            let value: f64 = units.iter().zip(weights).map(|(unit, weight)| unit * weight).sum();
            value + second_bias[to] - self.rows[(row, to)]
        });
        let squares: f64 = errors.values().iter().map(|error| error * error).sum();
        let score = size as f64 / 2.0 * (squares / rows as f64).ln();
        let sparsity: f64 = first.values().iter().map(|weight| weight.abs()).sum();
        let objective = fit * (score + SPARSITY * sparsity) - log_determinant;

        let mut gradient = vec![0.0; parts.all];
        let scale = fit * size as f64 / squares;
        let (front, second_slopes) = gradient.split_at_mut(parts.second);
        let (second_slopes, second_bias_slopes) = second_slopes.split_at_mut(units);
        let (first_slopes, first_bias_slopes) = front.split_at_mut(parts.first_bias);
        // From here on `hidden` turns into the slopes of what enters the units.
        vectorize(|| {
            for row in 0..rows {
                let units = hidden.row_mut(row).chunks_exact_mut(HIDDEN).zip(second.chunks_exact(HIDDEN));
                let slopes =
                    second_slopes.chunks_exact_mut(HIDDEN).zip(first_bias_slopes.chunks_exact_mut(HIDDEN));
                let outputs = errors.row(row).iter().zip(second_bias_slopes.iter_mut());
                for (((error, output_bias), (units, weights)), (leaving, bias)) in
                    outputs.zip(units).zip(slopes)
                {
                    let slope = scale * error;
                    *output_bias += slope;
                    for at in 0..HIDDEN {
                        leaving[at] += slope * units[at];
                        units[at] = slope * weights[at] * units[at] * (1.0 - units[at]);
                        bias[at] += units[at];
                    }
                }
            }
        });
        let entering = self.transposed.multiply(&hidden);
        for from in 0..size {
            for at in 0..units {
                let weight = first[(from, at)];
                let sign = if weight == 0.0 { 0.0 } else { weight.signum() };
                first_slopes[from * units + at] = entering[(from, at)]
                    + fit * SPARSITY * sign
                    + 2.0 * weight * inverse[(at / HIDDEN, from)];
            }
        }
        Some((objective, gradient))
    }
}

#[inline(always)]
fn sigmoid(x: f64) -> f64 {
    let power = exp_negative(x.abs());
    let small = power / (1.0 + power);
    if x < 0.0 { small } else { 1.0 - small }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::prior::Prior;

    fn columns(size: usize, rows: usize) -> Vec<Vec<f64>> {
        let mut random = Random::new(7);
        let mut columns: Vec<Vec<f64>> =
            (0..size).map(|_| (0..rows).map(|_| random.normal()).collect()).collect();
        for at in 1..size {
            let (before, from_here) = columns.split_at_mut(at);
            from_here[0].iter_mut().zip(&before[at - 1]).for_each(|(y, x)| *y = x + x * x + 0.3 * *y);
        }
        columns.iter_mut().for_each(|column| {
            crate::causal::observations::standardize(column);
        });
        columns
    }

    fn names(size: usize) -> Vec<String> {
        (0..size).map(|at| format!("x{at}")).collect()
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let constraints = Constraints::resolve(&[], &names(3), &[]).unwrap();
        let problem = Problem::new(&columns(3, 20), &constraints);
        let mut parameters = problem.start(1);
        let mut random = Random::new(2);
        parameters[..problem.is_allowed.len()].iter_mut().for_each(|value| *value = 0.1 * random.normal());
        let (_, gradient) = problem.objective(&parameters, 0.1).unwrap();
        for (at, &known) in gradient.iter().enumerate() {
            let value = parameters[at];
            let mut objective = |shift: f64| {
                parameters[at] = value + shift;
                problem.objective(&parameters, 0.1).unwrap().0
            };
            let slope = (objective(1e-6) - objective(-1e-6)) / 2e-6;
            parameters[at] = value;
            assert!((slope - known).abs() < 1e-6, "{at}: {slope} {known}");
        }
    }

    #[test]
    fn a_curved_effect_is_found_in_the_known_order_and_nothing_forbidden() {
        let data = columns(2, 120);
        let find = |prior: Prior| {
            let constraints = Constraints::resolve(&[prior], &names(2), &[]).unwrap();
            find_graph(&data, &constraints, 1).unwrap().weights
        };
        let ordered = find(Prior::Path { from: "x0".into(), to: "x1".into() });
        assert!(ordered[(0, 1)] > THRESHOLD && ordered[(1, 0)] == 0.0, "{ordered:?}");
        let forbidden = find(Prior::ForbiddenEdge { from: "x0".into(), to: "x1".into() });
        assert_eq!(forbidden[(0, 1)], 0.0);
    }
}
