//! Time series that services export, joined to moments: pushed by OTLP or scraped.
//!
//! A value is assigned to an instance only if it is certain which one. Several instances of which none is named, or
//! series that differ in more than the parts of one value, yield nothing rather than something wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::handler::{Handler, INSTANCE_LABELS, comparable};
use super::metric_names::{METRIC_NAMES, MetricName, grouping_labels, plain};
use super::{AsOf, Kind, Metric, Moment, Values, as_of, rate};

/// The oldest exported value that counts. Exporters send every 10 s to 60 s, so this is twice the slowest.
pub const MAX_REPORTED_AGE_US: u64 = 120_000_000;

/// Values of one export have timestamps within a second.
const ONE_REPORT_US: u64 = 1_000_000;

/// The points of one exported time series.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedSeries {
    pub(super) name: String,
    pub(super) plain_name: String,
    pub(super) service: String,
    pub(super) kind: Kind,
    pub(super) unit: String,
    pub(super) labels: BTreeMap<String, String>,
    /// Sorted by time; deltas are added up to a total.
    pub(super) points: Vec<(u64, f64)>,
    /// The run in which it was exported, if any.
    run: Option<String>,
}

impl ReportedSeries {
    /// Makes a series from points in any order.
    pub fn new(name: String, service: &str, kind: Kind, mut points: Vec<(u64, f64)>) -> Self {
        points.retain(|(_, value)| value.is_finite());
        points.sort_by_key(|(at_us, _)| *at_us);
        if kind == Kind::Delta {
            let mut all = 0.0;
            for (_, value) in &mut points {
                all += *value;
                *value = all;
            }
        }
        let (plain_name, service) = (plain(&name), service.to_lowercase());
        let (unit, labels) = (String::new(), BTreeMap::new());
        Self { name, plain_name, service, kind, unit, labels, points, run: None }
    }

    /// Sets the unit.
    #[must_use]
    pub fn in_unit(self, unit: &str) -> Self {
        Self { unit: unit.to_owned(), ..self }
    }

    /// Sets the labels: attributes, and the resource that reports.
    #[must_use]
    pub fn about(self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { labels: labels.into_iter().collect(), ..self }
    }

    /// Sets the run: instances of the same name run side by side in different ones.
    #[must_use]
    pub fn in_run(self, run: impl Into<String>) -> Self {
        Self { run: Some(run.into()), ..self }
    }

    /// The value of a label, whether its key is spelled with dots or underscores.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let same = |found: &str| found == key || plain(found) == plain(key);
        self.labels.iter().find(|(found, _)| same(found)).map(|(_, value)| value.as_str())
    }

    fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        INSTANCE_LABELS.iter().filter_map(|key| Some((*key, self.label(key)?)))
    }

    /// The growth per second around a moment.
    pub(super) fn growth_per_second(&self, at_us: u64, most_age_us: u64) -> Option<f64> {
        (self.kind != Kind::Gauge).then(|| rate(&self.points, at_us, most_age_us))?
    }
}

/// Exported time series of many instances.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportedHistory {
    services: BTreeMap<String, Vec<ReportedInstance>>,
    /// Services with more than one instance.
    several: BTreeSet<String>,
}

/// The exported time series of one instance.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReportedInstance {
    names: BTreeMap<&'static str, String>,
    pub(super) series: Vec<ReportedSeries>,
}

impl ReportedHistory {
    /// Assigns series to the instances that handled some spans.
    pub fn new<'h>(
        series: impl IntoIterator<Item = ReportedSeries>,
        handlers: impl IntoIterator<Item = &'h Handler>,
    ) -> Self {
        let mut found: BTreeMap<_, ReportedInstance> = BTreeMap::new();
        for line in series.into_iter().filter(|line| !line.points.is_empty()) {
            let surest = line.names().next().map(|(_, name)| name.to_owned());
            let key = (line.service.clone(), line.run.clone(), surest);
            found.entry(key).or_default().series.push(line);
        }
        let mut services: BTreeMap<String, Vec<ReportedInstance>> = BTreeMap::new();
        for ((service, ..), mut instance) in found {
            instance.names = instance.common_names();
            services.entry(service).or_default().push(instance);
        }
        let mut taking_part: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for handler in handlers {
            taking_part.entry(&handler.service).or_default().extend(handler.name());
        }
        let several = taking_part.into_iter().filter(|(_, names)| names.len() > 1);
        Self { services, several: several.map(|(service, _)| service.to_owned()).collect() }
    }

    /// Whether no instance has a series.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// The series of the instance that handled a span; none unless it is certain which one that was.
    pub fn instance(&self, who: &Handler) -> Option<&ReportedInstance> {
        let mut left: Vec<&ReportedInstance> = self.services.get(&who.service)?.iter().collect();
        let mut is_named = false;
        for (key, name) in &who.names {
            let named = |instance: &&ReportedInstance| instance.names.get(key).cloned();
            // A name that only one side has cannot contradict.
            if left.iter().filter_map(named).any(|named| comparable(&named, name)) {
                left.retain(|instance| named(instance).as_ref() == Some(name));
                is_named = true;
            }
        }
        if !is_named && let Some(address) = &who.address {
            let there = |instance: &&ReportedInstance| instance.names.values().any(|name| name == address);
            if left.iter().any(there) {
                left.retain(there);
                is_named = true;
            }
        }
        let [only] = left[..] else { return None };
        (is_named || !self.several.contains(&who.service)).then_some(only)
    }
}

