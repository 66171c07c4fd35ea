//! DAG-GNN (Yu et al. 2019): a variational autoencoder around a matrix of edges. Slow, and never the default.
//!
//! Encoder and decoder are one small network each that is applied to every value; between them the matrix says how the
//! variables influence one another, and an augmented Lagrangian makes it acyclic. As in the published code, the mean of
//! the hidden variables is decoded without drawing noise; so the inverse of the decoder cancels the matrix of the
//! encoder, and the edges follow from the prior of the hidden variables. Unlike there, all rows are one batch.
//!
//! Budget: thirteen columns of 500 rows take less than two minutes of CPU time.

use super::dagma::adam::Adam;
use super::dagma::linear::THRESHOLD;
use super::dagma::prune::prune_to_acyclic;
use super::discovery::SlowlyFound;
use super::error::CausalError;
use super::matrix::Matrix;
use super::prior::Constraints;
use super::random::Random;
use super::wide::vectorize;

/// Hidden units of encoder and decoder.
const HIDDEN: usize = 64;
/// The penalty of edges from a variable to itself.
const SELF_PENALTY: f64 = 100.0;
const RATE: f64 = 3e-3;
/// Steps between two looks at the constraint, and looks at most.
const EPOCHS: usize = 300;
const LOOKS: usize = 24;
/// The constraint counts as met below this; what is left of cycles is broken afterwards.
const ACYCLIC: f64 = 1e-8;
/// The constraint must shrink to this share, or its penalty is multiplied.
const SHRINK: f64 = 0.25;
const ESCALATE: f64 = 10.0;
const MAX_PENALTY: f64 = 1e16;
/// Usual rates of Adam.
const BETAS: [f64; 2] = [0.9, 0.999];
/// Rows that are used.
const MAX_ROWS: usize = 500;

/// Finds the graph of standardised columns.
pub(crate) fn find_graph(
    columns: &[Vec<f64>],
    constraints: &Constraints,
    seed: u64,
) -> Result<SlowlyFound, CausalError> {
    let problem = Problem::new(columns, constraints);
    let mut parameters = problem.start(seed);
    let mut lagrange = Lagrange { multiplier: 0.0, penalty: 1.0 };
    let mut last = f64::INFINITY;
    let mut settled = false;
    for _ in 0..LOOKS {
        let mut adam = Adam::with_betas(parameters.len(), BETAS);
        let mut cyclic = 0.0;
        for _ in 0..EPOCHS {
            let Evaluation { objective, cyclicity, mut gradient } = problem.evaluate(&parameters, lagrange);
            if !objective.is_finite() {
                return Err(CausalError::Diverged);
            }
            adam.precondition(&mut gradient);
            vectorize(|| super::wide::add_multiple(&mut parameters, -RATE, &gradient));
            problem.mask(&mut parameters);
            cyclic = cyclicity;
        }
        lagrange.multiplier += lagrange.penalty * cyclic;
        if cyclic > SHRINK * last {
            lagrange.penalty = (lagrange.penalty * ESCALATE).min(MAX_PENALTY);
        }
        last = cyclic;
        if cyclic <= ACYCLIC {
            settled = true;
            break;
        }
    }
    let mut weights = problem.edges(&parameters);
    let threshold = prune_to_acyclic(&mut weights, THRESHOLD, &constraints.required);
    for (from, to) in (0..columns.len()).flat_map(|from| (0..columns.len()).map(move |to| (from, to))) {
        if constraints.required.contains(from, to) && weights[(from, to)] == 0.0 {
            weights[(from, to)] = f64::MIN_POSITIVE;
        }
    }
    Ok(SlowlyFound { weights, raised_threshold: (threshold > THRESHOLD).then_some(threshold), settled })
}

/// The weight of the constraint.
#[derive(Debug, Clone, Copy)]
struct Lagrange {
    multiplier: f64,
    penalty: f64,
}

/// The objective at one place.
struct Evaluation {
    objective: f64,
    /// Zero if there is no cycle.
    cyclicity: f64,
    gradient: Vec<f64>,
}

struct Problem {
    rows: Matrix,
    is_allowed: Vec<bool>,
}

/// The parameters of one network in the flat vector: weights and biases of its units, their weights, one bias.
const NETWORK: usize = 3 * HIDDEN + 1;

impl Problem {
    fn new(columns: &[Vec<f64>], constraints: &Constraints) -> Self {
        let size = columns.len();
        let kept = columns[0].len().min(MAX_ROWS);
        let rows = Matrix::from_fn(kept, size, |i, j| columns[j][i * columns[0].len() / kept]);
        let is_allowed = (0..size * size).map(|at| constraints.allows(at / size, at % size)).collect();
        Self { rows, is_allowed }
    }

