//! Sequential delta debugging: Algorithm 1 of Zhou et al. 2019, section 4.3, exactly.
//!
//! The reference. It asks for one trial at a time, whatever slots there are, treats unresolved trials
//! as passing ones, and answers a set that was tried before from its record.

use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use crate::ledger::{Ledger, Verdict};
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Problem, Search, SlotView, Start};

/// Algorithm 1.
///
/// ```
/// use faultscope_search::{Ddmin, Problem};
/// use faultscope_bench::simulate::{Durations, Oracle, Slots, read, simulate};
/// let instance = &read(r#"{"id":"a-0","n":8,"k":2,"family":"mono","failing":[2,6]}"#).unwrap()[0];
/// let mut search = Ddmin::new(Problem::new(8));
/// let run = simulate(&mut search, &Oracle::new(instance), &Slots::new(1, Durations::Unit), 1000);
/// assert_eq!(run.answer(), &instance.critical());
/// ```
#[derive(Debug)]
pub struct Ddmin {
    problem: Problem,
    ledger: Ledger,
    /// X, in order.
    left: Vec<usize>,
    granularity: usize,
    /// Subsets and then complements of this granularity that are known not to fail.
    passed: usize,
    done: bool,
    best: DeltaSet,
    unresolved: bool,
}

impl Ddmin {
    /// Searches all deltas of a problem.
    pub fn new(problem: Problem) -> Self {
        let left: Vec<usize> = problem.full().iter().collect();
        let best = problem.full();
        let mut ledger = Ledger::default();
        ledger.learn(DeltaSet::new(), Verdict::Pass);
        ledger.learn(best.clone(), Verdict::Fail);
        let done = left.len() < 2;
        Self { problem, ledger, left, granularity: 2, passed: 0, done, best, unresolved: false }
    }

    /// Follows the algorithm as far as outcomes are known; gives the first set whose outcome is not.
    fn next(&mut self) -> Option<DeltaSet> {
        while !self.done {
            let parts = partition(&self.left, self.granularity);
            let count = parts.len();
            while self.passed < 2 * count {
                let part: DeltaSet = parts[self.passed % count].iter().copied().collect();
                let complement = self.passed >= count;
                let whole: DeltaSet = self.left.iter().copied().collect();
                let asked = if complement { whole.difference(&part) } else { part };
                // An invalid circumstance is answered without execution (section 4.4).
                let verdict = match self.problem.close(&asked) {
                    None => Some(Verdict::Pass),
                    Some(closed) if closed == whole => Some(Verdict::Pass),
                    Some(closed) => match self.ledger.get(&closed) {
                        None => return Some(closed),
                        known => known,
                    },
                };
                if verdict == Some(Verdict::Fail) {
                    let next = if complement { (self.granularity - 1).max(2) } else { 2 };
                    self.reduce(&asked, next);
                    break;
                }
                self.passed += 1;
            }
            if self.passed == 2 * count {
                if self.granularity < self.left.len() {
                    self.granularity = self.left.len().min(2 * self.granularity);
                    self.passed = 0;
                } else {
                    self.done = true;
                }
            }
        }
        None
    }

    fn reduce(&mut self, to: &DeltaSet, granularity: usize) {
        self.best = self.problem.close(to).unwrap_or_else(|| to.clone());
        self.left.retain(|&delta| to.contains(delta));
        self.granularity = granularity;
        self.passed = 0;
        self.done = self.left.len() < 2;
    }
}

impl Search for Ddmin {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        if in_flight.is_empty()
            && let Some(slot) = slots.iter().find(|slot| slot.busy.is_none())
            && let Some(set) = self.next()
        {
            let trial = self.ledger.start(set.clone());
            moves.start.push(Start { trial, set, slot: slot.slot });
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        self.unresolved |= matches!(outcome, Outcome::Unresolved { .. });
        self.ledger.finish(trial, outcome.into());
        self.next();
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        self.ledger.learn(set.clone(), outcome.into());
        self.next();
    }

    fn lose(&mut self, trial: Ticket) {
        self.ledger.drop(trial);
    }

    fn standing(&self) -> Standing {
        let proof = proof(self.done, self.unresolved);
        let cause = Cause { witness: self.best.clone(), core: self.best.clone(), proof, confirmations: 1 };
        Standing {
            best: self.best.clone(),
            proof,
            causes: if self.done { vec![cause] } else { Vec::new() },
            left: self.left.len(),
            unproven: if self.done { 0 } else { self.left.len() },
            belief: if self.done { 1.0 } else { 0.0 },
            finished: self.ledger.finished(),
            round: self.ledger.finished(),
            // What is left of this granularity, and a trial for each later halving.
            remaining: match self.done {
                true => 0.0,
                false => {
                    let open = (2 * self.granularity).saturating_sub(self.passed) as f64;
                    open + (self.left.len() as f64 / self.granularity as f64).max(1.0).log2()
                }
            },
            none_left: false,
        }
    }
}

pub(crate) fn proof(done: bool, unresolved: bool) -> Proof {
    match (done, unresolved) {
        (false, _) => Proof::Fails,
        (true, false) => Proof::Minimal,
        (true, true) => Proof::MinimalDespiteUnresolved,
    }
}

/// Splits into `n` parts whose sizes differ by at most one; none of them is empty.
pub(crate) fn partition(items: &[usize], parts: usize) -> Vec<&[usize]> {
    let parts = parts.min(items.len());
    (0..parts).map(|i| &items[i * items.len() / parts..(i + 1) * items.len() / parts]).collect()
}
