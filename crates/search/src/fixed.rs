//! The simplest search: a list of sets, each tried once, in order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use crate::{Moves, Search, SlotView, Start};

/// Tries each of a list of sets once, on whatever slots are free.
///
/// ```
/// use faultscope_search::{Fixed, Search, SlotView};
/// use faultscope_model::{DeltaSet, Outcome, SlotId};
/// let mut search = Fixed::new(vec![DeltaSet::new()]);
/// let slots = [SlotView { slot: SlotId(0), current: None, busy: None }];
/// let moves = search.plan(&slots, &[]);
/// search.record(moves.start[0].trial, &Outcome::Pass, std::time::Duration::ZERO);
/// assert!(search.is_done());
/// ```
#[derive(Debug)]
pub struct Fixed {
    waiting: VecDeque<(Ticket, DeltaSet)>,
    running: BTreeMap<Ticket, DeltaSet>,
    outcomes: Vec<(Ticket, DeltaSet, Outcome)>,
    stop_at_failure: bool,
}

impl Fixed {
    /// Tries these sets.
    pub fn new(sets: Vec<DeltaSet>) -> Self {
        let waiting = sets.into_iter().zip(1..).map(|(set, number)| (Ticket(number), set)).collect();
        Self { waiting, running: BTreeMap::new(), outcomes: Vec::new(), stop_at_failure: false }
    }

    /// The same, but the first failing trial makes the others needless.
    pub fn stop_at_failure(mut self) -> Self {
        self.stop_at_failure = true;
        self
    }

    /// What was found, in the order in which trials finished.
    pub fn outcomes(&self) -> &[(Ticket, DeltaSet, Outcome)] {
        &self.outcomes
    }

    fn has_failure(&self) -> bool {
        self.outcomes.iter().any(|(_, _, outcome)| matches!(outcome, Outcome::Fail { .. }))
    }
}

impl Search for Fixed {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        if self.stop_at_failure && self.has_failure() {
            self.waiting.clear();
            self.running.clear();
            return Moves { start: Vec::new(), cancel: in_flight.to_vec() };
        }
        let mut moves = Moves::default();
        for slot in slots.iter().filter(|slot| slot.busy.is_none()) {
            let Some((trial, set)) = self.waiting.pop_front() else {
                break;
            };
            self.running.insert(trial, set.clone());
            moves.start.push(Start { trial, set, slot: slot.slot });
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        if let Some(set) = self.running.remove(&trial) {
            self.outcomes.push((trial, set, outcome.clone()));
        }
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }
}
