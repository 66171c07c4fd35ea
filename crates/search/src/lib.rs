//! Searches over trials: a search asks, the engine answers.
//!
//! A search is a state machine. It gets the free slots and the running trials, answers with the trials to
//! start and those that are no longer needed, and learns from the verdict of each finished trial. It
//! knows no async, no clock and no I/O, so that the same code runs on simulated and on real slots.
//!
//! Three searches find the smallest set of deltas that still fails: [`Ddmin`] and [`DdminPar`] are the
//! paper's (Zhou et al. 2019, sections 4.3 and 4.4) and the yardstick; [`Bayes`] is the default.
//! [`resilience`] explores which perturbations of a test's run change its outcome.

mod bayes;
mod boundary;
mod confirm;
mod ddmin;
mod ddmin_par;
mod fixed;
mod ledger;
mod problem;
use faultscope_model::random;
pub mod resilience;
mod standing;
mod tuning;

pub use bayes::{Bayes, BayesOptions};
pub use boundary::{Boundary, FoundBoundary, Line, Side, Steps};
pub use confirm::{Confirm, ConfirmPlan, Tally};
pub use ddmin::Ddmin;
pub use ddmin_par::DdminPar;
pub use fixed::Fixed;
pub use problem::Problem;
pub use standing::{Cause, Proof, Round, Standing, Task, TaskEnd, TaskKind};
pub use tuning::{BeliefTuning, BoundaryTuning, ChoiceTuning, SuspicionTuning, Tuning};

use std::fmt;
use std::time::Duration;

use faultscope_model::perturbation::Perturbation;
use faultscope_model::{DeltaSet, Outcome, SlotId};

/// A search over sets of deltas.
pub trait Search {
    /// Says which trials to start on which free slots, and which running ones are no longer needed.
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves;

    /// Records what a finished trial showed and took. Repetitions of a set are trials of their own.
    fn record(&mut self, trial: Ticket, outcome: &Outcome, cost: Duration);

    /// Whether everything is known that the search wants to know; may become true in [`Self::plan`].
    fn is_done(&self) -> bool;

    /// Tells what an earlier trial of a set showed: a start-up check, or a campaign that is resumed.
    fn recall(&mut self, _set: &DeltaSet, _outcome: &Outcome) {}

    /// Tells what a running trial showed beyond its outcome, before that is recorded.
    fn hear(&mut self, _trial: Ticket, _clues: &resilience::Clues) {}

    /// Tells what an earlier trial of a set showed beyond its outcome, before that is recalled.
    fn hear_of(&mut self, _set: &DeltaSet, _clues: &resilience::Clues) {}

    /// The perturbations of a set, where the search itself finds out which ones there are.
    fn perturbations(&self, _set: &DeltaSet) -> Vec<Perturbation> {
        Vec::new()
    }

    /// Tells that a running trial ended without an outcome; its set may be asked for again.
    fn lose(&mut self, _trial: Ticket) {}

    /// The answer so far, and what is proven about it.
    fn standing(&self) -> Standing {
        Standing::default()
    }

    /// What became of the tasks of each round (the paper's Figure 4 and Table 4).
    fn rounds(&self) -> &[Round] {
        &[]
    }
}

/// The number by which a search knows a trial: its own, from 1, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ticket {}", self.0)
    }
}

/// A slot as a search sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotView {
    /// Which.
    pub slot: SlotId,
    /// The deltas that are deployed there now: reaching a near set is cheaper.
    pub current: Option<DeltaSet>,
    /// The trial that runs there.
    pub busy: Option<Ticket>,
}

/// What a search wants to happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    /// Trials to start.
    pub start: Vec<Start>,
    /// Running trials whose answer is no longer needed.
    pub cancel: Vec<Ticket>,
}

/// A trial to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// Its number, chosen by the search, never used before.
    pub trial: Ticket,
    /// Its deltas.
    pub set: DeltaSet,
    /// Where.
    pub slot: SlotId,
}
