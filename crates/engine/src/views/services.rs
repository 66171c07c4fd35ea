//! Services that reported spans or were called: what they do, whom they talk to, what they used last.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::InstanceId;
use faultscope_model::metrics::{History, Metric, Moment, Sample};
use serde::Serialize;

use super::archive::Archive;
use super::error::ViewError;

/// An instance without samples in this time before the last sample of its campaign has ended.
const LATELY_US: u64 = 60_000_000;

/// A row in the list of services.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServiceLine {
    /// The name under which it reports.
    pub service: String,
    /// What it offers, sorted: what others call it for, and its own spans that are no calls of others. Names of all its
    /// spans where that leaves nothing.
    pub operations: Vec<String>,
    /// The services on the other side of its spans, sorted.
    pub calls: Vec<String>,
    /// The services that call it, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub called_by: Vec<String>,
    /// The latest resource usage of its instances.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<InstanceUse>,
}

/// The latest resource usage of an instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceUse {
    /// The instance.
    pub instance: InstanceId,
    /// The time of the sample in microseconds since 1970.
    pub at_us: u64,
    /// The sample.
    #[serde(flatten)]
    pub used: Moment,
}

/// The resource usage of all instances of a service.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ServiceUse {
    /// Number of instances.
    pub instances: usize,
    /// CPU cores in use; none if unknown for all instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// Bytes of memory; none if unknown for all instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
    /// The time of the last sample in microseconds since 1970.
    pub at_us: u64,
}

/// Lists the services that reported spans, and those that they called: a database reports nothing.
pub fn list_services(archive: &Archive) -> Result<Vec<ServiceLine>, ViewError> {
    let measured = latest_use(archive)?;
    let mut lines = Vec::new();
    for service in archive.spans().services()? {
        // Reporters write names in lower case.
        let is_of = |used: &&InstanceUse| used.instance.service.as_str().eq_ignore_ascii_case(&service);
        lines.push(ServiceLine {
            operations: archive.spans().span_names(&service)?,
            calls: archive.spans().remote_services(&service)?,
            called_by: Vec::new(),
            metrics: measured.iter().filter(is_of).cloned().collect(),
            service,
        });
    }
    let mut callers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in &lines {
        for called in &line.calls {
            callers.entry(called.to_lowercase()).or_default().insert(line.service.clone());
        }
    }
    for line in &mut lines {
        let callers = callers.remove(&line.service.to_lowercase()).unwrap_or_default();
        line.called_by = callers.into_iter().collect();
        // Spans of a service are also those of the calls that it makes, whose names are operations of others.
        let offered: BTreeSet<String> = archive.spans().called_names(&line.service)?.into_iter().collect();
        let mut asked = BTreeSet::new();
        for called in &line.calls {
            asked.extend(archive.spans().called_names(called)?);
        }
        let own: BTreeSet<String> =
            line.operations.iter().filter(|name| !asked.contains(*name)).cloned().collect();
        let operations: Vec<String> = own.union(&offered).cloned().collect();
        if !operations.is_empty() {
            line.operations = operations;
        }
    }
    for (service, callers) in callers {
        let is_of = |used: &&InstanceUse| used.instance.service.as_str().eq_ignore_ascii_case(&service);
        lines.push(ServiceLine {
            operations: archive.spans().called_names(&service)?,
            calls: Vec::new(),
            called_by: callers.into_iter().collect(),
            metrics: measured.iter().filter(is_of).cloned().collect(),
            service,
        });
    }
    lines.sort_by(|a, b| a.service.cmp(&b.service));
    Ok(lines)
}

impl ServiceLine {
    /// The usage of all its instances; none if they were not measured.
    pub fn total_use(&self) -> Option<ServiceUse> {
        let at_us = self.metrics.iter().map(|used| used.at_us).max()?;
        let sum = |part: fn(&InstanceUse) -> Option<f64>| {
            self.metrics.iter().filter_map(part).reduce(|sum, part| sum + part)
        };
        let memory = |used: &InstanceUse| {
            let values = &used.used.values;
            values.get(Metric::MemoryWorkingSet).or(values.get(Metric::MemoryResident))
        };
        let cores = sum(|used| used.used.cpu_cores);
        Some(ServiceUse { instances: self.metrics.len(), cores, memory: sum(memory), at_us })
    }
}

/// The last samples of the newest campaign that has any.
fn latest_use(archive: &Archive) -> Result<Vec<InstanceUse>, ViewError> {
    for campaign in archive.newest()? {
        let (_, reader) = campaign?;
        let history = History::new(reader.latest_samples(LATELY_US)?);
        if history.is_empty() {
            continue;
        }
        let last = |(instance, samples): (&InstanceId, &[Sample])| {
            let at_us = samples.last()?.at_us;
            let used = history.usage_at(instance, at_us, u64::MAX)?;
            Some(InstanceUse { instance: instance.clone(), at_us, used })
        };
        return Ok(history.instances().filter_map(last).collect());
    }
    Ok(Vec::new())
}
