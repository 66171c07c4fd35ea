//! Sums of simple functions of the causes: linear, polynomial and queueing-shaped mechanisms.

use serde::{Deserialize, Serialize};

use crate::causal::matrix::Matrix;
use crate::causal::observations::{mean, standardize};
use crate::causal::random::Random;
use crate::causal::solve::Cholesky;
use crate::causal::wide::{dot, vectorize};

/// Draws of the coefficients that show how uncertain a mechanism is.
pub(crate) const REPLICAS: usize = 32;

/// A queue is followed to this utilisation; beyond, its delay grows along the tangent and stays finite.
const MAX_UTILIZATION: f64 = 0.98;

/// One function of the causes. Causes are counted from 0 among those of the mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "term", rename_all = "kebab-case")]
pub(crate) enum Term {
    /// The cause itself.
    Linear { cause: usize },
    /// A product of two causes, or a square.
    Product { first: usize, second: usize },
    /// What the cause has beyond a knot: a service that was idle so far.
    Hinge { cause: usize, knot: f64 },
    /// `x / (1 - x/c)`: the queue in front of a server with capacity c.
    Delay { cause: usize, capacity: f64 },
    /// `x / (1 + x/c)`: the throughput of a closed system that saturates.
    Saturation { cause: usize, capacity: f64 },
}

impl Term {
    pub(crate) fn evaluate(&self, causes: &[f64]) -> f64 {
        match *self {
            Self::Linear { cause } => causes[cause],
            Self::Product { first, second } => causes[first] * causes[second],
            Self::Hinge { cause, knot } => (causes[cause] - knot).max(0.0),
            Self::Delay { cause, capacity } => {
                let edge = MAX_UTILIZATION * capacity;
                let x = causes[cause];
                let inside = x.min(edge);
                let rest = 1.0 - inside / capacity;
                inside / rest + (x - inside) / (rest * rest)
            }
            // Below zero the formula has a pole.
            Self::Saturation { cause, capacity } => {
                let x = causes[cause];
                if x < 0.0 { x } else { x / (1.0 + x / capacity) }
            }
        }
    }

    /// Whether it refers to causes that exist, with numbers that mean something.
    pub(crate) fn is_sound(&self, causes: usize) -> bool {
        match *self {
            Self::Linear { cause } => cause < causes,
            Self::Product { first, second } => first < causes && second < causes,
            Self::Hinge { cause, knot } => cause < causes && knot.is_finite(),
            Self::Delay { cause, capacity } | Self::Saturation { cause, capacity } => {
                cause < causes && capacity.is_finite() && capacity > 0.0
            }
        }
    }
}

/// A weighted sum of terms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Basis {
    pub(crate) terms: Vec<Term>,
    /// The intercept, then one coefficient for each term.
    pub(crate) coefficients: Vec<f64>,
    /// Other coefficients that the data allows as well, drawn from their distribution.
    pub(crate) replicas: Vec<Vec<f64>>,
}

impl Basis {
    /// Least squares on the rows of `causes` (one column for each cause).
    pub(crate) fn fit(terms: Vec<Term>, causes: &[&[f64]], target: &[f64]) -> Self {
        let mut features: Vec<Vec<f64>> =
            terms.iter().map(|term| tabulate(term, causes, target.len())).collect();
        let middles: Vec<f64> = features.iter().map(|feature| mean(feature)).collect();
        let scales: Vec<f64> = features.iter_mut().map(|feature| standardize(feature)).collect();
        let middle = mean(target);
        let centred: Vec<f64> = target.iter().map(|value| value - middle).collect();
        let gram = Matrix::second_moments(&features);
        let rows = target.len() as f64;
        let products: Vec<f64> =
            vectorize(|| features.iter().map(|feature| dot(feature, &centred) / rows).collect());
        let factor = Cholesky::factor_with_ridge(&gram);
        let solution = factor.solve(&products);
        let explained: f64 = solution.iter().zip(&products).map(|(a, b)| a * b).sum();
        let own = vectorize(|| dot(&centred, &centred) / rows);
        let freedom = (rows - terms.len() as f64 - 1.0).max(1.0);
        let noise = ((own - explained).max(0.0) * rows / freedom).sqrt();
        let original = |standard: &[f64], shift: f64| {
            let scaled = standard
                .iter()
                .zip(&scales)
                .map(|(value, scale)| if *scale > 0.0 { value / scale } else { 0.0 });
            let slopes: Vec<f64> = scaled.collect();
            let at_zero: f64 = slopes.iter().zip(&middles).map(|(slope, middle)| slope * middle).sum();
            std::iter::once(middle + shift - at_zero).chain(slopes).collect::<Vec<f64>>()
        };
        // Every mechanism draws the same numbers; which mechanism it is decides a query far more than that.
        let mut random = Random::new(terms.len() as u64);
        let replicas = (0..REPLICAS)
            .map(|_| {
                let error = noise / rows.sqrt();
                let normals: Vec<f64> = terms.iter().map(|_| random.normal() * error).collect();
                let drawn = factor.backward(normals);
                let moved: Vec<f64> = solution.iter().zip(drawn).map(|(a, b)| a + b).collect();
                original(&moved, random.normal() * error)
            })
            .collect();
        Self { coefficients: original(&solution, 0.0), terms, replicas }
    }

