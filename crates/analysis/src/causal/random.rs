//! A small generator of random numbers, the same on every machine.

/// SplitMix64 (Steele et al. 2014): one word of state, good enough to draw folds and noise.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        scale(self.next(), bound)
    }

    /// A number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A standard normal number (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// A number below `bound` that depends on seed and place alone: queries share it, in whatever order they are asked.
pub(crate) fn draw_at(seed: u64, place: [usize; 2], bound: usize) -> usize {
    let [first, second] = place.map(|number| number as u64);
    scale(mix(mix(seed ^ first.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(second)), bound)
}

fn scale(word: u64, bound: usize) -> usize {
    // The bias of multiplying is below 2^-40 for every bound that occurs.
    ((u128::from(word) * bound as u128) >> 64) as usize
}

/// Spreads every bit of a word over all others.
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
