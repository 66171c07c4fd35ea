//! Names under which exporters publish the usage of processes, containers and pods, mapped to our metrics.
//!
//! Checked against OpenTelemetry's conventions (process, container, k8s, jvm, dotnet), its instrumentation for
//! Python, JavaScript, Go, Java and .NET, the collector's kubelet and Docker receivers, the Prometheus clients
//! for Python, Node, Go, Java, .NET and Rust, Micrometer, and cAdvisor.

use std::collections::BTreeMap;

use super::{Kind, Metric, ReportedSeries};

/// One name of one metric.
pub(super) struct MetricName {
    pub(super) metric: Metric,
    /// In the spelling of [`plain`]; `*` stands for one word.
    name: &'static str,
    /// Only series with one of these labels count; without any, every series does.
    only: Option<&'static [(&'static str, &'static str)]>,
    /// Multiplies values of series that have no unit.
    factor: f64,
}

const RSS: Option<&[(&str, &str)]> = Some(&[("type", "rss")]);
const RECEIVED: Option<&[(&str, &str)]> =
    Some(&[("network_io_direction", "receive"), ("direction", "receive")]);
const SENT: Option<&[(&str, &str)]> =
    Some(&[("network_io_direction", "transmit"), ("direction", "transmit")]);

const fn known(metric: Metric, name: &'static str) -> MetricName {
    MetricName { metric, name, only: None, factor: 1.0 }
}

const fn only(
    metric: Metric,
    name: &'static str,
    only: Option<&'static [(&'static str, &'static str)]>,
) -> MetricName {
    MetricName { metric, name, only, factor: 1.0 }
}

/// All names; of several for one metric the first that is present counts. Metrics of a grouping_labels container or pod
/// come before those of one process in it.
#[rustfmt::skip]
pub(super) const METRIC_NAMES: [MetricName; 67] = [
    known(Metric::CpuSeconds, "container_cpu_time"),
    known(Metric::CpuSeconds, "container_cpu_time_seconds"),
    known(Metric::CpuSeconds, "container_cpu_usage_seconds"),
    MetricName { metric: Metric::CpuSeconds, name: "container_cpu_usage", only: None, factor: 1e-9 },
    known(Metric::CpuSeconds, "k8s_pod_cpu_time"),
    known(Metric::CpuSeconds, "k8s_pod_cpu_time_seconds"),
    known(Metric::CpuSeconds, "process_cpu_time"),
    known(Metric::CpuSeconds, "process_cpu_time_seconds"),
    known(Metric::CpuSeconds, "process_cpu_seconds"),
    MetricName { metric: Metric::CpuSeconds, name: "process_cpu_time_ns", only: None, factor: 1e-9 },
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

/// Labels that split one value into parts, which are added up.
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

/// Whether a series is one of our metrics under another name.
pub fn is_metric_name(name: &str) -> bool {
    let name = plain(name);
    METRIC_NAMES.iter().any(|known| known.is_named(&name))
}

/// The common spelling of a name in OpenTelemetry and Prometheus.
pub(super) fn plain(name: &str) -> String {
    let name = name.replace('.', "_");
    name.strip_suffix("_total").map(str::to_owned).unwrap_or(name)
}

impl MetricName {
    fn is_named(&self, plain: &str) -> bool {
        let Some((before, after)) = self.name.split_once('*') else { return self.name == plain };
        let word = plain.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        word.is_some_and(|word| !word.is_empty() && !word.contains('_'))
    }

    /// Whether a series has this name and its values are of the right kind.
    pub(super) fn matches_series(&self, series: &ReportedSeries) -> bool {
        // Some exporters use the name of a counter for a ratio or a rate.
        let counts = series.kind != Kind::Gauge;
        self.is_named(&series.plain_name)
            && (counts || self.metric.kind() != Kind::Counter || self.metric == Metric::Restarts)
            && self.only.is_none_or(|any| any.iter().any(|(key, value)| series.label(key) == Some(*value)))
            && self.factor_for_unit(&series.unit).is_some()
    }

    /// The factor from a unit to the unit of the metric; none if the unit measures something else.
    pub(super) fn factor_for_unit(&self, unit: &str) -> Option<f64> {
        let factor = match (self.metric.unit(), unit) {
            (_, "") => self.factor,
            ("s", "s" | "seconds") | ("By", "By" | "bytes" | "byte") => 1.0,
            ("s", "ms" | "milliseconds") => 1e-3,
            ("s", "us" | "microseconds") => 1e-6,
            ("s", "ns" | "nanoseconds") => 1e-9,
            ("By", "KiBy") => 1024.0,
            ("By", "MiBy") => 1_048_576.0,
            ("s" | "By", _) => return None,
            _ => 1.0,
        };
        Some(factor)
    }

    /// Drops values that mean "no limit".
    pub(super) fn drop_unlimited(&self, value: f64) -> Option<f64> {
        // Without a limit exporters report zero or the largest number of pages.
        let is_none = self.metric == Metric::MemoryLimit && (value <= 0.0 || value > 1e18);
        (!is_none).then_some(value)
    }
}

/// The labels of a series except those that split a value: parts of one value agree in all of them.
pub(super) fn grouping_labels(series: &ReportedSeries) -> BTreeMap<String, &str> {
    let labels = series.labels.iter().map(|(key, value)| (plain(key), value.as_str()));
    labels.filter(|(key, _)| !PARTS.contains(&key.as_str())).collect()
}
