//! Finds what a replay sends again: the requests of a trace, or of a whole run.

use std::collections::BTreeSet;

use faultscope_model::capture::{RecordedOrders, recorded_orders};
use faultscope_model::recording::Recording;
use faultscope_model::{Application, CampaignKind, Run, ServiceName, Span, TraceId};
use faultscope_store::Reader;
use faultscope_store::secrets::{Key, KeyPlace};

use super::archive::Archive;
use super::error::{Subject, ViewError};
use super::find::{find_campaign_of_run, find_run, find_trace};
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

impl FoundRecording {
    fn new(
        mut calls: Vec<Span>,
        kind: CampaignKind,
        run: Run,
        reader: Reader,
        application: &Application,
    ) -> Self {
        let recording = recording_of(calls.clone(), application);
        calls.iter_mut().for_each(|call| call.payload = None);
        let orders = recorded_orders(application, &calls);
        Self { recording, kind, run, reader, calls, orders }
    }
}

/// Finds the requests of traces, each by its id, its beginning, or `last`. All must be of one run.
pub fn find_traces_to_replay(
    archive: &Archive,
    wanted: &[String],
    application: &Application,
) -> Result<FoundRecording, ViewError> {
    let mut traces: BTreeSet<TraceId> = BTreeSet::new();
    for name in wanted {
        traces.extend(find_trace(archive, name)?.first().map(|span| span.trace));
    }
    let not_found = || ViewError::NotFound { subject: Subject::Trace, name: wanted.join(" ") };
    for found in archive.newest()? {
        let (campaign, reader) = found?;
        let mut calls = Vec::new();
        for trace in &traces {
            calls.extend(restored(&reader, |reader, key| match key {
                Some(key) => reader.restored_spans_of_trace(*trace, key),
                None => reader.spans_of_trace(*trace),
            })?);
        }
        if calls.is_empty() {
            continue;
        }
        let start = calls.iter().map(|call| call.start_us).min().unwrap_or_default();
        // A trace begins in the last run that had begun by then.
        let runs = stored::runs(&reader)?;
        let run = runs.into_iter().filter(|run| run.started_us <= start).max_by_key(|run| run.started_us);
        let run = run.ok_or_else(not_found)?;
        return Ok(FoundRecording::new(calls, campaign.meta.kind, run, reader, application));
    }
    Err(not_found())
}

/// Finds all requests of a run, by its id, its campaign, or `last`.
pub fn find_run_to_replay(
    archive: &Archive,
    wanted: &str,
    application: &Application,
) -> Result<FoundRecording, ViewError> {
    let store = archive.store()?;
    let found = find_run(&store, wanted)?;
    let kind = find_campaign_of_run(&store, found.run.id.as_str())?.meta.kind;
    let trial = found.run.trial;
    let calls = restored(&found.reader, |reader, key| match key {
        Some(key) => reader.restored_spans_of(trial, key),
        None => reader.spans_of(trial),
    })?;
    Ok(FoundRecording::new(calls, kind, found.run, found.reader, application))
}

/// Calls with their secrets, if the key of this machine is there.
fn restored(
    reader: &Reader,
    read: impl FnOnce(&Reader, Option<&Key>) -> Result<Vec<Span>, faultscope_store::StoreError>,
) -> Result<Vec<Span>, ViewError> {
    let key = match KeyPlace::user_default() {
        Ok(place) => Key::load(&place)?,
        Err(_) => None,
    };
    let mut calls = read(reader, key.as_ref())?;
    let descriptors = reader.descriptors();
    calls.iter_mut().for_each(|call| call.decode_bodies(&descriptors));
    Ok(calls)
}

fn recording_of(calls: Vec<Span>, application: &Application) -> Recording {
    let is_service = |service: &ServiceName| application.services.contains_key(service);
    let mut recording = Recording::from_calls(calls, is_service);
    for request in &mut recording.requests {
        let Some(service) = application.services.get(&request.callee) else { continue };
        // A system that was recorded elsewhere may have other ports; then the first one is meant.
        if !service.ports.iter().any(|own| own.port == request.port)
            && let Some(first) = service.ports.first()
        {
            request.port = first.port;
        }
    }
    recording
}
