//! Dense matrices of a few hundred rows at most: what causal models need of linear algebra.

use std::ops::{Index, IndexMut};

use super::wide::{add_multiple, dot, vectorize};

/// A dense matrix, row by row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Matrix {
    pub(crate) fn zeros(rows: usize, columns: usize) -> Self {
        Self { rows, columns, values: vec![0.0; rows * columns] }
    }

    pub(crate) fn identity(size: usize) -> Self {
        let mut matrix = Self::zeros(size, size);
        (0..size).for_each(|i| matrix[(i, i)] = 1.0);
        matrix
    }

    pub(crate) fn from_fn(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| value(at / columns, at % columns)).collect();
        Self { rows, columns, values }
    }

    /// Products of all pairs of columns, divided by the number of rows: covariances, if the columns are centred.
    pub(crate) fn second_moments(columns: &[Vec<f64>]) -> Self {
        let size = columns.len();
        let rows = columns.first().map_or(1, |column| column.len().max(1)) as f64;
        let mut moments = Self::zeros(size, size);
        vectorize(|| {
            for i in 0..size {
                for j in 0..=i {
                    let value = dot(&columns[i], &columns[j]) / rows;
                    moments[(i, j)] = value;
                    moments[(j, i)] = value;
                }
            }
        });
        moments
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.columns..(row + 1) * self.columns]
    }

    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// The rows and columns with these numbers.
    pub(crate) fn submatrix(&self, chosen: &[usize]) -> Self {
        Self::from_fn(chosen.len(), chosen.len(), |i, j| self[(chosen[i], chosen[j])])
    }

    pub(crate) fn transpose(&self) -> Self {
        Self::from_fn(self.columns, self.rows, |i, j| self[(j, i)])
    }

    /// Writes the product of two matrices into this one.
    pub(crate) fn set_product(&mut self, left: &Self, right: &Self) {
        debug_assert!(left.columns == right.rows && self.rows == left.rows && self.columns == right.columns);
        vectorize(|| {
            for i in 0..left.rows {
                let target = &mut self.values[i * right.columns..(i + 1) * right.columns];
                target.fill(0.0);
                for (k, &factor) in left.row(i).iter().enumerate() {
                    add_multiple(target, factor, right.row(k));
                }
            }
        });
    }

    /// The product of two matrices.
    pub(crate) fn multiply(&self, right: &Self) -> Self {
        let mut product = Self::zeros(self.rows, right.columns);
        product.set_product(self, right);
        product
    }

    /// Inverts a matrix in place by Gauss and Jordan without exchanging rows, and returns the logarithm of its
    /// determinant. None if a pivot is not positive, and then the values are meaningless.
    ///
    /// M-matrices need no exchange, and their pivots are positive; so this is also the test for one.
    pub(crate) fn invert_m_matrix(&mut self) -> Option<f64> {
        let size = self.rows;
        let mut log_determinant = 0.0;
        let mut pivot_row = vec![0.0; size];
        vectorize(|| {
            for k in 0..size {
                let pivot = self[(k, k)];
                if pivot.is_nan() || pivot <= 0.0 {
                    return None;
                }
                log_determinant += pivot.ln();
                let row = self.row_mut(k);
                row[k] = 1.0;
                row.iter_mut().for_each(|value| *value /= pivot);
                pivot_row.copy_from_slice(row);
                for (i, row) in self.values.chunks_exact_mut(size).enumerate() {
                    if i != k {
                        let factor = -std::mem::take(&mut row[k]);
                        add_multiple(row, factor, &pivot_row);
                    }
                }
            }
            Some(log_determinant)
        })
    }
}

impl Index<(usize, usize)> for Matrix {
    type Output = f64;

    fn index(&self, (row, column): (usize, usize)) -> &f64 {
        &self.values[row * self.columns + column]
    }
}

impl IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (row, column): (usize, usize)) -> &mut f64 {
        &mut self.values[row * self.columns + column]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_m_matrix_times_its_inverse_is_the_identity(values in prop::collection::vec(0.0..1.0f64, 49)) {
            // Rows of the subtracted part sum to less than 7, so 8 on the diagonal makes an M-matrix.
            let matrix = Matrix::from_fn(7, 7, |i, j| if i == j { 8.0 } else { 0.0 } - values[7 * i + j]);
            let mut inverse = matrix.clone();
            let log_determinant = inverse.invert_m_matrix().unwrap();
            prop_assert!(log_determinant.is_finite());
            prop_assert!(inverse.values().iter().all(|value| *value >= 0.0));
            let product = matrix.multiply(&inverse);
            let identity = Matrix::identity(7);
            let off = product.values().iter().zip(identity.values()).map(|(a, b)| (a - b).abs());
            prop_assert!(off.fold(0.0, f64::max) < 1e-12);
        }
    }

    #[test]
    fn a_matrix_with_a_cycle_of_heavy_weights_is_no_m_matrix() {
        let mut matrix = Matrix::from_fn(2, 2, |i, j| if i == j { 1.0 } else { -1.5 });
        assert_eq!(matrix.invert_m_matrix(), None);
    }

    #[test]
    fn determinants_of_triangular_matrices_are_products_of_their_diagonals() {
        let mut matrix = Matrix::from_fn(3, 3, |i, j| {
            if i == j {
                2.0
            } else if i > j {
                -1.0
            } else {
                0.0
            }
        });
        let log_determinant = matrix.invert_m_matrix().unwrap();
        assert!((log_determinant - 8.0f64.ln()).abs() < 1e-12);
    }
}
