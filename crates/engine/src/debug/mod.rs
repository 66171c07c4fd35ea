//! Delta debugging as a campaign: start-up checks, search, cause, evidence (paper 1, section 4).

mod difference;
mod report;

pub use report::{DebugReport, Difference, FoundCause, NamedDelta, Trials, Verdict};

use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::outcome::Signature;
use faultscope_model::series::CallName;
use faultscope_model::{DeltaSet, Outcome, Run, SlotId, Space, Span, TrialId};
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::campaign::{self, Brief, Finished};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// The start-up checks have numbers of their own, beyond any search's.
const CHECKS: u64 = 900_000;

/// How the next trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Bayesian group testing: the fewest trials.
    #[default]
    Bayes,
    /// The paper's sequential reference.
    Ddmin,
    /// The paper's parallel algorithm.
    DdminPar,
}

/// What can be chosen about a debug campaign.
#[derive(Debug, Clone, Default)]
pub struct DebugOptions {
    /// How the next trials are chosen.
    pub strategy: Strategy,
    /// Go on after the first cause until none is left.
    pub all: bool,
    /// The test that fails; the only one that does when none is named.
    pub test: Option<String>,
    /// Run only the failing test, not the others beside it.
    pub only_failing_test: bool,
}

/// Reduces the failing circumstance of a session's application to a minimal cause.
pub async fn debug(
    session: &Arc<Session>,
    options: &DebugOptions,
    stop: &CancellationToken,
) -> Result<DebugReport, EngineError> {
    let started = Instant::now();
    let application = session.application();
    let space = application.space().map_err(|e| EngineError::Internal(e.to_string()))?;
    let mut tests = application.tests.clone();
    let named = options.test.clone().or_else(|| application.failing_test.clone());
    if let (true, Some(name)) = (options.only_failing_test, &named) {
        tests.retain(|test| &test.name == name);
    }
    let mut report = DebugReport::new(session, &space, options.strategy);
    if space.deltas.is_empty() {
        report.verdict = Verdict::NoDeltas;
        return Ok(report);
    }
    let checks = check_both_ends(session, &space, &tests, stop).await?;
    let Some((simplest, failing)) = checks else {
        report.verdict = Verdict::Stopped;
        return Ok(report);
    };
    report.trials.finished += 2;
    let wanted = match wanted(session, &failing, named.as_deref()) {
        Ok(wanted) => wanted,
        Err(verdict) => {
            report.verdict = verdict;
            report.took = started.elapsed();
            return Ok(report);
        }
    };
    report.signature = Some(wanted.clone());
    if let Some(verdict) = refuse_simplest(&simplest, &wanted) {
        report.verdict = verdict;
        report.took = started.elapsed();
        return Ok(report);
    }
    let space = Arc::new(learn_orders(session, space, &simplest).await?);
    let problem = Problem::of(&space);
    let mut search: Box<dyn Search + Send> = match options.strategy {
        Strategy::Bayes => {
            let bayes =
                BayesOptions { seed: session.options.seed, all: options.all, ..BayesOptions::default() };
            Box::new(Bayes::new(problem, bayes))
        }
        Strategy::Ddmin => Box::new(Ddmin::new(problem)),
        Strategy::DdminPar => Box::new(DdminPar::new(problem)),
    };
    let brief = Brief { space: (*space).clone(), tests, wanted: Some(wanted) };
    let finished = campaign::run(session, &brief, &mut *search, stop).await?;
    fill(&mut report, &space, &*search, &finished);
    report.verdict = if finished.stopped { Verdict::Stopped } else { Verdict::Reduced };
    let runs: Vec<&Run> = finished.runs.iter().chain([&simplest, &failing]).collect();
    report.difference = difference::first_difference(session, &runs, &report).await?;
    report.took = started.elapsed();
    session.events().emit(Event::Note { text: report.summary() });
    Ok(report)
}

/// Runs the simplest and the failing circumstance, at the same time where there are two slots.
async fn check_both_ends(
    session: &Arc<Session>,
    space: &Space,
    tests: &[TestCase],
    stop: &CancellationToken,
) -> Result<Option<(Run, Run)>, EngineError> {
    let request = |number: u64, deltas: DeltaSet| -> Result<TrialRequest, EngineError> {
        Ok(TrialRequest {
            trial: TrialId(CHECKS + number),
            circumstance: space.circumstance(&deltas)?,
            deltas,
            tests: tests.to_vec(),
            wanted: None,
        })
    };
    let (simplest, failing) = (request(1, DeltaSet::new())?, request(2, space.full())?);
    let ends = if session.slots.len() > 1 {
        let (first, second) =
            tokio::join!(session.trial(SlotId(0), &simplest, stop), session.trial(SlotId(1), &failing, stop));
        (first?, second?)
    } else {
        let first = session.trial(SlotId(0), &simplest, stop).await?;
        (first, session.trial(SlotId(0), &failing, stop).await?)
    };
    match ends {
        (TrialEnd::Finished(simplest), TrialEnd::Finished(failing)) => Ok(Some((*simplest, *failing))),
        _ => Ok(None),
    }
}

