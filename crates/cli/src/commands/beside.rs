//! What was known of instances when their spans began: measured by a platform, or told by themselves. It stands
//! beside the spans of `traces show` and the calls of `runs show`.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use faultscope_model::metrics::{
    Handler, History, MOST_TOLD_AGE_US, Moment, SeriesSelector, SeriesValue, Told, ToldHistory, is_known,
};
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{Span, TraceId, TrialId};
use faultscope_store::slices::{SeriesFound, SeriesQuery, SpanReader};
use faultscope_store::{Reader, Store, StoreError, StoreErrorKind};
use serde::Serialize;

use crate::error::CommandError;
use crate::printer::Printer;
use crate::project;
use crate::render::usage::MOST_AGE_US;

/// Campaigns that are looked at.
const MOST_CAMPAIGNS: usize = 50;

#[derive(Debug, Args)]
pub(crate) struct BesideArgs {
    /// Show beside each span what the instance that handled it used when it began.
    #[arg(long)]
    metrics: bool,
    /// Show beside each span a series that the instance told, as of its start; repeat for several. Labels choose among
    /// series of one name: `orders{kind=pay}`.
    #[arg(long = "metric", value_name = "NAME")]
    series: Vec<SeriesSelector>,
}

/// What was known, and what of it is wanted.
#[derive(Debug, Default)]
pub(crate) struct Beside<'a> {
    measured: History,
    told: ToldHistory,
    with_use: bool,
    wanted: &'a [SeriesSelector],
    services: BTreeSet<String>,
}

/// Who says what an instance used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// The platform.
    Measured,
    /// The instance, or whoever reports about it.
    Told,
}

/// What was known of the instance that handled a span when it began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Joined {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<Source>,
    #[serde(flatten)]
    pub(crate) used: Option<Moment>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) series: Vec<SeriesValue>,
}

impl BesideArgs {
    /// Whether anything is wanted.
    pub(crate) fn is_any(&self) -> bool {
        self.metrics || !self.series.is_empty()
    }

    fn may_be(&self, name: &str) -> bool {
        self.metrics && is_known(name) || self.series.iter().any(|wanted| wanted.may_be(name))
    }

    /// What is known of the instances in a trace; nothing is read where nothing is wanted.
    pub(crate) fn of_trace(
        &self,
        folder: &Path,
        spans: &[ReportedSpan],
        printer: &Printer,
    ) -> Result<Beside<'_>, CommandError> {
        let handlers: Vec<Handler> = spans.iter().filter_map(Handler::of).collect();
        let starts = || spans.iter().filter_map(|span| span.start_us);
        let (Some(first), Some(last), true) = (starts().min(), starts().max(), self.is_any()) else {
            return Ok(Beside::default());
        };
        // One sample behind the end, for rates.
        let around = |age: u64| (first.saturating_sub(age), last.saturating_add(age));
        let services: BTreeSet<String> = handlers.iter().map(|who| who.service.clone()).collect();
        let names = |name: &str| self.may_be(name);
        let query = SeriesQuery { services: &services, names: &names, between: around(MOST_TOLD_AGE_US) };
        let traces: BTreeSet<TraceId> = spans.iter().map(|span| span.trace).collect();
        let state = project::state_folder(folder);
        let (mut samples, mut series) = (Vec::new(), Vec::new());
        let campaigns = Store::open(&state)?.campaigns()?;
        for campaign in campaigns.iter().take(MOST_CAMPAIGNS) {
            let mut read = || -> Result<(), StoreError> {
                let reader = campaign.reader()?;
                for trial in trials(&reader, &traces)? {
                    samples.extend(reader.samples_between(Some(trial), around(MOST_AGE_US))?);
                    let run = format!("{}.{trial}", campaign.meta.id);
                    series.extend(told(reader.told_in(trial, &query)?, Some(&run), printer));
                }
                Ok(())
            };
            unless_gone(read())?;
        }
        if samples.is_empty() {
            // Spans came from outside; what runs in `up` may have sent them.
            for campaign in campaigns.iter().take(MOST_CAMPAIGNS) {
                let read =
                    campaign.reader().and_then(|reader| reader.samples_between(None, around(MOST_AGE_US)));
                samples.extend(unless_gone(read)?.into_iter().flatten());
            }
        }
        series.extend(told(SpanReader::open(&state, true).many(&query)?, None, printer));
        Ok(self.beside(History::new(samples), ToldHistory::new(series, &handlers), services))
    }

    /// What is known of the instances in a run.
    pub(crate) fn of_run(
        &self,
        reader: &Reader,
        trial: TrialId,
        spans: &[Span],
        measured: History,
        printer: &Printer,
    ) -> Result<Beside<'_>, CommandError> {
        if !self.is_any() {
            return Ok(Beside::default());
        }
        let services = spans.iter().filter_map(|span| span.callee_instance.as_ref());
        let services = services.map(|instance| Handler::from(instance).service).collect();
        let names = |name: &str| self.may_be(name);
        let query = SeriesQuery { services: &services, names: &names, between: (0, u64::MAX) };
        let series = told(reader.told_in(trial, &query)?, None, printer);
        Ok(self.beside(measured, ToldHistory::new(series, []), services))
    }

    fn beside(&self, measured: History, told: ToldHistory, services: BTreeSet<String>) -> Beside<'_> {
        Beside { measured, told, with_use: self.metrics, wanted: &self.series, services }
    }
}

