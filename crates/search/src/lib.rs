//! Searches over trials: a search asks, the engine answers.
//!
//! A search is a state machine. It is told which slots there are and what runs in them, says which
//! trials to start and which are no longer needed, and is told what each finished trial showed. It
//! knows no async, no clock and no I/O, so that the same code runs on simulated and on real slots.

mod fixed;

pub use fixed::Fixed;

use std::time::Duration;

use faultscope_model::{DeltaSet, Outcome, SlotId, TrialId};

/// A search over sets of deltas.
pub trait Search {
    /// Says which trials to start on which free slots, and which running ones are no longer needed.
    fn plan(&mut self, slots: &[SlotView], in_flight: &[TrialId]) -> Moves;

    /// Records what a finished trial showed and took. Repetitions of a set are trials of their own.
    fn record(&mut self, trial: TrialId, outcome: &Outcome, cost: Duration);

    /// Whether everything is known that the search wants to know.
    fn is_done(&self) -> bool;
}

/// A slot as a search sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotView {
    /// Which.
    pub slot: SlotId,
    /// The deltas that are deployed there now: reaching a near set is cheaper.
    pub current: Option<DeltaSet>,
    /// The trial that runs there.
    pub busy: Option<TrialId>,
}

/// What a search wants to happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    /// Trials to start.
    pub start: Vec<Start>,
    /// Running trials whose answer is no longer needed.
    pub cancel: Vec<TrialId>,
}

/// A trial to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its number, chosen by the search, never used before.
    pub trial: TrialId,
    /// Its deltas.
    pub set: DeltaSet,
    /// Where.
    pub slot: SlotId,
}
