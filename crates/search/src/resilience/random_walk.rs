//! RT-R: one perturbation at a time, in random order (section 4.1).

use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use super::Targets;
use crate::ledger::{Ledger, Verdict};
use crate::random::Random;
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Search, SlotView, Start};

/// The paper's baseline: every perturbation by itself until one changes the outcome.
#[derive(Debug)]
pub struct RtR {
    order: Vec<usize>,
    ledger: Ledger,
    found: Option<DeltaSet>,
}

impl RtR {
    /// Tries the candidates in an order drawn from the seed.
    pub fn new(targets: &Targets, seed: u64) -> Self {
        let mut order: Vec<usize> = (0..targets.candidates.len()).collect();
        Random::new(seed).shuffle(&mut order);
        Self { order, ledger: Ledger::default(), found: None }
    }

    fn open(&self) -> impl Iterator<Item = DeltaSet> + '_ {
        let singles = self.order.iter().map(|&place| DeltaSet::from_iter([place]));
        singles.filter(|set| self.ledger.get(set).is_none())
    }
}

impl Search for RtR {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        if self.is_done() {
            moves.cancel = in_flight.to_vec();
            return moves;
        }
        let free = slots.iter().filter(|slot| slot.busy.is_none());
        let waiting: Vec<DeltaSet> =
            self.open().filter(|set| self.ledger.running_as(set).is_none()).collect();
        for (slot, set) in free.zip(waiting) {
            let trial = self.ledger.start(set.clone());
            moves.start.push(Start { trial, set, slot: slot.slot });
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        let verdict = outcome.into();
        if let Some(set) = self.ledger.finish(trial, verdict) {
            self.notice(set, verdict);
        }
    }

    fn is_done(&self) -> bool {
        self.found.is_some() || self.open().next().is_none()
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        self.ledger.learn(set.clone(), outcome.into());
        self.notice(set.clone(), outcome.into());
    }

    fn lose(&mut self, trial: Ticket) {
        self.ledger.drop(trial);
    }

    fn standing(&self) -> Standing {
        let cause = self.found.clone().map(|set| Cause {
            witness: set.clone(),
            core: set,
            proof: Proof::Minimal,
            confirmations: 1,
        });
        let left = self.open().count();
        Standing {
            best: self.found.clone().unwrap_or_default(),
            proof: if self.found.is_some() { Proof::Minimal } else { Proof::Given },
            causes: cause.into_iter().collect(),
            none_left: self.found.is_none() && left == 0,
            left,
            finished: self.ledger.finished(),
            remaining: left as f64 / 2.0,
            ..Standing::default()
        }
    }
}

impl RtR {
    fn notice(&mut self, set: DeltaSet, verdict: Verdict) {
        if verdict == Verdict::Fail && set.len() == 1 {
            self.found.get_or_insert(set);
        }
    }
}
