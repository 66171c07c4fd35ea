//! Counts answers and their times, for the whole load and second by second.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultscope_model::workload::{
    Latencies, LoadCounts, LoadReport, LoadWindow, RequestFailure, RequestReport, Scenario,
};
use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Users write to one of these, so that they seldom wait for one another.
const SHARDS: usize = 2;

/// Significant digits of times, as HdrHistogram counts them: to a thousandth.
const DIGITS: u8 = 3;

#[derive(Debug)]
pub(super) struct Recorder {
    shards: Vec<Mutex<Shard>>,
    /// Requests that were due earlier belong to the ramp.
    measured_from: Instant,
}

#[derive(Debug)]
struct Shard {
    requests: Vec<Measured>,
    service_time: Times,
    lag: Times,
    window: Measured,
    last_ended: Option<Instant>,
}

#[derive(Debug, Default)]
struct Measured {
    counts: LoadCounts,
    times: Times,
}

/// A histogram of microseconds; there from the first time on.
#[derive(Debug, Default)]
struct Times(Option<Histogram<u64>>);

/// One request that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) request: usize,
    /// When it should have been sent.
    pub(super) due: Instant,
    /// When it was sent.
    pub(super) sent: Instant,
    pub(super) ended: Instant,
    pub(super) failure: Option<RequestFailure>,
    /// How late it was sent although the user was free.
    pub(super) lag: Option<Duration>,
}

impl Recorder {
    pub(super) fn new(scenario: &Scenario, measured_from: Instant) -> Self {
        let shard = || Shard {
            requests: scenario.requests.iter().map(|_| Measured::default()).collect(),
            service_time: Times::default(),
            lag: Times::default(),
            window: Measured::default(),
            last_ended: None,
        };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(), measured_from }
    }

    pub(super) fn add(&self, user: u32, sample: Sample) {
        let latency = sample.ended - sample.due;
        let mut shard = lock(&self.shards[user as usize % SHARDS]);
        shard.window.add(latency, sample.failure);
        if sample.due < self.measured_from {
            return;
        }
        shard.requests[sample.request].add(latency, sample.failure);
        shard.service_time.add(sample.ended - sample.sent);
        shard.last_ended = shard.last_ended.max(Some(sample.ended));
        if let Some(lag) = sample.lag {
            shard.lag.add(lag);
        }
    }

    /// What ended since the last window, and the same as if it were a load of its own, for stop rules.
    pub(super) fn close_window(&self, length: Duration) -> (LoadWindow, LoadReport) {
        let mut all = Measured::default();
        for shard in &self.shards {
            let window = std::mem::take(&mut lock(shard).window);
            all.merge(&window);
        }
        let at = |quantile| all.times.0.as_ref().map_or(0, |times| times.value_at_quantile(quantile));
        let window = LoadWindow {
            requests: all.counts.requests,
            failed: all.counts.n_failed(),
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            ..LoadWindow::default()
        };
        let report = LoadReport {
            rate: all.counts.requests as f64 / length.as_secs_f64(),
            latency: all.times.summarize(),
            counts: all.counts,
            ..LoadReport::default()
        };
        (window, report)
    }

    pub(super) fn lag_p99_us(&self) -> u64 {
        let mut all = Times::default();
        self.shards.iter().for_each(|shard| all.merge(&lock(shard).lag));
        all.0.map_or(0, |times| times.value_at_quantile(0.99))
    }

    /// The figures after the ramp, of a load that sent its last request at `until`. Its last answer may come much later,
    /// and a rate without that time would be one that the target never reached.
    pub(super) fn report(&self, scenario: &Scenario, until: Instant) -> LoadReport {
        let last = self.shards.iter().filter_map(|shard| lock(shard).last_ended).fold(until, Instant::max);
        let measured_s = last.saturating_duration_since(self.measured_from).as_secs_f64();
        let rate =
            |counts: &LoadCounts| if measured_s > 0.0 { counts.requests as f64 / measured_s } else { 0.0 };
        let (mut all, mut service_time) = (Measured::default(), Times::default());
        let mut requests: Vec<Measured> = scenario.requests.iter().map(|_| Measured::default()).collect();
        for shard in &self.shards {
            let shard = lock(shard);
            service_time.merge(&shard.service_time);
            for (sum, one) in requests.iter_mut().zip(&shard.requests) {
                sum.merge(one);
                all.merge(one);
            }
        }
        let named = scenario.requests.iter().zip(&requests);
        LoadReport {
            measured_s,
            rate: rate(&all.counts),
            latency: all.times.summarize(),
            service_time: service_time.summarize(),
            requests: named
                .map(|(request, measured)| RequestReport {
                    name: request.name.clone(),
                    counts: measured.counts.clone(),
                    rate: rate(&measured.counts),
                    latency: measured.times.summarize(),
                })
                .collect(),
            counts: all.counts,
            ..LoadReport::default()
        }
    }
}

impl Measured {
    fn add(&mut self, time: Duration, failure: Option<RequestFailure>) {
        self.counts.add(failure);
        self.times.add(time);
    }

    fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.times.merge(&other.times);
    }
}

impl Times {
    fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
        if let Some(times) = self.histogram() {
            // It grows as needed, so that no time is refused.
            let _ = times.record(micros);
        }
    }

    fn merge(&mut self, other: &Self) {
        if let Some(theirs) = &other.0
            && let Some(ours) = self.histogram()
        {
            let _ = ours.add(theirs);
        }
    }

    fn histogram(&mut self) -> Option<&mut Histogram<u64>> {
        if self.0.is_none() {
            // Only an impossible number of digits is an error.
            self.0 = Histogram::new(DIGITS).ok();
        }
        self.0.as_mut()
    }

    fn summarize(&self) -> Option<Latencies> {
        let times = self.0.as_ref().filter(|times| !times.is_empty())?;
        Some(Latencies {
            count: times.len(),
            mean_us: times.mean(),
            max_us: times.max(),
            quantiles: Latencies::QUANTILES
                .map(|quantile| (quantile, times.value_at_quantile(quantile)))
                .into(),
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use faultscope_model::workload::LoadRequest;

    use super::*;

    #[test]
    fn the_ramp_counts_in_windows_alone() {
        let start = Instant::now();
        let scenario = Scenario::single(LoadRequest::new("GET", "/"));
        let recorder = Recorder::new(&scenario, start + Duration::from_secs(1));
        let sample = |due_ms: u64, took_ms: u64, failure| {
            let due = start + Duration::from_millis(due_ms);
            Sample {
                request: 0,
                due,
                sent: due,
                ended: due + Duration::from_millis(took_ms),
                failure,
                lag: None,
            }
        };
        recorder.add(0, sample(500, 900, None));
        recorder.add(1, sample(1500, 10, None));
        recorder.add(2, sample(1500, 20, Some(RequestFailure::TimedOut)));
        let (window, alone) = recorder.close_window(Duration::from_secs(1));
        assert_eq!((window.requests, window.failed), (3, 1));
        assert!(
            (900_000..901_000).contains(&alone.latency.unwrap().max_us),
            "stop rules judge all of a second"
        );
        assert_eq!(recorder.close_window(Duration::from_secs(1)).0.requests, 0);
        let report = recorder.report(&scenario, start + Duration::from_secs(3));
        assert_eq!((report.counts.requests, report.counts.n_failed(), report.rate), (2, 1, 1.0));
        let longest = report.latency.unwrap().max_us;
        assert!((20_000..20_100).contains(&longest), "a time-out is a sample: {longest}");
    }
}
