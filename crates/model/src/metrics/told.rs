//! Series that others tell, joined to moments: what services send by OTLP, what they tell when they are scraped.
//!
//! A value goes to an instance only where it is sure whose it is. Several instances of which none is named, or
//! series that differ in more than the parts of one value, give nothing rather than something wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::handler::{Handler, NAMES, comparable};
use super::known::{KNOWN, Known, plain, whole};
use super::{AsOf, Kind, Metric, Moment, Values, as_of, rate};

/// How old what others tell may be: they send every ten seconds to every minute.
pub const MOST_TOLD_AGE_US: u64 = 120_000_000;

/// Values of one report have about the same time.
const ONE_REPORT_US: u64 = 1_000_000;

/// A line of values.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub(super) name: String,
    pub(super) plain_name: String,
    pub(super) service: String,
    pub(super) kind: Kind,
    pub(super) unit: String,
    pub(super) labels: BTreeMap<String, String>,
    /// By time; what came since the value before is added up.
    pub(super) points: Vec<(u64, f64)>,
    /// The trial that it was told in, where there was one.
    run: Option<String>,
}

impl Told {
    /// A line of values with its points, in any order.
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

    /// The same in a unit.
    #[must_use]
    pub fn in_unit(self, unit: &str) -> Self {
        Self { unit: unit.to_owned(), ..self }
    }

    /// The same with labels: what it is about, and who reports.
    #[must_use]
    pub fn about(self, labels: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { labels: labels.into_iter().collect(), ..self }
    }

    /// The same as told in a trial; instances of one name run side by side in different ones.
    #[must_use]
    pub fn in_run(self, run: impl Into<String>) -> Self {
        Self { run: Some(run.into()), ..self }
    }

    /// A label, however its key is written.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        let same = |found: &str| found == key || plain(found) == plain(key);
        self.labels.iter().find(|(found, _)| same(found)).map(|(_, value)| value.as_str())
    }

    fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        NAMES.iter().filter_map(|key| Some((*key, self.label(key)?)))
    }

    /// How fast it grew around a moment, for each second.
    pub(super) fn grows(&self, at_us: u64, most_age_us: u64) -> Option<f64> {
        (self.kind != Kind::Gauge).then(|| rate(&self.points, at_us, most_age_us))?
    }
}

/// Series of many instances.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToldHistory {
    services: BTreeMap<String, Vec<ToldInstance>>,
    /// Services of which more than one instance takes part.
    several: BTreeSet<String>,
}

/// What is told of one instance.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToldInstance {
    names: BTreeMap<&'static str, String>,
    pub(super) series: Vec<Told>,
}

impl ToldHistory {
    /// Puts series in order for the spans of some handlers.
    pub fn new<'h>(
        series: impl IntoIterator<Item = Told>,
        handlers: impl IntoIterator<Item = &'h Handler>,
    ) -> Self {
        let mut found: BTreeMap<_, ToldInstance> = BTreeMap::new();
        for told in series.into_iter().filter(|told| !told.points.is_empty()) {
            let surest = told.names().next().map(|(_, name)| name.to_owned());
            let key = (told.service.clone(), told.run.clone(), surest);
            found.entry(key).or_default().series.push(told);
        }
        let mut services: BTreeMap<String, Vec<ToldInstance>> = BTreeMap::new();
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

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// What is told of the instance that handled a span; none unless it is sure which one that was.
    pub fn instance(&self, who: &Handler) -> Option<&ToldInstance> {
        let mut left: Vec<&ToldInstance> = self.services.get(&who.service)?.iter().collect();
        let mut is_named = false;
        for (key, name) in &who.names {
            let told = |instance: &&ToldInstance| instance.names.get(key).cloned();
            // A name that only one side has says nothing.
            if left.iter().filter_map(told).any(|told| comparable(&told, name)) {
                left.retain(|instance| told(instance).as_ref() == Some(name));
                is_named = true;
            }
        }
        if !is_named && let Some(address) = &who.address {
            let there = |instance: &&ToldInstance| instance.names.values().any(|name| name == address);
            if left.iter().any(there) {
                left.retain(there);
                is_named = true;
            }
        }
        let [only] = left[..] else { return None };
        (is_named || !self.several.contains(&who.service)).then_some(only)
    }
}

impl ToldInstance {
    /// Its surest name, if it has one.
    pub fn name(&self) -> Option<&str> {
        NAMES.iter().find_map(|key| self.names.get(key)).map(String::as_str)
    }

    /// Names that all series which have them agree about.
    fn common_names(&self) -> BTreeMap<&'static str, String> {
        let mut names: BTreeMap<&'static str, BTreeSet<&str>> = BTreeMap::new();
        for (key, name) in self.series.iter().flat_map(Told::names) {
            names.entry(key).or_default().insert(name);
        }
        let agreed = names.into_iter().filter(|(_, names)| names.len() == 1);
        agreed.filter_map(|(key, names)| Some((key, names.first()?.to_string()))).collect()
    }

    /// What it used at a moment, by what it told under names that are known everywhere; the age is that of the
    /// oldest value.
    pub fn at(&self, at_us: u64, most_age_us: u64) -> Option<Moment> {
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

    /// One of our metrics, by the first of its names that is told in time.
    pub(super) fn known(&self, metric: Metric, at_us: u64, most_age_us: u64) -> Option<AsOfParts> {
        let names = KNOWN.iter().filter(|known| known.metric == metric);
        names.filter_map(|known| AsOfParts::of(known, &self.parts(known)?, at_us, most_age_us)).next()
    }

    /// The series that are parts of one value; none where they are more than that.
    fn parts(&self, known: &Known) -> Option<Vec<&Told>> {
        let parts: Vec<&Told> = self.series.iter().filter(|series| known.is_told_by(series)).collect();
        let first = parts.first()?;
        let same = |other: &&Told| {
            (&other.name, &other.unit, other.kind) == (&first.name, &first.unit, first.kind)
                && whole(other) == whole(first)
        };
        parts.iter().all(same).then_some(parts)
    }
}

/// A value that may have been told in parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AsOfParts {
    pub(super) value: Option<f64>,
    pub(super) per_second: Option<f64>,
    pub(super) age_us: u64,
}

impl AsOfParts {
    fn of(known: &Known, parts: &[&Told], at_us: u64, most_age_us: u64) -> Option<Self> {
        let worth = known.worth_of(&parts.first()?.unit)?;
        let told: Vec<AsOf> =
            parts.iter().filter_map(|part| as_of(&part.points, at_us, most_age_us)).collect();
        let age_us = told.iter().map(|part| part.age_us).min()?;
        // A part that is no longer told, such as threads in a state in which none is, counts no more.
        let last = told.iter().filter(|part| part.age_us - age_us <= ONE_REPORT_US);
        let sum: f64 = last.map(|part| part.value).sum();
        // What came since the last report is known, what came since the start is not.
        let is_whole = parts.iter().all(|part| part.kind != Kind::Delta);
        let grown: Vec<f64> = parts.iter().filter_map(|part| part.grows(at_us, most_age_us)).collect();
        Some(Self {
            value: is_whole.then_some(sum * worth).and_then(|value| known.sense(value)),
            per_second: (!grown.is_empty()).then(|| grown.iter().sum::<f64>() * worth),
            age_us,
        })
    }
}
