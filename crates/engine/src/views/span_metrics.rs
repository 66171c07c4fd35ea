//! What was known of an instance when it began to handle a span: measured by a platform, or reported by the
//! instance itself.

use std::collections::BTreeSet;

use faultscope_model::metrics::{
    Handler, History, MOST_TOLD_AGE_US, Moment, SeriesSelector, SeriesValue, Told, ToldHistory, is_known,
};
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{Span, TraceId, TrialId};
use faultscope_store::slices::{SeriesFound, SeriesQuery};
use faultscope_store::{Reader, StoreError};
use serde::Serialize;

use super::archive::Archive;
use super::error::ViewError;

/// A sample that is older than this says nothing about a call: platforms measure every second or so.
const MOST_AGE_US: u64 = 5_000_000;

/// Which metrics are wanted beside spans.
#[derive(Debug, Clone, Default)]
pub struct MetricsWanted {
    /// Processor, memory, threads and the like.
    pub usage: bool,
    /// Series by their names.
    pub series: Vec<SeriesSelector>,
}

/// Metrics of the instances in a trace or run, ready to be looked up span by span.
#[derive(Debug, Default)]
pub struct MetricsJoin {
    wanted: MetricsWanted,
    measured: History,
    told: ToldHistory,
    services: BTreeSet<String>,
    is_cut: bool,
}

/// Who says what an instance used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UseSource {
    /// The platform.
    Measured,
    /// The instance, or whoever reports about it.
    Told,
}

/// What was known of the instance that handled a span when it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpanMetrics {
    /// Its name, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Where `used` comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<UseSource>,
    /// What it used.
    #[serde(flatten)]
    pub used: Option<Moment>,
    /// The series that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesValue>,
}

/// What was asked for and not found beside any span.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Missing {
    /// The services whose instances were looked at.
    pub services: Vec<String>,
    /// Whether nothing is known of what they used, though it was asked for.
    pub usage: bool,
    /// Selectors that no series matches.
    pub series: Vec<String>,
    /// Whether there was more than fits into memory, so that a part is missing.
    pub is_cut: bool,
}

impl MetricsWanted {
    /// Whether anything is wanted.
    pub fn is_any(&self) -> bool {
        self.usage || !self.series.is_empty()
    }

    fn may_be(&self, name: &str) -> bool {
        self.usage && is_known(name) || self.series.iter().any(|wanted| wanted.may_be(name))
    }
}

impl MetricsJoin {
    /// Reads what is known of the instances in a trace; nothing is read where nothing is wanted.
    pub fn read_for_trace(
        archive: &Archive,
        spans: &[ReportedSpan],
        wanted: &MetricsWanted,
    ) -> Result<Self, ViewError> {
        let starts = || spans.iter().filter_map(|span| span.start_us);
        let (Some(first), Some(last), true) = (starts().min(), starts().max(), wanted.is_any()) else {
            return Ok(Self::default());
        };
        let handlers: Vec<Handler> = spans.iter().filter_map(Handler::of).collect();
        // One sample behind the end, for rates.
        let around = |age: u64| (first.saturating_sub(age), last.saturating_add(age));
        let services: BTreeSet<String> = handlers.iter().map(|handler| handler.service.clone()).collect();
        let names = |name: &str| wanted.may_be(name);
        let query = SeriesQuery { services: &services, names: &names, between: around(MOST_TOLD_AGE_US) };
        let traces: BTreeSet<TraceId> = spans.iter().map(|span| span.trace).collect();
        let (mut samples, mut told, mut is_cut) = (Vec::new(), Vec::new(), false);
        let campaigns = archive.newest()?.collect::<Result<Vec<_>, _>>()?;
        for (campaign, reader) in &campaigns {
            for trial in trials_of(reader, &traces)? {
                samples.extend(reader.samples_between(Some(trial), around(MOST_AGE_US))?);
                let found = reader.told_in(trial, &query)?;
                is_cut |= found.is_cut;
                let run = format!("{}.{trial}", campaign.meta.id);
                told.extend(to_told(found).map(|told| told.in_run(&run)));
            }
        }
        if samples.is_empty() {
            // Spans came from outside; what runs in `up` may have sent them.
            for (_, reader) in &campaigns {
                samples.extend(reader.samples_between(None, around(MOST_AGE_US))?);
            }
        }
        let sent = archive.spans().many(&query)?;
        is_cut |= sent.is_cut;
        told.extend(to_told(sent));
        let (measured, told) = (History::new(samples), ToldHistory::new(told, &handlers));
        Ok(Self { wanted: wanted.clone(), measured, told, services, is_cut })
    }

    /// Reads what is known of the instances in a run, beside what was measured of them.
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
        let names = |name: &str| wanted.may_be(name);
        let query = SeriesQuery { services: &services, names: &names, between: (0, u64::MAX) };
        let found = reader.told_in(trial, &query)?;
        let is_cut = found.is_cut;
        let told = ToldHistory::new(to_told(found), []);
        Ok(Self { wanted: wanted.clone(), measured, told, services, is_cut })
    }

    /// What was known of whoever handled a reported span.
    pub fn of_span(&self, span: &ReportedSpan) -> Option<SpanMetrics> {
        self.known_at(&Handler::of(span)?, span.start_us?)
    }

    /// What was known of the called instance.
    pub fn of_call(&self, span: &Span) -> Option<SpanMetrics> {
        self.known_at(&Handler::from(span.callee_instance.as_ref()?), span.start_us)
    }

    /// What was asked for and is in none of the answers.
    pub fn missing<'f>(&self, found: impl IntoIterator<Item = &'f SpanMetrics>) -> Missing {
        let found: Vec<&SpanMetrics> = found.into_iter().collect();
        let is_found = |wanted: &SeriesSelector| {
            found.iter().flat_map(|known| &known.series).any(|series| wanted.may_be(&series.name))
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
        let measured = instance.as_ref().and_then(|id| self.measured.at(id, at_us, MOST_AGE_US));
        let told = self.told.instance(handler);
        let used = measured.map(|moment| (UseSource::Measured, moment)).or_else(|| {
            let moment = told?.at(at_us, MOST_TOLD_AGE_US)?;
            Some((UseSource::Told, moment))
        });
        let (source, used) = used.filter(|_| self.wanted.usage).unzip();
        let values_of = |wanted: &SeriesSelector| {
            let ours = wanted.metric().zip(measured.as_ref());
            if let Some(value) = ours.and_then(|(metric, moment)| SeriesValue::measured(metric, moment)) {
                return vec![value];
            }
            told.map(|told| told.series_at(wanted, at_us, MOST_TOLD_AGE_US)).unwrap_or_default()
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

/// The trials in which any of some traces was seen.
fn trials_of(reader: &Reader, traces: &BTreeSet<TraceId>) -> Result<BTreeSet<TrialId>, StoreError> {
    let mut all = BTreeSet::new();
    for trace in traces {
        all.append(&mut reader.trials_of(*trace)?);
    }
    Ok(all)
}

fn to_told(found: SeriesFound) -> impl Iterator<Item = Told> {
    found.series.into_iter().map(|(series, points)| {
        Told::new(series.name, &series.service, series.kind, points.into_iter().collect())
            .in_unit(&series.unit)
            .about(series.about)
    })
}