    /// First the matrix, which is zero, then encoder and decoder, drawn.
    fn start(&self, seed: u64) -> Vec<f64> {
        let mut random = Random::new(seed);
        let edges = self.is_allowed.len();
        let mut parameters = vec![0.0; edges + 2 * NETWORK];
        for network in parameters[edges..].chunks_mut(NETWORK) {
            for (at, value) in network.iter_mut().enumerate() {
                let bound = if at < 2 * HIDDEN { 1.0 } else { (HIDDEN as f64).sqrt().recip() };
                *value = bound * (2.0 * random.unit() - 1.0);
            }
        }
        parameters
    }

    fn mask(&self, parameters: &mut [f64]) {
        let forbidden = parameters.iter_mut().zip(&self.is_allowed).filter(|(_, allowed)| !**allowed);
        forbidden.for_each(|(value, _)| *value = 0.0);
    }

    /// The matrix of edges: a hyperbolic sine lets small parameters reach large weights.
    fn edges(&self, parameters: &[f64]) -> Matrix {
        let size = self.rows.columns();
        Matrix::from_fn(size, size, |i, j| (3.0 * parameters[i * size + j]).sinh())
    }

    fn evaluate(&self, parameters: &[f64], lagrange: Lagrange) -> Evaluation {
        let (size, count) = (self.rows.columns(), self.rows.rows() as f64);
        let matrix = self.edges(parameters);
        let (encoder, decoder) = parameters[size * size..].split_at(NETWORK);
        let codes = apply(encoder, &self.rows);
        // What remains of the codes when the influence of others is taken away: the hidden variables.
        let mut hidden = codes.multiply(&matrix);
        hidden.values_mut().iter_mut().zip(codes.values()).for_each(|(value, code)| *value = code - *value);
        let decoded = apply(decoder, &codes);
        let half_squares =
            |matrix: &Matrix| matrix.values().iter().map(|value| value * value).sum::<f64>() / 2.0;
        let mut errors = decoded;
        errors.values_mut().iter_mut().zip(self.rows.values()).for_each(|(value, wanted)| *value -= wanted);
        let (cyclicity, cyclic_slopes) = measure_cycles(&matrix);
        let selves: f64 = (0..size).map(|at| matrix[(at, at)] * matrix[(at, at)]).sum();
        let objective = (half_squares(&errors) + half_squares(&hidden)) / count
            + lagrange.multiplier * cyclicity
            + lagrange.penalty / 2.0 * cyclicity * cyclicity
            + SELF_PENALTY * selves;

        let mut gradient = vec![0.0; parameters.len()];
        let (edge_slopes, network_slopes) = gradient.split_at_mut(size * size);
        let (encoder_slopes, decoder_slopes) = network_slopes.split_at_mut(NETWORK);
        for slopes in [&mut errors, &mut hidden] {
            slopes.values_mut().iter_mut().for_each(|value| *value /= count);
        }
        let mut code_slopes = propagate(decoder, &codes, &errors, decoder_slopes);
        let passed_back = hidden.multiply(&matrix.transpose());
        let known = hidden.values().iter().zip(passed_back.values());
        code_slopes
            .values_mut()
            .iter_mut()
            .zip(known)
            .for_each(|(slope, (direct, back))| *slope += direct - back);
        propagate(encoder, &self.rows, &code_slopes, encoder_slopes);
        let from_codes = codes.transpose().multiply(&hidden);
        let force = lagrange.multiplier + lagrange.penalty * cyclicity;
        for (at, edge_slope) in edge_slopes.iter_mut().enumerate() {
            let own = if at / size == at % size { 2.0 * SELF_PENALTY * matrix.values()[at] } else { 0.0 };
            let slope = force * cyclic_slopes.values()[at] - from_codes.values()[at] + own;
            *edge_slope = slope * 3.0 * (3.0 * parameters[at]).cosh();
        }
        Evaluation { objective, cyclicity, gradient }
    }
}

/// `tr((I + A.A/d)^d) - d`, zero if there is no cycle, and its slopes.
fn measure_cycles(matrix: &Matrix) -> (f64, Matrix) {
    let size = matrix.rows();
    let base = Matrix::from_fn(size, size, |i, j| {
        let diagonal = if i == j { 1.0 } else { 0.0 };
        diagonal + matrix[(i, j)] * matrix[(i, j)] / size as f64
    });
    let mut power = Matrix::identity(size);
    let mut square = base.clone();
    let mut exponent = size - 1;
    while exponent > 0 {
        if exponent % 2 == 1 {
            power = power.multiply(&square);
        }
        square = square.multiply(&square);
        exponent /= 2;
    }
    let whole = power.multiply(&base);
    let trace: f64 = (0..size).map(|at| whole[(at, at)]).sum();
    let slopes = Matrix::from_fn(size, size, |i, j| 2.0 * matrix[(i, j)] * power[(j, i)]);
    (trace - size as f64, slopes)
}