impl Beside<'_> {
    /// What was known of whoever handled a reported span.
    pub(crate) fn of_span(&self, span: &ReportedSpan) -> Option<Joined> {
        self.joined(&Handler::of(span)?, span.start_us?)
    }

    /// What was known of the called instance.
    pub(crate) fn of_call(&self, span: &Span) -> Option<Joined> {
        self.joined(&Handler::from(span.callee_instance.as_ref()?), span.start_us)
    }

    fn joined(&self, who: &Handler, at_us: u64) -> Option<Joined> {
        let instance = self.measured.instance(who);
        let measured = instance.as_ref().and_then(|id| self.measured.at(id, at_us, MOST_AGE_US));
        let told = self.told.instance(who);
        let used = measured.map(|moment| (Source::Measured, moment)).or_else(|| {
            let moment = told?.at(at_us, MOST_TOLD_AGE_US)?;
            Some((Source::Told, moment))
        });
        let (source, used) = used.filter(|_| self.with_use).unzip();
        let one = |wanted: &SeriesSelector| {
            let ours = wanted.metric().zip(measured.as_ref());
            if let Some(value) = ours.and_then(|(metric, moment)| SeriesValue::measured(metric, moment)) {
                return vec![value];
            }
            told.map(|told| told.series_at(wanted, at_us, MOST_TOLD_AGE_US)).unwrap_or_default()
        };
        let series: Vec<_> = self.wanted.iter().flat_map(one).collect();
        if used.is_none() && series.is_empty() {
            return None;
        }
        let told_name = || told.and_then(|told| told.name()).map(str::to_owned);
        let instance = instance.map(|id| id.to_string()).or_else(told_name);
        Some(Joined { instance, source, used, series })
    }

    /// Says what was looked for in vain.
    pub(crate) fn say_missing<'j>(&self, found: impl IntoIterator<Item = &'j Joined>, printer: &Printer) {
        let found: Vec<_> = found.into_iter().collect();
        let services: Vec<_> = self.services.iter().map(String::as_str).collect();
        let services = crate::render::waterfall::plain(&services.join(", "));
        if self.with_use && found.iter().all(|joined| joined.used.is_none()) {
            printer.talk(format!(
                "what instances of {services} used was neither measured nor told when these spans began"
            ));
        }
        for wanted in self.wanted {
            let names = |joined: &&&Joined| joined.series.iter().any(|series| wanted.may_be(&series.name));
            if !found.iter().any(|joined| names(&joined)) {
                printer.talk(format!(
                    "`{wanted}` was not told of the instances of {services} within two minutes before these spans; \
                     `faultscope metrics ls` lists what there is"
                ));
            }
        }
    }
}

/// The trials in which any of some traces was seen.
fn trials(reader: &Reader, traces: &BTreeSet<TraceId>) -> Result<BTreeSet<TrialId>, StoreError> {
    let mut all = BTreeSet::new();
    for trace in traces {
        all.append(&mut reader.trials_of(*trace)?);
    }
    Ok(all)
}

/// What was found, as series of a run or of nobody's.
fn told<'f>(
    found: SeriesFound,
    run: Option<&'f str>,
    printer: &Printer,
) -> impl Iterator<Item = Told> + use<'f> {
    if found.is_cut {
        printer.warn("more was told around these spans than fits into memory; a part is left out");
    }
    found.series.into_iter().map(move |(series, points)| {
        let points = points.into_iter().collect();
        let told = Told::new(series.name, &series.service, series.kind, points)
            .in_unit(&series.unit)
            .about(series.about);
        match run {
            Some(run) => told.in_run(run),
            None => told,
        }
    })
}

/// A campaign that is just being removed knows nothing.
fn unless_gone<T>(read: Result<T, StoreError>) -> Result<Option<T>, CommandError> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
