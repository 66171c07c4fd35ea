//! Searches and confirms in turn, until the answer agrees with everything that was seen.

use faultscope_model::event::Event;
use faultscope_model::{DeltaSet, TrialRole};
use faultscope_search::{ConfirmPlan, Search, Tally};

use super::checks::Checker;
use super::confirm::{Confirmed, KnownOutcomes, confirm_causes, measure_rate};
use super::{
    Calibration, Confirmation, ConfirmationStatus, DebugOptions, Deltas, Flaky, Strategy, answer, strategy,
};
use crate::driver::{Driver, Ended, SearchAsks, SetRun};
use crate::error::EngineError;

/// What the search of one campaign has learnt so far.
pub(super) struct Reasoning<'a> {
    options: &'a DebugOptions,
    deltas: Deltas,
    full: DeltaSet,
    pub(super) calibration: Calibration,
    /// Trials of the search.
    pub(super) runs: Vec<SetRun>,
    /// How many of these are from before an interruption.
    pub(super) n_earlier: usize,
    /// Trials that repeat what an answer rests on.
    pub(super) repetitions: Vec<SetRun>,
    /// One for each cause of the answer.
    pub(super) confirmations: Vec<Confirmation>,
}

/// How it ended.
pub(super) enum Answered {
    /// With what the search stands at.
    Answer(Box<dyn Search + Send>, Ended),
    /// The failure comes at times, also without any delta.
    FailsAtTimes,
    /// A set failed and passed, and some trials waited for services more briefly than the application file says:
    /// perhaps too briefly.
    WaitedTooBriefly,
}

impl<'a> Reasoning<'a> {
    pub(super) fn new(
        options: &'a DebugOptions,
        deltas: Deltas,
        full: DeltaSet,
        calibration: Calibration,
    ) -> Self {
        Self {
            options,
            deltas,
            full,
            calibration,
            runs: Vec::new(),
            n_earlier: 0,
            repetitions: Vec::new(),
            confirmations: Vec::new(),
        }
    }

    /// Searches, confirms what was found, and searches again with what that has shown.
    pub(super) async fn search_and_confirm(
        &mut self,
        driver: &mut Driver,
        checker: &mut Checker<'_>,
    ) -> Result<Answered, EngineError> {
        // Each turn after the first has found that the failure does not always show, or a smaller set that fails.
        for _ in 0..2 + self.full.len() {
            let (search, ended) = self.search(driver).await?;
            if ended != Ended::Done || self.options.flaky == Flaky::Off {
                return Ok(Answered::Answer(search, ended));
            }
            let causes = answer::causes(&*search);
            let contradicted = match self.confirm(driver, checker, &*search).await? {
                Confirmed::Answer(confirmations, ended) => {
                    self.confirmations = confirmations;
                    return Ok(Answered::Answer(search, ended));
                }
                Confirmed::Contradicted(set) => set,
            };
            if self.has_cut_runs(driver) {
                return Ok(Answered::WaitedTooBriefly);
            }
            driver.session().start_limits.shorten(false);
            let contrary =
                Confirmation { status: ConfirmationStatus::Contradicted, ..Confirmation::default() };
            self.confirmations = vec![contrary; causes.len()];
            if self.options.strategy != Strategy::Bayes {
                // It would take the next trials at their word again.
                return Ok(Answered::Answer(search, ended));
            }
            if self.calibration.rate >= 1.0 {
                if let Some(ended) = self.measure(driver, checker, &contradicted).await? {
                    // What the search stood at is contradicted, so that one that has just begun says all there is.
                    self.confirmations.clear();
                    return Ok(Answered::Answer(self.resume_search(driver), ended));
                }
                let rate = self.calibration.rate;
                let Some(wanted) = self.deltas.wanted.clone() else { continue };
                match checker.look_for_flaky_failures(&wanted, rate, driver).await? {
                    Some(false) => {}
                    Some(true) => return Ok(Answered::FailsAtTimes),
                    None => {
                        self.confirmations.clear();
                        return Ok(Answered::Answer(self.resume_search(driver), driver.halted()));
                    }
                }
            }
        }
        // Every delta was given up once, and still something disagrees.
        let (search, ended) = self.search(driver).await?;
        Ok(Answered::Answer(search, ended))
    }

    /// Whether a run of this reasoning, or of the checks before it, waited too briefly to be sure.
    fn has_cut_runs(&self, driver: &Driver) -> bool {
        let mut runs = self.runs.iter().chain(&self.repetitions);
        driver.session().start_limits.was_cut() || runs.any(|run| run.run.evidence.is_cut())
    }

    async fn search(&mut self, driver: &mut Driver) -> Result<(Box<dyn Search + Send>, Ended), EngineError> {
        let mut search = self.resume_search(driver);
        driver.watch(self.deltas.known_ends(self.calibration.rate)?);
        let runs = std::mem::take(&mut self.runs);
        let mut asks = SearchAsks::new(&mut *search, &mut self.deltas, TrialRole::Search)
            .after(runs, self.n_earlier)
            .recalling();
        let ended = driver.run(&mut asks).await?;
        (self.runs, self.n_earlier) = (asks.runs, asks.n_earlier);
        Ok((search, ended))
    }

    /// A search that knows what repetitions have shown.
    fn resume_search(&self, driver: &Driver) -> Box<dyn Search + Send> {
        let rate = self.calibration.rate;
        let mut search = strategy(driver.session(), self.options, &self.deltas.space, rate);
        self.repetitions.iter().for_each(|run| search.recall(&run.set, &run.outcome));
        search
    }

    async fn confirm(
        &mut self,
        driver: &mut Driver,
        checker: &Checker<'_>,
        search: &dyn Search,
    ) -> Result<Confirmed, EngineError> {
        let causes = answer::causes(search);
        let rest =
            search.standing().none_left.then(|| answer::rest_of(&self.deltas.space, &causes)).flatten();
        let runs: Vec<SetRun> = self.runs.iter().chain(&self.repetitions).cloned().collect();
        let known = self.known(checker, &runs);
        let plan = ConfirmPlan::new(self.options.confidence, self.calibration.rate);
        let mut repetitions = Vec::new();
        let asked = (&*causes, rest.as_ref());
        let confirmed = confirm_causes(driver, &self.deltas, plan, asked, &known, &mut repetitions).await;
        self.repetitions.extend(repetitions);
        confirmed
    }

    /// Finds out how often a set fails that failed and passed; says how it ended when it could not.
    async fn measure(
        &mut self,
        driver: &mut Driver,
        checker: &Checker<'_>,
        set: &DeltaSet,
    ) -> Result<Option<Ended>, EngineError> {
        let text =
            "the failure does not always show: its rate is measured, and the search goes on with repetitions";
        driver.session().events().emit(Event::Note { text: text.into() });
        let runs: Vec<SetRun> = self.runs.iter().chain(&self.repetitions).cloned().collect();
        let known = self.known(checker, &runs).tally(set);
        match measure_rate(driver, &self.deltas, (set, known), &mut self.repetitions).await? {
            Ok(measured) => {
                self.calibration = measured;
                Ok(None)
            }
            Err(ended) => Ok(Some(ended)),
        }
    }

    fn known<'r>(&self, checker: &Checker<'_>, runs: &'r [SetRun]) -> KnownOutcomes<'r> {
        KnownOutcomes {
            runs,
            failing_checks: checker.tally.judged(),
            simplest_checks: Tally { passed: checker.n_simplest, ..Tally::default() },
            full: self.full.clone(),
        }
    }
}
