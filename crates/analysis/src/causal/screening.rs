//! Columns that discovery cannot use: constant ones, and combinations of others.

use serde::{Deserialize, Serialize};

use super::error::CausalError;
use super::matrix::Matrix;
use super::observations::{Observations, standardize};
use super::prior::Prior;
use super::solve::Cholesky;

/// A column of which less than this share is its own is a combination of others. Files carry about six digits, so the
/// sum of two columns differs from the written sum by about 1e-6 of its deviation, and the share is the square of that.
const OWN_SHARE: f64 = 1e-9;

/// Standardised coefficients below this are not named.
const NAMED: f64 = 1e-3;

/// A column that was left out of discovery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DroppedColumn {
    /// The name.
    pub column: String,
    /// Why it was left out.
    #[serde(flatten)]
    pub reason: DropReason,
}

/// Why a column was left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum DropReason {
    /// All values are the same.
    Constant {
        /// The value.
        value: f64,
    },
    /// It is a linear combination of these.
    Collinear {
        /// Columns that are kept.
        with: Vec<String>,
    },
}

/// The columns that can be used, standardised, and those that cannot.
#[derive(Debug)]
pub(crate) struct Screening {
    /// Places of the kept columns in the observations.
    pub(crate) kept: Vec<usize>,
    pub(crate) dropped: Vec<DroppedColumn>,
    /// The kept columns with mean 0 and deviation 1.
    pub(crate) standardized: Vec<Vec<f64>>,
    /// Their standard deviations before.
    pub(crate) deviations: Vec<f64>,
}

impl Screening {
    /// Sorts out the columns. Exogenous ones are kept in preference to others that depend on them.
    pub(crate) fn new(observations: &Observations, priors: &[Prior]) -> Result<Self, CausalError> {
        let names = observations.names();
        let mut columns = observations.columns().to_vec();
        let deviations: Vec<f64> = columns.iter_mut().map(|column| standardize(column)).collect();
        let mut dropped = Vec::new();
        let (varying, constant): (Vec<usize>, Vec<usize>) =
            (0..names.len()).partition(|&at| deviations[at] > 0.0);
        for at in constant {
            let value = observations.columns()[at][0];
            dropped.push(DroppedColumn { column: names[at].clone(), reason: DropReason::Constant { value } });
        }
        if varying.len() < 2 {
            return Err(CausalError::NothingVaries);
        }
        // Before combinations are looked for: of fewer rows than columns, every further column is one. The noise of a
        // column that all others may influence needs a degree of freedom besides its intercept.
        let (rows, needed) = (observations.rows(), varying.len() + 1);
        if rows < needed {
            return Err(CausalError::TooFewRows { rows, columns: varying.len(), needed });
        }
        let is_exogenous = |name: &String| {
            priors.iter().any(|prior| matches!(prior, Prior::Exogenous { column } if column == name))
        };
        let mut by_preference = varying;
        by_preference.sort_by_key(|&at| !is_exogenous(&names[at]));
        let correlations = Matrix::second_moments(&columns);
        let mut factor = Cholesky::default();
        let mut kept: Vec<usize> = Vec::new();
        for at in by_preference {
            let mut row: Vec<f64> = kept.iter().map(|&other| correlations[(at, other)]).collect();
            row.push(correlations[(at, at)]);
            if factor.push(&row, OWN_SHARE) {
                kept.push(at);
                continue;
            }
            row.pop();
            let coefficients = factor.solve(&row);
            let named = kept.iter().zip(coefficients).filter(|(_, coefficient)| coefficient.abs() > NAMED);
            let with = named.map(|(&other, _)| names[other].clone()).collect();
            dropped.push(DroppedColumn { column: names[at].clone(), reason: DropReason::Collinear { with } });
        }
        kept.sort_unstable();
        if kept.len() < 2 {
            return Err(CausalError::NothingVaries);
        }
        let standardized = kept.iter().map(|&at| std::mem::take(&mut columns[at])).collect();
        let deviations = kept.iter().map(|&at| deviations[at]).collect();
        Ok(Self { kept, dropped, standardized, deviations })
    }

    /// Names of columns that were left out.
    pub(crate) fn dropped_names(&self) -> Vec<String> {
        self.dropped.iter().map(|dropped| dropped.column.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(columns: &[(&str, Vec<f64>)]) -> Observations {
        let names = columns.iter().map(|(name, _)| name.to_string()).collect();
        Observations::new(names, columns.iter().map(|(_, values)| values.clone()).collect()).unwrap()
    }

    #[test]
    fn constant_and_collinear_columns_are_dropped_and_named() {
        let a = vec![1.0, 2.0, 3.0, 5.0, 8.0, 1.0];
        let b = vec![4.0, 1.0, 7.0, 2.0, 9.0, 3.0];
        let sum = a.iter().zip(&b).map(|(a, b)| 2.0 * a - b).collect();
        let observations = observe(&[("sum", sum), ("flat", vec![7.0; 6]), ("a", a), ("b", b)]);
        let screening = Screening::new(&observations, &[]).unwrap();
        assert_eq!(screening.kept, [0, 2]);
        let flat = DroppedColumn { column: "flat".into(), reason: DropReason::Constant { value: 7.0 } };
        let with = vec!["sum".to_owned(), "a".to_owned()];
        let b = DroppedColumn { column: "b".into(), reason: DropReason::Collinear { with } };
        assert_eq!(screening.dropped, [flat, b]);
        let exogenous = |column: &str| Prior::Exogenous { column: column.into() };
        let screening = Screening::new(&observations, &[exogenous("a"), exogenous("b")]).unwrap();
        assert_eq!(screening.kept, [2, 3]);
    }

    #[test]
    fn fewer_rows_than_columns_are_refused() {
        let observations =
            observe(&[("a", vec![1.0, 2.0, 4.0]), ("b", vec![3.0, 1.0, 1.0]), ("c", vec![3.0, 1.0, 2.5])]);
        let error = Screening::new(&observations, &[]).unwrap_err();
        assert_eq!(error, CausalError::TooFewRows { rows: 3, columns: 3, needed: 4 });
    }
}
