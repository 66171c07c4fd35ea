//! Linear equations with symmetric positive matrices, by Cholesky factors that can grow row by row.

use super::matrix::Matrix;

/// A pivot below this share of its diagonal element means that a column is a combination of others. Correlations of
/// doubles carry errors of about 1e-15, and a hundred steps of elimination can multiply them by a thousand.
pub(crate) const DEPENDENT: f64 = 1e-11;

/// The lower triangular factor of a symmetric positive matrix.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cholesky {
    rows: Vec<Vec<f64>>,
}

impl Cholesky {
    /// Factors a matrix; none if its columns depend on one another.
    pub(crate) fn factor(matrix: &Matrix) -> Option<Self> {
        let mut factor = Self::default();
        (0..matrix.rows()).all(|i| factor.push(&matrix.row(i)[..=i], DEPENDENT)).then_some(factor)
    }

    /// Factors a matrix, adding the smallest multiple of its diagonal that makes this possible.
    pub(crate) fn factor_with_ridge(matrix: &Matrix) -> Self {
        let mut ridge = 0.0;
        loop {
            let mut ridged = matrix.clone();
            for i in 0..matrix.rows() {
                ridged[(i, i)] = ridged[(i, i)] * (1.0 + ridge) + f64::MIN_POSITIVE.max(ridge * 1e-6);
            }
            if let Some(factor) = Self::factor(&ridged) {
                return factor;
            }
            // From far below what matters up; a diagonal that outweighs the rest always succeeds.
            ridge = if ridge == 0.0 { 1e-9 } else { ridge * 100.0 };
        }
    }

    /// Adds a row (up to and including the diagonal) of the matrix. False, and nothing is added, if less than
    /// the `least` share of it is independent of those before it.
    pub(crate) fn push(&mut self, row: &[f64], least: f64) -> bool {
        let size = self.rows.len();
        let mut new = self.forward(&row[..size]);
        let diagonal = row[size];
        let pivot = diagonal - new.iter().map(|value| value * value).sum::<f64>();
        if pivot.is_nan() || pivot <= least * diagonal.abs() {
            return false;
        }
        new.push(pivot.sqrt());
        self.rows.push(new);
        true
    }

    /// Solves the equations for a right-hand side.
    pub(crate) fn solve(&self, right: &[f64]) -> Vec<f64> {
        self.backward(self.forward(right))
    }

    /// Solves with the lower triangle only.
    fn forward(&self, right: &[f64]) -> Vec<f64> {
        let mut solution: Vec<f64> = Vec::with_capacity(right.len() + 1);
        for (row, right) in self.rows.iter().zip(right) {
            let done = solution.len();
            let known: f64 = row[..done].iter().zip(&solution).map(|(a, b)| a * b).sum();
            solution.push((right - known) / row[done]);
        }
        solution
    }

    /// Solves with the transposed triangle only. Standard normal numbers become a draw with the inverse of the matrix
    /// as covariance.
    pub(crate) fn backward(&self, mut right: Vec<f64>) -> Vec<f64> {
        for i in (0..right.len()).rev() {
            right[i] /= self.rows[i][i];
            for j in 0..i {
                right[j] -= self.rows[i][j] * right[i];
            }
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved() {
        let matrix = Matrix::from_fn(3, 3, |i, j| if i == j { 4.0 } else { 1.0 });
        let solution = Cholesky::factor(&matrix).unwrap().solve(&[6.0, 9.0, 12.0]);
        for (row, wanted) in [6.0, 9.0, 12.0].into_iter().enumerate() {
            let sum: f64 = matrix.row(row).iter().zip(&solution).map(|(a, b)| a * b).sum();
            assert!((sum - wanted).abs() < 1e-12);
        }
    }

    #[test]
    fn dependent_rows_are_refused_and_a_ridge_makes_them_solvable() {
        let matrix = Matrix::from_fn(2, 2, |_, _| 1.0);
        assert!(Cholesky::factor(&matrix).is_none());
        let solution = Cholesky::factor_with_ridge(&matrix).solve(&[1.0, 1.0]);
        assert!((solution[0] - 0.5).abs() < 1e-3 && (solution[1] - 0.5).abs() < 1e-3);
    }
}
