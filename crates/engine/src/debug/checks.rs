//! Start-up checks: nothing may fail without deltas, and the failure must come with all of them.

use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::outcome::{Signature, Unresolved};
use faultscope_model::{DeltaSet, Outcome, Run, Space, TrialRole};

use super::calibrate::{self, Calibration, Next};
use super::{DebugOptions, End, Flaky, Verdict};
use crate::drive::Tests;
use crate::driver::Driver;
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialRequest, failures_of};

/// More checks than this end without a decision: most of them could not be judged.
const MAX_CHECKS: u32 = 60;

/// Both ends, as they should be.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) simplest: Run,
    pub(super) failing: Run,
    pub(super) wanted: Signature,
    pub(super) calibration: Calibration,
}

/// What the checks came to.
#[derive(Debug)]
pub(super) enum Checked {
    Fine(Box<Ends>),
    /// There is nothing to search for.
    Refused(Verdict, Option<Signature>),
    /// They were stopped, or out of time.
    Stopped,
    /// They do not agree, and some waited for services more briefly than the application file says.
    WaitedTooBriefly,
}

/// Carries out the start-up checks.
pub(super) struct Checker<'a> {
    pub(super) space: &'a Space,
    pub(super) tests: &'a [TestCase],
    /// The test that is to fail.
    pub(super) named: Option<&'a str>,
    pub(super) options: &'a DebugOptions,
    /// How many were carried out or known.
    pub(super) count: usize,
    /// What the tries of the failing circumstance have shown.
    pub(super) tally: Tally,
    /// How often the simplest circumstance was tried without the failure.
    pub(super) n_simplest: u32,
}

/// What trying the failing circumstance came to.
enum Calibrated {
    Known(Calibration),
    Refused(Verdict),
    Stopped,
}

