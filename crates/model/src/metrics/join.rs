//! As-of joins: what was known of an instance when something happened. Nothing here looks into the future of
//! a moment but [`rate`], which looks at the samples on both sides of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Handler, Metric, Sample, Summary, Values};
use crate::ids::InstanceId;

/// A value as of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AsOf {
    /// The value.
    pub value: f64,
    /// How long before the moment it was taken.
    pub age_us: u64,
}

/// The last of some points, sorted by time, that is not later than a moment and not older than allowed.
pub fn as_of(points: &[(u64, f64)], at_us: u64, most_age_us: u64) -> Option<AsOf> {
    let before = points.partition_point(|(time, _)| *time <= at_us);
    let (time, value) = *points.get(before.checked_sub(1)?)?;
    let age_us = at_us - time;
    (age_us <= most_age_us).then_some(AsOf { value, age_us })
}

/// How much a counter grew over all its points. Where it went back it was started anew, from zero.
pub fn increase(points: &[(u64, f64)]) -> f64 {
    points.windows(2).map(|pair| grown(pair[0].1, pair[1].1)).sum()
}

/// How fast a counter grew around a moment, for each second: between the last point not later than it and the
/// next one, or, at the end, between the last two. Points further away than allowed say nothing.
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

/// What an instance used when something happened.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Moment {
    /// How long before the moment the sample was taken.
    pub age_us: u64,
    /// The sample's values.
    pub values: Values,
    /// Cores in use around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// Bytes that came each second around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_per_second: Option<f64>,
    /// Bytes that were sent each second around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_per_second: Option<f64>,
}

/// Samples of many instances, by instance and time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    samples: BTreeMap<InstanceId, Vec<Sample>>,
}

impl History {
    /// Sorts samples; they may come in any order.
    pub fn new(samples: impl IntoIterator<Item = Sample>) -> Self {
        let mut by_instance: BTreeMap<InstanceId, Vec<Sample>> = BTreeMap::new();
        for sample in samples {
            by_instance.entry(sample.instance.clone()).or_default().push(sample);
        }
        by_instance.values_mut().for_each(|list| list.sort_by_key(|sample| sample.at_us));
        Self { samples: by_instance }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The instances with their samples by time.
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
        // Names that others give are no names of ours.
        if let Some(named) = who.instance().filter(is_of) {
            return Some(named);
        }
        let mut same = self.samples.keys().filter(|instance| is_of(instance));
        let (only, None) = (same.next()?, same.next()) else { return None };
        Some(only.clone())
    }

    /// What an instance used at a moment, by its last sample not later and not older than allowed.
    pub fn at(&self, instance: &InstanceId, at_us: u64, most_age_us: u64) -> Option<Moment> {
        let samples = self.samples.get(instance)?;
        let before = samples.partition_point(|sample| sample.at_us <= at_us);
        let sample = samples.get(before.checked_sub(1)?)?;
        let age_us = at_us - sample.at_us;
        if age_us > most_age_us {
            return None;
        }
        // Two samples on each side are all that a rate looks at.
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

    /// What each instance used over all its samples.
    pub fn summaries(&self) -> Vec<Summary> {
        self.samples.values().filter_map(|samples| Summary::of(samples)).collect()
    }
}
