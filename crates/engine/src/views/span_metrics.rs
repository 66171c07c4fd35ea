//! Metrics of an instance at the start of a span: measured by a platform, or exported by the
//! instance itself.

use std::collections::BTreeSet;

use faultscope_model::metrics::{
    Handler, History, MAX_REPORTED_AGE_US, Moment, ReportedHistory, ReportedSeries, SeriesSelector,
    SeriesValue, is_metric_name,
};
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{Span, TraceId, TrialId};
use faultscope_store::spans::{SeriesFound, SeriesQuery};
use faultscope_store::{Reader, StoreError};
use serde::Serialize;

use super::archive::Archive;
use super::error::ViewError;

/// Older samples are not used for a call: platforms measure about every second.
const MAX_AGE_US: u64 = 5_000_000;

/// The metrics to show next to spans.
#[derive(Debug, Clone, Default)]
pub struct MetricsWanted {
    /// CPU, memory, threads and the like.
    pub usage: bool,
    /// Exported time series.
    pub series: Vec<SeriesSelector>,
}

/// Metrics of the instances in a trace or run, prepared for look-ups span by span.
#[derive(Debug, Default)]
pub struct MetricsJoin {
    wanted: MetricsWanted,
    measured: History,
    told: ReportedHistory,
    services: BTreeSet<String>,
    is_cut: bool,
}

/// The source of resource usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UseSource {
    /// Measured by the platform.
    Measured,
    /// Exported by the instance, or by a collector beside it.
    #[serde(rename = "told")]
    Reported,
}

/// Metrics of the instance that handled a span, at its start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpanMetrics {
    /// The name of the instance, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The source of `used`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<UseSource>,
    /// Its resource usage.
    #[serde(flatten)]
    pub used: Option<Moment>,
    /// The requested series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesValue>,
}

/// Requested metrics that were not found for any span.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Missing {
    /// The services whose instances were searched.
    pub services: Vec<String>,
    /// Whether resource usage was requested but not found.
    pub usage: bool,
    /// Selectors that no series matches.
    pub series: Vec<String>,
    /// Whether there was too much to read, so that some is missing.
    pub is_cut: bool,
}

impl MetricsWanted {
    /// Whether any metric is requested.
    pub fn is_any(&self) -> bool {
        self.usage || !self.series.is_empty()
    }

    fn may_match(&self, name: &str) -> bool {
        self.usage && is_metric_name(name) || self.series.iter().any(|wanted| wanted.may_match(name))
    }
}

impl MetricsJoin {
    /// Reads the metrics of the instances in a trace; reads nothing if none are requested.
    pub fn read_for_trace(
        archive: &Archive,
        spans: &[ReportedSpan],
        wanted: &MetricsWanted,
    ) -> Result<Self, ViewError> {
        let starts = || spans.iter().filter_map(|span| span.start_us);
        let (Some(first), Some(last), true) = (starts().min(), starts().max(), wanted.is_any()) else {
            return Ok(Self::default());
        };
        let handlers: Vec<Handler> = spans.iter().filter_map(Handler::from_span).collect();
        // One sample after the end, for rates.
        let around = |age: u64| (first.saturating_sub(age), last.saturating_add(age));
        let services: BTreeSet<String> = handlers.iter().map(|handler| handler.service.clone()).collect();
        let names = |name: &str| wanted.may_match(name);
        let query = SeriesQuery { services: &services, names: &names, between: around(MAX_REPORTED_AGE_US) };
        let traces: BTreeSet<TraceId> = spans.iter().map(|span| span.trace).collect();
        let (mut samples, mut told, mut is_cut) = (Vec::new(), Vec::new(), false);
        let campaigns = archive.newest()?.collect::<Result<Vec<_>, _>>()?;
        for (campaign, reader) in &campaigns {
            for trial in trials_of(reader, &traces)? {
                samples.extend(reader.samples_between(Some(trial), around(MAX_AGE_US))?);
                let found = reader.exported_points(trial, &query)?;
                is_cut |= found.is_cut;
                let run = format!("{}.{trial}", campaign.meta.id);
                told.extend(to_reported(found).map(|told| told.in_run(&run)));
            }
        }
        if samples.is_empty() {
            // Spans came from outside; instances of `up` may have sent them.
            for (_, reader) in &campaigns {
                samples.extend(reader.samples_between(None, around(MAX_AGE_US))?);
            }
        }
        let sent = archive.spans().many(&query)?;
        is_cut |= sent.is_cut;
        told.extend(to_reported(sent));
        let (measured, told) = (History::new(samples), ReportedHistory::new(told, &handlers));
        Ok(Self { wanted: wanted.clone(), measured, told, services, is_cut })
    }

