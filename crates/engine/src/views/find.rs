//! Finds runs, campaigns and traces as people name them: by an id, its beginning, or `last`.

use faultscope_model::event::Event;
use faultscope_model::trace::{ReportedSpan, TraceQuery};
use faultscope_model::{CampaignKind, Run};
use faultscope_store::interop::{read_trace_id, zipkin_trace_id};
use faultscope_store::{Reader, Store, StoreErrorKind, StoredCampaign};

use super::archive::{Archive, leave_out};
use super::error::{Subject, ViewError};
use crate::stored;

/// Names the newest one.
const LAST: &str = "last";

/// How many traces are searched for the beginning of an id, the latest first: an id that is typed was usually just
/// listed.
const MAX_TRACES: usize = 10_000;

/// Clocks of services may be ahead, so the search has no upper bound.
const END_OF_TIME_US: u64 = i64::MAX.cast_unsigned();

/// A run that was found.
#[derive(Debug)]
pub struct FoundRun {
    /// The reader of its campaign.
    pub reader: Reader,
    /// The run.
    pub run: Run,
    /// The summary of its campaign, if a debug campaign was named and this run shows its result.
    pub summary: Option<String>,
}

/// Finds a campaign by the beginning of its id.
pub fn find_campaign(store: &Store, wanted: &str) -> Result<StoredCampaign, ViewError> {
    campaign_named(store, wanted, wanted, Subject::Campaign)
}

/// Finds the campaign of a run, by the id of either.
pub fn find_campaign_of_run(store: &Store, wanted: &str) -> Result<StoredCampaign, ViewError> {
    let short = wanted.split('.').next().unwrap_or(wanted);
    campaign_named(store, short, wanted, Subject::Run)
}

/// Finds a run by its id, its campaign, or `last`.
pub fn find_run(store: &Store, wanted: &str) -> Result<FoundRun, ViewError> {
    if wanted == LAST {
        return last_run(store, |_| true);
    }
    // The id of a run is its campaign's short name and its trial, so a prefix of the campaign finds both.
    let (short, trial) = match wanted.split_once('.') {
        Some((short, trial)) => (short, Some(trial)),
        None => (wanted, None),
    };
    let campaign = campaign_named(store, short, wanted, Subject::Run)?;
    let found = match trial {
        None => telling_run(&campaign)?,
        Some(trial) => {
            let reader = campaign.reader()?;
            let run = stored::runs(&reader)?.into_iter().find(|run| run.trial.name() == trial);
            run.map(|run| FoundRun { reader, run, summary: None })
        }
    };
    found.ok_or_else(|| ViewError::NotFound { subject: Subject::Run, name: wanted.to_owned() })
}

/// As [`find_run`], where `last` is the last run of one application.
pub fn find_last_run_of(store: &Store, wanted: &str, application: &str) -> Result<FoundRun, ViewError> {
    if wanted == LAST { last_run(store, |name| name == application) } else { find_run(store, wanted) }
}

/// Finds a trace by its id, its beginning, or `last`: reported and recorded spans.
pub fn find_trace(archive: &Archive, wanted: &str) -> Result<Vec<ReportedSpan>, ViewError> {
    if wanted != LAST {
        let id = read_trace_id(wanted).map_err(|reason| ViewError::BadName {
            subject: Subject::Trace,
            name: wanted.to_owned(),
            reason: reason.to_owned(),
        })?;
        let spans = archive.spans().trace(id)?;
        if !spans.is_empty() {
            return Ok(spans);
        }
    }
    let latest = TraceQuery {
        end_us: END_OF_TIME_US,
        lookback_us: END_OF_TIME_US,
        limit: if wanted == LAST { 1 } else { MAX_TRACES },
        ..TraceQuery::default()
    };
    let mut found = archive.spans().search(&latest, |_, _| true)?;
    let beginning = wanted.to_ascii_lowercase();
    let id_of = |spans: &[ReportedSpan]| spans.first().map(|span| zipkin_trace_id(span.trace));
    let is_meant = |spans: &[ReportedSpan]| id_of(spans).is_some_and(|id| id.starts_with(&beginning));
    found.retain(|spans| wanted == LAST || is_meant(spans));
    let name = wanted.to_owned();
    match found.len() {
        0 if wanted == LAST => Err(ViewError::Empty(Subject::Trace)),
        0 => Err(ViewError::NotFound { subject: Subject::Trace, name }),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let candidates = found.iter().filter_map(|spans| id_of(spans)).collect();
            Err(ViewError::Ambiguous { subject: Subject::Trace, name, candidates })
        }
    }
}

fn campaign_named(
    store: &Store,
    prefix: &str,
    typed: &str,
    subject: Subject,
) -> Result<StoredCampaign, ViewError> {
    let error = match store.find_campaign(prefix) {
        Ok(campaign) => return Ok(campaign),
        Err(error) => error,
    };
    let name = typed.to_owned();
    match error.kind {
        // An invalid id (`../x`) names nothing either.
        StoreErrorKind::NotFound | StoreErrorKind::Invalid => Err(ViewError::NotFound { subject, name }),
        StoreErrorKind::Ambiguous => {
            let mut candidates: Vec<String> =
                store.campaigns()?.iter().map(|campaign| campaign.meta.id.to_string()).collect();
            candidates.retain(|id| id.starts_with(prefix));
            candidates.sort();
            Err(ViewError::Ambiguous { subject: Subject::Campaign, name: prefix.to_owned(), candidates })
        }
        _ => Err(error.into()),
    }
}

/// The newest run of some applications.
fn last_run(store: &Store, is_wanted: impl Fn(&str) -> bool) -> Result<FoundRun, ViewError> {
    for campaign in store.campaigns()?.into_iter().filter(|campaign| is_wanted(&campaign.meta.application)) {
        match telling_run(&campaign) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(ViewError::Unreadable(error)) => leave_out(&campaign, error)?,
            Err(error) => return Err(error),
        }
    }
    Err(ViewError::Empty(Subject::Run))
}

/// The most informative run of a campaign: the one with the cause that was found, else the last one.
fn telling_run(campaign: &StoredCampaign) -> Result<Option<FoundRun>, ViewError> {
    let reader = campaign.reader()?;
    let mut runs = stored::runs(&reader)?;
    let report: Option<serde_json::Value> = campaign.report()?;
    let witness = report.as_ref().and_then(|report| report["causes"][0]["run"].as_str());
    let place = witness.and_then(|id| runs.iter().position(|run| run.id.as_str() == id));
    let run = match place {
        Some(place) => Some(runs.swap_remove(place)),
        None => runs.pop(),
    };
    let summary = match campaign.meta.kind {
        CampaignKind::Debug => {
            campaign.events::<Event>(0)?.events.into_iter().rev().find_map(|logged| match logged.event {
                Event::CampaignFinished { summary } => Some(summary),
                _ => None,
            })
        }
        _ => None,
    };
    Ok(run.map(|run| FoundRun { reader, run, summary }))
}
