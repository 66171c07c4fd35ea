//! Histogram buckets in one form: upper bounds with cumulative counts.

use std::collections::BTreeMap;

/// The most buckets of a point.
const MAX_BUCKETS: usize = 64;

/// Buckets with explicit bounds. The last one, without a bound, equals the count.
pub(super) fn explicit(bounds: &[f64], counts: &[u64]) -> Vec<(f64, u64)> {
    if counts.len() != bounds.len() + 1
        || !bounds.is_sorted()
        || bounds.iter().any(|bound| !bound.is_finite())
    {
        return Vec::new();
    }
    let mut below: u64 = 0;
    let add = |(bound, count): (&f64, &u64)| {
        below = below.saturating_add(*count);
        (*bound, below)
    };
    bounds.iter().zip(counts).map(add).take(MAX_BUCKETS).collect()
}

/// Exponential buckets, merged to powers of two: senders change their scale as
/// values come, and only stable bounds can be compared.
pub(super) fn exponential(scale: i32, not_above_zero: u64, offset: i32, counts: &[u64]) -> Vec<(f64, u64)> {
    let mut by_power: BTreeMap<i64, u64> = BTreeMap::new();
    for (index, count) in (i64::from(offset)..).zip(counts).filter(|(_, count)| **count > 0) {
        // Bucket `i` reaches from `b^i` to `b^(i+1)`, where `b` is 2 to the power of 2 to the power of `-scale`.
        let power = match u32::try_from(scale) {
            Ok(scale) => (index >> scale.min(62)) + 1,
            Err(_) => (index + 1).saturating_mul(1 << scale.unsigned_abs().min(12)),
        };
        let sum = by_power.entry(power).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut below = not_above_zero;
    let zero = (not_above_zero > 0).then_some((0.0, not_above_zero));
    let powers = by_power.into_iter().map(|(power, count)| {
        below = below.saturating_add(count);
        ((power as f64).exp2(), below)
    });
    // Beyond the range of a float there is no bound.
    let told = |(bound, _): &(f64, u64)| bound.is_finite() && *bound > 0.0;
    zero.into_iter().chain(powers.filter(told)).take(MAX_BUCKETS).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn counts_are_added_up_to_each_bound() {
        assert_eq!(explicit(&[1.0, 5.0], &[2, 3, 4]), [(1.0, 2), (5.0, 5)]);
        assert_eq!(explicit(&[], &[7]), []);
        for (bounds, counts) in [(&[1.0][..], &[1][..]), (&[2.0, 1.0], &[1, 1, 1]), (&[f64::NAN], &[1, 1])] {
            assert!(explicit(bounds, counts).is_empty(), "{bounds:?}");
        }
    }

    #[test]
    fn growing_buckets_become_powers_of_two() {
        assert_eq!(exponential(0, 3, 0, &[1, 0, 2]), [(0.0, 3), (2.0, 4), (8.0, 6)]);
        // Four buckets of scale 2 make one of scale 0, also below one.
        assert_eq!(exponential(2, 0, -4, &[1; 8]), [(1.0, 4), (2.0, 8)]);
        assert_eq!(exponential(-1, 0, 0, &[1, 1]), [(4.0, 1), (16.0, 2)]);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_bounded_and_grows(
            scale: i32, zero: u64, offset: i32, counts in prop::collection::vec(any::<u64>(), 0..200)
        ) {
            let buckets = exponential(scale, zero, offset, &counts);
            prop_assert!(buckets.len() <= MAX_BUCKETS);
            prop_assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        }
    }
}