/// Applies a network to every value.
fn apply(network: &[f64], inputs: &Matrix) -> Matrix {
    let (first, bias, second) =
        (&network[..HIDDEN], &network[HIDDEN..2 * HIDDEN], &network[2 * HIDDEN..3 * HIDDEN]);
    let mut outputs = inputs.clone();
    vectorize(|| {
        for value in outputs.values_mut() {
            let mut sums = [0.0; 8];
            for start in (0..HIDDEN).step_by(8) {
                for (lane, sum) in sums.iter_mut().enumerate() {
                    let at = start + lane;
                    *sum += second[at] * (first[at] * *value + bias[at]).max(0.0);
                }
            }
            *value = network[3 * HIDDEN] + sums.iter().sum::<f64>();
        }
    });
    outputs
}

/// Adds the slopes of a network's parameters, and returns those of its inputs.
fn propagate(network: &[f64], inputs: &Matrix, output_slopes: &Matrix, slopes: &mut [f64]) -> Matrix {
    let (first, bias, second) =
        (&network[..HIDDEN], &network[HIDDEN..2 * HIDDEN], &network[2 * HIDDEN..3 * HIDDEN]);
    let (first_slopes, rest) = slopes.split_at_mut(HIDDEN);
    let (bias_slopes, rest) = rest.split_at_mut(HIDDEN);
    let (second_slopes, last_slope) = rest.split_at_mut(HIDDEN);
    let mut input_slopes = output_slopes.clone();
    vectorize(|| {
        for (slope, &input) in input_slopes.values_mut().iter_mut().zip(inputs.values()) {
            let output = *slope;
            let mut back = [0.0; 8];
            for start in (0..HIDDEN).step_by(8) {
                for (lane, back) in back.iter_mut().enumerate() {
                    let at = start + lane;
                    let before = first[at] * input + bias[at];
                    let through = if before > 0.0 { output } else { 0.0 };
                    second_slopes[at] += through * before;
                    let entering = through * second[at];
                    bias_slopes[at] += entering;
                    first_slopes[at] += entering * input;
                    *back += entering * first[at];
                }
            }
            last_slope[0] += output;
            *slope = back.iter().sum();
        }
    });
    input_slopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::observations::standardize;

    fn names(size: usize) -> Vec<String> {
        (0..size).map(|at| format!("x{at}")).collect()
    }

    fn chain(size: usize, rows: usize) -> Vec<Vec<f64>> {
        let mut random = Random::new(3);
        let mut columns: Vec<Vec<f64>> =
            (0..size).map(|_| (0..rows).map(|_| random.normal()).collect()).collect();
        for at in 1..size {
            let (before, from_here) = columns.split_at_mut(at);
            from_here[0].iter_mut().zip(&before[at - 1]).for_each(|(y, x)| *y = 2.0 * x + 0.5 * *y);
        }
        columns.iter_mut().for_each(|column| {
            standardize(column);
        });
        columns
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let constraints = Constraints::resolve(&[], &names(3), &[]).unwrap();
        let problem = Problem::new(&chain(3, 15), &constraints);
        let mut parameters = problem.start(1);
        let mut random = Random::new(2);
        parameters[..9].iter_mut().for_each(|value| *value = 0.2 * random.normal());
        let lagrange = Lagrange { multiplier: 0.7, penalty: 3.0 };
        let gradient = problem.evaluate(&parameters, lagrange).gradient;
        for (at, &known) in gradient.iter().enumerate() {
            let value = parameters[at];
            let mut objective = |shift: f64| {
                parameters[at] = value + shift;
                problem.evaluate(&parameters, lagrange).objective
            };
            let slope = (objective(1e-6) - objective(-1e-6)) / 2e-6;
            parameters[at] = value;
            assert!((slope - known).abs() < 1e-5 * slope.abs().max(1.0), "{at}: {slope} {known}");
        }
    }

    #[test]
    fn neighbours_in_a_chain_are_connected_without_cycles() {
        let constraints = Constraints::resolve(&[], &names(2), &[]).unwrap();
        let found = find_graph(&chain(2, 60), &constraints, 1).unwrap();
        let [there, back] = [found.weights[(0, 1)], found.weights[(1, 0)]];
        assert!((there == 0.0) != (back == 0.0), "{there} {back}");
    }
}
