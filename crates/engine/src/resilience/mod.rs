//! Resilience as a campaign: existing tests, perturbed; every defect found, each minimal (paper 2, and beyond).

mod answers;
mod baseline;
mod confirm;
mod explore;
mod gather;
mod ground;
mod notes;
mod options;
mod phase;
mod report;
mod shown;
mod tally;
mod trace;

pub use options::{ResilienceOptions, Strategy};
pub use report::{Defect, Flaky, ResilienceReport, TestReport, TraceStep, Trials, UnresolvedTrials, Verdict};
pub use tally::{Finding, OutageResult, SetsTried, Shown, SkipReason, Skipped, Tally};

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::application::{TestCase, test_named};
use faultscope_model::event::Event;
use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::{Application, CampaignId, CampaignKind, Run, TrialRole};
use faultscope_store::Store;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drive::{Unperturbed, failing_operations};
use crate::driver::{Budget, Driver, Foundations, find_unfinished};
use crate::error::EngineError;
use crate::session::Session;
use explore::Explorer;
use notes::ExercisedDeclarations;

/// Finds out which perturbations the tests of a session's application do not tolerate.
pub async fn resilience(
    session: &Arc<Session>,
    options: &ResilienceOptions,
    stop: &CancellationToken,
) -> Result<ResilienceReport, EngineError> {
    let started = Instant::now();
    let budget = Budget { trials: options.most_trials, time: options.most_time };
    let mut driver = Driver::open(session, &Foundations::new(session, options), budget, stop)?;
    let Explored { tests, not_begun, warnings } = explore(&mut driver, options).await?;
    let mut tally = Tally::default();
    tests.iter().for_each(|test| tally += test.tally);
    let report = ResilienceReport {
        tally,
        campaign: session.id().to_string(),
        application: session.application().name.clone(),
        strategy: options.strategy,
        seed: session.options.seed,
        verdict: report::overall(&tests),
        tests,
        not_begun,
        warnings,
        took: started.elapsed(),
    };
    session.events().emit(Event::Summary { text: report.summary() });
    Ok(report)
}

/// The resilience campaign to go on with: the one that is named, or the newest of this application that has
/// no answer yet.
pub fn unfinished(
    store: &Store,
    application: &Application,
    named: Option<&str>,
) -> Result<CampaignId, EngineError> {
    find_unfinished(store, CampaignKind::Resilience, application, named)
}

/// What a campaign found out.
struct Explored {
    tests: Vec<TestReport>,
    /// Tests that it did not come to.
    not_begun: Vec<String>,
    warnings: Vec<String>,
}

async fn explore(driver: &mut Driver, options: &ResilienceOptions) -> Result<Explored, EngineError> {
    let session = driver.session().clone();
    let mut explorer =
        Explorer { session: &session, driver, options, known: ExercisedDeclarations::default() };
    let all = &session.application().tests;
    let chosen: Vec<TestCase> = match options.tests.as_slice() {
        [] => all.clone(),
        names => {
            let mut seen = BTreeSet::new();
            names.iter().filter(|name| seen.insert(*name)).filter_map(|name| test_named(all, name)).collect()
        }
    };
    let mut explored = Vec::new();
    let mut is_cut_short = false;
    for test in &chosen {
        let tested = explorer.explore(test).await?;
        is_cut_short = matches!(tested.report.verdict, Verdict::Stopped | Verdict::OutOfBudget);
        explored.push(tested);
        if is_cut_short {
            break;
        }
    }
    if !is_cut_short {
        // Larger sets are many and seldom find anything, so every test has its single ones first.
        let most = options.most_together.max(if options.larger_with_rest { 2 } else { 1 });
        let is_extra = options.most_together < most;
        let trials = explored.iter().map(|tested| tested.report.trials.all()).sum();
        if explored.iter().any(|tested| tested.report.trials.all() > tested.report.trials.baseline) {
            session.events().emit(Event::SinglesDone { trials, most });
        }
        for tested in explored.iter_mut().filter(|_| most > 1) {
            explorer.explore_larger(most, is_extra, tested).await?;
            if tested.stopped.is_some() {
                break;
            }
        }
    }
    let not_begun = chosen[explored.len()..].iter().map(|test| test.name.clone()).collect();
    let tests: Vec<TestReport> = explored.into_iter().map(|tested| explorer.finish(tested)).collect();
    // Other tests may exercise what the chosen ones do not.
    let knows_all = options.tests.is_empty() && !is_cut_short;
    let warnings = if knows_all { explorer.known.warnings(session.application()) } else { Vec::new() };
    Ok(Explored { tests, not_begun, warnings })
}

/// Runs a test once with exactly these perturbations, within a time other than its own if one is given; none
/// when it was stopped.
pub async fn reproduce(
    session: &Arc<Session>,
    test: &str,
    perturbations: Vec<Perturbation>,
    within: Option<Duration>,
    stop: &CancellationToken,
) -> Result<Option<Run>, EngineError> {
    let test = test_named(&session.application().tests, test);
    let test = test.ok_or_else(|| EngineError::Internal("the test is not there".into()))?;
    let test = &TestCase { within: within.unwrap_or(test.within), ..test.clone() };
    let tolerant = perturbations.iter().any(|perturbation| !perturbation.is_neutral());
    let mut driver = Driver::new(session, Budget::default(), stop);
    let mut known = Unperturbed::default();
    if perturbations.iter().any(|perturbation| perturbation.kind == Kind::Outage) {
        // What can be expected of the test after an outage is what it shows without one.
        let alone = phase::request_alone(session, test, true);
        let Some(alone) = driver.run_all([(TrialRole::Baseline, alone)]).await? else { return Ok(None) };
        if let Some(trace) = alone.into_iter().find_map(|trial| trial.trace) {
            (known.failing, known.repetition) = (failing_operations(&trace.spans), trace.repetition);
        }
    }
    let request = phase::request(session, test, perturbations, tolerant, known);
    let finished = driver.run_all([(TrialRole::Search, request)]).await?;
    Ok(finished.and_then(|trials| trials.into_iter().next()).map(|trial| trial.run))
}
