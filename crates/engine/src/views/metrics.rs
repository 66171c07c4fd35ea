//! Metrics over time, from all sources: campaigns have what platforms measured and instances exported, the slices
//! have what services sent.

use std::collections::BTreeMap;

use faultscope_model::TrialId;
use faultscope_model::metrics::{History, Kind, Metric, Sample, TimeSeries, increase};
use faultscope_store::{Reader, StoreError};
use serde::Serialize;

use super::archive::Archive;
use super::error::{Subject, ViewError};
use super::find::find_run;

/// The label of the instance.
const INSTANCE: &str = "service.instance.id";

/// Selects metrics.
#[derive(Debug, Clone, Default)]
pub struct MetricScope {
    /// Only this service.
    pub service: Option<String>,
    /// Only this instance.
    pub instance: Option<String>,
    /// Only this run, by any of its names; otherwise all campaigns and everything that was sent.
    pub run: Option<String>,
    /// Nothing before this time in microseconds since 1970; ignored if a run is named.
    pub from_us: u64,
}

/// The source of a metric; sorted by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricSource {
    /// Measured by a platform.
    Measured,
    /// Sent by the service on its own.
    Sent,
    /// The service exported it during a trial, scraped or pushed.
    #[serde(rename = "told")]
    Reported,
}

/// A row in the list of metrics.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricLine {
    /// The service that it describes; empty if unknown.
    pub service: String,
    /// The name of the metric.
    pub name: String,
    /// How its values relate to one another.
    pub kind: Kind,
    /// The unit in OpenTelemetry's notation.
    pub unit: String,
    /// Where it comes from.
    pub source: MetricSource,
    /// Number of series.
    pub series: usize,
    /// Number of points of all series.
    pub points: usize,
    /// The last point in microseconds since 1970.
    pub last_us: u64,
    /// The last value.
    pub last: f64,
}

/// One time series.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeriesView {
    /// The name of the metric.
    pub name: String,
    /// The service that it describes; empty if unknown.
    pub service: String,
    /// The instance that it describes, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// How its values relate to one another.
    pub kind: Kind,
    /// The unit in OpenTelemetry's notation.
    pub unit: String,
    /// Where it comes from.
    pub source: MetricSource,
    /// Other labels that distinguish it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Times in microseconds since 1970 with values.
    pub points: Vec<(u64, f64)>,
    /// The same points by process: slots run instances of one name side by side, and
    /// counters of different processes are unrelated.
    #[serde(skip)]
    processes: Vec<Vec<(u64, f64)>>,
    /// The number of points, if only the last one was read.
    #[serde(skip)]
    n_points: Option<usize>,
}

/// A series, prepared for drawing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Drawn {
    /// Times in microseconds since 1970 with values; growth per second if `grown` is set.
    pub points: Vec<(u64, f64)>,
    /// The total growth of a counter; none for values that are drawn as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown: Option<f64>,
    /// Minimum, maximum and last value; none without points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
}

/// The range of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// The minimum.
    pub low: f64,
    /// The maximum.
    pub high: f64,
    /// The last value.
    pub last: f64,
}

/// Lists the metrics of each service.
pub fn list_metrics(archive: &Archive, scope: &MetricScope) -> Result<Vec<MetricLine>, ViewError> {
    let mut lines: BTreeMap<(String, String, MetricSource), MetricLine> = BTreeMap::new();
    for series in read_series(archive, scope, None)? {
        let Some(&(last_us, last)) = series.points.last() else { continue };
        let key = (series.service.clone(), series.name.clone(), series.source);
        let line = lines.entry(key).or_insert(MetricLine {
            service: series.service,
            name: series.name,
            kind: series.kind,
            unit: series.unit,
            source: series.source,
            series: 0,
            points: 0,
            last_us: 0,
            last: 0.0,
        });
        line.series += 1;
        line.points += series.n_points.unwrap_or(series.points.len());
        if last_us >= line.last_us {
            (line.last_us, line.last) = (last_us, last);
        }
    }
    Ok(lines.into_values().collect())
}

/// All series of a metric.
pub fn show_metric(archive: &Archive, name: &str, scope: &MetricScope) -> Result<Vec<SeriesView>, ViewError> {
    let found = read_series(archive, scope, Some(name))?;
    if found.is_empty() {
        return Err(ViewError::NotFound { subject: Subject::Metric, name: name.to_owned() });
    }
    Ok(found)
}

impl SeriesView {
    fn new(series: TimeSeries, source: MetricSource, points: Vec<(u64, f64)>) -> Self {
        let TimeSeries { name, service, kind, unit, about } = series;
        let mut labels: BTreeMap<String, String> = about.into_iter().collect();
        let instance = labels.remove(INSTANCE);
        let processes = vec![points.clone()];
        Self { name, service, instance, kind, unit, source, labels, points, processes, n_points: None }
    }

    /// Its instance or service, followed by its labels.
    pub fn label(&self) -> String {
        let service = if self.service.is_empty() { "?" } else { &self.service };
        let labels = self.labels.iter().filter(|(key, _)| !key.starts_with("telemetry."));
        let labels = labels.map(|(key, value)| format!(" {key}={value}"));
        [self.instance.as_deref().unwrap_or(service).to_owned()].into_iter().chain(labels).collect()
    }

