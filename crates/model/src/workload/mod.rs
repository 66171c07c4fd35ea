//! Loads: which requests users send, how often and in which order, and what came of it.
//!
//! A user is a Markov chain over requests (Zhang et al. 2024, section 3.1). *Closed* users send the next request when
//! they have the answer to the one before; *open* ones arrive at a rate, whatever became of those before them.

mod matrix;
mod report;
mod scenario;
mod threshold;

use std::time::Duration;

use serde::Serialize;

pub use matrix::{Matrix, MatrixError};
pub use report::{
    Invalidity, Latencies, LoadCounts, LoadReport, LoadWindow, RequestFailure, RequestReport, SelfCheck,
};
pub use scenario::{Expected, LoadRequest, RequestBody, Scenario, ScenarioError};
pub use threshold::{Measure, Threshold, ThresholdError, ThresholdResult};

/// How users come and go.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Arrivals {
    /// A fixed number of users, each with at most one request under way.
    Closed {
        /// The number of users.
        users: u32,
        /// Users that start per second; all at once if none.
        spawn_rate: Option<f64>,
        /// The pause of a user between an answer and the next request.
        think: Think,
    },
    /// Requests that start at a rate. Latency counts from when a request should have started, so that a target that
    /// stalls is not asked less often in the statistics (coordinated omission).
    Open {
        /// Requests per second.
        rate: f64,
        /// The time between them.
        spacing: Spacing,
        /// The most requests under way; further ones wait, which counts in their latency.
        most: u32,
    },
}

/// The pause of a user between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// None at all.
    None,
    /// Always the same.
    Constant(Duration),
    /// Any time between two, all equally likely.
    Uniform(Duration, Duration),
    /// Exponentially distributed with this mean, as independent people are.
    Exponential(Duration),
}

/// The time between two arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Always the same.
    Constant,
    /// Exponentially distributed: independent users.
    Poisson,
}

impl Arrivals {
    /// The most requests that are under way at once.
    pub fn most_users(&self) -> u32 {
        match self {
            Self::Closed { users, .. } => *users,
            Self::Open { most, .. } => *most,
        }
    }

    /// The time until all users have started; means are of what comes after it, or the spawn rate would show in them.
    pub fn ramp(&self) -> Duration {
        match self {
            Self::Closed { users, spawn_rate: Some(rate), .. } => {
                Duration::from_secs_f64(f64::from(*users) / rate)
            }
            _ => Duration::ZERO,
        }
    }
}

impl Think {
    /// The next pause.
    pub fn draw(self, random: &mut crate::random::Random) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Constant(time) => time,
            Self::Uniform(least, most) => least + most.saturating_sub(least).mul_f64(random.unit()),
            Self::Exponential(mean) => mean.mul_f64(exponential(random)),
        }
    }
}

impl Spacing {
    /// The time to the next arrival at this rate.
    pub fn draw(self, rate: f64, random: &mut crate::random::Random) -> Duration {
        let mean = Duration::from_secs_f64(1.0 / rate);
        match self {
            Self::Constant => mean,
            Self::Poisson => mean.mul_f64(exponential(random)),
        }
    }
}

/// An exponentially distributed number with mean 1.
fn exponential(random: &mut crate::random::Random) -> f64 {
    -(1.0 - random.unit()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn mean(draw: impl FnMut() -> Duration) -> f64 {
        std::iter::repeat_with(draw).take(20_000).sum::<Duration>().as_secs_f64() / 20_000.0
    }

    #[test]
    fn pauses_and_arrivals_have_their_means() {
        let mut random = Random::new(5);
        let (short, long) = (Duration::from_millis(100), Duration::from_millis(300));
        assert!((mean(|| Think::Exponential(short).draw(&mut random)) - 0.1).abs() < 0.003);
        assert!((mean(|| Think::Uniform(short, long).draw(&mut random)) - 0.2).abs() < 0.003);
        assert!((mean(|| Spacing::Poisson.draw(50.0, &mut random)) - 0.02).abs() < 0.0006);
        assert_eq!(Spacing::Constant.draw(50.0, &mut random), Duration::from_millis(20));
    }

    #[test]
    fn the_ramp_is_as_long_as_the_spawn_rate_makes_it() {
        let closed = |spawn_rate| Arrivals::Closed { users: 30, spawn_rate, think: Think::None };
        assert_eq!(closed(Some(10.0)).ramp(), Duration::from_secs(3));
        assert_eq!(closed(None).ramp(), Duration::ZERO);
    }
}
