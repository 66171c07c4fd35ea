//! The names under which the world tells what a process, container or pod uses, and which of our metrics each is.
//!
//! Checked against OpenTelemetry's conventions (process, container, k8s, jvm, dotnet), its instrumentations for
//! Python, JavaScript, Go, Java and .NET, the collector's kubelet and Docker receivers, the clients of Prometheus
//! for Python, Node, Go, Java, .NET and Rust, Micrometer, and cAdvisor.

use std::collections::BTreeMap;

use super::{Kind, Metric, Told};

/// One name of one metric.
pub(super) struct Known {
    pub(super) metric: Metric,
    /// As [`plain`] writes it; `*` stands for one word.
    name: &'static str,
    /// Labels of which one must be there with this value; without any every series counts.
    only: Option<&'static [(&'static str, &'static str)]>,
    /// What one is worth where no unit is told.
    worth: f64,
}

const RSS: Option<&[(&str, &str)]> = Some(&[("type", "rss")]);
const RECEIVED: Option<&[(&str, &str)]> =
    Some(&[("network_io_direction", "receive"), ("direction", "receive")]);
const SENT: Option<&[(&str, &str)]> =
    Some(&[("network_io_direction", "transmit"), ("direction", "transmit")]);

const fn known(metric: Metric, name: &'static str) -> Known {
    Known { metric, name, only: None, worth: 1.0 }
}

const fn only(
    metric: Metric,
    name: &'static str,
    only: Option<&'static [(&'static str, &'static str)]>,
) -> Known {
    Known { metric, name, only, worth: 1.0 }
}

/// All names; of several for one metric the first that is told counts. What is told of a whole container or pod
/// comes before what is told of one process in it.
#[rustfmt::skip]
pub(super) const KNOWN: [Known; 67] = [
    known(Metric::CpuSeconds, "container_cpu_time"),
    known(Metric::CpuSeconds, "container_cpu_time_seconds"),
    known(Metric::CpuSeconds, "container_cpu_usage_seconds"),
    Known { metric: Metric::CpuSeconds, name: "container_cpu_usage", only: None, worth: 1e-9 },
    known(Metric::CpuSeconds, "k8s_pod_cpu_time"),
    known(Metric::CpuSeconds, "k8s_pod_cpu_time_seconds"),
    known(Metric::CpuSeconds, "process_cpu_time"),
    known(Metric::CpuSeconds, "process_cpu_time_seconds"),
    known(Metric::CpuSeconds, "process_cpu_seconds"),
    Known { metric: Metric::CpuSeconds, name: "process_cpu_time_ns", only: None, worth: 1e-9 },
    known(Metric::CpuSeconds, "dotnet_process_cpu_time"),
    known(Metric::CpuSeconds, "dotnet_process_cpu_time_seconds"),
    known(Metric::CpuSeconds, "jvm_cpu_time"),
    known(Metric::CpuSeconds, "jvm_cpu_time_seconds"),
    known(Metric::CpuSeconds, "process_runtime_*_cpu_time"),
    known(Metric::CpuSeconds, "process_runtime_*_cpu_time_seconds"),
    known(Metric::CpuLimit, "k8s_container_cpu_limit"),
    known(Metric::MemoryWorkingSet, "container_memory_working_set"),
    known(Metric::MemoryWorkingSet, "container_memory_working_set_bytes"),
    known(Metric::MemoryWorkingSet, "k8s_pod_memory_working_set"),
    known(Metric::MemoryWorkingSet, "k8s_pod_memory_working_set_bytes"),
    known(Metric::MemoryResident, "container_memory_rss"),
    known(Metric::MemoryResident, "container_memory_rss_bytes"),
    known(Metric::MemoryResident, "k8s_pod_memory_rss"),
    known(Metric::MemoryResident, "process_memory_usage"),
    known(Metric::MemoryResident, "process_memory_usage_bytes"),
    known(Metric::MemoryResident, "process_resident_memory_bytes"),
    known(Metric::MemoryResident, "process_memory_physical_usage"),
    known(Metric::MemoryResident, "dotnet_process_memory_working_set"),
    known(Metric::MemoryResident, "dotnet_process_memory_working_set_bytes"),
    known(Metric::MemoryResident, "process_working_set_bytes"),
    only(Metric::MemoryResident, "process_runtime_*_memory", RSS),
    only(Metric::MemoryResident, "process_runtime_*_memory_bytes", RSS),
    known(Metric::MemoryLimit, "container_spec_memory_limit_bytes"),
    known(Metric::MemoryLimit, "container_memory_usage_limit"),
    known(Metric::MemoryLimit, "k8s_container_memory_limit"),
    only(Metric::NetworkReceived, "container_network_io", RECEIVED),
    only(Metric::NetworkReceived, "container_network_io_bytes", RECEIVED),
    known(Metric::NetworkReceived, "container_network_receive_bytes"),
    known(Metric::NetworkReceived, "container_network_io_usage_rx_bytes"),
    only(Metric::NetworkReceived, "k8s_pod_network_io", RECEIVED),
    only(Metric::NetworkReceived, "process_network_io", RECEIVED),
    known(Metric::NetworkReceived, "process_network_receive_bytes"),
    only(Metric::NetworkSent, "container_network_io", SENT),
    only(Metric::NetworkSent, "container_network_io_bytes", SENT),
    known(Metric::NetworkSent, "container_network_transmit_bytes"),
    known(Metric::NetworkSent, "container_network_io_usage_tx_bytes"),
    only(Metric::NetworkSent, "k8s_pod_network_io", SENT),
    only(Metric::NetworkSent, "process_network_io", SENT),
    known(Metric::NetworkSent, "process_network_transmit_bytes"),
    known(Metric::Processes, "container_processes"),
    known(Metric::Threads, "container_threads"),
    known(Metric::Threads, "process_thread_count"),
    known(Metric::Threads, "process_threads"),
    known(Metric::Threads, "process_num_threads"),
    known(Metric::Threads, "jvm_thread_count"),
    known(Metric::Threads, "jvm_threads_live_threads"),
    known(Metric::Threads, "jvm_threads_live"),
    known(Metric::Threads, "jvm_threads_current"),
    known(Metric::Threads, "process_runtime_jvm_threads_count"),
    known(Metric::Threads, "process_runtime_*_thread_count"),
    known(Metric::Threads, "go_threads"),
    known(Metric::StartTime, "process_start_time_seconds"),
    known(Metric::StartTime, "process_start_time"),
    known(Metric::Restarts, "k8s_container_restarts"),
    known(Metric::Restarts, "k8s_container_restart_count"),
    known(Metric::OutOfMemoryKills, "container_oom_events"),
];

