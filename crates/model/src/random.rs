//! Random numbers from a seed, the same on every machine and in every release.
//!
//! What is drawn from a seed is printed, stored and drawn again, so no draw may ever change: add methods, never
//! change one.

/// SplitMix64 (Steele et al. 2014): one word of state, good enough for pools, folds, noise and workloads.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// The increment of SplitMix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next word.
    #[expect(clippy::should_implement_trait, reason = "an iterator that never ends invites `collect`")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        scale(self.next(), bound)
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// This many different numbers below `bound`, ascending; all of them if there are fewer.
    pub fn choose(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < count.min(bound) {
            chosen.insert(self.below(bound));
        }
        chosen.into_iter().collect()
    }
}

/// A number below `bound` that depends on seed and place alone: whoever asks gets it, in whatever order.
pub fn draw_at(seed: u64, place: [usize; 2], bound: usize) -> usize {
    let [first, second] = place.map(|number| number as u64);
    scale(mix(mix(seed ^ first.wrapping_mul(STEP)).wrapping_add(second)), bound)
}

/// Spreads every bit of a word over all others.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn scale(word: u64, bound: usize) -> usize {
    // The bias of multiplying is below 2^-40 for every bound that occurs.
    ((u128::from(word) * bound as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored seeds name these numbers: a change here changes what users see again.
    #[test]
    fn a_seed_draws_the_same_numbers_for_ever() {
        let mut random = Random::new(7);
        assert_eq!([random.next(), random.next()], [0x63cb_e1e4_5932_0dd7, 0x044c_3cd7_f43c_661c]);
        assert_eq!(draw_at(7, [1, 2], 1000), draw_at(7, [1, 2], 1000));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut random = Random::new(1);
        let mut seen = [false; 5];
        (0..200).for_each(|_| seen[random.below(5)] = true);
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.choose(9, 4), [0, 1, 2, 3]);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut random = Random::new(3);
        let drawn: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "mean {mean}, variance {variance}");
    }
}
