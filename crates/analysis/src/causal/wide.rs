//! Runs numeric kernels with the widest vector instructions that this machine has.
//!
//! Kernels are plain loops over slices: the compiler vectorises them once for each level of instructions, and the level
//! is chosen when the program runs. Sums have explicit lanes and nothing is fused, so that the results are the same to
//! the last bit on every machine.

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
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
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
