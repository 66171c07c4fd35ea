//! As-of joins: the latest value of an instance at some moment. Only [`rate`] looks at values after the moment,
//! because it needs a sample on either side.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Handler, Metric, Sample, Summary, Values};
use crate::ids::InstanceId;

/// The latest value at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AsOf {
    /// The value.
    pub value: f64,
    /// Microseconds between the sample and the moment.
    pub age_us: u64,
}

/// The last of these points, sorted by time, that is not after a moment and not older than allowed.
pub fn as_of(points: &[(u64, f64)], at_us: u64, most_age_us: u64) -> Option<AsOf> {
    let before = points.partition_point(|(time, _)| *time <= at_us);
    let (time, value) = *points.get(before.checked_sub(1)?)?;
    let age_us = at_us - time;
    (age_us <= most_age_us).then_some(AsOf { value, age_us })
}

/// The total growth of a counter. A smaller value than before means a restart from zero.
pub fn increase(points: &[(u64, f64)]) -> f64 {
    points.windows(2).map(|pair| grown(pair[0].1, pair[1].1)).sum()
}

/// The growth of a counter per second around a moment: between the last point before it and the next one or, at the
/// end, between the last two. None if these points are further away than allowed.
pub fn rate(points: &[(u64, f64)], at_us: u64, most_age_us: u64) -> Option<f64> {
    let near = |time: u64| time.abs_diff(at_us) <= most_age_us;
    let after = points.partition_point(|(time, _)| *time <= at_us);
    let pair = |second: usize| {
        let (first, second) = (points.get(second.checked_sub(1)?)?, points.get(second)?);
        (near(first.0) && near(second.0)).then_some((first, second))
    };
    let (first, second) = pair(after).or_else(|| pair(after.checked_sub(1)?))?;
    let seconds = (second.0 - first.0) as f64 / 1e6;
    (seconds > 0.0).then(|| grown(first.1, second.1) / seconds)
}

fn grown(before: f64, after: f64) -> f64 {
    if after < before { after.max(0.0) } else { after - before }
}

/// The resource usage of an instance at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Moment {
    /// Microseconds between the sample and the moment.
    pub age_us: u64,
    /// The values of the sample.
    pub values: Values,
    /// CPU cores in use around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// Bytes received per second around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_per_second: Option<f64>,
    /// Bytes sent per second around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_per_second: Option<f64>,
}

/// Samples of many instances, grouped by instance and sorted by time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    samples: BTreeMap<InstanceId, Vec<Sample>>,
}

impl History {
    /// Groups and sorts samples, which may come in any order.
    pub fn new(samples: impl IntoIterator<Item = Sample>) -> Self {
        let mut by_instance: BTreeMap<InstanceId, Vec<Sample>> = BTreeMap::new();
        for sample in samples {
            by_instance.entry(sample.instance.clone()).or_default().push(sample);
        }
        by_instance.values_mut().for_each(|list| list.sort_by_key(|sample| sample.at_us));
        Self { samples: by_instance }
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The instances, each with its samples by time.
    pub fn instances(&self) -> impl Iterator<Item = (&InstanceId, &[Sample])> {
        self.samples.iter().map(|(instance, samples)| (instance, samples.as_slice()))
    }

    /// The values of one metric of an instance by time.
    pub fn points(&self, instance: &InstanceId, metric: Metric) -> Vec<(u64, f64)> {
        let samples = self.samples.get(instance).map(Vec::as_slice).unwrap_or_default();
        samples.iter().filter_map(|sample| Some((sample.at_us, sample.get(metric)?))).collect()
    }

    /// The instance that handled a span: the one that is named, or the only one of its service.
    pub fn instance(&self, who: &Handler) -> Option<InstanceId> {
        let is_of = |instance: &InstanceId| instance.service.as_str().eq_ignore_ascii_case(&who.service);
        // Names given by others, such as pod names, cannot match instance ids.
        if let Some(named) = who.instance().filter(is_of) {
            return Some(named);
        }
        let mut same = self.samples.keys().filter(|instance| is_of(instance));
        let (only, None) = (same.next()?, same.next()) else { return None };
        Some(only.clone())
    }

    /// The usage of an instance at a moment: its last sample that is not after it and not older than allowed.
    pub fn usage_at(&self, instance: &InstanceId, at_us: u64, most_age_us: u64) -> Option<Moment> {
        let samples = self.samples.get(instance)?;
        let before = samples.partition_point(|sample| sample.at_us <= at_us);
        let sample = samples.get(before.checked_sub(1)?)?;
        let age_us = at_us - sample.at_us;
        if age_us > most_age_us {
            return None;
        }
        // A rate needs at most two samples on each side.
        let near = samples.get(before.saturating_sub(2)..samples.len().min(before + 1)).unwrap_or_default();
        let rate_of = |metric: Metric| {
            let points: Vec<_> = near.iter().filter_map(|s| Some((s.at_us, s.get(metric)?))).collect();
            rate(&points, at_us, most_age_us)
        };
        Some(Moment {
            age_us,
            values: sample.values,
            cpu_cores: rate_of(Metric::CpuSeconds),
            received_per_second: rate_of(Metric::NetworkReceived),
            sent_per_second: rate_of(Metric::NetworkSent),
        })
    }

    /// The usage of each instance over all its samples.
    pub fn summaries(&self) -> Vec<Summary> {
        self.samples.values().filter_map(|samples| Summary::from_samples(samples)).collect()
    }
}