impl Checker<'_> {
    /// Tries both ends, the failing one as often as it takes to know how often it fails.
    pub(super) async fn check(&mut self, driver: &mut Driver) -> Result<Checked, EngineError> {
        let repeat = self.options.repeat;
        let mut ends = vec![TrialRole::CheckSimplest];
        ends.resize(1 + self.at_once(driver.n_slots() - 1, repeat), TrialRole::CheckFailing);
        let Some(ends) = self.carry_out(ends, driver).await? else { return Ok(Checked::Stopped) };
        let mut news = ends.into_iter();
        let Some(simplest) = news.next() else { return Ok(Checked::Stopped) };
        let news: Vec<Run> = news.collect();
        if let Some(run) = news.first()
            && let (Outcome::Unresolved { reason }, None) = (&run.outcome, run.evidence.start_failure())
        {
            return Ok(Checked::Refused(
                Verdict::Unresolved { end: End::Failing, reason: reason.clone() },
                None,
            ));
        }
        let fails_without = matches!(simplest.outcome, Outcome::Fail { .. });
        if fails_without && news.iter().all(|run| run.outcome == Outcome::Pass) {
            return Ok(Checked::Refused(Verdict::FailsWithout, None));
        }
        let calibration = match self.calibrate(news, repeat, driver).await? {
            Calibrated::Known(calibration)
                if calibration.failed < calibration.tried && self.was_cut(driver) =>
            {
                return Ok(Checked::WaitedTooBriefly);
            }
            Calibrated::Known(calibration) => calibration,
            Calibrated::Refused(verdict) => return Ok(Checked::Refused(verdict, None)),
            Calibrated::Stopped => return Ok(Checked::Stopped),
        };
        let Some((failing, wanted)) = self.tally.failure.clone() else {
            return Ok(Checked::Refused(Verdict::NotReproduced, None));
        };
        if let Some(verdict) = refuse_simplest(&simplest, &wanted) {
            return Ok(Checked::Refused(verdict, Some(wanted)));
        }
        self.n_simplest = 1;
        match self.look_for_flaky_failures(&wanted, calibration.rate, driver).await? {
            None => Ok(Checked::Stopped),
            Some(true) => Ok(Checked::Refused(Verdict::FailsAtTimes, Some(wanted))),
            Some(false) => Ok(Checked::Fine(Box::new(Ends { simplest, failing, wanted, calibration }))),
        }
    }

    /// Whether a check waited for a service more briefly than the application file says.
    fn was_cut(&self, driver: &Driver) -> bool {
        driver.session().start_limits.was_cut() || self.tally.was_cut
    }

    /// Tries the failing circumstance until it is known how often it fails; `repeat` failures in a row are
    /// enough.
    async fn calibrate(
        &mut self,
        mut news: Vec<Run>,
        repeat: u32,
        driver: &mut Driver,
    ) -> Result<Calibrated, EngineError> {
        loop {
            for run in news {
                if let Err(verdict) = self.tally.add(driver.session(), run, self.named) {
                    return Ok(Calibrated::Refused(*verdict));
                }
            }
            match self.decide(repeat) {
                Next::Known(calibration) => {
                    let Calibration { failed, tried, rate } = calibration;
                    driver.session().events().emit(Event::Calibrated { failed, tried, rate });
                    return Ok(Calibrated::Known(calibration));
                }
                Next::NotReproduced => return Ok(Calibrated::Refused(Verdict::NotReproduced)),
                Next::Again => {
                    let next = vec![TrialRole::CheckFailing; self.at_once(driver.n_slots(), repeat)];
                    match self.carry_out(next, driver).await? {
                        Some(runs) => news = runs,
                        None => return Ok(Calibrated::Stopped),
                    }
                }
            }
        }
    }

    fn decide(&self, repeat: u32) -> Next {
        let Tally { failed, tried, seen, .. } = self.tally;
        let undecided = seen >= MAX_CHECKS;
        let known = |rate| Next::Known(Calibration { failed, tried, rate });
        match self.options.flaky {
            Flaky::Off if failed > 0 => known(1.0),
            Flaky::Off => Next::NotReproduced,
            Flaky::Rate(rate) if failed > 0 => known(rate),
            Flaky::Rate(rate) if tried >= calibrate::simplest_tries(rate) || undecided => Next::NotReproduced,
            Flaky::Rate(_) => Next::Again,
            Flaky::Auto if undecided && failed == 0 => Next::NotReproduced,
            // Everything comes up, and there is no test that could fail.
            Flaky::Auto if self.tests.is_empty() && failed == 0 => Next::NotReproduced,
            Flaky::Auto if undecided => known(f64::from(failed) / f64::from(tried)),
            Flaky::Auto => calibrate::decide(failed, tried, repeat),
        }
    }

    /// How many further checks of the failing circumstance are started together on some slots: a test that
    /// always failed needs only a few more.
    fn at_once(&self, slots: usize, repeat: u32) -> usize {
        let slots = slots.max(1);
        let repeat = if self.options.flaky == Flaky::Auto { repeat } else { 1 };
        if self.tally.failed == self.tally.tried {
            slots.min(repeat.saturating_sub(self.tally.tried).max(1) as usize)
        } else {
            slots
        }
    }

    /// Whether a failure that comes at times comes without any delta too; none when it was stopped.
    pub(super) async fn look_for_flaky_failures(
        &mut self,
        wanted: &Signature,
        rate: f64,
        driver: &mut Driver,
    ) -> Result<Option<bool>, EngineError> {
        let mut left = calibrate::simplest_tries(rate).saturating_sub(self.n_simplest) as usize;
        while left > 0 {
            let batch = left.min(driver.n_slots());
            left -= batch;
            let checks = vec![TrialRole::CheckSimplest; batch];
            let Some(runs) = self.carry_out(checks, driver).await? else { return Ok(None) };
            let is_wanted = |run: &Run| {
                failures(driver.session(), run, self.named).iter().any(|s| s.is_about_same(wanted))
            };
            if runs.iter().any(is_wanted) {
                return Ok(Some(true));
            }
            self.n_simplest += u32::try_from(runs.len()).unwrap_or(u32::MAX);
        }
        Ok(Some(false))
    }

    /// Carries checks out on all slots; none when they were stopped.
    async fn carry_out(
        &mut self,
        checks: Vec<TrialRole>,
        driver: &mut Driver,
    ) -> Result<Option<Vec<Run>>, EngineError> {
        let request = |role| Ok((role, self.request(role)?));
        let checks = checks.into_iter().map(request).collect::<Result<Vec<_>, EngineError>>()?;
        let Some(finished) = driver.run_all(checks).await? else { return Ok(None) };
        self.count += finished.len();
        Ok(Some(finished.into_iter().map(|trial| trial.run).collect()))
    }

    /// All tests; where one is named, the others only run beside it.
    fn drive(&self) -> Arc<Tests> {
        Tests::judged_by(self.tests.to_vec(), self.named.map(ToOwned::to_owned))
    }

    fn request(&self, role: TrialRole) -> Result<TrialRequest, EngineError> {
        let deltas = if role == TrialRole::CheckFailing { self.space.full() } else { DeltaSet::new() };
        let circumstance = self.space.circumstance(&deltas)?;
        let treatment = self.space.treatment(&deltas);
        // Any failure is looked for: which one it is shows only here.
        Ok(TrialRequest { circumstance, treatment, drive: self.drive(), wanted: None })
    }
}

