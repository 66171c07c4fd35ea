//! What a search has asked and learnt: running trials and known outcomes.

use std::collections::{BTreeMap, HashMap};

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};
use foldhash::fast::FixedState;

/// An outcome without its particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Pass,
    Fail,
    Unresolved,
}

impl From<&Outcome> for Verdict {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Pass => Self::Pass,
            Outcome::Fail { .. } => Self::Fail,
            Outcome::Unresolved { .. } => Self::Unresolved,
        }
    }
}

/// Running trials and known outcomes, by the set that is really deployed.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    running: BTreeMap<Ticket, DeltaSet>,
    known: HashMap<DeltaSet, Verdict, FixedState>,
    /// The sets that are known to fail.
    failed: Vec<DeltaSet>,
    numbered: u64,
    finished: u32,
}

impl Ledger {
    /// A number that was never used before.
    pub(crate) fn start(&mut self, set: DeltaSet) -> Ticket {
        self.numbered += 1;
        let trial = Ticket(self.numbered);
        self.running.insert(trial, set);
        trial
    }

    /// Ends a running trial and says which set it tried; none when it is not known or was given up.
    pub(crate) fn finish(&mut self, trial: Ticket, verdict: Verdict) -> Option<DeltaSet> {
        let set = self.running.remove(&trial)?;
        self.finished += 1;
        self.learn(set.clone(), verdict);
        Some(set)
    }

    /// Gives a running trial up.
    pub(crate) fn drop(&mut self, trial: Ticket) -> Option<DeltaSet> {
        self.running.remove(&trial)
    }

    /// Learns an outcome. A failure stays one: a flaky test that fails once can fail.
    pub(crate) fn learn(&mut self, set: DeltaSet, verdict: Verdict) {
        if verdict == Verdict::Fail {
            if self.known.insert(set.clone(), verdict) != Some(verdict) {
                self.failed.push(set);
            }
        } else {
            self.known.entry(set).or_insert(verdict);
        }
    }

    pub(crate) fn get(&self, set: &DeltaSet) -> Option<Verdict> {
        self.known.get(set).copied()
    }

    /// The sets that are known to fail.
    pub(crate) fn failed(&self) -> &[DeltaSet] {
        &self.failed
    }

    pub(crate) fn running(&self) -> &BTreeMap<Ticket, DeltaSet> {
        &self.running
    }

    pub(crate) fn running_as(&self, set: &DeltaSet) -> Option<Ticket> {
        self.running.iter().find(|(_, running)| *running == set).map(|(trial, _)| *trial)
    }

    /// How many trials have finished.
    pub(crate) fn finished(&self) -> u32 {
        self.finished
    }
}
