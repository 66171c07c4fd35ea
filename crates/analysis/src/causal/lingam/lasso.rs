//! Which of the earlier variables influence a later one: the adaptive lasso with the least BIC.

use crate::causal::matrix::Matrix;
use crate::causal::solve::{Cholesky, DEPENDENT};

/// Knots of a path that are looked at; more than ever occur, as a variable seldom leaves the path again.
const MAX_KNOTS: usize = 500;

/// Coefficients below this are zero.
const ZERO: f64 = f64::EPSILON;

/// A regression of one standardised variable on others, given by correlations.
pub(crate) struct Regression<'a> {
    /// Correlations of all variables.
    pub(crate) correlations: &'a Matrix,
    pub(crate) rows: usize,
    pub(crate) target: usize,
}

impl Regression<'_> {
    /// Ordinary least squares: the coefficients of these predictors, on standardised columns.
    pub(crate) fn fit(&self, predictors: &[usize]) -> Vec<f64> {
        let gram = self.correlations.submatrix(predictors);
        Cholesky::factor_with_ridge(&gram).solve(&self.covariances(predictors))
    }

    /// The predictors that remain when superfluous ones are pruned. There must be more rows than predictors.
    pub(crate) fn prune(&self, predictors: &[usize]) -> Vec<usize> {
        if predictors.is_empty() {
            return Vec::new();
        }
        let full = self.fit(predictors);
        let own = self.correlations[(self.target, self.target)];
        let covariances = self.covariances(predictors);
        let explained: f64 = full.iter().zip(&covariances).map(|(a, b)| a * b).sum();
        let freedom = self.rows as f64 - predictors.len() as f64 - 1.0;
        // Zero noise would make every difference infinitely significant.
        let noise = ((own - explained) * self.rows as f64 / freedom).max(DEPENDENT);
        let weights: Vec<f64> = full.iter().map(|coefficient| coefficient.abs()).collect();
        let path = Path {
            gram: Matrix::from_fn(weights.len(), weights.len(), |i, j| {
                self.correlations[(predictors[i], predictors[j])] * weights[i] * weights[j]
            }),
            covariances: covariances.iter().zip(&weights).map(|(value, weight)| value * weight).collect(),
        };
        let rows = self.rows as f64;
        let mut best: (f64, Vec<usize>) = (f64::INFINITY, Vec::new());
        path.follow(|coefficients| {
            let product = |i: usize| -> f64 {
                path.gram.row(i).iter().zip(coefficients).map(|(a, b)| a * b).sum::<f64>()
            };
            let reduction: f64 = (0..coefficients.len())
                .filter(|&i| coefficients[i] != 0.0)
                .map(|i| coefficients[i] * (2.0 * path.covariances[i] - product(i)))
                .sum();
            let chosen: Vec<usize> =
                (0..coefficients.len()).filter(|&i| coefficients[i].abs() > ZERO).collect();
            let criterion = rows * (own - reduction) / noise + rows.ln() * chosen.len() as f64;
            if criterion < best.0 {
                best = (criterion, chosen);
            }
        });
        best.1.into_iter().filter(|&i| weights[i] > 0.0).map(|i| predictors[i]).collect()
    }

    fn covariances(&self, predictors: &[usize]) -> Vec<f64> {
        predictors.iter().map(|&at| self.correlations[(self.target, at)]).collect()
    }
}

/// The path of lasso solutions from all zero to least squares (LARS with the lasso modification, Efron et al. 2004).
struct Path {
    gram: Matrix,
    covariances: Vec<f64>,
}

