//! Shifts of the level: cumulative sums of log likelihood ratios (Page 1954), compared with the sums that the series
//! makes when it is healthy.
//!
//! Ranks make them independent of the distribution: if values are independent, whatever they are, sums beyond `s` nats
//! come about once in `e^s` values. Blocks of largest sums take care of series whose values are not independent.
//!
//! There are two kinds of evidence. Normal scores find that all values are a little larger. They do not add up where
//! one call in three takes too long and the others are as always; exponential scores, which weigh the tail, do. Those
//! are for series with heavy tails, in which a single value says little. Elsewhere it is a spike, and the bursts of
//! ordinary series would add up.

use std::collections::VecDeque;

use super::Direction;
use super::constants::{
    ALLOWANCE, BEYOND_BLOCKS, BLOCK, BLOCKS, DEPENDENCE_WEIGHT, DEPENDENT, ENOUGH_BLOCKS, MOST_CORRELATION,
    MOST_SCORE, MOST_SUM, MOST_TAIL_SCORE, TAIL_GROWTH,
};
use super::normal::quantile_of_normal;

/// The cumulative sums of one series.
#[derive(Debug, Clone)]
pub(super) struct Level {
    middle: Evidence,
    /// For series with heavy tails.
    tail: Option<Evidence>,
    dependence: Dependence,
}

/// The sums of one kind of evidence.
#[derive(Debug, Clone, Default)]
struct Evidence {
    up: Sum,
    down: Sum,
    /// The largest sums of past blocks of values.
    blocks: VecDeque<f64>,
    in_block: usize,
    /// Of the current block.
    largest: f64,
}

/// One cumulative sum in nats, and the values since it was zero.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    sum: f64,
    values: usize,
    total: f64,
    since_us: u64,
    before: Before,
}

/// What was usual when a sum began. A shift must not raise the limit that it is compared with: its own values are as
/// dependent as any, and its own sums the largest of their blocks.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    /// The largest sum of the blocks, and whether they were enough.
    usual: f64,
    is_known: bool,
    dependence: Dependence,
}

/// How much neighbouring scores have in common.
#[derive(Debug, Clone, Copy, Default)]
struct Dependence {
    last: f64,
    /// Moving averages of the product of neighbours and of squares.
    product: f64,
    square: f64,
}

/// A level that differs from that of the history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ShiftSeen {
    pub(super) direction: Direction,
    pub(super) surprise: f64,
    /// The surprise it must exceed.
    pub(super) limit: f64,
    /// The mean value since it began.
    pub(super) mean: f64,
    /// How many values there are since it began.
    pub(super) values: usize,
    pub(super) since_us: u64,
    /// Whether neighbouring values had little in common before it began. If they had, large ones come in bursts.
    was_independent: bool,
}

impl Level {
    /// A level that is not known yet, of a series with or without a heavy tail.
    pub(super) fn new(is_heavy: bool) -> Self {
        Self {
            middle: Evidence::default(),
            tail: is_heavy.then(Evidence::default),
            dependence: Dependence::default(),
        }
    }

    /// Values before a gap do not add to values after it.
    pub(super) fn note_gap(&mut self) {
        for evidence in [Some(&mut self.middle), self.tail.as_mut()].into_iter().flatten() {
            (evidence.up, evidence.down) = (Sum::default(), Sum::default());
        }
    }

    /// Learns from a value of the warm-up how much neighbours have in common.
    pub(super) fn warm_up(&mut self, rank: f64) {
        self.dependence.add(normal_score(rank));
    }

    /// Adds a value with its rank, from 0 to 1; returns the larger shift, which goes on as long as it exceeds its
    /// limit.
    pub(super) fn observe(&mut self, (at_us, value): (u64, f64), rank: f64, limit: f64) -> ShiftSeen {
        let score = normal_score(rank);
        self.dependence.add(score);
        // The likelihood ratio of a normal variable whose mean is twice the allowance.
        let gain = |score: f64| 2.0 * ALLOWANCE * (score - ALLOWANCE);
        let gains = (gain(score), gain(-score));
        let middle = self.middle.observe((at_us, value), gains, self.dependence, limit);
        let Some(tail) = &mut self.tail else { return middle };
        let gains = (tail_gain(1.0 - rank), tail_gain(rank));
        let tail = tail.observe((at_us, value), gains, self.dependence, limit);
        if tail.was_independent && tail.severity() > middle.severity() { tail } else { middle }
    }
}

