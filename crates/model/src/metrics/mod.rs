//! Resource usage of running instances: the fixed set of metrics that platforms measure, and samples of them.
//!
//! What a platform cannot measure is missing, never zero. Metrics that services export have their own names; they are
//! stored as points beside these, and joined to moments by [`ReportedHistory`].

mod handler;
mod join;
mod metric_names;
mod reported_series;
mod selector;
mod summary;
mod timeseries;

pub use handler::Handler;
pub use join::{AsOf, History, Moment, as_of, increase, rate};
pub use metric_names::is_metric_name;
pub use reported_series::{MAX_REPORTED_AGE_US, ReportedHistory, ReportedInstance, ReportedSeries};
pub use selector::{InvalidSelector, SeriesSelector, SeriesValue};
pub use summary::Summary;
pub use timeseries::{Point, PointsBySeries, TimeSeries};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::ids::InstanceId;

/// A metric that platforms measure for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// CPU time since the start of the instance, over all its processes.
    CpuSeconds,
    /// CPU limit in cores.
    CpuLimit,
    /// Memory that cannot be reclaimed at once: everything charged to the instance except inactive file pages.
    MemoryWorkingSet,
    /// Memory of its processes in RAM: anonymous and mapped file pages.
    MemoryResident,
    /// Memory limit in bytes.
    MemoryLimit,
    /// Bytes received over the network.
    NetworkReceived,
    /// Bytes sent over the network.
    NetworkSent,
    /// Number of processes.
    Processes,
    /// Number of threads, over all its processes.
    Threads,
    /// The last start in seconds since 1970.
    StartTime,
    /// Restarts in this deployment.
    Restarts,
    /// Processes that the kernel killed because memory ran out, in this deployment.
    OutOfMemoryKills,
}

/// How the values of a metric relate to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The current value.
    #[default]
    Gauge,
    /// A total that only growth_per_second, until the process that counts restarts.
    Counter,
    /// The growth since the value before.
    Delta,
}

impl Metric {
    /// The number of metrics.
    pub const COUNT: usize = 12;

    /// All metrics; the position of each is its index in [`Values`].
    pub const ALL: [Self; Self::COUNT] = [
        Self::CpuSeconds,
        Self::CpuLimit,
        Self::MemoryWorkingSet,
        Self::MemoryResident,
        Self::MemoryLimit,
        Self::NetworkReceived,
        Self::NetworkSent,
        Self::Processes,
        Self::Threads,
        Self::StartTime,
        Self::Restarts,
        Self::OutOfMemoryKills,
    ];

    /// The name in tables, JSON and `--series`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuSeconds => "cpu.seconds",
            Self::CpuLimit => "cpu.limit",
            Self::MemoryWorkingSet => "memory.working_set",
            Self::MemoryResident => "memory.resident",
            Self::MemoryLimit => "memory.limit",
            Self::NetworkReceived => "network.received",
            Self::NetworkSent => "network.sent",
            Self::Processes => "processes",
            Self::Threads => "threads",
            Self::StartTime => "start_time",
            Self::Restarts => "restarts",
            Self::OutOfMemoryKills => "oom_kills",
        }
    }

    /// Finds a metric by name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// The unit in OpenTelemetry's notation.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::CpuSeconds | Self::StartTime => "s",
            Self::CpuLimit => "{core}",
            Self::MemoryWorkingSet | Self::MemoryResident | Self::MemoryLimit => "By",
            Self::NetworkReceived | Self::NetworkSent => "By",
            Self::Processes => "{process}",
            Self::Threads => "{thread}",
            Self::Restarts => "{restart}",
            Self::OutOfMemoryKills => "{kill}",
        }
    }

    /// How its values relate to one another.
    pub const fn kind(self) -> Kind {
        match self {
            Self::CpuSeconds | Self::NetworkReceived | Self::NetworkSent => Kind::Counter,
            Self::Restarts | Self::OutOfMemoryKills => Kind::Counter,
            _ => Kind::Gauge,
        }
    }
}

/// The metrics of one instance at one moment; any may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Values([Option<f64>; Metric::COUNT]);

impl Values {
    /// The value of a metric, if it was measured.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }

    /// Sets or removes a value; infinite values and NaN are not stored.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric as usize] = value.filter(|value| value.is_finite());
    }

    /// Returns the values with one of them changed.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: Option<f64>) -> Self {
        self.set(metric, value);
        self
    }

    /// The measured metrics with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, f64)> + '_ {
        Metric::ALL.into_iter().filter_map(|metric| Some((metric, self.get(metric)?)))
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (metric, value) in self.iter() {
            map.serialize_entry(metric.name(), &value)?;
        }
        map.end()
    }
}

/// The resource usage of an instance at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// The measured instance.
    pub instance: InstanceId,
    /// Microseconds since 1970.
    pub at_us: u64,
    /// The measured metrics.
    pub values: Values,
}

impl Sample {
    /// The value of a metric, if it was measured.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(metric)
    }
}

#[cfg(test)]
mod reported_series_tests;
#[cfg(test)]
mod tests;
