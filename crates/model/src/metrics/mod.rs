//! What instances use while they run: the fixed set of metrics that platforms give, and samples of them.
//!
//! What a platform cannot give is missing, never zero. Values that services report about themselves have
//! names of their own; they are kept as points beside these, and joined to moments by [`ToldHistory`].

mod handler;
mod join;
mod known;
mod selector;
mod summary;
mod timeseries;
mod told;

pub use handler::Handler;
pub use join::{AsOf, History, Moment, as_of, increase, rate};
pub use known::is_known;
pub use selector::{InvalidSelector, SeriesSelector, SeriesValue};
pub use summary::Summary;
pub use timeseries::{Point, PointsBySeries, TimeSeries};
pub use told::{MOST_TOLD_AGE_US, Told, ToldHistory, ToldInstance};

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::ids::InstanceId;

/// Something that a platform measures of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// CPU time since the instance's start, all its processes together.
    CpuSeconds,
    /// How many cores it may use.
    CpuLimit,
    /// Memory that cannot be given back at once: all that is charged to it but file pages not used lately.
    MemoryWorkingSet,
    /// Memory of its processes that is in RAM: anonymous and mapped file pages.
    MemoryResident,
    /// How much memory it may use.
    MemoryLimit,
    /// Bytes that came to it over the network.
    NetworkReceived,
    /// Bytes that it sent over the network.
    NetworkSent,
    /// Its processes.
    Processes,
    /// Its threads, all its processes together.
    Threads,
    /// Seconds since 1970 at its last start.
    StartTime,
    /// How often it was started again in this deployment.
    Restarts,
    /// Processes of it that the kernel ended because memory ran out, in this deployment.
    OutOfMemoryKills,
}

/// How values of a metric follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// As it is at the moment.
    #[default]
    Gauge,
    /// It only grows, until whoever counts starts again.
    Counter,
    /// What came since the value before.
    Delta,
}

impl Metric {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// All of them, in their order.
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

    /// The name under which people see it.
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

    /// The metric of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Its unit as OpenTelemetry writes units.
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

    /// How its values follow one another.
    pub const fn kind(self) -> Kind {
        match self {
            Self::CpuSeconds | Self::NetworkReceived | Self::NetworkSent => Kind::Counter,
            Self::Restarts | Self::OutOfMemoryKills => Kind::Counter,
            _ => Kind::Gauge,
        }
    }
}

/// The values of one instance at one moment; each may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Values([Option<f64>; Metric::COUNT]);

impl Values {
    /// One value.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }

    /// Sets a value, or takes it away; what is no number is missing.
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        self.0[metric as usize] = value.filter(|value| value.is_finite());
    }

    /// The same with a value.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: Option<f64>) -> Self {
        self.set(metric, value);
        self
    }

    /// All that are there.
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

/// What an instance used at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Which.
    pub instance: InstanceId,
    /// Microseconds since 1970.
    pub at_us: u64,
    /// How much.
    pub values: Values,
}

impl Sample {
    /// One value.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(metric)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod told_tests;
