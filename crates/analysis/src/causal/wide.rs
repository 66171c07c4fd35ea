//! Runs numeric kernels with the widest vector instructions that this machine has.
//!
//! Kernels are plain loops over slices: the compiler vectorises them once for each level of instructions, and the level
//! is chosen when the program runs. Sums have explicit lanes and nothing is fused, so that the results are the same to
//! the last bit on every machine.

use std::f64::consts::LOG2_E;

use fearless_simd::{Level, Simd, dispatch};

/// Partial sums that a kernel keeps. Eight doubles fill the widest register there is.
pub(super) const LANES: usize = 8;

/// Runs a kernel that is inlined into code for the best available instructions.
#[inline]
pub(super) fn vectorize<R>(kernel: impl FnOnce() -> R) -> R {
    dispatch!(Level::new(), simd => simd.vectorize(kernel))
}

/// The sum of products of two equally long slices.
#[inline(always)]
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Adds a multiple of one slice to another.
#[inline(always)]
pub(super) fn add_multiple(target: &mut [f64], factor: f64, source: &[f64]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target += factor * source;
    }
}

/// `e^-x` for x from 0 on, without branches or tables, so that loops over it are vectorised. Its error is one unit in
/// the last place.
#[inline(always)]
pub(super) fn exp_negative(x: f64) -> f64 {
    /// ln 2 in two parts; a product of the first with an exponent is exact.
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    /// Adding 1.5 * 2^52 leaves the rounded sum in the lowest bits.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    /// 1 / n! from n = 13 down: on -ln 2 / 2 to ln 2 / 2 the first omitted term is below 2e-17.
    const TERMS: [f64; 14] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    // Below e^-708 numbers are denormal, and nothing here is that precise.
    let x = -x.min(708.0);
    let rounded = x * LOG2_E + ROUNDER;
    let exponent = rounded - ROUNDER;
    let rest = (x - exponent * LN_2_HIGH) - exponent * LN_2_LOW;
    let mut sum = TERMS[0];
    for term in &TERMS[1..] {
        sum = sum * rest + term;
    }
    sum * f64::from_bits((rounded.to_bits() << 52).wrapping_add(1023 << 52))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exponentials_are_exact_to_the_last_digits(x in 0.0..750.0f64) {
            let wanted = (-x).exp();
            prop_assert!((exp_negative(x) - wanted).abs() <= 4e-16 * wanted + 1e-307);
        }
    }
}