/// Labels that take one value apart: what is wanted is their sum.
const PARTS: [&str; 16] = [
    "state",
    "mode",
    "cpu_mode",
    "process_cpu_state",
    "process_cpu_mode",
    "cpu",
    "core",
    "device",
    "interface",
    "network_interface_name",
    "network_io_direction",
    "direction",
    "jvm_thread_daemon",
    "jvm_thread_state",
    "daemon",
    "type",
];

/// Whether a series tells something that we know under a name of our own.
pub fn is_known(name: &str) -> bool {
    let name = plain(name);
    KNOWN.iter().any(|known| known.is_named(&name))
}

/// A name as OpenTelemetry's and Prometheus' ways of writing it have in common.
pub(super) fn plain(name: &str) -> String {
    let name = name.replace('.', "_");
    name.strip_suffix("_total").map(str::to_owned).unwrap_or(name)
}

impl Known {
    fn is_named(&self, plain: &str) -> bool {
        let Some((before, after)) = self.name.split_once('*') else { return self.name == plain };
        let word = plain.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        word.is_some_and(|word| !word.is_empty() && !word.contains('_'))
    }

    /// Whether a series tells this.
    pub(super) fn is_told_by(&self, series: &Told) -> bool {
        // A share of a core, or a speed, has the name of a counter in some places.
        let counts = series.kind != Kind::Gauge;
        self.is_named(&series.plain_name)
            && (counts || self.metric.kind() != Kind::Counter || self.metric == Metric::Restarts)
            && self.only.is_none_or(|any| any.iter().any(|(key, value)| series.label(key) == Some(*value)))
            && self.worth_of(&series.unit).is_some()
    }

    /// What one of a unit is worth in the unit of the metric; none when it is something else.
    pub(super) fn worth_of(&self, unit: &str) -> Option<f64> {
        let worth = match (self.metric.unit(), unit) {
            (_, "") => self.worth,
            ("s", "s" | "seconds") | ("By", "By" | "bytes" | "byte") => 1.0,
            ("s", "ms" | "milliseconds") => 1e-3,
            ("s", "us" | "microseconds") => 1e-6,
            ("s", "ns" | "nanoseconds") => 1e-9,
            ("By", "KiBy") => 1024.0,
            ("By", "MiBy") => 1_048_576.0,
            ("s" | "By", _) => return None,
            _ => 1.0,
        };
        Some(worth)
    }

    /// The value as platforms would give it.
    pub(super) fn sense(&self, value: f64) -> Option<f64> {
        // Where there is no limit, zero or the greatest number of pages is told.
        let is_none = self.metric == Metric::MemoryLimit && (value <= 0.0 || value > 1e18);
        (!is_none).then_some(value)
    }
}

/// The labels of a series that must be the same for series to be parts of one value.
pub(super) fn whole(series: &Told) -> BTreeMap<String, &str> {
    let labels = series.labels.iter().map(|(key, value)| (plain(key), value.as_str()));
    labels.filter(|(key, _)| !PARTS.contains(&key.as_str())).collect()
}
