//! Feeds what is observed to the monitors of all series. Memory is bounded: what does not fit is shed and counted.

use std::collections::{BTreeMap, HashMap, VecDeque};

use faultscope_analysis::detect::{Alarm, Monitor, Reading, TimeWindow};
use faultscope_model::application::{Quantity, WatchedMetric};
use faultscope_model::{InstanceId, TraceId};
use faultscope_store::interop::zipkin_trace_id;
use serde::Serialize;

use super::anomaly::{Anomaly, DetectorName, SeriesKey};
use super::batch::{Batch, ObservedCall};
use super::settings::{WatchSettings, warm_up};
use super::usage::{Interval, Usage};

/// Series that are watched at once: about 35 KiB each, 90 with patterns.
const MAX_SERIES: usize = 2000;
/// Calls of a service that are remembered for its traces and rates, about 500 KiB.
const MAX_CALLS: usize = 10_000;
/// Services whose calls are remembered.
const MAX_SERVICES: usize = 500;
/// Traces that an anomaly names.
const MAX_TRACES: usize = 10;
/// A share of errors is computed from at least this many calls, so that one failure of a rare operation is none,
const LEAST_CALLS: u32 = 10;
/// and from at least this time, so that shares of busy operations do not cost more than their calls.
const ERRORS_US: u64 = 1_000_000;

/// Watches all series of an application.
#[derive(Debug)]
pub struct Watcher {
    settings: WatchSettings,
    ratios: Vec<WatchedMetric>,
    /// Also series that are not watched, so that rules are tried once.
    series: HashMap<SeriesKey, Option<Watched>>,
    calls: BTreeMap<String, VecDeque<RecentCall>>,
    errors: HashMap<(String, String), ErrorShare>,
    usage: Usage,
    counts: WatchCounts,
}

/// What was watched, and what was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct WatchCounts {
    /// Calls that were observed.
    pub calls: u64,
    /// Samples that were observed.
    pub samples: u64,
    /// Values that detectors took.
    pub values: u64,
    /// Series with a detector.
    pub series: u64,
    /// Of these, series with too few values for the adaptive detector to know what is usual.
    pub short_series: u64,
    /// Values of series for which there was no room.
    pub shed_values: u64,
    /// Reads that had more traces than fit, of which the oldest were left out.
    pub cut_reads: u64,
}

#[derive(Debug)]
struct Watched {
    monitor: Monitor,
    detector: DetectorName,
    values: u64,
}

#[derive(Debug, Clone)]
struct RecentCall {
    at_us: u64,
    duration_us: u64,
    failed: bool,
    trace: TraceId,
    operation: String,
}

/// Calls of an operation since its last share of errors.
#[derive(Debug, Clone, Copy, Default)]
struct ErrorShare {
    since_us: u64,
    calls: u32,
    failed: u32,
    last_failed_us: Option<u64>,
}

impl Watcher {
    /// Watches with these settings.
    pub fn new(settings: WatchSettings) -> Self {
        let ratios = settings.ratios().collect();
        Self {
            settings,
            ratios,
            series: HashMap::new(),
            calls: BTreeMap::new(),
            errors: HashMap::new(),
            usage: Usage::default(),
            counts: WatchCounts::default(),
        }
    }

