//! DAGMA with linear effects.

use super::adam::Adam;
use super::prune::prune_to_acyclic;
use crate::causal::error::CausalError;
use crate::causal::matrix::Matrix;
use crate::causal::prior::Constraints;
use crate::causal::wide::vectorize;

/// Penalty of the sum of absolute weights.
const SPARSITY: f64 = 0.03;
/// Weights below this are no edges, in standard deviations.
pub(crate) const THRESHOLD: f64 = 0.3;
/// The path: the weight of the data beside that of acyclicity, and the radius of the region that is searched.
const PATH: [(f64, f64); 5] = [(1.0, 1.0), (0.1, 0.9), (0.01, 0.8), (0.001, 0.7), (0.0001, 0.6)];
/// Learning rate and iterations of the reference.
const RATE: f64 = 3e-4;
const ITERATIONS: usize = 30_000;
const LAST_ITERATIONS: usize = 60_000;
/// Iterations between looks at the objective, and the relative change that ends a step.
const CHECKPOINT: usize = 1000;
const TOLERANCE: f64 = 1e-6;
/// Tries of one step with a smaller rate and a larger radius; the reference tries for ever.
const TRIES: usize = 12;

/// What was found: weights by cause and effect, and the threshold that left no cycle.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) weights: Matrix,
    pub(crate) threshold: f64,
}

/// Finds the graph of columns with these covariances.
pub(crate) fn find_graph(covariances: &Matrix, constraints: &Constraints) -> Result<Found, CausalError> {
    let problem = Problem::new(covariances, constraints);
    let mut weights = Matrix::zeros(covariances.rows(), covariances.rows());
    for (step, &(fit, radius)) in PATH.iter().enumerate() {
        let iterations = if step + 1 == PATH.len() { LAST_ITERATIONS } else { ITERATIONS };
        let mut attempt = Step { fit, radius, rate: RATE, iterations };
        weights = (0..TRIES)
            .find_map(|_| {
                let found = problem.minimize(weights.clone(), attempt);
                attempt = Step { radius: attempt.radius + 0.1, rate: attempt.rate / 2.0, ..attempt };
                found
            })
            .ok_or(CausalError::Diverged)?;
    }
    let threshold = prune_to_acyclic(&mut weights, THRESHOLD, &constraints.required);
    Ok(Found { weights, threshold })
}

/// One step of the path.
#[derive(Debug, Clone, Copy)]
struct Step {
    fit: f64,
    radius: f64,
    rate: f64,
    iterations: usize,
}

struct Problem<'a> {
    covariances: &'a Matrix,
    /// 1 where an edge may be, 0 elsewhere.
    mask: Vec<f64>,
    /// The penalty of each weight: none for required edges.
    sparsity: Vec<f64>,
}

impl<'a> Problem<'a> {
    fn new(covariances: &'a Matrix, constraints: &Constraints) -> Self {
        let size = covariances.rows();
        let pairs = || (0..size * size).map(|at| (at / size, at % size));
        let mask = pairs().map(|(from, to)| if constraints.allows(from, to) { 1.0 } else { 0.0 }).collect();
        let penalty = |(from, to)| if constraints.required.contains(from, to) { 0.0 } else { SPARSITY };
        Self { covariances, mask, sparsity: pairs().map(penalty).collect() }
    }

    /// Minimises the objective from given weights; none if they leave the region of acyclic graphs.
    fn minimize(&self, mut weights: Matrix, step: Step) -> Option<Matrix> {
        let size = weights.rows();
        let mut rate = step.rate;
        let mut adam = Adam::new(size * size);
        let mut gradient = Matrix::zeros(size, size);
        let mut previous = f64::INFINITY;
        for iteration in 1..=step.iterations {
            let mut inverse = acyclicity_matrix(&weights, step.radius);
            while inverse.invert_m_matrix().is_none() {
                if iteration == 1 || step.radius <= 0.9 {
                    return None;
                }
                // Goes half of the last step back.
                rate /= 2.0;
                if rate <= 1e-16 {
                    return Some(weights);
                }
                subtract(&mut weights, -rate, &gradient);
                inverse = acyclicity_matrix(&weights, step.radius);
            }
            self.set_gradient(&mut gradient, &weights, &inverse, step.fit);
            adam.precondition(gradient.values_mut());
            subtract(&mut weights, rate, &gradient);
            weights.values_mut().iter_mut().zip(&self.mask).for_each(|(weight, mask)| *weight *= mask);
            if iteration % CHECKPOINT == 0 {
                let objective = self.objective(&weights, step)?;
                if ((previous - objective) / previous).abs() <= TOLERANCE {
                    break;
                }
                previous = objective;
            }
        }
        Some(weights)
    }

