//! Confirms what a search found before it is called proven: repetitions of the failing set and of its neighbours,
//! see `faultscope_search::Confirm` and design note 0021.

use std::sync::Arc;

use faultscope_model::event::Event;
use faultscope_model::{DeltaSet, Outcome, TrialRole};
use faultscope_search::{Confirm, ConfirmPlan, Problem, Tally};
use serde::{Deserialize, Serialize};

use super::Deltas;
use super::calibrate::{self, Calibration, Next};
use crate::driver::{
    Asks, Driver, Ended, Moves, RequestedTrial, SetRun, SlotState, SlotView, Ticket, TrialList,
};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::FinishedTrial;

/// Sets that passed although they hold the whole cause; two of them tell chance from a rule.
const MAX_CONTRADICTING: usize = 2;

/// Whether a cause was confirmed, and by what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// How it ended.
    pub status: ConfirmationStatus,
    /// Trials that were carried out for it.
    pub finished: usize,
    /// Trials that it takes.
    pub planned: usize,
    /// How often exactly the deltas of the failing trial failed, trials of the search counted.
    pub failures: u32,
    /// How often they passed.
    pub passes: u32,
    /// How often they failed in another way.
    #[serde(default)]
    pub other_failures: u32,
    /// How many sets with one delta less there are.
    pub smaller: usize,
    /// How often each of them did not fail; the least of all.
    pub smaller_passes: u32,
    /// With which probability chance would have shown.
    pub confidence: f64,
    /// A stable failure was shown to fail more often than this; none where it shows only at times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_rate: Option<f64>,
}

/// Whether a cause was confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmationStatus {
    /// All repetitions agreed.
    Confirmed,
    /// Nothing was repeated: the user takes every trial at its word.
    #[default]
    Skipped,
    /// It was stopped, or out of budget.
    Unfinished,
    /// Too many repetitions showed something else than passing or this failure.
    Unjudged,
    /// A repetition showed the contrary, and this search cannot deal with chance.
    Contradicted,
}

impl Default for Confirmation {
    fn default() -> Self {
        Self {
            status: ConfirmationStatus::Skipped,
            finished: 0,
            planned: 0,
            failures: 1,
            passes: 0,
            other_failures: 0,
            smaller: 0,
            smaller_passes: 0,
            confidence: 0.0,
            excluded_rate: None,
        }
    }
}

impl Confirmation {
    /// Whether all repetitions agreed.
    pub fn is_confirmed(&self) -> bool {
        self.status == ConfirmationStatus::Confirmed
    }

    /// Adds to a title: nothing, or ` (not confirmed)`.
    pub fn title_note(&self) -> String {
        match self.status {
            ConfirmationStatus::Confirmed => String::new(),
            ConfirmationStatus::Unfinished => {
                format!(" (not confirmed: {} of {})", self.finished, self.planned)
            }
            _ => " (not confirmed)".into(),
        }
    }

    /// For people, in one line: what was seen, and what is excluded by it.
    pub fn describe(&self) -> String {
        let Self { failures, confidence, excluded_rate, .. } = *self;
        let percent = show_percent(confidence);
        match self.status {
            ConfirmationStatus::Confirmed => {
                let excluded = match excluded_rate {
                    Some(rate) => format!("a failure rate of {rate} or less would have shown with {percent} %"),
                    None => format!("at the measured rate a failure would have shown with {percent} %"),
                };
                let tries = failures + self.passes + self.other_failures;
                let otherwise = match self.other_failures {
                    0 => String::new(),
                    n => format!(" ({n} more in another way)"),
                };
                let smaller = self.describe_smaller();
                format!("Confirmed: failed {failures} of {tries} times{otherwise}, {smaller}; {excluded}")
            }
            ConfirmationStatus::Skipped => {
                "Not confirmed: every trial is taken at its word (`--flaky off`)".into()
            }
            ConfirmationStatus::Unfinished => format!(
                "Not confirmed: {} of {} repetitions were carried out, and they agree",
                self.finished, self.planned
            ),
            ConfirmationStatus::Unjudged => {
                "Not confirmed: too many repetitions showed something else than passing or this failure".into()
            }
            ConfirmationStatus::Contradicted => {
                "Not confirmed: a repetition showed the contrary, so the failure does not always show; the strategy \
                 `bayes` can deal with that"
                    .into()
            }
        }
    }

    fn describe_smaller(&self) -> String {
        let times = self.smaller_passes;
        match self.smaller {
            0 => "no smaller set can be deployed".into(),
            1 => format!("without it {times} of {times} did not"),
            n => format!("each of {n} smaller sets did not fail {times} of {times} times"),
        }
    }
}

