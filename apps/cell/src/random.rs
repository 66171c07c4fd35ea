//! A seeded sequence of numbers (splitmix64), so that a trial can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::expression::{fraction, hash_text};

/// A sequence; shared references may draw from it, because expressions only borrow their scope.
#[derive(Debug)]
pub(crate) struct Random(AtomicU64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A sequence for a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        mix(self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// The next number as a fraction of one.
    pub(crate) fn fraction(&self) -> f64 {
        fraction(self.next())
    }

    /// A standard normal number (Box and Muller).
    pub(crate) fn normal(&self) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }

    /// An exponential number with mean one.
    pub(crate) fn exponential(&self) -> f64 {
        -(1.0 - self.fraction()).ln()
    }

    /// A sequence of its own for a concurrent branch, independent of how branches interleave.
    pub(crate) fn fork(&self, branch: u64) -> Self {
        Self::new(mix(self.0.load(Ordering::Relaxed) ^ mix(branch.wrapping_add(1))))
    }
}

/// One seed from several things.
pub(crate) fn seed_of(parts: &[&str], numbers: &[u64]) -> u64 {
    let texts = parts.iter().map(|part| hash_text(part));
    texts.chain(numbers.iter().copied()).fold(0, |seed, part| mix(seed ^ mix(part.wrapping_add(STEP))))
}

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Random, seed_of};

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (first, second, other) = (Random::new(1), Random::new(1), Random::new(2));
        let draw = |random: &Random| [random.next(), random.next(), random.fork(3).next()];
        let drawn = draw(&first);
        assert_eq!(drawn, draw(&second));
        assert_ne!(drawn, draw(&other));
        assert_ne!(seed_of(&["a", "b"], &[]), seed_of(&["b", "a"], &[]));
    }

    #[test]
    fn distributions_have_their_means() {
        let random = Random::new(1);
        let mean = |draw: &dyn Fn() -> f64| (0..4000).map(|_| draw()).sum::<f64>() / 4000.0;
        assert!((mean(&|| random.fraction()) - 0.5).abs() < 0.05);
        assert!(mean(&|| random.normal()).abs() < 0.1);
        assert!((mean(&|| random.exponential()) - 1.0).abs() < 0.1);
    }
}