/// What the tries of the failing circumstance have shown.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) failed: u32,
    pub(super) tried: u32,
    /// How often something else failed; these count as tried.
    other: u32,
    /// All of them, also those that could not be judged.
    seen: u32,
    pub(super) failure: Option<(Run, Signature)>,
    /// Whether one of them waited for a service more briefly than the application file says.
    was_cut: bool,
}

impl Tally {
    /// How often all deltas failed and passed.
    pub(super) fn judged(&self) -> faultscope_search::Tally {
        let passed = self.tried - self.failed - self.other;
        faultscope_search::Tally { failed: self.failed, passed, other: self.other, unresolved: 0 }
    }

    fn add(&mut self, session: &Session, run: Run, named: Option<&str>) -> Result<(), Box<Verdict>> {
        self.seen += 1;
        self.was_cut |= run.evidence.is_cut();
        let start = run.evidence.start_failure();
        if matches!(run.outcome, Outcome::Unresolved { .. }) && start.is_none() {
            return Ok(());
        }
        let failures = failures(session, &run, named);
        let looks_for_start = self.failure.as_ref().is_some_and(|(_, wanted)| wanted.service().is_some());
        match &mut self.failure {
            _ if failures.is_empty() => self.tried += 1,
            Some((_, wanted)) if start.is_some() || !looks_for_start => {
                let same = match failures.as_slice() {
                    [found] if wanted.matches_failure(found) => true,
                    [found] => match wanted.common(found) {
                        Some(common) => {
                            let text =
                                "what the test says differs from run to run, so only what stays counts";
                            session.events().emit(Event::Note { text: text.into() });
                            *wanted = common;
                            true
                        }
                        None => false,
                    },
                    _ => false,
                };
                // Where something else fails at times, this failure does not always show.
                self.tried += 1;
                self.failed += u32::from(same);
                self.other += u32::from(!same);
            }
            _ => {
                // A test that fails is what was asked for: starts that had failed before are no evidence then.
                let wanted = match start {
                    Some(start) => start,
                    None => wanted(&failures, named)?,
                };
                self.tried = self.tried - self.failed - self.other + 1;
                (self.failed, self.other) = (1, 0);
                self.failure = Some((run, wanted));
            }
        }
        Ok(())
    }
}

/// The failure to look for: that of the named test, or of the only test that fails with all deltas.
fn wanted(signatures: &[Signature], named: Option<&str>) -> Result<Signature, Box<Verdict>> {
    match (signatures, named) {
        ([only], None) => Ok(only.clone()),
        ([only], Some(name)) if only.test == name => Ok(only.clone()),
        (several, _) => Err(Box::new(Verdict::OtherTestsFail {
            named: named.map(ToOwned::to_owned),
            failing: several.iter().map(|s| s.test.clone()).collect(),
        })),
    }
}

/// What failed in a run: tests, or a service that did not come up, so that no test was run. Where a test is named
/// and fails, others do not count.
fn failures(session: &Session, run: &Run, named: Option<&str>) -> Vec<Signature> {
    if let Some(start) = run.evidence.start_failure() {
        return vec![start];
    }
    let mut failures = failures_of(&session.application().tests, &run.evidence.tests);
    if let Some(own) = failures.iter().find(|failure| Some(failure.test.as_str()) == named).cloned() {
        failures = vec![own];
    }
    failures
}

fn refuse_simplest(simplest: &Run, wanted: &Signature) -> Option<Verdict> {
    let unresolved = |reason| Verdict::Unresolved { end: End::Simplest, reason };
    if wanted.service().is_some() {
        // Whether everything comes up is all that counts: what its tests do there is another question.
        let start = simplest.evidence.start_failure()?;
        if start.is_about_same(wanted) {
            return Some(Verdict::FailsAlready);
        }
        return Some(unresolved(Unresolved::OtherFailure { signature: start }));
    }
    match &simplest.outcome {
        Outcome::Pass => None,
        Outcome::Fail { signature } if signature.test == wanted.test => Some(Verdict::FailsAlready),
        Outcome::Fail { signature } => {
            Some(unresolved(Unresolved::OtherFailure { signature: signature.clone() }))
        }
        Outcome::Unresolved { reason } => Some(unresolved(reason.clone())),
    }
}
