//! How often the failure shows where its cause is there.

use serde::{Deserialize, Serialize};

/// How often a stable test fails where its cause is there: once in fifty something else is in the way.
const STABLE: f64 = 0.98;

/// How many failures make an estimate of the rate good enough.
const ENOUGH_FAILURES: u32 = 5;

/// After this many tries the estimate counts as it is: it is within 0.1 of the rate in two of three cases.
pub(super) const MAX_TRIES: u32 = 24;

/// How often the failing circumstance may pass before the failure counts as not reproduced: one that shows
/// in 30 % of its runs does not appear in any of them once in three hundred times.
const MAX_MISSES: u32 = 16;

/// How often the failing circumstance was tried and failed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// How often it failed as wanted.
    pub failed: u32,
    /// How often it was tried and could be judged.
    pub tried: u32,
    /// How often a circumstance with the cause is taken to fail; 1 for a stable test.
    pub rate: f64,
}

/// What to do after some tries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    /// Try again.
    Again,
    /// It never failed.
    NotReproduced,
    /// This is known now.
    Known(Calibration),
}

/// Decides after some tries of the failing circumstance whether more are needed.
///
/// Wald's sequential test of "stable" against "fails half of the time" comes to this: one pass is enough
/// to reject "stable", since stable tests all but never pass, and `repeat` failures in a row are enough
/// to accept it. Only then the rate is worth an estimate.
pub(super) fn decide(failed: u32, tried: u32, repeat: u32) -> Next {
    let known = |rate| Next::Known(Calibration { failed, tried, rate });
    match (failed, tried - failed) {
        (0, passed) if passed >= MAX_MISSES => Next::NotReproduced,
        (failed, 0) if failed >= repeat => known(1.0),
        (_, 0) | (0, _) => Next::Again,
        (failed, _) if failed >= ENOUGH_FAILURES || tried >= MAX_TRIES => known(estimate(failed, tried)),
        _ => Next::Again,
    }
}

/// What some tries say, however few.
pub(super) fn reckon(failed: u32, tried: u32) -> Calibration {
    Calibration { failed, tried, rate: estimate(failed, tried) }
}

/// The rate to reckon with: one standard deviation below what was seen, because a rate that is thought too
/// high ends a search too early, while one that is thought too low only costs trials.
fn estimate(failed: u32, tried: u32) -> f64 {
    let tried = f64::from(tried) + 1.0;
    let rate = f64::from(failed) / tried;
    (rate - (rate * (1.0 - rate) / tried).sqrt()).clamp(0.05, STABLE)
}

/// How often the simplest circumstance is tried when the failure comes at this rate: so often that it
/// would have shown with 95 % certainty.
pub(super) fn simplest_tries(rate: f64) -> u32 {
    if rate >= 1.0 {
        return 1;
    }
    let tries = (0.05_f64.ln() / (1.0 - rate).ln()).ceil();
    (tries as u32).clamp(2, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_in_a_row_are_stable() {
        assert_eq!(decide(0, 0, 3), Next::Again);
        assert_eq!(decide(2, 2, 3), Next::Again);
        assert_eq!(decide(3, 3, 3), Next::Known(Calibration { failed: 3, tried: 3, rate: 1.0 }));
        assert_eq!(decide(1, 1, 1), Next::Known(Calibration { failed: 1, tried: 1, rate: 1.0 }));
    }

    #[test]
    fn one_pass_makes_it_flaky_and_worth_an_estimate() {
        assert_eq!(decide(2, 3, 3), Next::Again);
        let Next::Known(known) = decide(5, 16, 3) else { panic!("more tries are wanted") };
        assert!(known.rate > 0.15 && known.rate < 0.25, "{}", known.rate);
        assert!(matches!(decide(1, 24, 3), Next::Known(_)));
    }

    #[test]
    fn what_never_fails_is_not_reproduced() {
        assert_eq!(decide(0, 15, 3), Next::Again);
        assert_eq!(decide(0, 16, 3), Next::NotReproduced);
    }

    #[test]
    fn the_rarer_the_failure_the_longer_the_look_at_the_simplest() {
        assert_eq!(simplest_tries(1.0), 1);
        assert_eq!(simplest_tries(0.5), 5);
        assert_eq!(simplest_tries(0.3), 9);
    }
}
