//! A plain list of trials, each run once.

use std::collections::VecDeque;

use faultscope_model::{Outcome, TrialRole};

use super::asks::{Asks, Moves, RequestedTrial, SlotState, SlotView, Ticket};
use crate::error::EngineError;
use crate::trial::{FinishedTrial, TrialRequest};

/// Runs each trial of a list once, on whatever slots are free.
pub(crate) struct TrialList {
    waiting: VecDeque<(Ticket, TrialRole, TrialRequest)>,
    ended: Vec<Option<FinishedTrial>>,
    /// Skips the rest after the first failure.
    stop_at_failure: bool,
    failed: bool,
}

impl TrialList {
    /// These trials, in order.
    pub(crate) fn new(trials: impl IntoIterator<Item = (TrialRole, TrialRequest)>) -> Self {
        let ticket = |(number, (role, request))| (Ticket(number), role, request);
        let waiting: VecDeque<_> = (0..).zip(trials).map(ticket).collect();
        let ended = waiting.iter().map(|_| None).collect();
        Self { waiting, ended, stop_at_failure: false, failed: false }
    }

    /// Skips the rest after the first failing trial.
    pub(crate) fn stop_at_failure(self) -> Self {
        Self { stop_at_failure: true, ..self }
    }

    /// The results in the order of the list; trials that did not finish are left out.
    pub(crate) fn into_finished(self) -> Vec<FinishedTrial> {
        self.ended.into_iter().flatten().collect()
    }

    fn is_over(&self) -> bool {
        self.stop_at_failure && self.failed
    }
}

impl Asks for TrialList {
    fn ask(&mut self, slots: &[SlotView<'_>]) -> Result<Moves, EngineError> {
        let mut moves = Moves::default();
        if self.is_over() {
            self.waiting.clear();
            return Ok(moves);
        }
        for view in slots.iter().filter(|view| view.state == SlotState::Free) {
            let Some((ticket, role, request)) = self.waiting.pop_front() else { break };
            moves.start.push(RequestedTrial { ticket, role, slot: view.slot, request });
        }
        Ok(moves)
    }

    fn answer(&mut self, ticket: Ticket, trial: FinishedTrial) -> Result<(), EngineError> {
        self.failed |= matches!(trial.run.outcome, Outcome::Fail { .. });
        let place = usize::try_from(ticket.0).ok().and_then(|place| self.ended.get_mut(place));
        if let Some(place) = place {
            *place = Some(trial);
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_over() || self.ended.iter().all(Option::is_some)
    }
}