    /// Takes what was observed next and returns the anomalies in it, by time.
    pub fn observe(&mut self, mut batch: Batch) -> Vec<Anomaly> {
        self.counts.cut_reads += u64::from(batch.is_cut);
        self.counts.calls += batch.calls.len() as u64;
        self.counts.samples += batch.samples.len() as u64;
        batch.calls.sort_by_key(|call| call.at_us);
        batch.samples.sort_by_key(|sample| sample.at_us);
        let mut anomalies = Vec::new();
        let mut found = Vec::new();
        let (mut calls, mut samples) =
            (batch.calls.into_iter().peekable(), batch.samples.into_iter().peekable());
        // Calls and samples together in the order of time, so that traces are looked for while they are remembered.
        loop {
            let is_call = match (calls.peek(), samples.peek()) {
                (Some(call), Some(sample)) => call.at_us <= sample.at_us,
                (call, _) => call.is_some(),
            };
            let now_us = if is_call {
                let Some(call) = calls.next() else { break };
                let at_us = call.at_us;
                self.remember(&call);
                self.take_call(call, &mut found);
                at_us
            } else {
                let Some(sample) = samples.next() else { break };
                let (at_us, instance) = (sample.at_us, sample.instance.clone());
                if let Some(interval) = self.usage.add(sample) {
                    self.take_interval(&instance, interval, &mut found);
                }
                at_us
            };
            if !found.is_empty() {
                let over = found.extract_if(.., |(_, _, alarm)| alarm.traces.before_us < now_us);
                anomalies.extend(over.map(|alarm| self.explain(alarm)));
            }
        }
        anomalies.extend(found.into_iter().map(|alarm| self.explain(alarm)));
        anomalies.sort_by_key(|anomaly| anomaly.at_us);
        anomalies
    }

    fn explain(&self, (key, detector, alarm): Found) -> Anomaly {
        let traces = self.find_traces(&key, alarm.traces);
        Anomaly::new(key, detector, &alarm, traces)
    }

    /// Learns from a healthy recording what is usual: its anomalies are not reported.
    pub fn learn(&mut self, baseline: Batch) {
        self.observe(baseline);
        self.calls.clear();
        self.errors.clear();
        self.usage = Usage::default();
    }

    /// What was watched so far.
    pub fn counts(&self) -> WatchCounts {
        let is_short = |(key, series): &(&SeriesKey, &Option<Watched>)| {
            let is_short = |series: &Watched| {
                series.detector == DetectorName::Adaptive && series.values <= warm_up(key.metric) as u64
            };
            series.as_ref().is_some_and(is_short)
        };
        let series = self.series.values().flatten().count() as u64;
        let short_series = self.series.iter().filter(is_short).count() as u64;
        WatchCounts { series, short_series, ..self.counts }
    }

    fn take_call(&mut self, call: ObservedCall, found: &mut Vec<Found>) {
        let ObservedCall { service, operation, at_us, duration_us, failed, .. } = call;
        let key = |quantity: Quantity| SeriesKey {
            service: service.clone(),
            instance: None,
            operation: Some(operation.clone()),
            metric: quantity.into(),
        };
        let latency = Reading { at_us, value: duration_us as f64 / 1e6 };
        self.feed(key(Quantity::Latency), latency, found);
        let (errors_key, requests_key) = (key(Quantity::Errors), key(Quantity::Requests));
        if self.errors.len() >= MAX_SERIES && !self.errors.contains_key(&(service.clone(), operation.clone()))
        {
            self.counts.shed_values += 1;
            return;
        }
        let share = self.errors.entry((service, operation)).or_default();
        if let Some((errors, requests)) = share.add(at_us, failed) {
            self.feed(errors_key, errors, found);
            self.feed(requests_key, requests, found);
        }
    }

    fn take_interval(&mut self, instance: &InstanceId, interval: Interval, found: &mut Vec<Found>) {
        let service = instance.service.as_str();
        let key = |metric: WatchedMetric| SeriesKey {
            service: service.to_owned(),
            instance: Some(instance.to_string()),
            operation: None,
            metric,
        };
        for quantity in [Quantity::Cpu, Quantity::Memory, Quantity::Network] {
            if let Some(value) = interval.get(quantity) {
                self.feed(key(quantity.into()), Reading { at_us: interval.to_us, value }, found);
            }
        }
        for metric in self.ratios.clone() {
            let Some(per) = metric.per else { continue };
            let part = |quantity| {
                interval.get(quantity).or_else(|| self.rate_of_calls(service, &interval, quantity))
            };
            if let (Some(of), Some(per)) = (part(metric.of), part(per).filter(|per| *per > 0.0)) {
                self.feed(key(metric), Reading { at_us: interval.to_us, value: of / per }, found);
            }
        }
    }

