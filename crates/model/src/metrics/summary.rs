//! What an instance used over a while, in one line.

use serde::Serialize;

use super::{Metric, Sample, increase};
use crate::ids::InstanceId;

/// What an instance used over a while. What no sample has is missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Which.
    pub instance: InstanceId,
    /// How many samples there are.
    pub samples: usize,
    /// Microseconds since 1970 at the first one.
    pub first_us: u64,
    /// And at the last one.
    pub last_us: u64,
    /// CPU time between the first and the last one.
    pub cpu_seconds: Option<f64>,
    /// The cores it may use.
    pub cpu_limit: Option<f64>,
    /// The most memory of any sample: the working set, or what is resident where that is not known.
    pub memory_peak: Option<f64>,
    /// The memory it may use.
    pub memory_limit: Option<f64>,
    /// Bytes that came.
    pub network_received: Option<f64>,
    /// Bytes that were sent.
    pub network_sent: Option<f64>,
    /// The most threads of any sample.
    pub threads_peak: Option<f64>,
    /// How often it was started again.
    pub restarts: Option<f64>,
    /// Processes that the kernel ended because memory ran out.
    pub oom_kills: Option<f64>,
}

impl Summary {
    /// Sums up samples of one instance, sorted by time; none without any.
    pub fn of(samples: &[Sample]) -> Option<Self> {
        let (first, last) = (samples.first()?, samples.last()?);
        let values = |metric: Metric| samples.iter().filter_map(move |sample| sample.get(metric));
        let most = |metric: Metric| values(metric).reduce(f64::max);
        let latest = |metric: Metric| values(metric).next_back();
        let grown = |metric: Metric| {
            let point = |sample: &Sample| Some((sample.at_us, sample.get(metric)?));
            let points: Vec<_> = samples.iter().filter_map(point).collect();
            (!points.is_empty()).then(|| increase(&points))
        };
        Some(Self {
            instance: first.instance.clone(),
            samples: samples.len(),
            first_us: first.at_us,
            last_us: last.at_us,
            cpu_seconds: grown(Metric::CpuSeconds),
            cpu_limit: latest(Metric::CpuLimit),
            memory_peak: most(Metric::MemoryWorkingSet).or_else(|| most(Metric::MemoryResident)),
            memory_limit: latest(Metric::MemoryLimit),
            network_received: grown(Metric::NetworkReceived),
            network_sent: grown(Metric::NetworkSent),
            threads_peak: most(Metric::Threads),
            restarts: grown(Metric::Restarts),
            oom_kills: grown(Metric::OutOfMemoryKills),
        })
    }
}
