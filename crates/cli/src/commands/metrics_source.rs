//! Where metrics come from: campaigns have what platforms measured and what instances told, the slices what
//! services sent.

use std::collections::BTreeMap;
use std::path::Path;

use faultscope_model::metrics::{History, Kind, Metric, Moment, Sample};
use faultscope_model::{InstanceId, TrialId};
use faultscope_store::slices::{Series, SpanReader};
use faultscope_store::{Reader, Store, StoreError, StoreErrorKind};
use serde::Serialize;

use super::metrics::Where;
use super::runs::Found;
use super::traces::{micros, now_us};
use crate::error::CommandError;
use crate::project;
use crate::render::waterfall::plain;

/// Campaigns that are looked at.
const MOST_CAMPAIGNS: usize = 50;
/// What was not measured for so long before the last sample runs no more.
const LATELY_US: u64 = 60_000_000;
/// The label of the instance that a series is about.
const INSTANCE: &str = "service.instance.id";

/// One series, whoever measured it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) service: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instance: Option<String>,
    pub(super) kind: Kind,
    pub(super) unit: String,
    /// `measured` by a platform, `told` when asked, or `sent` by the service.
    pub(super) source: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    /// Microseconds since 1970, and values.
    pub(super) points: Vec<(u64, f64)>,
    /// The same points by the process they were measured in: slots run instances of one name side by side, and
    /// counters of different processes have nothing to do with one another.
    #[serde(skip)]
    pub(super) processes: Vec<Vec<(u64, f64)>>,
    /// How many there are, where only the last one was read.
    #[serde(skip)]
    pub(super) n_points: Option<usize>,
}

/// What an instance used when it was measured last.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Latest {
    pub(super) instance: InstanceId,
    pub(super) at_us: u64,
    #[serde(flatten)]
    pub(super) used: Moment,
}

