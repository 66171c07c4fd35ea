//! Adam (Kingma and Ba 2015) on a flat vector of parameters.

use crate::causal::wide::vectorize;

/// Rates of the exponential means. The first is slower than usual, as in the reference.
const BETA_1: f64 = 0.99;
const BETA_2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

/// Moments of the gradient so far.
#[derive(Debug, Clone)]
pub(crate) struct Adam {
    betas: [f64; 2],
    first: Vec<f64>,
    second: Vec<f64>,
    powers: [f64; 2],
}

impl Adam {
    pub(crate) fn new(size: usize) -> Self {
        Self::with_betas(size, [BETA_1, BETA_2])
    }

    pub(crate) fn with_betas(size: usize, betas: [f64; 2]) -> Self {
        Self { betas, first: vec![0.0; size], second: vec![0.0; size], powers: [1.0, 1.0] }
    }

    /// Takes in a gradient and replaces it by the direction of descent.
    pub(crate) fn precondition(&mut self, gradient: &mut [f64]) {
        let [beta_1, beta_2] = self.betas;
        self.powers = [self.powers[0] * beta_1, self.powers[1] * beta_2];
        let [scale_1, scale_2] = self.powers.map(|power| (1.0 - power).recip());
        vectorize(|| {
            for ((value, first), second) in gradient.iter_mut().zip(&mut self.first).zip(&mut self.second) {
                *first = beta_1 * *first + (1.0 - beta_1) * *value;
                *second = beta_2 * *second + (1.0 - beta_2) * *value * *value;
                *value = *first * scale_1 / ((*second * scale_2).sqrt() + EPSILON);
            }
        });
    }
}