/// `99`, `99.9`: rounded down, so that no more is claimed than was shown.
fn show_percent(share: f64) -> String {
    let tenths = (share * 1000.0 + 1e-6).floor() / 10.0;
    format!("{tenths}")
}

/// What is known before anything is repeated: outcomes of sets, from start-up checks and the search.
pub(super) struct KnownOutcomes<'a> {
    pub(super) runs: &'a [SetRun],
    /// Start-up checks: how often all deltas failed and passed, how often none passed.
    pub(super) failing_checks: Tally,
    pub(super) simplest_checks: Tally,
    pub(super) full: DeltaSet,
}

impl KnownOutcomes<'_> {
    /// What is known of one set.
    pub(super) fn tally(&self, set: &DeltaSet) -> Tally {
        let mut tally = match set {
            set if *set == self.full => self.failing_checks,
            set if set.is_empty() => self.simplest_checks,
            _ => Tally::default(),
        };
        self.runs.iter().filter(|run| run.set == *set).for_each(|run| tally.add(&run.outcome));
        tally
    }

    /// Sets that hold a whole cause and passed: that is a rule, or the failure stayed away by chance.
    fn odd_passes(&self, cause: &DeltaSet) -> Vec<DeltaSet> {
        let passed = self.runs.iter().filter(|run| run.outcome == Outcome::Pass).map(|run| &run.set);
        let mut odd: Vec<_> = passed.filter(|set| cause.is_subset(set) && *set != cause).cloned().collect();
        odd.sort();
        odd.dedup();
        odd.truncate(MAX_CONTRADICTING);
        odd
    }

    /// A set that failed once, and once did not.
    fn mixed(&self) -> Option<DeltaSet> {
        let sets = self.runs.iter().map(|run| &run.set);
        sets.chain([&self.full]).find(|set| self.tally(set).is_mixed()).cloned()
    }
}

/// How the confirmation of an answer went.
pub(super) enum Confirmed {
    /// One for each cause; not all of them need be confirmed.
    Answer(Vec<Confirmation>, Ended),
    /// This set fails at times.
    Contradicted(DeltaSet),
}

/// Confirms causes, one after another, and that the rest without them passes; `repetitions` grows by the runs.
pub(super) async fn confirm_causes(
    driver: &mut Driver,
    deltas: &Deltas,
    plan: ConfirmPlan,
    (causes, rest): (&[DeltaSet], Option<&DeltaSet>),
    known: &KnownOutcomes<'_>,
    repetitions: &mut Vec<SetRun>,
) -> Result<Confirmed, EngineError> {
    let problem = Problem::from_space(&deltas.space);
    let stable = plan.rate >= 1.0;
    if let (true, Some(set)) = (stable, known.mixed()) {
        return Ok(Confirmed::Contradicted(set));
    }
    let mut machines: Vec<(Confirm, usize)> = Vec::new();
    for cause in causes {
        let mut others = problem.neighbours(cause);
        if stable {
            others.extend(known.odd_passes(cause));
        }
        if let (true, Some(rest)) = (machines.is_empty(), rest)
            && !others.contains(rest)
        {
            others.push(rest.clone());
        }
        let mut machine = Confirm::new(plan, cause.clone(), others.clone());
        for set in others.iter().chain([cause]) {
            machine.recall_tally(set, known.tally(set));
        }
        let planned = machine.left() as usize;
        machines.push((machine, planned));
    }
    let planned: usize = machines.iter().map(|(_, planned)| planned).sum();
    let (mut done, mut ended) = (0, Ended::Done);
    let mut confirmations: Vec<Confirmation> = Vec::new();
    for (machine, own) in machines {
        let session = driver.session().clone();
        let mut asks = Repetitions { machine, deltas, runs: Vec::new(), done, planned, session };
        if ended == Ended::Done && own > 0 {
            asks.emit_progress();
            ended = driver.run(&mut asks).await?;
        }
        let Repetitions { machine, runs, .. } = asks;
        done += runs.len();
        confirmations.push(describe(&machine, &plan, (runs.len(), own)));
        repetitions.extend(runs);
        if let Some((set, _)) = machine.contradiction() {
            return Ok(Confirmed::Contradicted(set.clone()));
        }
    }
    Ok(Confirmed::Answer(confirmations, ended))
}