    /// A quantity of all calls of a service in an interval; none without calls.
    fn rate_of_calls(&self, service: &str, interval: &Interval, quantity: Quantity) -> Option<f64> {
        let calls = self.calls.get(service)?;
        let inside = |call: &&RecentCall| interval.from_us < call.at_us && call.at_us <= interval.to_us;
        let count = calls.iter().filter(inside).count() as f64;
        if count == 0.0 {
            return None;
        }
        match quantity {
            Quantity::Requests => Some(count * 1e6 / (interval.to_us - interval.from_us) as f64),
            Quantity::Errors => {
                Some(calls.iter().filter(inside).filter(|call| call.failed).count() as f64 / count)
            }
            Quantity::Latency => {
                let sum: f64 = calls.iter().filter(inside).map(|call| call.duration_us as f64 / 1e6).sum();
                Some(sum / count)
            }
            Quantity::Cpu | Quantity::Memory | Quantity::Network => None,
        }
    }

    fn feed(&mut self, key: SeriesKey, reading: Reading, found: &mut Vec<Found>) {
        if !self.series.contains_key(&key) {
            if self.series.len() >= MAX_SERIES {
                self.counts.shed_values += 1;
                return;
            }
            let watched = self.settings.monitor(&key);
            let watched = watched.map(|(monitor, detector)| Watched { monitor, detector, values: 0 });
            self.series.insert(key.clone(), watched);
        }
        let Some(Some(watched)) = self.series.get_mut(&key) else { return };
        watched.values += 1;
        self.counts.values += 1;
        if let Some(alarm) = watched.monitor.observe(reading) {
            found.push((key, watched.detector, alarm));
        }
    }

    fn remember(&mut self, call: &ObservedCall) {
        if self.calls.len() >= MAX_SERVICES && !self.calls.contains_key(&call.service) {
            return;
        }
        let calls = self.calls.entry(call.service.clone()).or_default();
        if calls.len() == MAX_CALLS {
            calls.pop_front();
        }
        calls.push_back(RecentCall {
            at_us: call.at_us,
            duration_us: call.duration_us,
            failed: call.failed,
            trace: call.trace,
            operation: call.operation.clone(),
        });
    }

    /// The traces of a service in a time window, the most conspicuous first, and how many there are.
    fn find_traces(&self, key: &SeriesKey, window: TimeWindow) -> (Vec<String>, usize) {
        let is_meant = |call: &&RecentCall| {
            window.contains(call.at_us)
                && key.operation.as_ref().is_none_or(|operation| *operation == call.operation)
                && (key.metric != Quantity::Errors.into() || call.failed)
        };
        let mut calls: Vec<&RecentCall> =
            self.calls.get(&key.service).into_iter().flatten().filter(is_meant).collect();
        calls.sort_by_key(|call| (std::cmp::Reverse(call.duration_us), call.at_us));
        let mut traces: Vec<TraceId> = Vec::new();
        let mut known = std::collections::HashSet::new();
        traces.extend(calls.iter().map(|call| call.trace).filter(|trace| known.insert(*trace)));
        let count = traces.len();
        (traces.into_iter().take(MAX_TRACES).map(zipkin_trace_id).collect(), count)
    }
}

/// An alarm of a series.
type Found = (SeriesKey, DetectorName, Alarm);

impl ErrorShare {
    /// Takes a call; returns the share of failed calls and the calls per second if there are enough.
    fn add(&mut self, at_us: u64, failed: bool) -> Option<(Reading, Reading)> {
        if self.calls == 0 {
            self.since_us = at_us;
        }
        self.calls += 1;
        if failed {
            self.failed += 1;
            self.last_failed_us = Some(at_us);
        }
        let Some(passed) = at_us.checked_sub(self.since_us) else {
            // The clock was set back: nothing is known about the time that has passed.
            *self = Self::default();
            return None;
        };
        if self.calls < LEAST_CALLS || passed < ERRORS_US {
            return None;
        }
        let share = std::mem::take(self);
        let errors = f64::from(share.failed) / f64::from(share.calls);
        let requests = f64::from(share.calls) * 1e6 / passed as f64;
        let failed_us = share.last_failed_us.unwrap_or(at_us);
        Some((Reading { at_us: failed_us, value: errors }, Reading { at_us, value: requests }))
    }
}
