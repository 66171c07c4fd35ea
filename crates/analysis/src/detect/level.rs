//! Shifts of the level: two cumulative sums of normal scores (Page 1954), compared with the sums that the series makes
//! when it is healthy.
//!
//! Ranks make it independent of the distribution: if values are independent, whatever they are, sums beyond `s` nats
//! come about once in `e^s` values. Blocks of largest sums take care of series whose values are not independent.

use std::collections::VecDeque;

use super::Direction;
use super::constants::{
    ALLOWANCE, BEYOND_BLOCKS, BLOCK, BLOCKS, DEPENDENCE_WEIGHT, ENOUGH_BLOCKS, MOST_CORRELATION, MOST_SCORE,
};

/// The cumulative sums of one series.
#[derive(Debug, Clone, Default)]
pub(super) struct Level {
    up: Sum,
    down: Sum,
    /// The largest surprises of past blocks of values.
    blocks: VecDeque<f64>,
    in_block: usize,
    /// Of the current block.
    largest: f64,
    dependence: Dependence,
}

/// One cumulative sum, and the values since it was zero.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    sum: f64,
    values: usize,
    total: f64,
    since_us: u64,
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
    pub(super) since_us: u64,
}

impl Level {
    /// Values before a gap do not add to values after it.
    pub(super) fn note_gap(&mut self) {
        (self.up, self.down) = (Sum::default(), Sum::default());
    }

    /// Adds a value with its normal score.
    pub(super) fn observe(&mut self, (at_us, value): (u64, f64), score: f64, limit: f64) -> ShiftSeen {
        let score = score.clamp(-MOST_SCORE, MOST_SCORE);
        self.dependence.add(score);
        self.up.add(at_us, value, score - ALLOWANCE);
        self.down.add(at_us, value, -score - ALLOWANCE);
        let (direction, larger) = match self.up.sum >= self.down.sum {
            true => (Direction::Up, self.up),
            false => (Direction::Down, self.down),
        };
        // The likelihood ratio that a cumulative sum of normal variables stands for.
        let surprise = 2.0 * ALLOWANCE * larger.sum;
        let usual = self.blocks.iter().copied().fold(0.0, f64::max);
        // Until there are blocks to compare with, the limit of independent values is stretched.
        let stretch = if self.blocks.len() < ENOUGH_BLOCKS { self.dependence.stretch() } else { 1.0 };
        let limit = (stretch * limit).max(BEYOND_BLOCKS * usual);
        // Cut at the limit, so that one incident does not hide the next.
        self.largest = self.largest.max(surprise.min(limit));
        self.in_block += 1;
        if self.in_block == BLOCK {
            if self.blocks.len() == BLOCKS {
                self.blocks.pop_front();
            }
            self.blocks.push_back(self.largest);
            (self.in_block, self.largest) = (0, 0.0);
        }
        let mean = if larger.values == 0 { value } else { larger.total / larger.values as f64 };
        ShiftSeen { direction, surprise, limit, mean, since_us: larger.since_us }
    }

    /// Starts anew after an alarm: what is left of the incident adds up again.
    pub(super) fn restart(&mut self) {
        self.note_gap();
    }
}

impl Dependence {
    fn add(&mut self, score: f64) {
        self.product += DEPENDENCE_WEIGHT * (score * self.last - self.product);
        self.square += DEPENDENCE_WEIGHT * (score * score - self.square);
        self.last = score;
    }

    /// How many times as much the sum of dependent values varies: `(1 + r) / (1 - r)` for the correlation `r`.
    fn stretch(&self) -> f64 {
        let correlation = if self.square > 0.0 { self.product / self.square } else { 0.0 };
        let correlation = correlation.clamp(0.0, MOST_CORRELATION);
        (1.0 + correlation) / (1.0 - correlation)
    }
}

impl Sum {
    fn add(&mut self, at_us: u64, value: f64, gain: f64) {
        if self.sum + gain <= 0.0 {
            *self = Self::default();
            return;
        }
        if self.values == 0 {
            self.since_us = at_us;
        }
        self.sum += gain;
        self.values += 1;
        self.total += value;
    }
}