impl ReportedInstance {
    /// The most specific name of the instance.
    pub fn name(&self) -> Option<&str> {
        INSTANCE_LABELS.iter().find_map(|key| self.names.get(key)).map(String::as_str)
    }

    /// The names on which all series agree that have them.
    fn common_names(&self) -> BTreeMap<&'static str, String> {
        let mut names: BTreeMap<&'static str, BTreeSet<&str>> = BTreeMap::new();
        for (key, name) in self.series.iter().flat_map(ReportedSeries::names) {
            names.entry(key).or_default().insert(name);
        }
        let agreed = names.into_iter().filter(|(_, names)| names.len() == 1);
        agreed.filter_map(|(key, names)| Some((key, names.first()?.to_string()))).collect()
    }

    /// The usage at a moment, computed from series with well-known names; its age is that of the oldest value.
    pub fn usage_at(&self, at_us: u64, most_age_us: u64) -> Option<Moment> {
        let mut moment = Moment {
            age_us: 0,
            values: Values::default(),
            cpu_cores: None,
            received_per_second: None,
            sent_per_second: None,
        };
        let mut is_any = false;
        for metric in Metric::ALL {
            let Some(AsOfParts { value, per_second, age_us }) = self.known(metric, at_us, most_age_us) else {
                continue;
            };
            if value.is_none() && per_second.is_none() {
                continue;
            }
            is_any = true;
            moment.age_us = moment.age_us.max(age_us);
            moment.values.set(metric, value);
            match metric {
                Metric::CpuSeconds => moment.cpu_cores = per_second,
                Metric::NetworkReceived => moment.received_per_second = per_second,
                Metric::NetworkSent => moment.sent_per_second = per_second,
                _ => {}
            }
        }
        is_any.then_some(moment)
    }

    /// The value of a platform metric, from the first of its names that was exported in time.
    pub(super) fn known(&self, metric: Metric, at_us: u64, most_age_us: u64) -> Option<AsOfParts> {
        let names = METRIC_NAMES.iter().filter(|known| known.metric == metric);
        names.filter_map(|known| AsOfParts::sum(known, &self.parts(known)?, at_us, most_age_us)).next()
    }

    /// The series that are parts of one value; none if they are more than that.
    fn parts(&self, known: &MetricName) -> Option<Vec<&ReportedSeries>> {
        let parts: Vec<&ReportedSeries> =
            self.series.iter().filter(|series| known.matches_series(series)).collect();
        let first = parts.first()?;
        let same = |other: &&ReportedSeries| {
            (&other.name, &other.unit, other.kind) == (&first.name, &first.unit, first.kind)
                && grouping_labels(other) == grouping_labels(first)
        };
        parts.iter().all(same).then_some(parts)
    }
}

/// A value that was exported in parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AsOfParts {
    pub(super) value: Option<f64>,
    pub(super) per_second: Option<f64>,
    pub(super) age_us: u64,
}

impl AsOfParts {
    fn sum(known: &MetricName, parts: &[&ReportedSeries], at_us: u64, most_age_us: u64) -> Option<Self> {
        let factor = known.factor_for_unit(&parts.first()?.unit)?;
        let values: Vec<AsOf> =
            parts.iter().filter_map(|part| as_of(&part.points, at_us, most_age_us)).collect();
        let age_us = values.iter().map(|part| part.age_us).min()?;
        // A part that is no longer exported, such as threads in a state that none is in, no longer counts.
        let last = values.iter().filter(|part| part.age_us - age_us <= ONE_REPORT_US);
        let sum: f64 = last.map(|part| part.value).sum();
        // Deltas say what was added since the last export, not what the total is.
        let is_whole = parts.iter().all(|part| part.kind != Kind::Delta);
        let grown: Vec<f64> =
            parts.iter().filter_map(|part| part.growth_per_second(at_us, most_age_us)).collect();
        Some(Self {
            value: is_whole.then_some(sum * factor).and_then(|value| known.drop_unlimited(value)),
            per_second: (!grown.is_empty()).then(|| grown.iter().sum::<f64>() * factor),
            age_us,
        })
    }
}
