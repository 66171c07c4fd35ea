//! Finds what a replay sends again: the requests of a trace, or of a whole run.

use std::collections::BTreeSet;

use faultscope_model::capture::{RecordedOrders, recorded_orders};
use faultscope_model::recording::Recording;
use faultscope_model::{Application, CampaignKind, Run, ServiceName, Span, TraceId};
use faultscope_store::secrets::{Key, KeyPlace};
use faultscope_store::{CampaignMeta, Reader};

use super::archive::Archive;
use super::error::{Subject, ViewError};
use super::find::{FoundRun, find_campaign_of_run, find_run, find_trace};
use crate::stored;

/// A recording with what is known about its origin.
#[derive(Debug)]
pub struct FoundRecording {
    /// The requests.
    pub recording: Recording,
    /// The command that recorded them.
    pub kind: CampaignKind,
    /// The run that they were recorded in.
    pub run: Run,
    /// The reader of its campaign.
    pub reader: Reader,
    /// All calls without headers and bodies, those between services included.
    pub calls: Vec<Span>,
    /// Orders of concurrent calls that a replay can impose.
    pub orders: RecordedOrders,
}

/// Recorded calls with what is known about their origin.
#[derive(Debug)]
pub struct FoundCalls {
    /// The calls.
    pub calls: Vec<Span>,
    /// The application that was recorded.
    pub application: String,
    /// The command that recorded them.
    pub kind: CampaignKind,
    /// The run that they were recorded in.
    pub run: Run,
    /// The reader of its campaign.
    pub reader: Reader,
}

/// Finds the calls of traces, each by its id, its beginning, or `last`. All must be of one run. With secrets if that is
/// wanted and the key of this machine is there.
pub fn find_calls_of_traces(
    archive: &Archive,
    wanted: &[String],
    with_secrets: bool,
) -> Result<FoundCalls, ViewError> {
    let mut traces: BTreeSet<TraceId> = BTreeSet::new();
    for name in wanted {
        traces.extend(find_trace(archive, name)?.first().map(|span| span.trace));
    }
    let not_found = || ViewError::NotFound { subject: Subject::Trace, name: wanted.join(" ") };
    let key = if with_secrets { own_key()? } else { None };
    for found in archive.newest()? {
        let (campaign, reader) = found?;
        let mut calls = Vec::new();
        for trace in &traces {
            calls.extend(match &key {
                Some(key) => reader.restored_spans_of_trace(*trace, key)?,
                None => reader.spans_of_trace(*trace)?,
            });
        }
        if calls.is_empty() {
            continue;
        }
        let start = calls.iter().map(|call| call.start_us).min().unwrap_or_default();
        // A trace begins in the last run that had begun by then.
        let runs = stored::runs(&reader)?;
        let run = runs.into_iter().filter(|run| run.started_us <= start).max_by_key(|run| run.started_us);
        let run = run.ok_or_else(not_found)?;
        let CampaignMeta { application, kind, .. } = campaign.meta;
        return Ok(FoundCalls { calls, application, kind, run, reader });
    }
    Err(not_found())
}

/// Finds all calls of a run, by its id, its campaign, or `last`; with secrets as in [`find_calls_of_traces`].
pub fn find_calls_of_run(
    archive: &Archive,
    wanted: &str,
    with_secrets: bool,
) -> Result<FoundCalls, ViewError> {
    let store = archive.store()?;
    let FoundRun { reader, run, .. } = find_run(&store, wanted)?;
    let CampaignMeta { application, kind, .. } = find_campaign_of_run(&store, run.id.as_str())?.meta;
    let key = if with_secrets { own_key()? } else { None };
    let calls = match &key {
        Some(key) => reader.restored_spans_of(run.trial, key)?,
        None => reader.spans_of(run.trial)?,
    };
    Ok(FoundCalls { calls, application, kind, run, reader })
}

/// Finds the requests of traces, each by its id, its beginning, or `last`. All must be of one run.
pub fn find_traces_to_replay(
    archive: &Archive,
    wanted: &[String],
    application: &Application,
) -> Result<FoundRecording, ViewError> {
    Ok(recording_of(find_calls_of_traces(archive, wanted, true)?, application))
}

/// Finds all requests of a run, by its id, its campaign, or `last`.
pub fn find_run_to_replay(
    archive: &Archive,
    wanted: &str,
    application: &Application,
) -> Result<FoundRecording, ViewError> {
    Ok(recording_of(find_calls_of_run(archive, wanted, true)?, application))
}

/// The key of this machine, if there is one.
fn own_key() -> Result<Option<Key>, ViewError> {
    match KeyPlace::user_default() {
        Ok(place) => Ok(Key::load(&place)?),
        Err(_) => Ok(None),
    }
}

fn recording_of(found: FoundCalls, application: &Application) -> FoundRecording {
    let FoundCalls { mut calls, kind, run, reader, .. } = found;
    let descriptors = reader.descriptors();
    calls.iter_mut().for_each(|call| call.decode_bodies(&descriptors));
    let is_service = |service: &ServiceName| application.services.contains_key(service);
    let mut recording = Recording::from_calls(calls.clone(), is_service);
    for request in &mut recording.requests {
        let Some(service) = application.services.get(&request.callee) else { continue };
        // A system that was recorded elsewhere may have other ports; then the first one is meant.
        if !service.ports.iter().any(|own| own.port == request.port)
            && let Some(first) = service.ports.first()
        {
            request.port = first.port;
        }
    }
    calls.iter_mut().for_each(|call| call.payload = None);
    let orders = recorded_orders(application, &calls);
    FoundRecording { recording, kind, run, reader, calls, orders }
}
