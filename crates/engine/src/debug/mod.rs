//! Delta debugging as a campaign: start-up checks, search, cause, evidence (paper 1, section 4).

mod answer;
mod asking;
mod boundary;
pub mod bundle;
mod calibrate;
mod checks;
mod costs;
mod deeper;
mod difference;
mod document;
mod input;
mod options;
mod orders;
mod report;
mod resume;
mod start;
mod table;

pub use boundary::ValueBoundary;
pub use calibrate::Calibration;
pub use costs::Costs;
pub use difference::nearest_passing;
pub use document::Document;
pub use input::{InputEnding, InputReport, StageReport};
pub use options::{DebugOptions, Flaky, Strategy};
pub use report::{
    DebugReport, Difference, FoundCause, NamedDelta, Otherwise, Rest, TreeCall, Trials, Verdict,
};
pub use resume::unfinished;
pub use start::StartReport;
pub use table::{Bar, Course, RoundCounts, RoundTask, course};

use std::sync::Arc;

use faultscope_model::application::test_named;
use faultscope_model::event::Event;
use faultscope_model::outcome::Signature;
use faultscope_model::{DeltaSet, Outcome, Run, Space};
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::campaign::{self, Brief, Stop};
use crate::clock::Clock;
use crate::error::EngineError;
use crate::session::Session;
use checks::{Checked, Checker, Ends};
use deeper::Ground;

/// Reduces the failing circumstance of a session's application to a minimal cause.
pub async fn debug(
    session: &Arc<Session>,
    options: &DebugOptions,
    stop: &CancellationToken,
) -> Result<DebugReport, EngineError> {
    let started = Instant::now();
    let clock = Clock::start(options.most_time, stop);
    let mut report = search(session, options, clock.halt()).await?;
    if report.verdict == Verdict::Stopped && clock.ran_out() {
        report.verdict = Verdict::OutOfBudget;
    }
    report.took = started.elapsed();
    session.events().emit(Event::Note { text: report.summary() });
    Ok(report)
}

