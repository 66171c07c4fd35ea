//! Invocation matrices: which request a user sends after which.

use serde::Serialize;

use crate::random::Random;

/// A row for each request: the probabilities of those that may follow it. A user begins as if it had sent the last one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Matrix {
    rows: Vec<Vec<f64>>,
}

/// Why a matrix cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatrixError {
    /// It has no row.
    #[error("it is empty")]
    Empty,
    /// It is too large.
    #[error("it has {0} rows; the limit is {MAX_REQUESTS}")]
    TooLarge(usize),
    /// Not as many columns as rows.
    #[error("row {row} has {columns} numbers, not {rows}")]
    NotSquare {
        /// From 1.
        row: usize,
        /// Its length.
        columns: usize,
        /// The number of rows.
        rows: usize,
    },
    /// Something that is no probability.
    #[error("row {row} has {value}, which is no probability")]
    NotProbability {
        /// From 1.
        row: usize,
        /// The number.
        value: f64,
    },
    /// A row whose probabilities are not 1 together.
    #[error("the probabilities of row {row} add up to {sum}, not to 1")]
    NotStochastic {
        /// From 1.
        row: usize,
        /// Their sum.
        sum: f64,
    },
}

/// The most requests of a scenario. Tables and reports have a row for each.
pub(super) const MAX_REQUESTS: usize = 1_000;

/// Rows are written by hand with a few digits.
const TOLERANCE: f64 = 1e-3;

/// Permutations that a balanced matrix is mixed of: enough that each request has several successors.
const PERMUTATIONS: usize = 4;

impl Matrix {
    /// A matrix of probabilities. Rows that add up to 1 but for rounding are scaled to it.
    pub fn new(mut rows: Vec<Vec<f64>>) -> Result<Self, MatrixError> {
        let size = rows.len();
        match size {
            0 => return Err(MatrixError::Empty),
            size if size > MAX_REQUESTS => return Err(MatrixError::TooLarge(size)),
            _ => {}
        }
        for (row, values) in (1..).zip(&mut rows) {
            if values.len() != size {
                return Err(MatrixError::NotSquare { row, columns: values.len(), rows: size });
            }
            if let Some(value) = values.iter().find(|value| !(0.0..=1.0 + TOLERANCE).contains(*value)) {
                return Err(MatrixError::NotProbability { row, value: *value });
            }
            let sum: f64 = values.iter().sum();
            if (sum - 1.0).abs() > TOLERANCE {
                return Err(MatrixError::NotStochastic { row, sum });
            }
            values.iter_mut().for_each(|value| *value /= sum);
        }
        Ok(Self { rows })
    }

    /// One request after the other: the paper's *uniform* load.
    pub fn in_turn(requests: usize) -> Self {
        let row = |from: usize| (0..requests).map(move |to| f64::from(u8::from(to == (from + 1) % requests)));
        Self { rows: (0..requests).map(|from| row(from).collect()).collect() }
    }

    /// One request with this probability, the others equally likely: the paper's *unbalanced* load.
    pub fn favouring(requests: usize, favoured: usize, probability: f64) -> Self {
        if requests == 1 {
            return Self { rows: vec![vec![1.0]] };
        }
        let other = (1.0 - probability) / (requests - 1) as f64;
        let row: Vec<f64> =
            (0..requests).map(|to| if to == favoured { probability } else { other }).collect();
        Self { rows: vec![row; requests] }
    }