    /// Prepares it for drawing: a counter as its growth per second unless `raw`, everything else as it is.
    pub fn draw(&self, raw: bool) -> Drawn {
        let is_counted = self.kind == Kind::Counter && !raw;
        let points = if is_counted { rates(&self.processes) } else { self.points.clone() };
        let grown = is_counted.then(|| self.processes.iter().map(|points| increase(points)).sum());
        let values = || points.iter().map(|(_, value)| *value);
        let range = points.last().map(|(_, last)| Range {
            low: values().fold(f64::INFINITY, f64::min),
            high: values().fold(f64::NEG_INFINITY, f64::max),
            last: *last,
        });
        Drawn { points, grown, range }
    }

    /// The unit of its growth per second; seconds per second are cores and have none.
    pub fn rate_unit(&self) -> &str {
        if self.unit == "s" { "" } else { &self.unit }
    }

    fn key(&self) -> (&str, &str, String, &Option<String>, &BTreeMap<String, String>, MetricSource) {
        (&self.service, &self.name, self.label(), &self.instance, &self.labels, self.source)
    }
}

/// All series of a name, or of all names, with their points in the time window.
fn read_series(
    archive: &Archive,
    scope: &MetricScope,
    name: Option<&str>,
) -> Result<Vec<SeriesView>, ViewError> {
    let mut found = Vec::new();
    if let Some(wanted) = &scope.run {
        let run = find_run(&archive.store()?, wanted)?;
        let trial = Some(run.run.trial);
        read_campaign(&run.reader, trial, (0, u64::MAX), name, &mut found)?;
    } else {
        for campaign in archive.newest()? {
            let (_, reader) = campaign?;
            read_campaign(&reader, None, (scope.from_us, u64::MAX), name, &mut found)?;
        }
        read_sent(archive, name, scope.from_us, &mut found)?;
    }
    found.retain(|series| {
        !series.points.is_empty()
            && scope.service.as_ref().is_none_or(|service| *service == series.service)
            && scope.instance.as_ref().is_none_or(|instance| series.instance.as_ref() == Some(instance))
    });
    found.sort_by(|a, b| a.key().cmp(&b.key()));
    Ok(join_neighbours(found))
}

/// Joins the points of the same series in several campaigns.
fn join_neighbours(sorted: Vec<SeriesView>) -> Vec<SeriesView> {
    let mut joined: Vec<SeriesView> = Vec::new();
    for mut series in sorted {
        match joined.last_mut() {
            Some(last) if last.key() == series.key() => {
                last.points.append(&mut series.points);
                last.points.sort_by_key(|(at_us, _)| *at_us);
                last.processes.append(&mut series.processes);
            }
            _ => joined.push(series),
        }
    }
    joined
}

/// Series of a campaign: measured by its platform and exported by its instances.
fn read_campaign(
    reader: &Reader,
    trial: Option<TrialId>,
    between: (u64, u64),
    name: Option<&str>,
    found: &mut Vec<SeriesView>,
) -> Result<(), StoreError> {
    let wanted: Vec<Metric> =
        Metric::ALL.into_iter().filter(|metric| name.is_none_or(|name| metric.name() == name)).collect();
    if !wanted.is_empty() {
        let history = History::new(reader.samples_between(trial, between)?);
        for (instance, samples) in history.instances() {
            let mut processes: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
            for sample in samples {
                let process = sample.get(Metric::StartTime).map_or(0, f64::to_bits);
                processes.entry(process).or_default().push(sample);
            }
            let points = |samples: &[&Sample], metric: Metric| -> Vec<(u64, f64)> {
                samples.iter().filter_map(|sample| Some((sample.at_us, sample.get(metric)?))).collect()
            };
            found.extend(wanted.iter().map(|metric| SeriesView {
                name: metric.name().to_owned(),
                service: instance.service.to_string(),
                instance: Some(instance.to_string()),
                kind: metric.kind(),
                unit: metric.unit().to_owned(),
                source: MetricSource::Measured,
                labels: BTreeMap::new(),
                points: history.points(instance, *metric),
                processes: processes.values().map(|samples| points(samples, *metric)).collect(),
                n_points: None,
            }));
        }
    }
    for (series, points) in reader.points_between(trial, name, between)? {
        found.push(SeriesView::new(series, MetricSource::Reported, points));
    }
    Ok(())
}

/// Series that services sent, or that were scraped from outside.
fn read_sent(
    archive: &Archive,
    name: Option<&str>,
    from_us: u64,
    found: &mut Vec<SeriesView>,
) -> Result<(), StoreError> {
    if let Some(name) = name {
        let points = archive.spans().points(name, None, (from_us, u64::MAX))?;
        let views =
            points.into_iter().map(|(series, points)| SeriesView::new(series, MetricSource::Sent, points));
        found.extend(views);
        return Ok(());
    }
    for entry in archive.spans().series()?.into_iter().filter(|entry| entry.last_us >= from_us) {
        // A list needs only the count and the last point.
        let mut view = SeriesView::new(entry.series, MetricSource::Sent, vec![(entry.last_us, entry.last)]);
        view.n_points = Some(usize::try_from(entry.points).unwrap_or(usize::MAX));
        found.push(view);
    }
    Ok(())
}

/// The growth per second of counters of some processes.
fn rates(processes: &[Vec<(u64, f64)>]) -> Vec<(u64, f64)> {
    let rate = |pair: &[(u64, f64)]| {
        let seconds = (pair[1].0 - pair[0].0) as f64 / 1e6;
        (seconds > 0.0).then(|| (pair[1].0, increase(pair) / seconds))
    };
    let mut rates: Vec<_> = processes.iter().flat_map(|points| points.windows(2).filter_map(rate)).collect();
    rates.sort_by_key(|(at_us, _)| *at_us);
    rates
}
