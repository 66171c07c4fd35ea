//! The interface between the driver and whatever needs trials.

use faultscope_model::event::SearchStands;
use faultscope_model::{SlotId, Treatment, TrialRole};
pub(crate) use faultscope_search::Ticket;

use super::past::Past;
use crate::error::EngineError;
use crate::trial::{FinishedTrial, TrialRequest};

/// Something that chooses trials depending on the results of earlier ones: start-up checks, baselines, searches,
/// boundaries, inputs, confirmations.
pub(crate) trait Asks {
    /// Which trials to start on which slots, and which are no longer needed. A slot whose trial is cancelled in
    /// the same move may be used: the new trial starts there when the old one is gone.
    fn ask(&mut self, slots: &[SlotView<'_>]) -> Result<Moves, EngineError>;

    /// Reports the result of a trial.
    fn answer(&mut self, ticket: Ticket, trial: FinishedTrial) -> Result<(), EngineError>;

    /// Reports that a trial was not started, because the budget is used up.
    fn withdraw(&mut self, _ticket: Ticket) {}

    /// Whether no more trials are needed.
    fn is_done(&self) -> bool;

    /// Offers all results from before an interruption, for searches that can use answers to questions
    /// that they would not ask now. What is left in `past` answers questions as they are asked.
    fn recall(&mut self, _past: &mut Past) {}

    /// The progress; none for a plain list of trials. The driver fills in what it counts itself.
    fn progress(&self) -> Option<SearchStands> {
        None
    }
}

/// A slot as [`Asks`] see it.
#[derive(Debug, Clone)]
pub(crate) struct SlotView<'a> {
    pub(crate) slot: SlotId,
    /// What the trial there was given: reaching something near is cheaper.
    pub(crate) current: Option<&'a Treatment>,
    pub(crate) state: SlotState,
}

/// What a slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// A trial can start at once.
    Free,
    /// This trial runs there, or waits for its predecessor to be cleared.
    Busy(Ticket),
    /// Another trial runs there: a sentinel, or a cancelled one that is being cleared.
    Taken,
}

/// What the driver does next.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) start: Vec<RequestedTrial>,
    pub(crate) cancel: Vec<Ticket>,
}

/// A requested trial.
#[derive(Debug)]
pub(crate) struct RequestedTrial {
    pub(crate) ticket: Ticket,
    pub(crate) role: TrialRole,
    pub(crate) slot: SlotId,
    pub(crate) request: TrialRequest,
}
