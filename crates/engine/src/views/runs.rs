//! Stored runs: their list, and one run with its calls.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::metrics::{History, Summary};
use faultscope_model::outcome::Signature;
use faultscope_model::secrets::SecretNames;
use faultscope_model::span::adopt_orphans;
use faultscope_model::trace::{ReportedSpan, group_by_trace, report_call};
use faultscope_model::{Run, Span, SpanId, TraceId};
use faultscope_store::{CampaignMeta, Edge, joined};
use serde::Serialize;

use super::archive::{Archive, leave_out};
use super::call_tree::{CallTree, call_trees};
use super::error::{Subject, ViewError};
use super::failing_step::find_failing_traces;
use super::find::{FoundRun, find_run};
use super::logs::{LogExcerpt, RunLogs};
use super::span_metrics::{MetricsJoin, MetricsWanted, Missing, SpanMetrics};
use super::waterfall::{Waterfall, draw_waterfall};
use crate::stored;

/// A campaign with its runs, by trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CampaignRuns {
    /// The campaign; it may have no run yet.
    pub campaign: CampaignMeta,
    /// Its runs.
    pub runs: Vec<Run>,
}

/// The results of a run's tests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTests {
    /// Number of tests.
    pub all: usize,
    /// The failed ones, in order.
    pub failed: Vec<String>,
    /// The service that did not become ready, so that no test ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_failure: Option<Signature>,
}

/// A run with everything that is known about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// The run.
    pub run: Run,
    /// Its calls between services.
    pub map: Vec<Edge>,
    /// The resource usage of its instances.
    pub metrics: Vec<Summary>,
    /// Metrics of the called instance at the start of each call, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<Used>,
    /// Its calls, by start.
    pub spans: Vec<Span>,
    /// Spans that instances reported.
    pub reported: Vec<ReportedSpan>,
    /// What instances printed.
    #[serde(flatten)]
    pub logs: RunLogs,
    /// What was printed around failing calls.
    #[serde(skip)]
    pub excerpts: Vec<LogExcerpt>,
    /// The summary of its campaign, if the campaign was named.
    #[serde(skip)]
    pub summary: Option<String>,
    /// The calls as trees, those first that failed tests ended with.
    #[serde(skip)]
    pub trees: Vec<CallTree>,
    /// The traces of which instances reported spans of their own, joined with those.
    #[serde(skip)]
    pub waterfalls: BTreeMap<TraceId, Waterfall>,
    /// Requested metrics that were not found.
    #[serde(skip)]
    pub missing: Missing,
}

/// Metrics of the called instance at the start of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Used {
    /// The call.
    pub span: SpanId,
    /// The metrics.
    #[serde(flatten)]
    pub known: SpanMetrics,
}

/// The traces of a run whose ids start with a prefix.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunTrace {
    /// The calls that the mesh recorded.
    pub spans: Vec<Span>,
    /// The calls as trees.
    pub trees: Vec<CallTree>,
    /// The calls joined with reported spans; empty if there are none, since the trees then show everything.
    pub waterfalls: Vec<Waterfall>,
    /// Requested metrics that were not found for any call of the run.
    pub missing: Missing,
}

/// The newest campaigns with their runs.
pub fn list_runs(archive: &Archive, limit: usize) -> Result<Vec<CampaignRuns>, ViewError> {
    let mut listed = Vec::new();
    for campaign in archive.store()?.campaigns()?.into_iter().take(limit) {
        match campaign.reader().and_then(|reader| stored::runs(&reader)) {
            Ok(mut runs) => {
                runs.iter_mut().for_each(hide_settings);
                listed.push(CampaignRuns { campaign: campaign.meta, runs });
            }
            Err(error) => leave_out(&campaign, error)?,
        }
    }
    Ok(listed)
}

/// Shows a run by its id, its campaign, or `last`.
pub fn show_run(archive: &Archive, wanted: &str, metrics: &MetricsWanted) -> Result<RunView, ViewError> {
    let Read { found: FoundRun { reader, mut run, summary }, spans, history, used, join, missing } =
        Read::new(archive, wanted, metrics)?;
    hide_settings(&mut run);
    let logs = RunLogs::read(&reader, &run)?;
    let reported = joined(&[], reader.reported_in(run.trial)?);
    let failing = find_failing_traces(&run, &spans);
    let mut trees = nested_calls(&spans, &join);
    trees.sort_by_key(|tree| !failing.contains(&tree.trace));
    Ok(RunView {
        excerpts: logs.around_failures(&spans, &failing),
        logs,
        map: reader.edges(Some(run.trial))?,
        metrics: history.summaries(),
        trees,
        waterfalls: joined_traces(&spans, &reported, &join),
        reported,
        run,
        used,
        spans,
        summary,
        missing,
    })
}

/// Hides the values of secret settings. A stored run has them, since it can be deployed again.
pub fn hide_settings(run: &mut Run) {
    run.circumstance = run.circumstance.without_secrets(&SecretNames::default());
}

/// Shows one trace of a run, by the beginning of its id.
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
        let traces = group_by_trace(joined(&spans, reported), true);
        traces.into_iter().map(|spans| draw_waterfall(spans, false, &join)).collect()
    };
    Ok(RunTrace { trees: nested_calls(&spans, &join), spans, waterfalls, missing })
}

/// The calls as trees, also where services hand on spans that they report elsewhere.
fn nested_calls(spans: &[Span], join: &MetricsJoin) -> Vec<CallTree> {
    let mut spans = spans.to_vec();
    adopt_orphans(&mut spans);
    call_trees(&spans, join)
}

/// The traces of a run of which instances reported something, with what the mesh saw of them.
fn joined_traces(
    spans: &[Span],
    reported: &[ReportedSpan],
    join: &MetricsJoin,
) -> BTreeMap<TraceId, Waterfall> {
    // Some tracers keep half of an id.
    let half = |trace: TraceId| trace.0 as u64;
    let mut reports: BTreeMap<u64, Vec<ReportedSpan>> = BTreeMap::new();
    for span in reported {
        reports.entry(half(span.trace)).or_default().push(span.clone());
    }
    let traces: BTreeSet<TraceId> = spans.iter().map(|span| span.trace).collect();
    let draw = |trace: TraceId| {
        let mut all = reports.get(&half(trace))?.clone();
        all.extend(spans.iter().filter(|span| span.trace == trace).map(report_call));
        Some((trace, draw_waterfall(all, false, join)))
    };
    traces.into_iter().filter_map(draw).collect()
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

    /// Number of passed tests.
    pub fn passed(&self) -> usize {
        self.all - self.failed.len()
    }
}

/// The data of every view of a run.
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
