//! Resource usage over a period, summed up in one row.

use serde::Serialize;

use super::{Metric, Sample, increase};
use crate::ids::InstanceId;

/// The resource usage of an instance over a period. Metrics that no sample has are missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The measured instance.
    pub instance: InstanceId,
    /// Number of samples.
    pub samples: usize,
    /// The first sample in microseconds since 1970.
    pub first_us: u64,
    /// The last sample in microseconds since 1970.
    pub last_us: u64,
    /// CPU time between the first and the last sample.
    pub cpu_seconds: Option<f64>,
    /// CPU limit in cores.
    pub cpu_limit: Option<f64>,
    /// The largest working set of any sample, or the largest resident size where no working set is known.
    pub memory_peak: Option<f64>,
    /// Memory limit in bytes.
    pub memory_limit: Option<f64>,
    /// Bytes received.
    pub network_received: Option<f64>,
    /// Bytes sent.
    pub network_sent: Option<f64>,
    /// The most threads in any sample.
    pub threads_peak: Option<f64>,
    /// Restarts.
    pub restarts: Option<f64>,
    /// Processes that the kernel killed because memory ran out.
    pub oom_kills: Option<f64>,
}

impl Summary {
    /// Sums up samples of one instance, sorted by time; none if there are no samples.
    pub fn from_samples(samples: &[Sample]) -> Option<Self> {
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