/// The last samples of the newest campaign that has any.
pub(super) fn latest(state: &Path) -> Result<Vec<Latest>, CommandError> {
    for campaign in Store::open(state)?.campaigns()?.into_iter().take(MOST_CAMPAIGNS) {
        let samples = match campaign.reader().and_then(|reader| reader.latest_samples(LATELY_US)) {
            Ok(samples) => samples,
            // Just being removed.
            Err(error) if error.kind == StoreErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let history = History::new(samples);
        if !history.is_empty() {
            let last = |(instance, samples): (&InstanceId, &[Sample])| {
                let at_us = samples.last()?.at_us;
                let used = history.at(instance, at_us, u64::MAX)?;
                Some(Latest { instance: instance.clone(), at_us, used })
            };
            return Ok(history.instances().filter_map(last).collect());
        }
    }
    Ok(Vec::new())
}

/// All series of a name, or all there are, with their points in the wanted time.
pub(super) fn lines(folder: &Path, of: &Where, name: Option<&str>) -> Result<Vec<Line>, CommandError> {
    let state = project::state_folder(folder);
    if !state.is_dir() {
        return Err(CommandError::usage(format!("there are no metrics at {}", state.display()))
            .hint("they lie beside the application file: name its folder, or run `faultscope test` first"));
    }
    let store = Store::open(&state)?;
    let mut lines = Vec::new();
    if let Some(run) = &of.run {
        let Found { reader, run, .. } = super::runs::find(&store, run)?;
        let samples = || reader.samples_of(Some(run.trial));
        measured(&reader, Some(run.trial), (0, u64::MAX), samples, name, &mut lines)?;
    } else {
        let from_us = now_us().saturating_sub(micros(&of.since)?);
        for campaign in store.campaigns()?.into_iter().take(MOST_CAMPAIGNS) {
            let reader = match campaign.reader() {
                Ok(reader) => reader,
                // Just being removed.
                Err(error) if error.kind == StoreErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            let between = (from_us, u64::MAX);
            let samples = || reader.samples_between(None, between);
            measured(&reader, None, between, samples, name, &mut lines)?;
        }
        sent(&SpanReader::open(&state, true), name, from_us, &mut lines)?;
    }
    lines.retain(|line| !line.points.is_empty() && of.service.as_ref().is_none_or(|s| *s == line.service));
    lines.sort_by(|a, b| {
        let key = |line: &Line| (line.service.clone(), line.name.clone(), line.label());
        key(a).cmp(&key(b))
    });
    Ok(join(lines))
}

/// Points of the same series in several campaigns become one line.
fn join(lines: Vec<Line>) -> Vec<Line> {
    let mut joined: Vec<Line> = Vec::new();
    for mut line in lines {
        match joined.last_mut() {
            Some(last) if last.is_same(&line) => {
                last.points.append(&mut line.points);
                last.points.sort_by_key(|(at_us, _)| *at_us);
                last.processes.append(&mut line.processes);
            }
            _ => joined.push(line),
        }
    }
    joined
}

/// What a campaign has: what its platform measured and what its instances told.
fn measured(
    reader: &Reader,
    trial: Option<TrialId>,
    between: (u64, u64),
    samples: impl FnOnce() -> Result<Vec<Sample>, StoreError>,
    name: Option<&str>,
    lines: &mut Vec<Line>,
) -> Result<(), CommandError> {
    let wanted: Vec<Metric> =
        Metric::ALL.into_iter().filter(|metric| name.is_none_or(|name| metric.name() == name)).collect();
    if !wanted.is_empty() {
        let history = History::new(samples()?);
        for (instance, samples) in history.instances() {
            let mut started: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
            for sample in samples {
                let process = sample.get(Metric::StartTime).map_or(0, f64::to_bits);
                started.entry(process).or_default().push(sample);
            }
            let points = |samples: &[&Sample], metric: Metric| -> Vec<(u64, f64)> {
                samples.iter().filter_map(|sample| Some((sample.at_us, sample.get(metric)?))).collect()
            };
            lines.extend(wanted.iter().map(|metric| Line {
                name: metric.name().to_owned(),
                service: instance.service.to_string(),
                instance: Some(instance.to_string()),
                kind: metric.kind(),
                unit: metric.unit().to_owned(),
                source: "measured",
                labels: BTreeMap::new(),
                points: history.points(instance, *metric),
                processes: started.values().map(|samples| points(samples, *metric)).collect(),
                n_points: None,
            }));
        }
    }
    for (series, points) in reader.points_between(trial, name, between)? {
        lines.push(Line::of(series, "told", points));
    }
    Ok(())
}

/// What services sent, and what was asked from outside.
fn sent(
    reader: &SpanReader,
    name: Option<&str>,
    from_us: u64,
    lines: &mut Vec<Line>,
) -> Result<(), CommandError> {
    if let Some(name) = name {
        let found = reader.points(name, None, (from_us, u64::MAX))?;
        lines.extend(found.into_iter().map(|(series, points)| Line::of(series, "sent", points)));
        return Ok(());
    }
    for entry in reader.series()?.into_iter().filter(|entry| entry.last_us >= from_us) {
        // A list needs only how many there are and the last one.
        let mut line = Line::of(entry.series, "sent", vec![(entry.last_us, entry.last)]);
        line.n_points = Some(usize::try_from(entry.points).unwrap_or(usize::MAX));
        lines.push(line);
    }
    Ok(())
}

impl Line {
    fn of(series: Series, source: &'static str, points: Vec<(u64, f64)>) -> Self {
        let Series { name, service, kind, unit, about } = series;
        let mut labels: BTreeMap<String, String> = about.into_iter().collect();
        let instance = labels.remove(INSTANCE);
        let processes = vec![points.clone()];
        Self { name, service, instance, kind, unit, source, labels, points, processes, n_points: None }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.service, &self.instance, &self.labels, self.source)
            == (&other.name, &other.service, &other.instance, &other.labels, other.source)
    }

    /// Its instance and labels, short.
    pub(super) fn label(&self) -> String {
        let name =
            self.instance.as_deref().unwrap_or(if self.service.is_empty() { "?" } else { &self.service });
        let labels = self.labels.iter().filter(|(key, _)| !key.starts_with("telemetry."));
        let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        let text = if labels.is_empty() { name.to_owned() } else { format!("{name} {}", labels.join(" ")) };
        plain(&text).chars().take(60).collect()
    }

    /// The unit of its growth for each second; seconds for each second are cores.
    pub(super) fn rate_unit(&self) -> &str {
        if self.unit == "s" { "" } else { &self.unit }
    }
}