    /// A random matrix in which every request is equally likely in the long run: the paper's *randomly balanced* load.
    ///
    /// A mixture of permutations has rows and columns that add up to 1 (Birkhoff and von Neumann), so that the uniform
    /// distribution is stationary. The first one is a cycle through all requests, so that it is the only one.
    pub fn randomly_balanced(requests: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut rows = vec![vec![0.0; requests]; requests];
        let weights: Vec<f64> = (0..PERMUTATIONS).map(|_| 0.1 + random.unit()).collect();
        let sum: f64 = weights.iter().sum();
        for (number, weight) in weights.iter().enumerate() {
            let mut order: Vec<usize> = (0..requests).collect();
            random.shuffle(&mut order);
            for place in 0..requests {
                let (from, to) = match number {
                    0 => (order[place], order[(place + 1) % requests]),
                    _ => (place, order[place]),
                };
                rows[from][to] += weight / sum;
            }
        }
        Self { rows }
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no requests; never true of a checked matrix.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The probability of a request after another.
    pub fn probability(&self, from: usize, to: usize) -> f64 {
        self.rows[from][to]
    }

    /// The request after this one.
    pub fn draw_next(&self, from: usize, random: &mut Random) -> usize {
        let row = &self.rows[from];
        let mut left = random.unit();
        for (to, probability) in row.iter().enumerate() {
            if left < *probability {
                return to;
            }
            left -= probability;
        }
        // Rounding may leave a little: the last request that is possible at all.
        row.iter().rposition(|probability| *probability > 0.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_must_be_probabilities() {
        let error = |rows: &[&[f64]]| {
            Matrix::new(rows.iter().map(|row| row.to_vec()).collect()).unwrap_err().to_string()
        };
        assert_eq!(error(&[]), "it is empty");
        assert_eq!(error(&[&[0.5, 0.5], &[1.0]]), "row 2 has 1 numbers, not 2");
        assert_eq!(error(&[&[1.5]]), "row 1 has 1.5, which is no probability");
        assert_eq!(error(&[&[f64::NAN]]), "row 1 has NaN, which is no probability");
        assert_eq!(error(&[&[0.5, 0.4], &[1.0, 0.0]]), "the probabilities of row 1 add up to 0.9, not to 1");
    }

    #[test]
    fn uniform_users_send_one_request_after_the_other() {
        let (matrix, mut random) = (Matrix::in_turn(3), Random::new(1));
        let mut at = 2;
        let sent: Vec<usize> = std::iter::repeat_with(|| {
            at = matrix.draw_next(at, &mut random);
            at
        })
        .take(6)
        .collect();
        assert_eq!(sent, [0, 1, 2, 0, 1, 2]);
    }

    /// Chi-square with 3 degrees of freedom: 11.34 is exceeded with probability 0.01.
    #[test]
    fn successors_have_their_probabilities() {
        let row = [0.1, 0.2, 0.3, 0.4];
        let matrix = Matrix::new(vec![row.to_vec(); 4]).unwrap();
        let mut random = Random::new(11);
        let mut seen = [0.0; 4];
        (0..20_000).for_each(|_| seen[matrix.draw_next(0, &mut random)] += 1.0);
        let square = |(seen, probability): (&f64, &f64)| {
            let expected = probability * 20_000.0;
            (seen - expected).powi(2) / expected
        };
        let chi: f64 = seen.iter().zip(&row).map(square).sum();
        assert!(chi < 11.34, "{chi}");
    }

    proptest! {
        #[test]
        fn balanced_matrices_have_rows_and_columns_of_one(requests in 1usize..30, seed in any::<u64>()) {
            let matrix = Matrix::randomly_balanced(requests, seed);
            for at in 0..requests {
                let row: f64 = (0..requests).map(|to| matrix.probability(at, to)).sum();
                let column: f64 = (0..requests).map(|from| matrix.probability(from, at)).sum();
                prop_assert!((row - 1.0).abs() < 1e-9 && (column - 1.0).abs() < 1e-9);
            }
            prop_assert!(Matrix::new(matrix.rows).is_ok());
        }

        #[test]
        fn favoured_requests_have_their_share(requests in 1usize..30, share in 0.0..1.0f64) {
            let matrix = Matrix::favouring(requests, 0, share);
            prop_assert!(requests == 1 || (matrix.probability(0, 0) - share).abs() < 1e-9);
            prop_assert!(Matrix::new(matrix.rows).is_ok());
        }
    }
}