fn normal_score(rank: f64) -> f64 {
    quantile_of_normal(rank).clamp(-MOST_SCORE, MOST_SCORE)
}

/// The likelihood ratio of an exponential variable whose mean is [`TAIL_GROWTH`] instead of 1, for the value that is
/// exceeded with this probability.
fn tail_gain(probability: f64) -> f64 {
    let score = (-probability.max(f64::MIN_POSITIVE).ln()).min(MOST_TAIL_SCORE);
    score * (1.0 - 1.0 / TAIL_GROWTH) - TAIL_GROWTH.ln()
}

impl ShiftSeen {
    fn severity(&self) -> f64 {
        self.surprise / self.limit
    }
}

impl Evidence {
    fn observe(
        &mut self,
        reading: (u64, f64),
        (gain_up, gain_down): (f64, f64),
        dependence: Dependence,
        limit: f64,
    ) -> ShiftSeen {
        let before = Before {
            usual: self.blocks.iter().copied().fold(0.0, f64::max),
            is_known: self.blocks.len() >= ENOUGH_BLOCKS,
            dependence,
        };
        self.up.add(reading, gain_up, before);
        self.down.add(reading, gain_down, before);
        let limits = [&mut self.up, &mut self.down].map(|sum| {
            let limit = (sum.before.stretch(dependence) * limit).max(BEYOND_BLOCKS * sum.before.usual);
            sum.sum = sum.sum.min(MOST_SUM * limit);
            // Cut at the limit, so that one incident does not hide the next.
            self.largest = self.largest.max(sum.sum.min(limit));
            limit
        });
        self.in_block += 1;
        if self.in_block == BLOCK {
            if self.blocks.len() == BLOCKS {
                self.blocks.pop_front();
            }
            self.blocks.push_back(self.largest);
            (self.in_block, self.largest) = (0, 0.0);
        }
        let seen = |direction, sum: &Sum, limit| ShiftSeen {
            direction,
            surprise: sum.sum,
            limit,
            mean: if sum.values == 0 { reading.1 } else { sum.total / sum.values as f64 },
            values: sum.values,
            since_us: sum.since_us,
            was_independent: sum.before.is_independent(),
        };
        let up = seen(Direction::Up, &self.up, limits[0]);
        let down = seen(Direction::Down, &self.down, limits[1]);
        if up.severity() >= down.severity() { up } else { down }
    }
}

impl Before {
    fn is_independent(&self) -> bool {
        self.dependence.correlation() < DEPENDENT
    }

    /// How much the limit of independent values is stretched until there are blocks to compare with. A series that was
    /// independent before has no seasons; in one that was not, the next half of a season may look like a shift.
    fn stretch(&self, now: Dependence) -> f64 {
        if self.is_known {
            1.0
        } else if self.is_independent() {
            self.dependence.stretch()
        } else {
            now.stretch()
        }
    }
}

impl Dependence {
    fn add(&mut self, score: f64) {
        self.product += DEPENDENCE_WEIGHT * (score * self.last - self.product);
        self.square += DEPENDENCE_WEIGHT * (score * score - self.square);
        self.last = score;
    }

    fn correlation(&self) -> f64 {
        let correlation = if self.square > 0.0 { self.product / self.square } else { 0.0 };
        correlation.clamp(0.0, MOST_CORRELATION)
    }

    /// How many times as much the sum of dependent values varies: `(1 + r) / (1 - r)` for the correlation `r`.
    fn stretch(&self) -> f64 {
        let correlation = self.correlation();
        (1.0 + correlation) / (1.0 - correlation)
    }
}

impl Sum {
    fn add(&mut self, (at_us, value): (u64, f64), gain: f64, before: Before) {
        if self.sum + gain <= 0.0 {
            *self = Self { before, ..Self::default() };
            return;
        }
        if self.values == 0 {
            (self.since_us, self.before) = (at_us, before);
        }
        self.sum += gain;
        self.values += 1;
        self.total += value;
    }
}
