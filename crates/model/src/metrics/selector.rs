//! Any series by its name, as of a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::{Kind, Metric, Moment, Told, ToldInstance, as_of};

/// The most series of one name that are joined to a moment.
const MOST_SERIES: usize = 100;

/// Which series are meant: `orders` or `orders{kind=pay}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesSelector {
    /// The metric's name; of a histogram also without `.count` or `.sum`.
    pub name: String,
    labels: BTreeMap<String, String>,
}

/// A value of a series as of a moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesValue {
    /// The metric.
    pub name: String,
    /// How its values follow one another.
    pub kind: Kind,
    /// Its unit.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// What it is about, and who reports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The last value not later than the moment; missing where only growth is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// How fast it grew around the moment, where it counts something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The mean of what a histogram took in around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// How long before the moment the last value was told.
    pub age_us: u64,
}

/// Why a selector cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it reads like `orders` or `orders{{kind=pay,region=eu}}`")]
pub struct InvalidSelector;

impl FromStr for SeriesSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let (name, labels) = match text.split_once('{') {
            None => (text, ""),
            Some((name, rest)) => (name, rest.strip_suffix('}').ok_or(InvalidSelector)?),
        };
        let name = name.trim().to_owned();
        if name.is_empty() || name.contains('}') {
            return Err(InvalidSelector);
        }
        let label = |text: &str| {
            let (key, value) = text.split_once('=').ok_or(InvalidSelector)?;
            let value = value.trim();
            let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            Ok((key.trim().to_owned(), inner.unwrap_or(value).to_owned()))
        };
        let labels = labels.split(',').filter(|text| !text.trim().is_empty()).map(label);
        Ok(Self { name, labels: labels.collect::<Result<_, _>>()? })
    }
}

impl fmt::Display for SeriesSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let labels: Vec<_> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        if labels.is_empty() { Ok(()) } else { write!(f, "{{{}}}", labels.join(",")) }
    }
}

impl SeriesSelector {
    /// Whether series of a name may be meant.
    pub fn may_be(&self, name: &str) -> bool {
        match name.strip_prefix(&self.name) {
            Some("" | ".count" | ".sum") => true,
            _ => self.metric().is_some() && super::is_known(name),
        }
    }

    /// The metric of ours that is meant.
    pub fn metric(&self) -> Option<Metric> {
        Metric::by_name(&self.name).filter(|_| self.labels.is_empty())
    }

    fn is_about(&self, series: &Told) -> bool {
        self.labels.iter().all(|(key, value)| series.label(key) == Some(value.as_str()))
    }
}

impl ToldInstance {
    /// The series that are meant, as of a moment; those that are too old are left out.
    pub fn series_at(&self, wanted: &SeriesSelector, at_us: u64, most_age_us: u64) -> Vec<SeriesValue> {
        let of = |name: String| {
            let is_it = move |told: &&Told| told.name == name && wanted.is_about(told);
            self.series.iter().filter(is_it)
        };
        let named = of(wanted.name.clone()).filter_map(|told| SeriesValue::of(told, at_us, most_age_us));
        let named: Vec<_> = named.take(MOST_SERIES).collect();
        if !named.is_empty() {
            return named;
        }
        if let Some(metric) = wanted.metric() {
            let known = self.known(metric, at_us, most_age_us);
            return known
                .map(|known| SeriesValue::ours(metric, known.value, known.per_second, known.age_us))
                .into_iter()
                .collect();
        }
        let histogram = |count: &Told| {
            let sum = of(format!("{}.sum", wanted.name)).find(|sum| sum.labels == count.labels);
            SeriesValue::mean(&wanted.name, count, sum, at_us, most_age_us)
        };
        of(format!("{}.count", wanted.name)).filter_map(histogram).take(MOST_SERIES).collect()
    }
}

impl SeriesValue {
    fn of(told: &Told, at_us: u64, most_age_us: u64) -> Option<Self> {
        let last = as_of(&told.points, at_us, most_age_us)?;
        Some(Self {
            name: told.name.clone(),
            kind: told.kind,
            unit: told.unit.clone(),
            labels: told.labels.clone(),
            value: (told.kind != Kind::Delta).then_some(last.value),
            per_second: told.grows(at_us, most_age_us),
            mean: None,
            age_us: last.age_us,
        })
    }

    fn mean(name: &str, count: &Told, sum: Option<&Told>, at_us: u64, most_age_us: u64) -> Option<Self> {
        let counted = Self::of(count, at_us, most_age_us)?;
        let grown = sum.and_then(|sum| sum.grows(at_us, most_age_us));
        let mean = grown.zip(counted.per_second).filter(|(_, count)| *count > 0.0);
        // Values have a unit, their number has none.
        let unit = sum.map(|sum| sum.unit.clone()).unwrap_or_default();
        Some(Self {
            name: name.to_owned(),
            unit,
            value: None,
            mean: mean.map(|(sum, count)| sum / count),
            ..counted
        })
    }

    fn ours(metric: Metric, value: Option<f64>, per_second: Option<f64>, age_us: u64) -> Self {
        Self {
            name: metric.name().to_owned(),
            kind: metric.kind(),
            unit: metric.unit().to_owned(),
            labels: BTreeMap::new(),
            value,
            per_second,
            mean: None,
            age_us,
        }
    }

    /// A metric that a platform measured.
    pub fn measured(metric: Metric, moment: &Moment) -> Option<Self> {
        let per_second = match metric {
            Metric::CpuSeconds => moment.cpu_cores,
            Metric::NetworkReceived => moment.received_per_second,
            Metric::NetworkSent => moment.sent_per_second,
            _ => None,
        };
        Some(Self::ours(metric, Some(moment.values.get(metric)?), per_second, moment.age_us))
    }

    /// What sets each of some values apart: the labels in which those of one name differ.
    pub fn apart(values: &[Self]) -> Vec<String> {
        let differs = |value: &Self, key: &str| {
            let mut same = values.iter().filter(|other| other.name == value.name);
            same.any(|other| other.labels.get(key) != value.labels.get(key))
        };
        let text = |value: &Self| {
            let keys: BTreeSet<_> = value.labels.keys().filter(|key| differs(value, key)).collect();
            let labels = keys.into_iter().filter_map(|key| Some(format!("{key}={}", value.labels.get(key)?)));
            labels.collect::<Vec<_>>().join(",")
        };
        values.iter().map(text).collect()
    }
}