impl Path {
    /// Calls `visit` with the coefficients at every knot.
    fn follow(&self, mut visit: impl FnMut(&[f64])) {
        let size = self.covariances.len();
        let mut coefficients = vec![0.0; size];
        let mut remaining = self.covariances.clone();
        let mut active: Vec<usize> = Vec::new();
        let mut factor = Cholesky::default();
        let mut is_degenerate = vec![false; size];
        let mut left: Option<usize> = None;
        visit(&coefficients);
        let largest = |remaining: &[f64], of: &mut dyn Iterator<Item = usize>| {
            of.map(|at| remaining[at].abs()).fold(0.0f64, f64::max)
        };
        let mut level = largest(&remaining, &mut (0..size));
        let end = level * 1e-14;
        let mut joining = (0..size).find(|&at| remaining[at].abs() == level);
        for _ in 0..MAX_KNOTS {
            if level <= end {
                return;
            }
            if let Some(at) = joining.take() {
                let mut row: Vec<f64> = active.iter().map(|&other| self.gram[(at, other)]).collect();
                row.push(self.gram[(at, at)]);
                if factor.push(&row, DEPENDENT) {
                    active.push(at);
                } else {
                    is_degenerate[at] = true;
                }
            }
            if active.is_empty() {
                return;
            }
            let signs: Vec<f64> = active.iter().map(|&at| remaining[at].signum()).collect();
            let direction = factor.solve(&signs);
            let slopes: Vec<f64> = (0..size)
                .map(|at| {
                    active.iter().zip(&direction).map(|(&other, step)| self.gram[(at, other)] * step).sum()
                })
                .collect();
            let mut step = level;
            for at in (0..size).filter(|at| !active.contains(at) && !is_degenerate[*at]) {
                for length in [
                    (level - remaining[at]) / (1.0 - slopes[at]),
                    (level + remaining[at]) / (1.0 + slopes[at]),
                ] {
                    // What has just left is still at its bound; it may come back on the other side.
                    let least = if left == Some(at) { 1e-9 * level } else { 0.0 };
                    if length > least && length < step {
                        (step, joining) = (length, Some(at));
                    }
                }
            }
            left = None;
            for (&at, &change) in active.iter().zip(&direction) {
                let length = -coefficients[at] / change;
                if length > 0.0 && length < step {
                    (step, joining, left) = (length, None, Some(at));
                }
            }
            for (&at, &change) in active.iter().zip(&direction) {
                coefficients[at] += step * change;
            }
            remaining.iter_mut().zip(&slopes).for_each(|(value, slope)| *value -= step * slope);
            level -= step;
            if let Some(at) = left {
                coefficients[at] = 0.0;
                active.retain(|&other| other != at);
                factor = Cholesky::default();
                for (place, &row) in active.iter().enumerate() {
                    let row: Vec<f64> =
                        active[..=place].iter().map(|&other| self.gram[(row, other)]).collect();
                    factor.push(&row, 0.0);
                }
            }
            visit(&coefficients);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn correlations(values: &[f64]) -> Matrix {
        let rows = values.len() / 5;
        let mut columns: Vec<Vec<f64>> = values.chunks(rows).map(<[f64]>::to_vec).collect();
        columns.iter_mut().for_each(|column| {
            crate::causal::observations::standardize(column);
        });
        Matrix::second_moments(&columns)
    }

    proptest! {
        /// At every knot the largest remaining covariances are those of the active variables, with their signs.
        #[test]
        fn knots_are_solutions_of_the_lasso(values in prop::collection::vec(-1.0..1.0f64, 100)) {
            let all = correlations(&values);
            let path = Path {
                gram: all.submatrix(&[0, 1, 2, 3]),
                covariances: (0..4).map(|at| all[(4, at)]).collect(),
            };
            let mut last = Vec::new();
            let mut levels = Vec::new();
            path.follow(|coefficients| {
                let left: Vec<f64> = (0..4)
                    .map(|i| path.covariances[i] - (0..4).map(|j| path.gram[(i, j)] * coefficients[j]).sum::<f64>())
                    .collect();
                let level = left.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                for (left, coefficient) in left.iter().zip(coefficients) {
                    if *coefficient != 0.0 {
                        assert!((left.abs() - level).abs() < 1e-9);
                        assert!(level < 1e-9 || left.signum() == coefficient.signum());
                    }
                }
                levels.push(level);
                last = coefficients.to_vec();
            });
            prop_assert!(levels.windows(2).all(|pair| pair[1] <= pair[0] + 1e-12));
            let full = Regression { correlations: &all, rows: 20, target: 4 }.fit(&[0, 1, 2, 3]);
            for (last, full) in last.iter().zip(full) {
                prop_assert!((last - full).abs() < 1e-6);
            }
        }
    }
}
