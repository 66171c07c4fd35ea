//! How new the last few values are as a pattern: their distance from the nearest pattern of the history.
//!
//! A season that comes again has a near neighbour whatever its shape, and so has a burst that is known.

use super::constants::{HISTORY, LEAST_NOVELTY_EXCESS, NOVELTY_TAIL, PATTERN, REFIT, WARM_UP};
use super::history::{History, Tail};

/// The patterns of one series.
#[derive(Debug, Clone)]
pub(super) struct Novelty {
    /// Values of the history and as many older ones, so that moving them costs little; relative to `origin` and in
    /// multiples of `unit`, so that single precision is enough.
    values: Vec<f32>,
    origin: f64,
    unit: f64,
    /// The squared distances of the last pattern from each other one.
    squares: Vec<f32>,
    /// Past distances.
    distances: History,
    tail: Option<Tail>,
    /// Values since the last gap, up to the length of a pattern.
    together: usize,
    until_refit: usize,
}

impl Novelty {
    /// Values will be near `origin`, with a spread of about `unit`.
    pub(super) fn new(origin: f64, unit: f64) -> Self {
        Self {
            values: Vec::new(),
            origin,
            unit,
            squares: Vec::new(),
            distances: History::new(HISTORY),
            tail: None,
            together: 0,
            until_refit: 0,
        }
    }

    /// No pattern reaches over a gap.
    pub(super) fn note_gap(&mut self) {
        self.together = 0;
    }

    /// Adds a value and returns how surprising the pattern is that ends with it.
    pub(super) fn observe(&mut self, value: f64) -> f64 {
        if self.values.len() >= 2 * HISTORY {
            self.values.drain(..HISTORY);
        }
        let relative = (value - self.origin) / self.unit;
        self.values.push(relative.clamp(-MOST_UNITS, MOST_UNITS) as f32);
        self.together = (self.together + 1).min(PATTERN);
        if self.together < PATTERN {
            return 0.0;
        }
        let Some(distance) = self.nearest() else { return 0.0 };
        if self.until_refit == 0 {
            self.until_refit = REFIT;
            let tail = self.distances.upper_tail(NOVELTY_TAIL).filter(|_| self.distances.len() >= WARM_UP);
            self.tail = tail.map(|tail| tail.at_least(LEAST_NOVELTY_EXCESS));
        }
        self.until_refit -= 1;
        self.distances.push(distance);
        self.tail.map_or(0.0, |tail| tail.surprise(distance))
    }

    /// The distance between the last pattern and the nearest earlier one that has no value in common with it.
    fn nearest(&mut self) -> Option<f64> {
        let known = &self.values[self.values.len().saturating_sub(HISTORY)..];
        let (earlier, last) = known.split_at(known.len().checked_sub(PATTERN)?);
        let count = (earlier.len() + 1).checked_sub(PATTERN)?;
        self.squares.clear();
        self.squares.resize(count, 0.0);
        // One value of all patterns after the other, which compilers turn into vector instructions.
        for (shift, value) in last.iter().enumerate() {
            for (square, other) in self.squares.iter_mut().zip(&earlier[shift..]) {
                *square += (other - value) * (other - value);
            }
        }
        let nearest =
            self.squares.iter().fold(f32::INFINITY, |least, next| if *next < least { *next } else { least });
        nearest.is_finite().then(|| f64::from(nearest / PATTERN as f32).sqrt())
    }
}

/// Values are cut at this many units, the square of which is far from the largest number.
const MOST_UNITS: f64 = 1e15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_season_is_known_after_its_first_time_and_its_absence_is_new() {
        let mut novelty = Novelty::new(0.0, 1.0);
        let season = |place: usize| (place as f64 / 8.0).sin() * 1.5;
        let mut most = 0.0_f64;
        for place in 0..1500 {
            let surprise = novelty.observe(season(place));
            if place > 300 {
                most = most.max(surprise);
            }
        }
        assert!(most < 4.0, "{most}");
        let flat = (0..8).map(|_| novelty.observe(-2.5)).fold(0.0, f64::max);
        assert!(flat > 9.0, "{flat}");
    }

    #[test]
    fn a_pattern_does_not_reach_over_a_gap() {
        let mut novelty = Novelty::new(0.0, 1.0);
        for place in 0..600 {
            novelty.observe(f64::from(place % 2));
        }
        novelty.note_gap();
        assert_eq!((1..PATTERN).map(|_| novelty.observe(4.0)).fold(0.0, f64::max), 0.0);
        assert!(novelty.observe(4.0) > 9.0);
    }
}
