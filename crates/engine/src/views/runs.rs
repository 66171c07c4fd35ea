//! Stored runs: the list of them, and one with its calls.

use std::collections::BTreeSet;

use faultscope_model::metrics::{History, Summary};
use faultscope_model::outcome::Signature;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{Run, Span, SpanId};
use faultscope_store::interop::trace::group;
use faultscope_store::{CampaignMeta, Edge, joined};
use serde::Serialize;

use super::archive::Archive;
use super::call_tree::{CallTree, call_trees};
use super::error::{Subject, ViewError};
use super::find::{FoundRun, find_run};
use super::span_metrics::{MetricsJoin, MetricsWanted, Missing, SpanMetrics};
use super::waterfall::{Waterfall, draw_waterfall};
use crate::stored;

/// A campaign with its runs, in the order of their trials.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CampaignRuns {
    /// The campaign; it may have no run yet.
    pub campaign: CampaignMeta,
    /// Its runs.
    pub runs: Vec<Run>,
}

/// What became of the tests of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTests {
    /// The number of tests that were run.
    pub all: usize,
    /// Those that failed, in their order.
    pub failed: Vec<String>,
    /// The service that did not come up, so that no test was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<Signature>,
}

/// A run with everything that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// The run.
    pub run: Run,
    /// Who called whom in it.
    pub map: Vec<Edge>,
    /// What its instances used in all.
    pub metrics: Vec<Summary>,
    /// What was known of the called instance when each call began, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<Used>,
    /// Its calls, by their start.
    pub spans: Vec<Span>,
    /// What instances reported themselves.
    pub reported: Vec<ReportedSpan>,
    /// What its campaign came to, where the campaign was named.
    #[serde(skip)]
    pub summary: Option<String>,
    /// The calls as trees.
    #[serde(skip)]
    pub trees: Vec<CallTree>,
    /// Metrics that were asked for in vain.
    #[serde(skip)]
    pub missing: Missing,
}

/// What was known of a called instance when the call began.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Used {
    /// The call.
    pub span: SpanId,
    /// What was known.
    #[serde(flatten)]
    pub known: SpanMetrics,
}

/// The traces of a run whose ids begin as was asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTrace {
    /// The calls that the mesh saw.
    pub spans: Vec<Span>,
    /// The calls as trees.
    pub trees: Vec<CallTree>,
    /// The calls joined with what instances reported; none where they reported nothing, and the trees say it all.
    pub waterfalls: Vec<Waterfall>,
    /// Metrics that were asked for in vain, beside any call of the run.
    pub missing: Missing,
}

/// The newest campaigns with their runs.
pub fn list_runs(archive: &Archive, limit: usize) -> Result<Vec<CampaignRuns>, ViewError> {
    let mut listed = Vec::new();
    for campaign in archive.store()?.campaigns()?.into_iter().take(limit) {
        let runs = stored::runs(&campaign.reader()?)?;
        listed.push(CampaignRuns { campaign: campaign.meta, runs });
    }
    Ok(listed)
}

/// A run by its id, its campaign, or `last`.
pub fn show_run(archive: &Archive, wanted: &str, metrics: &MetricsWanted) -> Result<RunView, ViewError> {
    let Read { found: FoundRun { reader, run, summary }, spans, history, used, join, missing } =
        Read::new(archive, wanted, metrics)?;
    Ok(RunView {
        map: reader.edges(Some(run.trial))?,
        metrics: history.summaries(),
        reported: joined(&[], reader.reported_in(run.trial)?),
        trees: call_trees(&spans, &join),
        run,
        used,
        spans,
        summary,
        missing,
    })
}

/// One trace of a run, by the first letters of its id.
pub fn show_run_trace(
    archive: &Archive,
    wanted: &str,
    trace: &str,
    metrics: &MetricsWanted,
) -> Result<RunTrace, ViewError> {
    let Read { found: FoundRun { reader, run, .. }, mut spans, join, missing, .. } =
        Read::new(archive, wanted, metrics)?;
    spans.retain(|span| span.trace.to_string().starts_with(trace));
    if spans.is_empty() {
        return Err(ViewError::NotFound { subject: Subject::TraceOfRun, name: trace.to_owned() });
    }
    let mut reported = Vec::new();
    for trace in spans.iter().map(|span| span.trace).collect::<BTreeSet<_>>() {
        // Other trials of the campaign may have used the same trace id.
        reported.extend(reader.reported_of_trace(trace)?.into_iter().filter(|span| span.trial == run.trial));
    }
    let waterfalls = if reported.is_empty() {
        Vec::new()
    } else {
        let traces = group(joined(&spans, reported), true);
        traces.into_iter().map(|spans| draw_waterfall(spans, false, &join)).collect()
    };
    Ok(RunTrace { trees: call_trees(&spans, &join), spans, waterfalls, missing })
}

impl RunTests {
    /// Counts the tests of a run.
    pub fn count(run: &Run) -> Self {
        let tests = &run.evidence.tests;
        let failed = tests.iter().filter(|test| test.failure.is_some());
        Self {
            all: tests.len(),
            failed: failed.map(|test| test.test.clone()).collect(),
            start_failure: run.evidence.start_failure(),
        }
    }

    /// The number of tests that passed.
    pub fn passed(&self) -> usize {
        self.all - self.failed.len()
    }
}

/// What every view of a run is made of.
struct Read {
    found: FoundRun,
    spans: Vec<Span>,
    history: History,
    used: Vec<Used>,
    join: MetricsJoin,
    missing: Missing,
}

impl Read {
    fn new(archive: &Archive, wanted: &str, metrics: &MetricsWanted) -> Result<Self, ViewError> {
        let found = find_run(&archive.store()?, wanted)?;
        let trial = found.run.trial;
        let spans = found.reader.spans_of(trial)?;
        let history = History::new(found.reader.samples_of(Some(trial))?);
        let join = MetricsJoin::read_for_run(&found.reader, trial, &spans, history.clone(), metrics)?;
        let known = |span: &Span| Some(Used { span: span.id, known: join.of_call(span)? });
        let used: Vec<Used> = spans.iter().filter_map(known).collect();
        let missing = join.missing(used.iter().map(|used| &used.known));
        Ok(Self { found, spans, history, used, join, missing })
    }
}
