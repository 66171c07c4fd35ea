//! Selects exported time series by name and labels, and joins them to a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::{Kind, Metric, Moment, ReportedInstance, ReportedSeries, as_of};

/// The most series of one name that are joined to a moment; more could not be read in a terminal.
const MAX_SERIES: usize = 100;

/// Selects time series: `orders` or `orders{kind=pay}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesSelector {
    /// The name of the metric; for a histogram also without `.count` or `.sum`.
    pub name: String,
    labels: BTreeMap<String, String>,
}

/// The value of a time series at a moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesValue {
    /// The name of the metric.
    pub name: String,
    /// How its values relate to one another.
    pub kind: Kind,
    /// The unit in OpenTelemetry's notation; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Attributes, and the resource that reports.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The last value that is not after the moment; missing where only growth is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The growth per second around the moment, for counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<f64>,
    /// The mean of the values that a histogram recorded around the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Microseconds between the last value and the moment.
    pub age_us: u64,
}

/// A text that is not a series selector.
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
    /// Whether series of this name can match.
    pub fn may_match(&self, name: &str) -> bool {
        match name.strip_prefix(&self.name) {
            Some("" | ".count" | ".sum") => true,
            _ => self.metric().is_some() && super::is_metric_name(name),
        }
    }

    /// The platform metric that is selected, if it is one.
    pub fn metric(&self) -> Option<Metric> {
        Metric::by_name(&self.name).filter(|_| self.labels.is_empty())
    }

    fn matches_labels(&self, series: &ReportedSeries) -> bool {
        self.labels.iter().all(|(key, value)| series.label(key) == Some(value.as_str()))
    }
}

impl ReportedInstance {
    /// The matching series at a moment; those that are too old are left out.
    pub fn series_at(&self, wanted: &SeriesSelector, at_us: u64, most_age_us: u64) -> Vec<SeriesValue> {
        let of = |name: String| {
            let is_it = move |series: &&ReportedSeries| series.name == name && wanted.matches_labels(series);
            self.series.iter().filter(is_it)
        };
        let named =
            of(wanted.name.clone()).filter_map(|series| SeriesValue::latest(series, at_us, most_age_us));
        let named: Vec<_> = named.take(MAX_SERIES).collect();
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
        let histogram = |count: &ReportedSeries| {
            let sum = of(format!("{}.sum", wanted.name)).find(|sum| sum.labels == count.labels);
            SeriesValue::mean(&wanted.name, count, sum, at_us, most_age_us)
        };
        of(format!("{}.count", wanted.name)).filter_map(histogram).take(MAX_SERIES).collect()
    }
}

impl SeriesValue {
    fn latest(series: &ReportedSeries, at_us: u64, most_age_us: u64) -> Option<Self> {
        let last = as_of(&series.points, at_us, most_age_us)?;
        Some(Self {
            name: series.name.clone(),
            kind: series.kind,
            unit: series.unit.clone(),
            labels: series.labels.clone(),
            value: (series.kind != Kind::Delta).then_some(last.value),
            per_second: series.growth_per_second(at_us, most_age_us),
            mean: None,
            age_us: last.age_us,
        })
    }

    fn mean(
        name: &str,
        count: &ReportedSeries,
        sum: Option<&ReportedSeries>,
        at_us: u64,
        most_age_us: u64,
    ) -> Option<Self> {
        let counted = Self::latest(count, at_us, most_age_us)?;
        let grown = sum.and_then(|sum| sum.growth_per_second(at_us, most_age_us));
        let mean = grown.zip(counted.per_second).filter(|(_, count)| *count > 0.0);
        // The sum has a unit, the count has none.
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

    /// The value of a metric that a platform measured.
    pub fn measured(metric: Metric, moment: &Moment) -> Option<Self> {
        let per_second = match metric {
            Metric::CpuSeconds => moment.cpu_cores,
            Metric::NetworkReceived => moment.received_per_second,
            Metric::NetworkSent => moment.sent_per_second,
            _ => None,
        };
        Some(Self::ours(metric, Some(moment.values.get(metric)?), per_second, moment.age_us))
    }

    /// For each value the labels that distinguish it from others of the same name.
    pub fn distinguishing_labels(values: &[Self]) -> Vec<String> {
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
