//! Delta debugging as a campaign: start-up checks, search, cause, evidence (paper 1, section 4).

mod answer;
mod boundary;
pub mod bundle;
mod calibrate;
mod checks;
mod confirm;
mod costs;
mod deeper;
mod difference;
mod document;
mod input;
mod noise;
mod options;
mod orders;
mod printed;
mod reasoning;
mod report;
mod start;
mod story;
mod table;

pub use boundary::ValueBoundary;
pub use calibrate::Calibration;
pub use confirm::{Confirmation, ConfirmationStatus};
pub use costs::Costs;
pub use difference::nearest_passing;
pub use document::Document;
pub use input::{InputEnding, InputReport, StageReport};
pub use options::{DebugOptions, Flaky, Strategy};
pub use printed::{Printed, PrintedLine};
pub use report::{
    DebugReport, Difference, End, FoundCause, NamedDelta, Otherwise, Rest, TreeCall, Trials, Verdict,
};
pub use start::StartReport;
pub use table::{Bar, Course, RoundCounts, RoundTask, TrialEnding, course};

use std::sync::Arc;

use faultscope_model::application::{TestCase, test_named};
use faultscope_model::event::Event;
use faultscope_model::outcome::Signature;
use faultscope_model::{Application, CampaignId, CampaignKind, DeltaSet, Outcome, Run, Space, Treatment};
use faultscope_search::{Bayes, BayesOptions, Ddmin, DdminPar, Problem, Search};
use faultscope_store::Store;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drive::Tests;
use crate::driver::{Budget, Driver, Ended, Foundations, Meaning, SetRun, find_unfinished};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::TrialRequest;
use checks::{Checked, Checker, Ends};
use deeper::Ground;
use reasoning::{Answered, Reasoning};

/// Reduces the failing circumstance of a session's application to a minimal cause.
pub async fn debug(
    session: &Arc<Session>,
    options: &DebugOptions,
    stop: &CancellationToken,
) -> Result<DebugReport, EngineError> {
    let started = Instant::now();
    let application = session.application();
    let space = application.space().map_err(|e| EngineError::Internal(e.to_string()))?;
    let budget = Budget { trials: options.most_trials, time: options.most_time };
    let mut driver = Driver::open(session, &foundations(session, &space, options), budget, stop)?;
    let mut report = DebugReport::new(session, &space, options.strategy);
    // A rate that the user knows is that of starts with their full time.
    session.start_limits.shorten(!matches!(options.flaky, Flaky::Rate(rate) if rate < 1.0));
    if reduce(&mut driver, space.clone(), options, &mut report).await? == Progress::StartOver {
        let text = "a service became ready late, so all is tried again with the full time for starts";
        session.events().emit(Event::Note { text: text.into() });
        driver.wait_out_starts();
        report = DebugReport::new(session, &space, options.strategy);
        reduce(&mut driver, space, options, &mut report).await?;
    }
    report.took = started.elapsed();
    session.events().emit(Event::Summary { text: report.summary() });
    Ok(report)
}

/// The debug campaign to go on with: the one that is named, or the newest of this application that has
/// no answer yet.
pub fn unfinished(
    store: &Store,
    application: &Application,
    named: Option<&str>,
) -> Result<CampaignId, EngineError> {
    find_unfinished(store, CampaignKind::Debug, application, named)
}

/// What the trials rest on: what is deployed and tested, between which ends, and how it is searched.
fn foundations(session: &Session, space: &Space, options: &DebugOptions) -> Foundations {
    let deltas: Vec<_> = space.deltas.iter().map(|d| (&d.name, &d.from, &d.to)).collect();
    Foundations::new(session, options).with("the list of deltas", &deltas)
}

/// How a reduction ended.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// The report says it.
    Reported,
    /// Trials disagree that waited for services more briefly than the application file says.
    StartOver,
}

