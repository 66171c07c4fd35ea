//! Simulated systems with known defects, and a loop in which a search explores them.

mod actors;
mod services;
mod systems;

pub use actors::{Asserted, Defects, Mutant};
pub use services::{Fallback, Tree};
pub use systems::{System, SystemError};

use std::time::Duration;

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::{DeltaSet, Outcome, SlotId};
use faultscope_search::Ticket;

use faultscope_search::resilience::Clues;
use faultscope_search::{Search, SlotView, Standing};

/// The cost and the result of an exploration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Explored {
    /// Number of trials.
    pub trials: u32,
    /// Rounds of as many trials as there are slots.
    pub rounds: u32,
    /// The final state of the search.
    pub standing: Standing,
}

/// Lets a search explore what `run` answers, with equal durations, until it is done
/// or the limit of trials is reached.
pub fn explore(
    search: &mut dyn Search,
    slots: u16,
    most: u32,
    mut run: impl FnMut(&DeltaSet) -> (Outcome, Clues),
) -> Explored {
    let mut explored = Explored::default();
    let views: Vec<SlotView> =
        (0..slots).map(|slot| SlotView { slot: SlotId(slot), current: None, busy: None }).collect();
    let nothing: [Ticket; 0] = [];
    while !search.is_done() && explored.trials < most {
        let moves = search.plan(&views, &nothing);
        if moves.start.is_empty() {
            break;
        }
        explored.rounds += 1;
        for start in moves.start {
            explored.trials += 1;
            let (outcome, clues) = run(&start.set);
            search.hear(start.trial, &clues);
            search.record(start.trial, &outcome, Duration::ZERO);
        }
    }
    explored.standing = search.standing();
    explored
}

/// The failure of a simulated test.
pub(crate) fn failure(message: String) -> Outcome {
    Outcome::Fail { signature: Signature { test: "system".into(), ending: Ending::Case, message } }
}
