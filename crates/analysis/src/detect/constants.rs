//! The constants of the adaptive detector, with where each comes from.
//!
//! They were chosen on a random half of the shared files of the Numenta Anomaly Benchmark (`bench detect` says which)
//! and on synthetic healthy series; the other half was scored once, at the end. Where scores form a plateau, the round
//! number in its middle was taken. [`TAIL_GROWTH`], [`MOST_TAIL_SCORE`], [`MOST_SUM`] and [`DEPENDENT`] came later and
//! follow from their reasons; by then the other half had been looked at (design note 33).

/// The values that count as history. A week of samples every five minutes, or an hour of two per second. Halving it
/// costs about 4 points on the benchmark, because weekly patterns are forgotten; time per value grows with it.
pub const HISTORY: usize = 2048;

/// No alarm before this many values: 5 % of them is six, the fewest from which the mean of a tail is worth anything.
pub const WARM_UP: usize = 128;

/// The share of the history that counts as a tail of values. 2 % scores 4 points less with few values, and 10 % is no
/// better.
pub(super) const TAIL: f64 = 0.05;

/// The share of past novelties that counts as their tail. They are smoother than values, so more of them can be used.
pub(super) const NOVELTY_TAIL: f64 = 0.1;

/// Tails are fitted anew after this many values; between, they hardly move.
pub(super) const REFIT: usize = 16;

/// Part of the middle 80 % of values that the mean excess of a tail cannot fall below, so that tails of a series that
/// is almost constant do not have zero length.
pub(super) const LEAST_EXCESS_OF_SPREAD: f64 = 0.01;

/// The same as a part of the median, for series that are constant: a thousandth of a value is no spike.
pub(super) const LEAST_EXCESS_OF_MEDIAN: f64 = 1e-3;

/// The allowance of the cumulative sum in standard deviations: shifts of more than this add up. 1 is half of the shift
/// by two deviations for which the sum is then optimal (Page 1954). 0.5 adds up seasons and scores 6 points less.
pub(super) const ALLOWANCE: f64 = 1.0;

/// A normal score counts up to this in the cumulative sum, so that no single value makes a shift: with an allowance of
/// 1 it takes four at the default risk.
pub(super) const MOST_SCORE: f64 = 3.0;

/// The mean of exponential scores for which their cumulative sum is optimal: it is 1 if the series is healthy, and 2.3 if
/// every third value is beyond the tail.
pub(super) const TAIL_GROWTH: f64 = 2.0;

/// An exponential score counts up to this, which one value in 150 reaches: it takes nine at the default risk.
pub(super) const MOST_TAIL_SCORE: f64 = 5.0;

/// Cumulative sums grow up to this many times their limit: a shift goes on while its sum exceeds the limit, and is over
/// soon after values are as before.
pub(super) const MOST_SUM: f64 = 2.0;

/// Largest cumulative sums are remembered for blocks of this many values, and for [`BLOCKS`] blocks. Together they
/// are the history.
pub(super) const BLOCK: usize = 64;
/// See [`BLOCK`].
pub(super) const BLOCKS: usize = HISTORY / BLOCK;

/// A shift must be this much larger than those of the last blocks. Seasons and slow noise make sums that would be
/// impossible if values were independent; a noisy season that came again made sums that were up to 5 % larger.
pub(super) const BEYOND_BLOCKS: f64 = 1.5;

/// From this many blocks on, they say how large sums of a healthy series become.
pub(super) const ENOUGH_BLOCKS: usize = 8;

/// The weight of the last value in the correlation of neighbours, which is an average of about a warm-up.
pub(super) const DEPENDENCE_WEIGHT: f64 = 1.0 / 64.0;

/// From this correlation on, values may have a season. That of independent values is less, by four standard errors of
/// an average with that weight.
pub(super) const DEPENDENT: f64 = 0.4;

/// Correlations count up to this, so that no limit is out of reach: it is stretched 39 times at most.
pub(super) const MOST_CORRELATION: f64 = 0.95;

/// The values of a pattern. 3 and 4 score best; longer ones are found later, and single values miss patterns.
pub(super) const PATTERN: usize = 3;

/// The mean excess of novelties cannot fall below this part of the spread of values, so that series with few
/// different values have no patterns that are new by next to nothing.
pub(super) const LEAST_NOVELTY_EXCESS: f64 = 0.01;

/// An incident ends after this many values without a signal: about the narrowest window of the benchmark. 100 scores
/// the same within 2 points.
pub const QUIET: usize = 64;

/// A silence of this many usual intervals is a gap: what came before is no longer compared value by value.
pub(super) const GAP: f64 = 20.0;

/// The weight of the last interval in the usual interval.
pub(super) const INTERVAL_WEIGHT: f64 = 0.05;

/// The default: one false alarm in ten million values for each way to raise one. A hundred series with a value per
/// second have 8.6 million values a day.
pub const RISK: f64 = 1e-7;

/// The risk of new patterns for those who look for anything unusual, as the benchmark does, where a false alarm costs a
/// twentieth of what a found anomaly earns.
pub const EXPLORING_RISK: f64 = 1e-3;