async fn search(
    session: &Arc<Session>,
    options: &DebugOptions,
    stop: &CancellationToken,
) -> Result<DebugReport, EngineError> {
    let application = session.application();
    let space = application.space().map_err(|e| EngineError::Internal(e.to_string()))?;
    let mut tests = application.tests.clone();
    let named = options.test.clone().or_else(|| application.failing_test.clone());
    if let (true, Some(name)) = (options.only_failing_test, &named) {
        tests = test_named(&tests, name).into_iter().collect();
    }
    let mut report = DebugReport::new(session, &space, options.strategy);
    let mut past = resume::past(session, &space, options)?;
    past.means.most = options.most_trials;
    if space.full().is_empty() {
        report.verdict = Verdict::NoDeltas;
        if options.input {
            let known = (&past.checks, &mut past.means);
            deeper::input_alone(session, options, (&space, &tests), known, &mut report, stop).await?;
        }
        return Ok(report);
    }
    let mut costs = Costs::load(&session.options.state, &application.name);
    let space = costs.apply(space);
    let mut checker = Checker {
        session,
        space: &space,
        tests: &tests,
        named: named.as_deref(),
        options,
        stop,
        earlier: past.checks,
        count: 0,
        tally: checks::Tally::default(),
    };
    let checked = checker.check().await?;
    report.trials.checks = checker.count;
    let Ends { simplest, failing, wanted, calibration } = match checked {
        Checked::Fine(ends) => *ends,
        Checked::Refused(verdict, signature) => {
            (report.verdict, report.signature) = (verdict, signature);
            if let (Some((run, _)), Some(_)) = (&checker.tally.failure, &report.signature) {
                report.start = start::told(&space, run, &[]);
            }
            if options.input && report.verdict == Verdict::FailsAlready {
                let known = (&checker.earlier, &mut past.means);
                deeper::input_alone(session, options, (&space, &tests), known, &mut report, stop).await?;
            }
            return Ok(report);
        }
        Checked::Stopped => return Ok(report),
    };
    report.signature = Some(wanted.clone());
    // Whether a service comes up is known before any test is run.
    let tests = if wanted.service().is_some() { Vec::new() } else { tests.clone() };
    let learnt = Arc::new(orders::learn_orders(session, space.clone(), &simplest).await?);
    // The order of the calls may turn out to be nearer to the failing one than was thought.
    let failing = Run { deltas: learnt.full(), ..failing };
    report.deltas = failing.deltas.len();
    let mut calibration = calibration;
    let earlier = past.runs.len();
    let mut brief = Brief {
        wanted: Some(wanted.clone()),
        earlier: past.runs,
        numbered: past.numbered,
        ..Brief::new((*learnt).clone(), tests)
    };
    let (search, finished) = loop {
        let mut search = strategy(session, options, &learnt, calibration.rate);
        brief.known = known(&learnt, &wanted, calibration.rate);
        let done = brief.earlier.len() - earlier;
        brief.most_trials = options.most_trials.map(|most| most.saturating_sub(done));
        let finished = campaign::run(session, &brief, &mut *search, stop).await?;
        let causes: Vec<usize> = search.standing().causes.iter().map(|cause| cause.witness.len()).collect();
        let certain = calibration.rate >= 1.0 && options.flaky == Flaky::Auto && finished.stopped.is_none();
        if certain && calibrate::looks_like_chance(&causes, &finished.runs) {
            match checker.look_again().await? {
                Some(again) if again.rate < 1.0 => {
                    let text = "the failure does not always show after all: the search goes on with its rate";
                    session.events().emit(Event::Note { text: text.into() });
                    brief.numbered = finished.numbered;
                    (brief.earlier, calibration) = (finished.runs, again);
                    continue;
                }
                Some(again) => calibration = again,
                None => {}
            }
        }
        break (search, finished);
    };
    (report.calibration, report.trials.checks) = (Some(calibration), checker.count);
    answer::fill(&mut report, &learnt, &*search, &finished);
    if options.all && finished.stopped.is_none() && !report.none_left {
        report.rest = answer::rest(&learnt, &search.standing().causes, &finished.runs);
    }
    report.trials.earlier = earlier;
    report.searched = finished.stopped.is_none();
    report.verdict = match finished.stopped {
        None => Verdict::Reduced,
        Some(Stop::Asked) => Verdict::Stopped,
        Some(Stop::OutOfTrials) => Verdict::OutOfBudget,
    };
    let runs: Vec<&Run> = finished.runs.iter().chain([&simplest, &failing]).collect();
    if wanted.service().is_some() {
        let witness = report.causes.first().and_then(|cause| cause.run.as_ref());
        let shown = runs.iter().find(|run| Some(&run.id) == witness).copied().unwrap_or(&failing);
        report.start = start::told(&learnt, shown, &runs);
    } else {
        report.difference = difference::first_difference(session, &learnt, &runs, &report).await?;
    }
    costs.learn(&learnt, &simplest, &finished.runs[earlier..]);
    costs.save();
    if let (Verdict::Reduced, Some(wanted)) = (&report.verdict, &brief.wanted) {
        let (tests, rate) = (&brief.tests, calibration.rate);
        let ground = Ground { session, options, space: &learnt, tests, wanted, rate, stop };
        let mut means = past.means;
        means.most = options.most_trials.map(|most| most.saturating_sub(finished.runs.len() - earlier));
        ground.look_deeper(&mut report, &mut means).await?;
    }
    Ok(report)
}

/// What sentinels repeat: what fails only at times is no measure for the environment.
fn known(space: &Space, wanted: &Signature, rate: f64) -> Vec<(DeltaSet, Outcome)> {
    let fails = (space.full(), Outcome::Fail { signature: wanted.clone() });
    let passes = (DeltaSet::new(), Outcome::Pass);
    if rate < 1.0 { vec![passes] } else { vec![fails, passes] }
}

fn strategy(
    session: &Session,
    options: &DebugOptions,
    space: &Arc<Space>,
    rate: f64,
) -> Box<dyn Search + Send> {
    let problem = Problem::of(space);
    if rate < 1.0 && options.strategy != Strategy::Bayes {
        let text = "the failure does not always show, but this strategy takes every outcome as certain";
        session.events().emit(Event::Note { text: text.into() });
    }
    match options.strategy {
        Strategy::Bayes => {
            let seed = session.options.seed;
            let bayes = BayesOptions { seed, rate, all: options.all, ..BayesOptions::default() };
            Box::new(Bayes::new(problem, bayes))
        }
        Strategy::Ddmin => Box::new(Ddmin::new(problem)),
        Strategy::DdminPar => Box::new(DdminPar::new(problem)),
    }
}