fn describe(machine: &Confirm, plan: &ConfirmPlan, (finished, planned): (usize, usize)) -> Confirmation {
    let status = if machine.contradiction().is_some() {
        ConfirmationStatus::Contradicted
    } else if machine.is_confirmed() {
        ConfirmationStatus::Confirmed
    } else if machine.is_unjudged() {
        ConfirmationStatus::Unjudged
    } else {
        ConfirmationStatus::Unfinished
    };
    let Tally { failed, passed, other, .. } = machine.failing();
    let not_failed = machine.neighbours().map(|(_, tally)| tally.not_failed());
    let smaller_passes = not_failed.min().unwrap_or(0);
    let stable = plan.rate >= 1.0;
    // The number of passes is bounded, so a rare failure is excluded with less than was asked for.
    let would_show = 1.0 - (1.0 - plan.rate).powf(smaller_passes.into());
    Confirmation {
        status,
        finished,
        planned,
        failures: failed,
        passes: passed,
        other_failures: other,
        smaller: machine.neighbours().count(),
        smaller_passes,
        confidence: if stable { plan.confidence } else { plan.confidence.min(would_show) },
        excluded_rate: stable.then_some(ConfirmPlan::EXCLUDED_RATE),
    }
}

/// Tries a set that fails at times until it is known how often; none when that was stopped.
pub(super) async fn measure_rate(
    driver: &mut Driver,
    deltas: &Deltas,
    (set, known): (&DeltaSet, Tally),
    repetitions: &mut Vec<SetRun>,
) -> Result<Result<Calibration, Ended>, EngineError> {
    let mut tally = known;
    loop {
        let tried = tally.failed + tally.passed + tally.other;
        if let Next::Known(calibration) = calibrate::decide(tally.failed, tried, u32::MAX) {
            let Calibration { failed, tried, rate } = calibration;
            driver.session().events().emit(Event::Calibrated { failed, tried, rate });
            return Ok(Ok(calibration));
        }
        if tally.unresolved > calibrate::MAX_TRIES {
            return Ok(Ok(calibrate::reckon(tally.failed, tried)));
        }
        let request = deltas.request_of(set)?;
        let trials = vec![(TrialRole::Confirm, request); driver.n_slots()];
        let mut list = TrialList::new(trials);
        let ended = driver.run(&mut list).await?;
        for trial in list.into_finished() {
            tally.add(&trial.run.outcome);
            repetitions.push(SetRun { set: set.clone(), run: trial.run });
        }
        if ended != Ended::Done {
            return Ok(Err(ended));
        }
    }
}

/// Asks for the repetitions of one answer.
struct Repetitions<'a> {
    machine: Confirm,
    deltas: &'a Deltas,
    runs: Vec<SetRun>,
    /// Trials of the causes before.
    done: usize,
    /// Trials of all causes.
    planned: usize,
    session: Arc<Session>,
}

impl Repetitions<'_> {
    fn emit_progress(&self) {
        let done = self.done + self.runs.len();
        self.session.events().emit(Event::Confirming { done, planned: self.planned.max(done) });
    }
}

impl Asks for Repetitions<'_> {
    fn ask(&mut self, slots: &[SlotView<'_>]) -> Result<Moves, EngineError> {
        let free: Vec<_> = slots.iter().filter(|view| view.state == SlotState::Free).collect();
        let mut moves = Moves::default();
        for ((ticket, set), view) in self.machine.plan(free.len()).into_iter().zip(free) {
            let request = self.deltas.request_of(&set)?;
            moves.start.push(RequestedTrial { ticket, role: TrialRole::Confirm, slot: view.slot, request });
        }
        Ok(moves)
    }

    fn answer(&mut self, ticket: Ticket, trial: FinishedTrial) -> Result<(), EngineError> {
        if let Some(set) = self.machine.record(ticket, &trial.run.outcome) {
            self.runs.push(SetRun { set: set.clone(), run: trial.run });
        }
        self.emit_progress();
        Ok(())
    }

    fn withdraw(&mut self, ticket: Ticket) {
        self.machine.lose(ticket);
    }

    fn is_done(&self) -> bool {
        self.machine.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_excluded_is_said() {
        let confirmed = Confirmation {
            status: ConfirmationStatus::Confirmed,
            finished: 16,
            planned: 16,
            failures: 13,
            other_failures: 0,
            passes: 0,
            smaller: 2,
            smaller_passes: 3,
            confidence: 0.99,
            excluded_rate: Some(0.7),
        };
        assert_eq!(
            confirmed.describe(),
            "Confirmed: failed 13 of 13 times, each of 2 smaller sets did not fail 3 of 3 times; a failure rate of 0.7 \
             or less would have shown with 99 %"
        );
        assert_eq!(confirmed.title_note(), "");
        let stopped =
            Confirmation { status: ConfirmationStatus::Unfinished, finished: 5, ..confirmed.clone() };
        assert_eq!(stopped.title_note(), " (not confirmed: 5 of 16)");
        let skipped = Confirmation::default();
        assert_eq!(skipped.title_note(), " (not confirmed)");
        assert_eq!(show_percent(0.999), "99.9");
    }
}