    /// The gradient of the objective, given the inverse of the acyclicity matrix.
    fn set_gradient(&self, gradient: &mut Matrix, weights: &Matrix, inverse: &Matrix, fit: f64) {
        let transposed = inverse.transpose();
        gradient.set_product(self.covariances, weights);
        vectorize(|| {
            let known = weights.values().iter().zip(transposed.values());
            let known = known.zip(self.covariances.values().iter().zip(&self.sparsity));
            for (value, ((weight, inverse), (covariance, sparsity))) in
                gradient.values_mut().iter_mut().zip(known)
            {
                let sign = if *weight > 0.0 { 1.0 } else { 0.0 } - if *weight < 0.0 { 1.0 } else { 0.0 };
                *value = fit * (*value - covariance + sparsity * sign) + 2.0 * weight * inverse;
            }
        });
    }

    /// Half the mean squared error plus penalties; none outside the region.
    fn objective(&self, weights: &Matrix, step: Step) -> Option<f64> {
        let size = weights.rows();
        let rest = Matrix::from_fn(size, size, |i, j| if i == j { 1.0 } else { 0.0 } - weights[(i, j)]);
        let product = self.covariances.multiply(&rest);
        let error: f64 = rest.values().iter().zip(product.values()).map(|(a, b)| a * b).sum::<f64>() / 2.0;
        let sparsity: f64 = weights.values().iter().zip(&self.sparsity).map(|(w, s)| w.abs() * s).sum();
        let log_determinant = acyclicity_matrix(weights, step.radius).invert_m_matrix()?;
        Some(step.fit * (error + sparsity) - log_determinant + size as f64 * step.radius.ln())
    }
}

/// `s I - W . W`, whose determinant falls when cycles get heavier.
pub(crate) fn acyclicity_matrix(weights: &Matrix, radius: f64) -> Matrix {
    let size = weights.rows();
    let mut matrix = Matrix::zeros(size, size);
    vectorize(|| {
        matrix
            .values_mut()
            .iter_mut()
            .zip(weights.values())
            .for_each(|(value, weight)| *value = -weight * weight);
    });
    (0..size).for_each(|at| matrix[(at, at)] += radius);
    matrix
}

fn subtract(weights: &mut Matrix, rate: f64, direction: &Matrix) {
    vectorize(|| crate::causal::wide::add_multiple(weights.values_mut(), -rate, direction.values()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let size = 4;
        let covariances =
            Matrix::from_fn(size, size, |i, j| if i == j { 1.0 } else { 0.3 / (1 + i + j) as f64 });
        let constraints = Constraints::resolve(&[], &["a", "b", "c", "d"].map(str::to_owned), &[]).unwrap();
        let problem = Problem::new(&covariances, &constraints);
        let step = Step { fit: 0.1, radius: 1.0, rate: RATE, iterations: 1 };
        let mut weights = Matrix::from_fn(size, size, |i, j| 0.1 + 0.05 * i as f64 - 0.07 * j as f64);
        let mut inverse = acyclicity_matrix(&weights, step.radius);
        inverse.invert_m_matrix().unwrap();
        let mut gradient = Matrix::zeros(size, size);
        problem.set_gradient(&mut gradient, &weights, &inverse, step.fit);
        for at in 0..size * size {
            let value = weights.values()[at];
            let mut objective = |shift: f64| {
                weights.values_mut()[at] = value + shift;
                problem.objective(&weights, step).unwrap()
            };
            let slope = (objective(1e-6) - objective(-1e-6)) / 2e-6;
            weights.values_mut()[at] = value;
            assert!((slope - gradient.values()[at]).abs() < 1e-7, "{at}: {slope} {}", gradient.values()[at]);
        }
    }
}