    /// The value for these causes, with the coefficients of a replica if one is named.
    pub(crate) fn predict(&self, causes: &[f64], replica: Option<usize>) -> f64 {
        let replica = replica.and_then(|at| self.replicas.get(at % self.replicas.len().max(1)));
        let coefficients = replica.unwrap_or(&self.coefficients);
        let sum =
            self.terms.iter().zip(&coefficients[1..]).map(|(term, weight)| weight * term.evaluate(causes));
        coefficients[0] + sum.sum::<f64>()
    }

    /// The coefficient of a cause, if the mechanism is linear in it and it is in no other term.
    pub(crate) fn linear_coefficient(&self, wanted: usize) -> Option<f64> {
        let mut found = 0.0;
        for (term, coefficient) in self.terms.iter().zip(&self.coefficients[1..]) {
            match *term {
                Term::Linear { cause } if cause == wanted => found += coefficient,
                Term::Linear { .. } => {}
                Term::Product { first, second } if first != wanted && second != wanted => {}
                Term::Hinge { cause, .. } | Term::Delay { cause, .. } | Term::Saturation { cause, .. }
                    if cause != wanted => {}
                _ => return None,
            }
        }
        Some(found)
    }

    pub(crate) fn is_sound(&self, causes: usize) -> bool {
        let fits = |weights: &Vec<f64>| {
            weights.len() == self.terms.len() + 1 && weights.iter().all(|weight| weight.is_finite())
        };
        self.terms.iter().all(|term| term.is_sound(causes))
            && fits(&self.coefficients)
            && self.replicas.iter().all(fits)
    }
}

/// The values of a term for all rows.
pub(crate) fn tabulate(term: &Term, causes: &[&[f64]], rows: usize) -> Vec<f64> {
    let mut row = vec![0.0; causes.len()];
    (0..rows)
        .map(|at| {
            row.iter_mut().zip(causes).for_each(|(value, cause)| *value = cause[at]);
            term.evaluate(&row)
        })
        .collect()
}

/// One linear term for each cause.
pub(crate) fn linear_terms(causes: usize) -> Vec<Term> {
    (0..causes).map(|cause| Term::Linear { cause }).collect()
}

/// Linear terms, squares and all products of two.
pub(crate) fn polynomial_terms(causes: usize) -> Vec<Term> {
    let products =
        (0..causes).flat_map(|first| (first..causes).map(move |second| Term::Product { first, second }));
    linear_terms(causes).into_iter().chain(products).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_polynomials_are_found() {
        let x: Vec<f64> = (0..30).map(f64::from).collect();
        let y: Vec<f64> = (0..30).map(|i| f64::from(i * 7 % 11)).collect();
        let target: Vec<f64> = x.iter().zip(&y).map(|(x, y)| 3.0 + 2.0 * x - x * y + 0.5 * y * y).collect();
        let basis = Basis::fit(polynomial_terms(2), &[&x, &y], &target);
        assert!((basis.predict(&[40.0, 5.0], None) - (83.0 - 200.0 + 12.5)).abs() < 1e-6);
        // Without noise all replicas agree.
        assert!((basis.predict(&[40.0, 5.0], Some(3)) - basis.predict(&[40.0, 5.0], None)).abs() < 1e-3);
    }

    #[test]
    fn a_delay_grows_steadily_through_its_capacity() {
        let delay = Term::Delay { cause: 0, capacity: 10.0 };
        let values: Vec<f64> = (0..40).map(|i| delay.evaluate(&[f64::from(i) * 0.5])).collect();
        assert!(
            values.windows(2).all(|pair| pair[1] > pair[0]) && values.iter().all(|value| value.is_finite())
        );
        assert_eq!(delay.evaluate(&[5.0]), 10.0);
    }

    #[test]
    fn replicas_scatter_as_the_standard_error_says() {
        let mut random = Random::new(5);
        let x: Vec<f64> = (0..400).map(|_| random.normal()).collect();
        let target: Vec<f64> = x.iter().map(|x| 2.0 * x + random.normal()).collect();
        let basis = Basis::fit(linear_terms(1), &[&x], &target);
        let slopes: Vec<f64> = basis.replicas.iter().map(|replica| replica[1]).collect();
        let deviation = crate::causal::observations::variance(&slopes).sqrt();
        // One divided by the square root of 400, give or take what 32 draws show.
        assert!((0.03..0.075).contains(&deviation), "{deviation}");
    }
}
