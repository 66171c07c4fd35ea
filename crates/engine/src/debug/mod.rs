//! Delta debugging as a campaign: start-up checks, search, cause, evidence (paper 1, section 4).

mod answer;
mod checks;
mod difference;
mod options;
mod orders;
mod report;

pub use options::{DebugOptions, Strategy};
pub use report::{DebugReport, Difference, FoundCause, NamedDelta, Trials, Verdict};

use std::sync::Arc;

use faultscope_model::Run;
use faultscope_model::event::Event;
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::campaign::{self, Brief};
use crate::error::EngineError;
use crate::session::Session;

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
    let checks = checks::check_both_ends(session, &space, &tests, stop).await?;
    let Some((simplest, failing)) = checks else {
        report.verdict = Verdict::Stopped;
        return Ok(report);
    };
    report.trials.finished += 2;
    let wanted = match checks::wanted(session, &failing, named.as_deref()) {
        Ok(wanted) => wanted,
        Err(verdict) => {
            report.verdict = verdict;
            report.took = started.elapsed();
            return Ok(report);
        }
    };
    report.signature = Some(wanted.clone());
    if let Some(verdict) = checks::refuse_simplest(&simplest, &wanted) {
        report.verdict = verdict;
        report.took = started.elapsed();
        return Ok(report);
    }
    let space = Arc::new(orders::learn_orders(session, space, &simplest).await?);
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
    answer::fill(&mut report, &space, &*search, &finished);
    report.verdict = if finished.stopped { Verdict::Stopped } else { Verdict::Reduced };
    let runs: Vec<&Run> = finished.runs.iter().chain([&simplest, &failing]).collect();
    report.difference = difference::first_difference(session, &runs, &report).await?;
    report.took = started.elapsed();
    session.events().emit(Event::Note { text: report.summary() });
    Ok(report)
}
