//! Mechanisms: how a node follows from its causes.

pub(crate) mod basis;
mod boosted;
mod queueing;
mod select;

use serde::{Deserialize, Serialize};

pub(crate) use basis::REPLICAS;
use basis::{Basis, linear_terms};
use boosted::Boosted;
pub use select::ShapeScore;
pub(crate) use select::{Learned, learn};

/// The shape of a mechanism, simplest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// A weighted sum.
    Linear,
    /// Squares and products of two causes as well.
    Polynomial,
    /// Linear effects that bend as queues and saturated services do.
    Queueing,
    /// Boosted regression trees inside the range of the data, the best other shape beyond it.
    Boosted,
}

impl Shape {
    /// Every shape, simplest first.
    pub const ALL: [Self; 4] = [Self::Linear, Self::Polynomial, Self::Queueing, Self::Boosted];
}

/// A function of the causes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "kebab-case")]
pub(crate) enum Form {
    /// A sum of simple terms.
    Basis { basis: Basis },
    /// Trees.
    Boosted { boosted: Boosted },
    /// A function of its own for each value of one cause, which is a category.
    ByLevel { cause: usize, levels: Vec<Level> },
}

/// The function for one value of a category.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Level {
    value: f64,
    form: Form,
}

impl Form {
    /// Fits one shape.
    fn fit(shape: Shape, causes: &[&[f64]], target: &[f64]) -> Self {
        let basis = match shape {
            Shape::Linear => Basis::fit(linear_terms(causes.len()), causes, target),
            Shape::Polynomial => Basis::fit(basis::polynomial_terms(causes.len()), causes, target),
            Shape::Queueing => queueing::fit(causes, target),
            Shape::Boosted => {
                let beyond = queueing::fit(causes, target);
                return Self::Boosted { boosted: Boosted::fit(causes, target, beyond) };
            }
        };
        Self::Basis { basis }
    }

    /// Fits one shape for each combination of values of the `categories`, which are places among the causes. Values
    /// with too few rows of their own leave the category a number.
    pub(crate) fn fit_by_level(
        shape: Shape,
        causes: &[&[f64]],
        categories: &[usize],
        target: &[f64],
    ) -> Self {
        let Some((&category, others)) = categories.split_first() else {
            return Self::fit(shape, causes, target);
        };
        let mut values: Vec<f64> = causes[category].to_vec();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let rows_of = |value: f64| -> Vec<usize> {
            (0..target.len()).filter(|&row| causes[category][row] == value).collect()
        };
        let least = LEAST_ROWS.max(ROWS_PER_CAUSE * causes.len());
        if values.len() > MAX_LEVELS || values.iter().any(|&value| rows_of(value).len() < least) {
            return Self::fit_by_level(shape, causes, others, target);
        }
        let level = |&value: &f64| {
            let rows = rows_of(value);
            let pick = |column: &[f64]| -> Vec<f64> { rows.iter().map(|&row| column[row]).collect() };
            let causes: Vec<Vec<f64>> = causes.iter().map(|cause| pick(cause)).collect();
            let causes: Vec<&[f64]> = causes.iter().map(Vec::as_slice).collect();
            Level { value, form: Self::fit_by_level(shape, &causes, others, &pick(target)) }
        };
        Self::ByLevel { cause: category, levels: values.iter().map(level).collect() }
    }

    /// The value for these causes, with the parameters of a replica if one is named.
    pub(crate) fn predict(&self, causes: &[f64], replica: Option<usize>) -> f64 {
        match self {
            Self::Basis { basis } => basis.predict(causes, replica),
            Self::Boosted { boosted } => boosted.predict(causes, replica),
            Self::ByLevel { cause, levels } => {
                let distance = |level: &&Level| (level.value - causes[*cause]).abs();
                let nearest = levels.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
                nearest.map_or(f64::NAN, |level| level.form.predict(causes, replica))
            }
        }
    }

    /// The coefficient of a cause, if the function is linear in it everywhere.
    pub(crate) fn linear_coefficient(&self, cause: usize) -> Option<f64> {
        match self {
            Self::Basis { basis } => basis.linear_coefficient(cause),
            Self::Boosted { .. } | Self::ByLevel { .. } => None,
        }
    }

    /// What files from outside must fulfil so that every prediction ends and is a number. Levels within levels are as
    /// many as there are causes.
    pub(crate) fn is_sound(&self, causes: usize, depth: usize) -> bool {
        match self {
            Self::Basis { basis } => basis.is_sound(causes),
            Self::Boosted { boosted } => boosted.is_sound(causes),
            Self::ByLevel { cause, levels } => {
                let is_sound =
                    |level: &Level| level.value.is_finite() && level.form.is_sound(causes, depth - 1);
                depth > 0 && *cause < causes && !levels.is_empty() && levels.iter().all(is_sound)
            }
        }
    }
}

/// Rows that each value of a category needs for a function of its own: at least this many, and per cause.
const LEAST_ROWS: usize = 12;
const ROWS_PER_CAUSE: usize = 4;
/// Values of a category; a column with more is a number.
const MAX_LEVELS: usize = 32;
