//! Numbers from the seed. Each purpose has dice of its own, so that one choice more for one purpose does
//! not change the choices for another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use faultscope_model::random::mix;

/// A stream of numbers that all workers draw from, in the order of their draws.
#[derive(Debug)]
pub(crate) struct Dice {
    seed: u64,
    drawn: AtomicU64,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self { seed: mix(seed ^ mix(purpose.wrapping_mul(GOLDEN))), drawn: AtomicU64::new(0) }
    }

    /// The next number.
    pub(crate) fn draw(&self) -> u64 {
        let turn = self.drawn.fetch_add(1, Ordering::Relaxed);
        mix(self.seed.wrapping_add(turn.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// A number that is not zero, as ids must be.
    pub(crate) fn draw_id(&self) -> u64 {
        self.draw().max(1)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.draw() % bound.max(1) as u64) as usize
    }

    /// A time between zero and `most`; draws nothing when there is no choice.
    pub(crate) fn up_to(&self, most: Duration) -> Duration {
        if most.is_zero() {
            return Duration::ZERO;
        }
        most.mul_f64(self.share())
    }

    /// Whether something with this probability happens; draws nothing when that is certain.
    pub(crate) fn happens(&self, share: f64) -> bool {
        share > 0.0 && self.share() < share
    }

    fn share(&self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A hash that stays the same over runs and machines (FNV-1a), for choices that must be repeatable.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers() {
        let draw = |seed, purpose| {
            let dice = Dice::new(seed, purpose);
            (0..8).map(|_| dice.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn shares_are_met() {
        let dice = Dice::new(1, 1);
        let hits = (0..10_000).filter(|_| dice.happens(0.3)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
        assert!(!dice.happens(0.0) && dice.happens(1.0));
    }
}
