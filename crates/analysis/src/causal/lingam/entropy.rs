//! Approximate entropies of standardised columns (Hyvärinen 1998), the inner loop of the search for an order.
//!
//! Means of `ln cosh u` need no logarithm for each value: `cosh u = e^|u| (1 + e^-2|u|) / 2`, and the logarithm of a
//! product of many factors between 1 and 2 is taken once.

use std::f64::consts::LN_2;

use crate::causal::wide::{LANES, dot, exp_negative, vectorize};

/// Weights and offset of the approximation.
const K1: f64 = 79.047;
const K2: f64 = 7.4129;
const GAMMA: f64 = 0.37457;

/// The entropy of a standard normal variable: (1 + ln 2 pi) / 2.
const NORMAL: f64 = 1.418_938_533_204_672_7;

/// Factors between 1 and 2 that are multiplied before their logarithm is taken: 2^512 is far from overflowing.
const FACTORS: usize = 512;

/// Correlations closer to 1 than this leave nothing but rounding errors as residual.
const LEAST_RESIDUAL: f64 = 1e-14;

/// The entropy of a standardised column.
pub(crate) fn entropy(column: &[f64]) -> f64 {
    let [sums, _] = vectorize(|| residual_sums(column, column, 0.0, 1.0));
    sums.entropy(column.len())
}

/// By how much the entropy of a standardised column is below that of a normal one.
pub(crate) fn negentropy(column: &[f64]) -> f64 {
    NORMAL - entropy(column)
}

/// The entropy of the residual of `a` given `b`, minus that of `b` given `a`; both columns are standardised.
pub(crate) fn residual_difference(a: &[f64], b: &[f64]) -> f64 {
    let [of_a, of_b] = vectorize(|| {
        let correlation = dot(a, b) / a.len() as f64;
        let remaining = (1.0 - correlation * correlation).max(LEAST_RESIDUAL);
        residual_sums(a, b, correlation, remaining.sqrt().recip())
    });
    of_a.entropy(a.len()) - of_b.entropy(b.len())
}

/// Sums over the values of a column.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    log_cosh: f64,
    gauss: f64,
}

impl Sums {
    fn entropy(self, rows: usize) -> f64 {
        let rows = rows as f64;
        let (log_cosh, gauss) = (self.log_cosh / rows - LN_2 - GAMMA, self.gauss / rows);
        NORMAL - K1 * log_cosh * log_cosh - K2 * gauss * gauss
    }
}

/// Sums of one column while a block of rows is read.
#[derive(Clone, Copy)]
struct Lanes {
    absolute: [f64; LANES],
    factors: [f64; LANES],
    gauss: [f64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn new() -> Self {
        Self { absolute: [0.0; LANES], factors: [1.0; LANES], gauss: [0.0; LANES] }
    }

    #[inline(always)]
    fn add(&mut self, values: [f64; LANES]) {
        for (lane, u) in values.into_iter().enumerate() {
            let absolute = u.abs();
            self.absolute[lane] += absolute;
            self.factors[lane] *= 1.0 + exp_negative(2.0 * absolute);
            self.gauss[lane] += u * exp_negative(0.5 * u * u);
        }
    }

    fn finish(&self, sums: &mut Sums) {
        sums.log_cosh += self.absolute.iter().sum::<f64>();
        sums.log_cosh += self.factors.iter().map(|product| product.ln()).sum::<f64>();
        sums.gauss += self.gauss.iter().sum::<f64>();
    }
}

/// Sums of the residuals `(a - c b) s` and `(b - c a) s`.
#[inline(always)]
fn residual_sums(a: &[f64], b: &[f64], correlation: f64, scale: f64) -> [Sums; 2] {
    let mut sums = [Sums::default(); 2];
    for (a, b) in a.chunks(FACTORS * LANES).zip(b.chunks(FACTORS * LANES)) {
        let mut lanes = [Lanes::new(); 2];
        let (a_chunks, a_rest) = a.as_chunks::<LANES>();
        let (b_chunks, b_rest) = b.as_chunks::<LANES>();
        let mut add = |a: &[f64; LANES], b: &[f64; LANES]| {
            lanes[0].add(std::array::from_fn(|lane| (a[lane] - correlation * b[lane]) * scale));
            lanes[1].add(std::array::from_fn(|lane| (b[lane] - correlation * a[lane]) * scale));
        };
        for (a, b) in a_chunks.iter().zip(b_chunks) {
            add(a, b);
        }
        if !a_rest.is_empty() {
            // Padding with zeros adds a factor of 2 for each, which is taken out again.
            let (mut last_a, mut last_b) = ([0.0; LANES], [0.0; LANES]);
            last_a[..a_rest.len()].copy_from_slice(a_rest);
            last_b[..b_rest.len()].copy_from_slice(b_rest);
            add(&last_a, &last_b);
            let padding = (LANES - a_rest.len()) as f64 * LN_2;
            sums.iter_mut().for_each(|sums| sums.log_cosh -= padding);
        }
        lanes.iter().zip(&mut sums).for_each(|(lanes, sums)| lanes.finish(sums));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The formula as it is written, value by value.
    fn plain_entropy(column: &[f64]) -> f64 {
        let rows = column.len() as f64;
        let log_cosh = column.iter().map(|u| u.cosh().ln()).sum::<f64>() / rows;
        let gauss = column.iter().map(|u| u * (-u * u / 2.0).exp()).sum::<f64>() / rows;
        NORMAL - K1 * (log_cosh - GAMMA).powi(2) - K2 * gauss * gauss
    }

    proptest! {
        #[test]
        fn entropies_are_those_of_the_formula(column in prop::collection::vec(-9.0..9.0f64, 1..200)) {
            let (fast, plain) = (entropy(&column), plain_entropy(&column));
            prop_assert!((fast - plain).abs() <= 1e-11 * plain.abs().max(1.0), "{fast} {plain}");
        }
    }

    #[test]
    fn long_columns_with_a_rest_do_not_overflow() {
        let column: Vec<f64> = (0..3 * FACTORS * LANES + 5).map(|i| f64::from(i as u32 % 7) - 3.0).collect();
        assert!((entropy(&column) - plain_entropy(&column)).abs() < 1e-10);
    }

    #[test]
    fn huge_values_stay_finite() {
        assert!(entropy(&[1e9, -1e9, 0.0]).is_finite());
    }

    #[test]
    fn the_residuals_of_equal_columns_are_not_told_apart() {
        let column = [1.0, -1.0, 0.5, -0.5];
        assert_eq!(residual_difference(&column, &column), 0.0);
    }
}
