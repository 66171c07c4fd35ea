//! RT-DD and RT-DD-O: delta debugging over perturbations (sections 4.2 and 4.3).
//!
//! Zeller's general algorithm with a passing set, empty at first, and a failing one, all perturbations at
//! first, as the paper's tool has it: the empty set is really run, the halves one after the other, the
//! second even where the first tells its outcome.

use std::collections::HashMap;
use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use super::{Clues, Targets};
use crate::ledger::{Ledger, Verdict};
use crate::random::Random;
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Search, SlotView, Start};

/// The paper's delta debugging; one trial at a time.
#[derive(Debug)]
pub struct RtDd {
    targets: Targets,
    /// Prune by causality (RT-DD-O).
    optimised: bool,
    /// The order of all candidates; sets are cut along it.
    order: Vec<usize>,
    ledger: Ledger,
    /// Whose assertion failed first, by set.
    blamed: HashMap<DeltaSet, usize>,
    clues: HashMap<Ticket, Clues>,
    next: Next,
}

#[derive(Debug, Clone, PartialEq)]
enum Next {
    Ask(DeltaSet),
    /// The passing and the failing set at the end; none when all together pass.
    Done(Option<(DeltaSet, DeltaSet)>),
}

impl RtDd {
    /// Searches all candidates, cut at random from the seed; `optimised` prunes by causality as soon as
    /// the failing actor is known (RT-DD-O), and is RT-DD when it is not.
    pub fn new(targets: Targets, optimised: bool, seed: u64) -> Self {
        let mut order: Vec<usize> = (0..targets.candidates.len()).collect();
        Random::new(seed).shuffle(&mut order);
        let next = Next::Ask(targets.full());
        let (ledger, blamed, clues) = (Ledger::default(), HashMap::new(), HashMap::new());
        let mut search = Self { targets, optimised, order, ledger, blamed, clues, next };
        search.settle();
        search
    }

    /// Whether pruning was asked for, but no trial named a failing actor.
    pub fn is_unaided(&self) -> bool {
        let full = self.targets.full();
        self.optimised && self.ledger.get(&full) == Some(Verdict::Fail) && !self.blamed.contains_key(&full)
    }

    fn settle(&mut self) {
        self.next = self.follow().unwrap_or_else(Next::Ask);
    }

    /// Follows the algorithm as far as outcomes are known; the error is the set that is needed next.
    fn follow(&self) -> Result<Next, DeltaSet> {
        let test = |set: &DeltaSet| self.ledger.get(set).ok_or_else(|| set.clone());
        let mut fail = self.targets.full();
        if fail.is_empty() || test(&fail)? != Verdict::Fail {
            return Ok(Next::Done(None));
        }
        if self.optimised
            && let Some(&actor) = self.blamed.get(&fail)
        {
            let pruned = self.targets.affecting(actor);
            // Where causality misleads, the whole stays the failing set.
            if !pruned.is_empty() && test(&pruned)? == Verdict::Fail {
                fail = pruned;
            }
        }
        let mut pass = DeltaSet::new();
        if test(&pass)? == Verdict::Fail {
            return Ok(Next::Done(Some((pass.clone(), pass))));
        }
        let mut count = 2;
        loop {
            let between = fail.difference(&pass);
            let items: Vec<usize> = self.order.iter().copied().filter(|&p| between.contains(p)).collect();
            if items.len() < 2 {
                return Ok(Next::Done(Some((pass, fail))));
            }
            // As the paper's tool cuts: what a division leaves over is a part of its own.
            let size = (items.len() / count).max(1);
            let parts: Vec<DeltaSet> =
                items.chunks(size).map(|part| part.iter().copied().collect()).collect();
            let find = |wanted: Verdict, set: &dyn Fn(&DeltaSet) -> DeltaSet| {
                for part in &parts {
                    let set = set(part);
                    if test(&set)? == wanted {
                        return Ok::<_, DeltaSet>(Some(set));
                    }
                }
                Ok(None)
            };
            let more = |part: &DeltaSet| pass.union(part);
            let less = |part: &DeltaSet| fail.difference(part);
            if let Some(set) = find(Verdict::Fail, &more)? {
                (fail, count) = (set, 2);
            } else if let Some(set) = find(Verdict::Pass, &less)? {
                (pass, count) = (set, 2);
            } else if let Some(set) = find(Verdict::Pass, &more)? {
                (pass, count) = (set, (count - 1).max(2));
            } else if let Some(set) = find(Verdict::Fail, &less)? {
                (fail, count) = (set, (count - 1).max(2));
            } else if count < items.len() {
                count = (2 * count).min(items.len());
            } else {
                return Ok(Next::Done(Some((pass, fail))));
            }
        }
    }

    fn learn(&mut self, set: &DeltaSet, clues: Option<Clues>) {
        let actor = clues.and_then(|clues| self.targets.actor(clues.blamed.first()?));
        if let Some(actor) = actor {
            self.blamed.insert(set.clone(), actor);
        }
        self.settle();
    }
}

impl Search for RtDd {
    fn plan(&mut self, slots: &[SlotView], _in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        let free = slots.iter().find(|slot| slot.busy.is_none());
        if let (Next::Ask(set), Some(slot)) = (&self.next, free)
            && self.ledger.running().is_empty()
        {
            let set = set.clone();
            let trial = self.ledger.start(set.clone());
            moves.start.push(Start { trial, set, slot: slot.slot });
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        let clues = self.clues.remove(&trial);
        if let Some(set) = self.ledger.finish(trial, outcome.into()) {
            self.learn(&set, clues);
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.next, Next::Done(_))
    }

    fn hear(&mut self, trial: Ticket, clues: &Clues) {
        self.clues.insert(trial, clues.clone());
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        self.ledger.learn(set.clone(), outcome.into());
        self.learn(set, None);
    }

    fn lose(&mut self, trial: Ticket) {
        self.ledger.drop(trial);
    }

    fn standing(&self) -> Standing {
        let mut standing = Standing { finished: self.ledger.finished(), ..Standing::default() };
        match &self.next {
            Next::Ask(set) => {
                standing.best = self.targets.full();
                standing.left = set.len().max(1);
                standing.remaining = 1.5 * (standing.left as f64).log2() + 1.0;
            }
            Next::Done(None) => standing.none_left = self.ledger.get(&self.targets.full()).is_some(),
            Next::Done(Some((pass, fail))) => {
                // With a passing set that is not empty only the difference is minimal.
                let proof = if pass.is_empty() { Proof::Minimal } else { Proof::Fails };
                let core = fail.difference(pass);
                let cause = Cause { witness: fail.clone(), core, proof, confirmations: 1 };
                (standing.best, standing.proof, standing.belief) = (fail.clone(), proof, 1.0);
                standing.causes.push(cause);
            }
        }
        standing
    }
}
