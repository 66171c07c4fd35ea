//! What needs trials, and what it asks for.

use faultscope_model::event::SearchStands;
use faultscope_model::{DeltaSet, SlotId, TrialRole};
pub(crate) use faultscope_search::Ticket;

use super::past::Past;
use crate::error::EngineError;
use crate::trial::{FinishedTrial, TrialRequest};

/// Something that learns from trials which trials to ask for next: start-up checks, baselines, searches,
/// boundaries, inputs, confirmations.
pub(crate) trait Asks {
    /// Which trials to start on which slots, and which are no longer needed. A slot whose trial is cancelled in
    /// the same move may be asked for: the new trial starts there when the old one is gone.
    fn ask(&mut self, slots: &[SlotView]) -> Result<Moves, EngineError>;

    /// Says what a trial showed.
    fn answer(&mut self, ticket: Ticket, trial: FinishedTrial) -> Result<(), EngineError>;

    /// Says that a trial was not started, as the budget is used up.
    fn withdraw(&mut self, _ticket: Ticket) {}

    /// Whether everything is known.
    fn is_done(&self) -> bool;

    /// Offers everything that trials showed before an interruption, for those who can use answers to questions
    /// that they would not ask now. What is left in `past` answers questions as they are asked.
    fn recall(&mut self, _past: &mut Past) {}

    /// How far it is; none for a plain list of trials. The driver fills in what it counts itself.
    fn progress(&self) -> Option<SearchStands> {
        None
    }
}

/// A slot as those who ask see it.
#[derive(Debug, Clone)]
pub(crate) struct SlotView {
    pub(crate) slot: SlotId,
    /// The deltas that are deployed there now: reaching a near set is cheaper.
    pub(crate) current: Option<DeltaSet>,
    pub(crate) state: SlotState,
}

/// What a slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// A trial can start at once.
    Free,
    /// This trial runs there, or waits until its predecessor is gone.
    Busy(Ticket),
    /// A trial of nobody who asks: a sentinel, or a cancelled one that is being cleared away.
    Taken,
}

/// What to do next.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) start: Vec<Asked>,
    pub(crate) cancel: Vec<Ticket>,
}

/// A trial that is asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    pub(crate) role: TrialRole,
    pub(crate) slot: SlotId,
    pub(crate) request: TrialRequest,
}