async fn reduce(
    driver: &mut Driver,
    space: Space,
    options: &DebugOptions,
    report: &mut DebugReport,
) -> Result<Progress, EngineError> {
    let session = driver.session().clone();
    let application = session.application();
    let mut tests = application.tests.clone();
    let named = options.test.clone().or_else(|| application.failing_test.clone());
    if let (true, Some(name)) = (options.only_failing_test, &named) {
        tests = test_named(&tests, name).into_iter().collect();
    }
    if space.full().is_empty() {
        report.verdict = Verdict::NoDeltas;
        if options.input {
            deeper::input_alone(driver, options, (&space, &tests), report).await?;
        }
        return Ok(Progress::Reported);
    }
    let mut costs = Costs::load(&session.options.state, &application.name);
    let space = costs.apply(space);
    let mut checker = Checker {
        space: &space,
        tests: &tests,
        named: named.as_deref(),
        options,
        count: 0,
        tally: checks::Tally::default(),
        n_simplest: 0,
    };
    let checked = checker.check(driver).await?;
    report.trials.checks = checker.count;
    let Ends { simplest, failing, wanted, calibration } = match checked {
        Checked::Fine(ends) => *ends,
        Checked::Refused(verdict, signature) => {
            (report.verdict, report.signature) = (verdict, signature);
            if let (Some((run, _)), Some(_)) = (&checker.tally.failure, &report.signature) {
                report.start = start::find_evidence(run, &[]);
            }
            if options.input && report.verdict == Verdict::FailsAlready {
                deeper::input_alone(driver, options, (&space, &tests), report).await?;
            }
            return Ok(Progress::Reported);
        }
        Checked::WaitedTooBriefly => return Ok(Progress::StartOver),
        Checked::Stopped => {
            report.verdict = driver.halted().into();
            return Ok(Progress::Reported);
        }
    };
    report.signature = Some(wanted.clone());
    if wanted.service().is_none() || calibration.rate < 1.0 {
        // Starts are in the way of a failing test: whether it fails behind a slow one must be known. And a rate of
        // failures counts only if all were waited for alike.
        session.start_limits.shorten(false);
    }
    let judged = named.clone().filter(|_| wanted.service().is_none());
    let all_tests = tests.clone();
    // Whether a service comes up is known before any test is run.
    let tests = if wanted.service().is_some() { Vec::new() } else { tests.clone() };
    let learnt = Arc::new(orders::learn_orders(&session, space.clone(), &simplest).await?);
    // The order of the calls may turn out to be nearer to the failing one than was thought.
    let full = learnt.full();
    let failing = Run { treatment: learnt.treatment(&full), ..failing };
    report.deltas = full.len();
    report.orders = learnt.learnt_orders(&space);
    let deltas = Deltas {
        space: learnt.clone(),
        tests: tests.clone(),
        judged: judged.clone(),
        wanted: Some(wanted.clone()),
    };
    let mut reasoning = Reasoning::new(options, deltas, full, calibration);
    let answered = reasoning.search_and_confirm(driver, &mut checker).await?;
    let Reasoning { runs, repetitions, n_earlier, calibration, confirmations, .. } = reasoning;
    report.trials.confirmations = repetitions.len();
    (report.calibration, report.trials.checks) = (Some(calibration), checker.count);
    let (search, ended) = match answered {
        Answered::Answer(search, ended) => (search, ended),
        Answered::WaitedTooBriefly => return Ok(Progress::StartOver),
        Answered::FailsAtTimes => {
            report.verdict = Verdict::FailsAtTimes;
            report.trials.finished = runs.len();
            return Ok(Progress::Reported);
        }
    };
    let seen: Vec<SetRun> = runs.iter().chain(&repetitions).cloned().collect();
    answer::fill(report, &learnt, &*search, (&runs, &seen));
    for (cause, confirmation) in report.causes.iter_mut().zip(confirmations) {
        cause.confirmation = confirmation;
    }
    report.trials.earlier = n_earlier;
    (report.trials.sentinels, report.trials.cancelled) = (driver.n_sentinels(), driver.n_cancelled());
    report.searched = search.is_done();
    if options.all && report.searched && !report.none_left {
        report.rest = answer::rest(&learnt, &search.standing().causes, &runs);
    }
    report.verdict = ended.into();
    let compared: Vec<&Run> = seen.iter().map(|shown| &shown.run).chain([&simplest, &failing]).collect();
    if wanted.service().is_some() {
        let witness = report.causes.first().and_then(|cause| cause.run.as_ref());
        let shown = compared.iter().find(|run| Some(&run.id) == witness).copied().unwrap_or(&failing);
        report.start = start::find_evidence(shown, &compared);
    } else {
        let witness = report.causes.first().and_then(|cause| cause.run.as_ref());
        if let Some(shown) = compared.iter().find(|run| Some(&run.id) == witness) {
            report.difference = difference::find_difference(&session, &compared, shown).await?;
        }
    }
    costs.learn(&learnt, &simplest, runs.iter().skip(n_earlier));
    costs.save();
    if report.verdict == Verdict::Reduced {
        let ground = Ground {
            options,
            space: &learnt,
            tests: &tests,
            all_tests: &all_tests,
            judged: judged.as_deref(),
            wanted: &wanted,
            rate: calibration.rate,
            seen: &compared,
        };
        ground.look_deeper(driver, report).await?;
    }
    Ok(Progress::Reported)
}

/// Sets of a search as deltas of a space, tested for one failure.
#[derive(Debug, Clone)]
struct Deltas {
    space: Arc<Space>,
    tests: Vec<TestCase>,
    /// The only test that decides, where one was named.
    judged: Option<String>,
    wanted: Option<Signature>,
}

impl Deltas {
    fn request_of(&self, set: &DeltaSet) -> Result<TrialRequest, EngineError> {
        Ok(TrialRequest {
            treatment: self.space.treatment(set),
            circumstance: self.space.circumstance(set)?,
            drive: Tests::judged_by(self.tests.clone(), self.judged.clone()),
            wanted: self.wanted.clone(),
        })
    }

    /// What sentinels repeat: what fails only at times is no measure for the environment.
    fn known_ends(&self, rate: f64) -> Result<Vec<(TrialRequest, Outcome)>, EngineError> {
        let mut known = Vec::new();
        if let (true, Some(signature)) = (rate >= 1.0, &self.wanted) {
            let fails = Outcome::Fail { signature: signature.clone() };
            known.push((self.request_of(&self.space.full())?, fails));
        }
        known.push((self.request_of(&DeltaSet::new())?, Outcome::Pass));
        Ok(known)
    }
}

impl Meaning for Deltas {
    fn request(&mut self, _search: &dyn Search, set: &DeltaSet) -> Result<TrialRequest, EngineError> {
        self.request_of(set)
    }

    fn set_of(&self, treatment: &Treatment) -> Option<DeltaSet> {
        self.space.set_of(treatment)
    }
}

impl From<Ended> for Verdict {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Done => Self::Reduced,
            Ended::Stopped => Self::Stopped,
            Ended::OutOfBudget => Self::OutOfBudget,
        }
    }
}

fn strategy(
    session: &Session,
    options: &DebugOptions,
    space: &Arc<Space>,
    rate: f64,
) -> Box<dyn Search + Send> {
    let problem = Problem::from_space(space);
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
