//! DirectLiNGAM (Shimizu et al. 2011): linear effects with non-normal noise.
//!
//! Finds the same order and edges as the reference package 1.13, and draws nothing at random.

mod entropy;
mod lasso;
mod order;

use rayon::prelude::*;

use super::matrix::Matrix;
use super::prior::Constraints;
use entropy::negentropy;
pub(crate) use lasso::Regression;

/// Normal noise has a negentropy of less than this divided by the number of rows in 99 of 100 cases (simulated for
/// 200 and 500 rows).
const NORMAL_NEGENTROPY: f64 = 5.0;

/// What was found on standardised columns.
#[derive(Debug)]
pub(crate) struct Found {
    /// Coefficients on standardised columns, by effect and cause; zero where there is no edge.
    pub(crate) weights: Matrix,
    /// Columns whose noise cannot be told from normal noise.
    pub(crate) normal: Vec<usize>,
}

/// Finds the graph of standardised columns.
pub(crate) fn find_graph(columns: &[Vec<f64>], constraints: &Constraints) -> Found {
    let size = columns.len();
    let rows = columns[0].len();
    let order = order::find_order(columns.to_vec(), constraints);
    let correlations = Matrix::second_moments(columns);
    let fit_one = |place: usize| {
        let target = order[place];
        let regression = Regression { correlations: &correlations, rows, target };
        let earlier = order[..place].iter().copied();
        let predictors: Vec<usize> =
            earlier.filter(|&at| !constraints.excluded.contains(at, target)).collect();
        let mut chosen = regression.prune(&predictors);
        let required = |&at: &usize| constraints.required.contains(at, target) && !chosen.contains(&at);
        let missing: Vec<usize> = predictors.iter().copied().filter(required).collect();
        chosen.extend(missing);
        let coefficients = regression.fit(&chosen);
        (target, chosen, coefficients)
    };
    let fitted: Vec<(usize, Vec<usize>, Vec<f64>)> = (0..size).into_par_iter().map(fit_one).collect();
    let mut weights = Matrix::zeros(size, size);
    for (target, chosen, coefficients) in fitted {
        for (cause, coefficient) in chosen.into_iter().zip(coefficients) {
            // A required edge stays, even if its effect is nil.
            weights[(target, cause)] = if coefficient == 0.0 { f64::MIN_POSITIVE } else { coefficient };
        }
    }
    let normal = (0..size)
        .filter(|&at| {
            negentropy(&super::discovery::residual(columns, &weights, at)) * (rows as f64) < NORMAL_NEGENTROPY
        })
        .collect();
    Found { weights, normal }
}