    /// Reads the metrics of the instances in a run, given their samples.
    pub fn read_for_run(
        reader: &Reader,
        trial: TrialId,
        spans: &[Span],
        measured: History,
        wanted: &MetricsWanted,
    ) -> Result<Self, ViewError> {
        if !wanted.is_any() {
            return Ok(Self::default());
        }
        let called = spans.iter().filter_map(|span| span.callee_instance.as_ref());
        let services = called.map(|instance| Handler::from(instance).service).collect();
        let names = |name: &str| wanted.may_match(name);
        let query = SeriesQuery { services: &services, names: &names, between: (0, u64::MAX) };
        let found = reader.exported_points(trial, &query)?;
        let is_cut = found.is_cut;
        let told = ReportedHistory::new(to_reported(found), []);
        Ok(Self { wanted: wanted.clone(), measured, told, services, is_cut })
    }

    /// The metrics of the instance that handled a reported span.
    pub fn of_span(&self, span: &ReportedSpan) -> Option<SpanMetrics> {
        self.known_at(&Handler::from_span(span)?, span.start_us?)
    }

    /// The metrics of the called instance.
    pub fn of_call(&self, span: &Span) -> Option<SpanMetrics> {
        self.known_at(&Handler::from(span.callee_instance.as_ref()?), span.start_us)
    }

    /// The requested metrics that none of the results has.
    pub fn missing<'f>(&self, found: impl IntoIterator<Item = &'f SpanMetrics>) -> Missing {
        let found: Vec<&SpanMetrics> = found.into_iter().collect();
        let is_found = |wanted: &SeriesSelector| {
            found.iter().flat_map(|known| &known.series).any(|series| wanted.may_match(&series.name))
        };
        let lacking = self.wanted.series.iter().filter(|wanted| !is_found(wanted));
        Missing {
            services: self.services.iter().cloned().collect(),
            usage: self.wanted.usage && found.iter().all(|known| known.used.is_none()),
            series: lacking.map(ToString::to_string).collect(),
            is_cut: self.is_cut,
        }
    }

    fn known_at(&self, handler: &Handler, at_us: u64) -> Option<SpanMetrics> {
        let instance = self.measured.instance(handler);
        let measured = instance.as_ref().and_then(|id| self.measured.usage_at(id, at_us, MAX_AGE_US));
        let told = self.told.instance(handler);
        let used = measured.map(|moment| (UseSource::Measured, moment)).or_else(|| {
            let moment = told?.usage_at(at_us, MAX_REPORTED_AGE_US)?;
            Some((UseSource::Reported, moment))
        });
        let (source, used) = used.filter(|_| self.wanted.usage).unzip();
        let values_of = |wanted: &SeriesSelector| {
            let ours = wanted.metric().zip(measured.as_ref());
            if let Some(value) = ours.and_then(|(metric, moment)| SeriesValue::measured(metric, moment)) {
                return vec![value];
            }
            told.map(|told| told.series_at(wanted, at_us, MAX_REPORTED_AGE_US)).unwrap_or_default()
        };
        let series: Vec<_> = self.wanted.series.iter().flat_map(values_of).collect();
        if used.is_none() && series.is_empty() {
            return None;
        }
        let told_name = || told.and_then(|told| told.name()).map(str::to_owned);
        let instance = instance.map(|id| id.to_string()).or_else(told_name);
        Some(SpanMetrics { instance, source, used, series })
    }
}

/// The trials that have spans of some traces.
fn trials_of(reader: &Reader, traces: &BTreeSet<TraceId>) -> Result<BTreeSet<TrialId>, StoreError> {
    let mut all = BTreeSet::new();
    for trace in traces {
        all.append(&mut reader.trials_of(*trace)?);
    }
    Ok(all)
}

fn to_reported(found: SeriesFound) -> impl Iterator<Item = ReportedSeries> {
    found.series.into_iter().map(|(series, points)| {
        ReportedSeries::new(series.name, &series.service, series.kind, points.into_iter().collect())
            .in_unit(&series.unit)
            .about(series.about)
    })
}
