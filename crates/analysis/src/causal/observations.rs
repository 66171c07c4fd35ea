//! Observations: one row for each run, one column for each variable.

use super::error::CausalError;
use super::wide::{dot, vectorize};

/// The most columns. The search for an order takes cubic time, so a thousand columns of 2000 rows take about an hour.
pub const MAX_COLUMNS: usize = 1000;

/// Named columns of equally many finite numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Observations {
    names: Vec<String>,
    columns: Vec<Vec<f64>>,
}

impl Observations {
    /// Checks that every number is finite and every name is used once.
    pub fn new(names: Vec<String>, columns: Vec<Vec<f64>>) -> Result<Self, CausalError> {
        let rows = columns.first().map_or(0, Vec::len);
        if rows == 0 || names.len() != columns.len() {
            return Err(CausalError::NoRows);
        }
        if names.len() > MAX_COLUMNS {
            return Err(CausalError::TooManyColumns { columns: names.len(), most: MAX_COLUMNS });
        }
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CausalError::DuplicateName(twice[0].clone()));
        }
        for (name, column) in names.iter().zip(&columns) {
            if column.len() != rows {
                return Err(CausalError::UnequalColumns {
                    column: name.clone(),
                    rows: column.len(),
                    others: rows,
                });
            }
            if let Some(row) = column.iter().position(|value| !value.is_finite()) {
                return Err(CausalError::NotFinite { row: row + 1, column: name.clone() });
            }
        }
        Ok(Self { names, columns })
    }

    /// Names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The columns, in the order of their names.
    pub fn columns(&self) -> &[Vec<f64>] {
        &self.columns
    }

    /// The values of one column.
    pub fn column(&self, name: &str) -> Result<&[f64], CausalError> {
        self.position(name).map(|at| self.columns[at].as_slice())
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns[0].len()
    }

    /// The place of a column.
    pub fn position(&self, name: &str) -> Result<usize, CausalError> {
        let unknown = || CausalError::UnknownColumn(name.to_owned());
        self.names.iter().position(|known| known == name).ok_or_else(unknown)
    }

    /// The first rows.
    pub fn head(&self, rows: usize) -> Self {
        let cut = |column: &Vec<f64>| column[..rows.clamp(1, column.len())].to_vec();
        Self { names: self.names.clone(), columns: self.columns.iter().map(cut).collect() }
    }

    /// Only these columns.
    pub(crate) fn select(&self, places: &[usize]) -> Self {
        Self {
            names: places.iter().map(|&at| self.names[at].clone()).collect(),
            columns: places.iter().map(|&at| self.columns[at].clone()).collect(),
        }
    }
}

/// The mean.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The variance of a whole population.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len().max(1) as f64
}

/// Centres a column and divides it by its standard deviation, which is returned. A column without any variation, up
/// to rounding, becomes zeros.
pub(crate) fn standardize(values: &mut [f64]) -> f64 {
    let largest = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let middle = mean(values);
    values.iter_mut().for_each(|value| *value -= middle);
    let deviation = vectorize(|| (dot(values, values) / values.len().max(1) as f64).sqrt());
    // The mean of equal numbers is off by a rounding error, and so is what is left of them.
    let is_constant = deviation <= largest * 1e-13;
    let scale = if is_constant { 0.0 } else { deviation.recip() };
    values.iter_mut().for_each(|value| *value *= scale);
    if is_constant { 0.0 } else { deviation }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_place() {
        let two = |a: &[f64], b: &[f64]| Observations::new(names(&["a", "b"]), vec![a.to_vec(), b.to_vec()]);
        assert!(matches!(two(&[], &[]), Err(CausalError::NoRows)));
        assert!(matches!(
            two(&[1.0], &[1.0, 2.0]),
            Err(CausalError::UnequalColumns { rows: 2, others: 1, .. })
        ));
        let error = two(&[1.0, 2.0], &[1.0, f64::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "row 2 of column `b` is not a finite number");
        let twice = Observations::new(names(&["a", "a"]), vec![vec![1.0], vec![2.0]]).unwrap_err();
        assert_eq!(twice.to_string(), "two columns are named `a`");
    }

    #[test]
    fn equal_numbers_have_no_deviation() {
        let mut values = vec![0.1; 1000];
        assert_eq!(standardize(&mut values), 0.0);
        assert!(values.iter().all(|value| *value == 0.0));
    }
}
