//! What an instance used between two samples.

use std::collections::BTreeMap;

use faultscope_model::InstanceId;
use faultscope_model::application::Quantity;
use faultscope_model::metrics::{Metric, Sample};

/// Samples further apart say nothing about the time between them.
const MAX_APART_US: u64 = 60_000_000;

/// The last sample of each instance.
#[derive(Debug, Default)]
pub(super) struct Usage {
    last: BTreeMap<InstanceId, Sample>,
}

/// What an instance used in an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Interval {
    pub(super) from_us: u64,
    pub(super) to_us: u64,
    /// Missing where the platform does not measure it.
    pub(super) cpu: Option<f64>,
    pub(super) memory: Option<f64>,
    pub(super) network: Option<f64>,
}

impl Usage {
    /// Takes the next sample of an instance; returns the interval since the one before. None for the first one, after
    /// a restart, after a gap, and when the clock was set back.
    pub(super) fn add(&mut self, sample: Sample) -> Option<Interval> {
        let before = self.last.insert(sample.instance.clone(), sample.clone())?;
        let passed = sample.at_us.checked_sub(before.at_us).filter(|us| (1..=MAX_APART_US).contains(us))?;
        if before.get(Metric::StartTime) != sample.get(Metric::StartTime) {
            return None;
        }
        let seconds = passed as f64 / 1e6;
        let rate = |metric: Metric| {
            let grown = sample.get(metric)? - before.get(metric)?;
            (grown >= 0.0).then_some(grown / seconds)
        };
        let (received, sent) = (rate(Metric::NetworkReceived), rate(Metric::NetworkSent));
        Some(Interval {
            from_us: before.at_us,
            to_us: sample.at_us,
            cpu: rate(Metric::CpuSeconds),
            memory: sample.get(Metric::MemoryWorkingSet).or(sample.get(Metric::MemoryResident)),
            network: received.zip(sent).map(|(received, sent)| received + sent),
        })
    }
}

impl Interval {
    pub(super) fn get(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Cpu => self.cpu,
            Quantity::Memory => self.memory,
            Quantity::Network => self.network,
            Quantity::Latency | Quantity::Errors | Quantity::Requests => None,
        }
    }
}
