//! Chooses the shape of a mechanism by cross-validation, and the simpler one in doubt.

use serde::{Deserialize, Serialize};

use super::{Form, Shape};
use crate::causal::observations::{mean, variance};
use crate::causal::random::Random;

const FOLDS: usize = 5;
/// With more causes a polynomial has more terms than most data can fix; the reference draws the line here as well.
const MAX_POLYNOMIAL_CAUSES: usize = 5;
/// Rows below which nothing but a line is tried: folds would be of a handful of rows.
const LEAST_ROWS: usize = 30;
/// When this share of the variance is explained, trees are not tried: they cost most and add steps.
const EXPLAINED: f64 = 0.995;

/// The error of one shape on rows that it was not fitted on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShapeScore {
    /// The shape.
    pub shape: Shape,
    /// The mean squared error as a share of the variance.
    pub error: f64,
}

/// A learned mechanism.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) shape: Shape,
    pub(crate) form: Form,
    pub(crate) scores: Vec<ShapeScore>,
    /// What the mechanism leaves unexplained, row by row.
    pub(crate) residuals: Vec<f64>,
}

/// Learns how a target follows from its causes; `categories` are places among these. The seed decides the folds.
pub(crate) fn learn(causes: &[&[f64]], categories: &[usize], target: &[f64], seed: u64) -> Learned {
    let folds = draw_folds(target.len(), seed);
    let scale = variance(target).max(f64::MIN_POSITIVE);
    let mut errors: Vec<(Shape, Vec<f64>)> = Vec::new();
    for shape in Shape::ALL {
        let is_explained = errors.iter().any(|(_, folds)| mean(folds) < (1.0 - EXPLAINED) * scale);
        let is_tried = match shape {
            Shape::Linear => true,
            Shape::Polynomial => target.len() >= LEAST_ROWS && causes.len() <= MAX_POLYNOMIAL_CAUSES,
            Shape::Queueing => target.len() >= LEAST_ROWS,
            Shape::Boosted => target.len() >= LEAST_ROWS && !is_explained,
        };
        if is_tried {
            errors.push((shape, cross_validate(shape, causes, categories, target, &folds)));
        }
    }
    let shape = choose(&errors);
    let form = Form::fit_by_level(shape, causes, categories, target);
    let mut row = vec![0.0; causes.len()];
    let residuals = (0..target.len())
        .map(|at| {
            row.iter_mut().zip(causes).for_each(|(value, cause)| *value = cause[at]);
            target[at] - form.predict(&row, None)
        })
        .collect();
    let score = |(shape, folds): &(Shape, Vec<f64>)| ShapeScore { shape: *shape, error: mean(folds) / scale };
    Learned { shape, form, scores: errors.iter().map(score).collect(), residuals }
}

/// The simplest shape whose error exceeds the least by no more than one standard error of the difference.
fn choose(errors: &[(Shape, Vec<f64>)]) -> Shape {
    let Some((_, best)) = errors.iter().min_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1))) else {
        return Shape::Linear;
    };
    let is_close = |folds: &[f64]| {
        let differences: Vec<f64> = folds.iter().zip(best).map(|(fold, best)| fold - best).collect();
        mean(&differences) <= (variance(&differences) / (FOLDS - 1) as f64).sqrt()
    };
    errors.iter().find(|(_, folds)| is_close(folds)).map_or(Shape::Linear, |(shape, _)| *shape)
}

/// The fold of each row.
fn draw_folds(rows: usize, seed: u64) -> Vec<usize> {
    let mut folds: Vec<usize> = (0..rows).map(|row| row % FOLDS).collect();
    Random::new(seed).shuffle(&mut folds);
    folds
}

/// The mean squared error on each fold of a mechanism that was fitted on the others.
fn cross_validate(
    shape: Shape,
    causes: &[&[f64]],
    categories: &[usize],
    target: &[f64],
    folds: &[usize],
) -> Vec<f64> {
    let error_of = |fold: usize| {
        let (inside, outside): (Vec<usize>, Vec<usize>) =
            (0..target.len()).partition(|&row| folds[row] == fold);
        let pick = |column: &[f64]| -> Vec<f64> { outside.iter().map(|&row| column[row]).collect() };
        let known: Vec<Vec<f64>> = causes.iter().map(|cause| pick(cause)).collect();
        let known: Vec<&[f64]> = known.iter().map(Vec::as_slice).collect();
        let form = Form::fit_by_level(shape, &known, categories, &pick(target));
        let mut values = vec![0.0; causes.len()];
        let squares = inside.iter().map(|&row| {
            values.iter_mut().zip(causes).for_each(|(value, cause)| *value = cause[row]);
            (target[row] - form.predict(&values, None)).powi(2)
        });
        squares.sum::<f64>() / inside.len().max(1) as f64
    };
    (0..FOLDS).map(error_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(function: impl Fn(f64, f64) -> f64) -> Shape {
        let mut random = Random::new(11);
        let x: Vec<f64> = (0..400).map(|_| 10.0 * random.unit()).collect();
        let y: Vec<f64> = (0..400).map(|_| 10.0 * random.unit()).collect();
        let target: Vec<f64> =
            x.iter().zip(&y).map(|(x, y)| function(*x, *y) + 0.3 * random.normal()).collect();
        learn(&[&x, &y], &[], &target, 1).shape
    }

    #[test]
    fn the_simplest_shape_that_explains_the_data_is_chosen() {
        assert_eq!(shape_of(|x, y| 2.0 * x - y), Shape::Linear);
        assert_eq!(shape_of(|x, y| x * y), Shape::Polynomial);
        assert_eq!(shape_of(|x, y| 3.0 * x / (1.0 - x / 11.0) + y), Shape::Queueing);
        assert_eq!(shape_of(|x, y| if (x > 3.0) == (y > 6.0) { 9.0 } else { 0.0 }), Shape::Boosted);
    }

    #[test]
    fn categories_have_functions_of_their_own() {
        let kinds: Vec<f64> = (0..120).map(|row| f64::from(row % 3)).collect();
        let x: Vec<f64> = (0..120).map(f64::from).collect();
        let target: Vec<f64> =
            x.iter().zip(&kinds).map(|(x, kind)| x * [1.0, -2.0, 5.0][*kind as usize]).collect();
        let learned = learn(&[&x, &kinds], &[1], &target, 1);
        assert_eq!(learned.shape, Shape::Linear);
        for (kind, slope) in [(0.0, 1.0), (1.0, -2.0), (2.0, 5.0)] {
            assert!((learned.form.predict(&[10.0, kind], None) - 10.0 * slope).abs() < 1e-6);
        }
    }
}