/// The failure to look for: that of the named test, or of the only test that fails with all deltas.
fn wanted(session: &Session, failing: &Run, named: Option<&str>) -> Result<Signature, Verdict> {
    if let Outcome::Unresolved { reason } = &failing.outcome {
        return Err(Verdict::Unresolved { reason: reason.clone() });
    }
    let signatures = signatures(session, failing);
    match (signatures.as_slice(), named) {
        ([], _) => Err(Verdict::NotReproduced),
        ([only], None) => Ok(only.clone()),
        ([only], Some(name)) if only.test == name => Ok(only.clone()),
        (several, _) => Err(Verdict::OtherTestsFail {
            named: named.map(ToOwned::to_owned),
            failing: several.iter().map(|s| s.test.clone()).collect(),
        }),
    }
}

fn signatures(session: &Session, run: &Run) -> Vec<Signature> {
    let pattern_of = |name: &str| {
        let test = session.application().tests.iter().find(|t| t.name == name);
        // The pattern was checked when the file was read.
        test.and_then(|t| t.failure.as_deref()).and_then(|p| regex::Regex::new(p).ok())
    };
    run.evidence.tests.iter().filter_map(|t| t.signature(pattern_of(&t.test).as_ref())).collect()
}

fn refuse_simplest(simplest: &Run, wanted: &Signature) -> Option<Verdict> {
    match &simplest.outcome {
        Outcome::Pass => None,
        Outcome::Fail { signature } if signature.test == wanted.test => Some(Verdict::FailsAlready),
        Outcome::Fail { signature } => Some(Verdict::Unresolved {
            reason: format!("in the simplest circumstance another test fails: {signature}"),
        }),
        Outcome::Unresolved { reason } => {
            Some(Verdict::Unresolved { reason: format!("the simplest circumstance: {reason}") })
        }
    }
}

/// Takes the order in which callers make their calls from the spans of the simplest circumstance.
async fn learn_orders(session: &Session, mut space: Space, simplest: &Run) -> Result<Space, EngineError> {
    if space.series.iter().all(|series| series.order_known) {
        return Ok(space);
    }
    let spans = session.spans_of(simplest.trial).await?;
    for index in 0..space.series.len() {
        let seen = request_order(&space, index, &spans);
        if !seen.is_empty() {
            space = space.with_request_order(index, &seen);
        }
    }
    Ok(space)
}

/// The calls of a series in the order of their start, in the first handling that makes all of them.
fn request_order(space: &Space, index: usize, spans: &[Span]) -> Vec<CallName> {
    let series = &space.series[index];
    let is_handling = |s: &&Span| s.callee == series.from && series.handling.matches(&s.method, &s.path);
    for handling in spans.iter().filter(is_handling) {
        let mut made: Vec<&Span> = spans.iter().filter(|s| s.parent == Some(handling.id)).collect();
        made.sort_by_key(|s| s.start_us);
        let mut seen: Vec<CallName> = Vec::new();
        for span in made {
            // The n-th such call of the handling is the one with ordinal n.
            let matching = |call: &&CallName| {
                call.callee == span.callee
                    && call.operation.matches(&span.method, &span.path)
                    && !seen.contains(call)
            };
            if let Some(call) = series.calls.iter().filter(matching).min_by_key(|call| call.ordinal) {
                seen.push(call.clone());
            }
        }
        if seen.len() == series.calls.len() {
            return seen;
        }
    }
    Vec::new()
}

fn fill(report: &mut DebugReport, space: &Space, search: &dyn Search, finished: &Finished) {
    let standing = search.standing();
    let named = |set: &DeltaSet| -> Vec<NamedDelta> {
        let mut deltas: Vec<_> = set.iter().map(|d| NamedDelta::of(&space.deltas[d])).collect();
        deltas.sort_by(|a, b| (a.dimension, &a.name).cmp(&(b.dimension, &b.name)));
        deltas
    };
    let run_of = |set: &DeltaSet| finished.runs.iter().find(|r| &r.deltas == set).map(|r| r.id.clone());
    let cause = |cause: &faultscope_search::Cause| FoundCause {
        deltas: named(if cause.core.is_empty() { &cause.witness } else { &cause.core }),
        witness: named(&cause.witness),
        minimal: matches!(
            cause.proof,
            faultscope_search::Proof::Minimal | faultscope_search::Proof::MinimalDespiteUnresolved
        ),
        run: run_of(&cause.witness),
    };
    report.causes = standing.causes.iter().map(cause).collect();
    if report.causes.is_empty() && search.is_done() {
        // A search for one cause answers with the smallest set that failed.
        let only = faultscope_search::Cause {
            witness: standing.best.clone(),
            proof: standing.proof,
            ..faultscope_search::Cause::default()
        };
        report.causes.push(cause(&only));
    }
    report.best = named(&standing.best);
    report.none_left = standing.none_left;
    report.trials.finished += finished.runs.len();
    report.trials.cancelled = finished.cancelled;
    report.trials.unresolved =
        finished.runs.iter().filter(|r| matches!(r.outcome, Outcome::Unresolved { .. })).count();
}
