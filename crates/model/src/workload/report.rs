//! What a load showed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::threshold::ThresholdResult;

/// A whole load. Rates and latencies are of the time after the ramp.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LoadReport {
    /// The seed of every random choice.
    pub seed: u64,
    /// The time that counts, in seconds.
    pub measured_s: f64,
    /// The ramp before it, in seconds.
    pub ramp_s: f64,
    /// The most requests that were under way at once.
    pub most_users: u32,
    /// All requests.
    pub counts: LoadCounts,
    /// Requests per second.
    pub rate: f64,
    /// From the intended start to the last byte; time-outs count with their time. None without a request.
    pub latency: Option<Latencies>,
    /// From the moment of sending; the same in a closed load.
    pub service_time: Option<Latencies>,
    /// By request, in the order of the scenario.
    pub requests: Vec<RequestReport>,
    /// Second by second, the ramp included.
    pub windows: Vec<LoadWindow>,
    /// Thresholds, in their order.
    pub thresholds: Vec<ThresholdResult>,
    /// Whether the figures can be trusted.
    pub self_check: SelfCheck,
    /// Whether it ended before its time: by a stop rule, or interrupted.
    pub stopped_early: bool,
}

/// The requests of one name.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RequestReport {
    /// Its name in the scenario.
    pub name: String,
    /// How many there were.
    pub counts: LoadCounts,
    /// Requests per second.
    pub rate: f64,
    /// From the intended start to the last byte.
    pub latency: Option<Latencies>,
}

/// Requests, and those that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LoadCounts {
    /// All of them, with the failed ones.
    pub requests: u64,
    /// By the way in which they failed.
    pub failed: BTreeMap<RequestFailure, u64>,
}

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFailure {
    /// Nobody listens there.
    Refused,
    /// The connection was closed or reset before the answer was complete.
    Closed,
    /// The answer is no HTTP.
    Malformed,
    /// No complete answer in time.
    TimedOut,
    /// A status that was not expected.
    Status,
    /// A body that was not expected, or without a value to save.
    Body,
    /// A value that an earlier answer should have had is missing.
    MissingValue,
    /// All users were busy until the load was over.
    NotSent,
    /// No connection could be opened on this side: too many open files, no free port.
    Local,
}

/// A distribution of times in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Times in it.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// The longest.
    pub max_us: u64,
    /// Quantiles, ascending: from 0 to 1, with its time.
    pub quantiles: Vec<(f64, u64)>,
}

/// One second of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LoadWindow {
    /// Its end, in seconds after the start.
    pub end_s: f64,
    /// Users that had started.
    pub users: u32,
    /// Requests that ended in it.
    pub requests: u64,
    /// Those that failed.
    pub failed: u64,
    /// Their median latency in microseconds.
    pub p50_us: u64,
    /// Of twenty, one took longer.
    pub p95_us: u64,
    /// Of a hundred, one took longer.
    pub p99_us: u64,
}

/// Whether the generator measured the target, or itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SelfCheck {
    /// The CPU time of the generator as a share of the cores that it may use.
    pub cpu_share: f64,
    /// How late requests were sent that nothing held up, in microseconds: of a hundred, one was later.
    pub lag_p99_us: u64,
    /// The share of all CPU time that other processes used just before the load.
    pub others_before: f64,
    /// What makes the figures invalid; empty if they are valid.
    pub invalid: Vec<Invalidity>,
}

/// Why figures are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Invalidity {
    /// The generator used nearly all of its CPU time, so it may have been the bottleneck.
    GeneratorBusy,
    /// Requests were sent late although nothing held them up.
    GeneratorLate,
    /// Other processes used the machine before the load began.
    MachineBusy,
    /// Connections failed on this side.
    OutOfResources,
    /// No request ended in the time that counts.
    NothingMeasured,
}

impl LoadCounts {
    /// Counts a request.
    pub fn add(&mut self, failure: Option<RequestFailure>) {
        self.requests += 1;
        if let Some(failure) = failure {
            *self.failed.entry(failure).or_default() += 1;
        }
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        for (failure, count) in &other.failed {
            *self.failed.entry(*failure).or_default() += count;
        }
    }

    /// All that failed.
    pub fn n_failed(&self) -> u64 {
        self.failed.values().sum()
    }

    /// The share that failed; none without a request.
    pub fn failed_share(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.n_failed() as f64 / self.requests as f64)
    }
}

impl Latencies {
    /// The quantiles that reports have.
    pub const QUANTILES: [f64; 7] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];

    /// One of [`Self::QUANTILES`].
    pub fn quantile(&self, wanted: f64) -> Option<f64> {
        let found = self.quantiles.iter().find(|(quantile, _)| (*quantile - wanted).abs() < 1e-9);
        found.map(|(_, time)| *time as f64)
    }
}

impl RequestFailure {
    /// What happened, in a word or two.
    pub fn words(self) -> &'static str {
        match self {
            Self::Refused => "connection refused",
            Self::Closed => "connection closed",
            Self::Malformed => "malformed answer",
            Self::TimedOut => "timed out",
            Self::Status => "unexpected status",
            Self::Body => "unexpected body",
            Self::MissingValue => "value not saved before",
            Self::NotSent => "not sent, all users were busy",
            Self::Local => "no connection from here",
        }
    }
}

impl Invalidity {
    /// Why, as a sentence without its end.
    pub fn words(self) -> &'static str {
        match self {
            Self::GeneratorBusy => {
                "the generator used more than 80 % of its CPU time and may have been the bottleneck"
            }
            Self::GeneratorLate => "the generator sent requests late although nothing held them up",
            Self::MachineBusy => "other processes used more than 5 % of the CPU before the load",
            Self::OutOfResources => "connections failed on this side: open files or ports ran out",
            Self::NothingMeasured => "no request ended after the ramp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_without_a_request_is_not_kept() {
        let threshold: super::super::Threshold = "buy:p95<1s".parse().unwrap();
        let result = threshold.judge(&LoadReport::default());
        assert_eq!((result.measured, result.is_kept), (None, false));
    }

    #[test]
    fn thresholds_read_their_figures() {
        let latency =
            Latencies { count: 10, mean_us: 50.0, max_us: 400, quantiles: vec![(0.5, 40), (0.95, 90)] };
        let mut counts = LoadCounts::default();
        (0..9).for_each(|_| counts.add(None));
        counts.add(Some(RequestFailure::TimedOut));
        let report = LoadReport { counts, rate: 120.0, latency: Some(latency), ..LoadReport::default() };
        let kept = |text: &str| text.parse::<super::super::Threshold>().unwrap().judge(&report).is_kept;
        assert!(kept("p95<1ms") && kept("p50<0.05ms") && kept("errors<11%") && kept("rate>100"));
        assert!(!kept("max<0.3ms") && !kept("errors<10%") && !kept("rate>130"));
    }
}
