//! What is proven: one-minimality, confidence for flaky tests, and which deltas only come with others.
//!
//! Pairs of calls imply one another, so that a cause of one pair can come with pairs that are not
//! needed (DD-F3 of the paper). Such a delta cannot be left out alone; it is pinned by another smallest
//! set that has the rest of the cause but not this delta (research note, "F3 precision").

use faultscope_model::DeltaSet;

use super::Bayes;
use crate::ledger::Verdict;
use crate::standing::Proof;

/// The most deltas of a set whose subsets are all weighed.
const MAX_WEIGHED: usize = 12;

impl Bayes {
    /// What must not fail for the best set to be the answer: the one-smaller sets, and the set without
    /// all deltas that cannot be left out one by one, as settings that must change together cannot.
    fn smaller(&self) -> Vec<DeltaSet> {
        let mut sets = self.problem.neighbours(&self.best);
        let mut bound = DeltaSet::new();
        for set in &sets {
            if self.ledger.get(set) == Some(Verdict::Unresolved) {
                bound = bound.union(&self.best.difference(set));
            }
        }
        if bound.len() > 1 && bound.len() < self.best.len() && !self.is_flaky() {
            let without = self.problem.close(&self.best.difference(&bound));
            sets.extend(without.filter(|set| *set != self.best));
        }
        sets
    }

    /// The smaller sets of the best set whose outcome is needed for the proof and not known.
    pub(super) fn unproven(&self) -> Vec<DeltaSet> {
        let mut sets = self.smaller();
        sets.retain(|set| self.ledger.get(set).is_none());
        sets
    }

    /// A smaller set of the best set that is known to fail.
    pub(super) fn known_smaller(&self) -> Option<DeltaSet> {
        // Mostly there is none, which shows without looking at all of them.
        if !self.ledger.failed().iter().any(|set| *set != self.best && set.is_subset(&self.best)) {
            return None;
        }
        let failed = |set: &DeltaSet| self.ledger.get(set) == Some(Verdict::Fail);
        self.smaller().into_iter().find(|set| set.len() < self.best.len() && failed(set))
    }

    /// Whether the best set is the answer.
    pub(super) fn is_proven(&self) -> bool {
        if self.is_flaky() && self.best.len() > 1 {
            return self.confidence() >= self.options.confidence;
        }
        let is_open =
            |delta| self.one_less(&self.best, delta).is_some_and(|set| self.ledger.get(&set).is_none());
        !self.best.iter().any(is_open) && self.unproven().is_empty()
    }

    pub(super) fn proof(&self) -> Proof {
        let unresolved = self
            .problem
            .neighbours(&self.best)
            .into_iter()
            .any(|set| self.ledger.get(&set) == Some(Verdict::Unresolved));
        if unresolved { Proof::MinimalDespiteUnresolved } else { Proof::Minimal }
    }

    /// How often exactly this set was seen to fail.
    pub(super) fn confirmations(&self, set: &DeltaSet) -> u32 {
        self.trials.iter().filter(|(tried, verdict)| tried == set && *verdict == Verdict::Fail).count() as u32
    }

    /// How probable it is that no smaller set than the best fails, when failing sets pass at times.
    pub(super) fn confidence(&self) -> f64 {
        let items: Vec<usize> = self.best.iter().collect();
        if items.len() > MAX_WEIGHED {
            return 0.0;
        }
        let bits = |set: &DeltaSet| {
            items.iter().enumerate().map(|(bit, &delta)| u32::from(set.contains(delta)) << bit).sum::<u32>()
        };
        let passed: Vec<u32> = self
            .trials
            .iter()
            .filter(|(_, verdict)| *verdict != Verdict::Fail)
            .map(|(set, _)| bits(set))
            .collect();
        let failed: Vec<u32> = self
            .trials
            .iter()
            .filter(|(_, verdict)| *verdict == Verdict::Fail)
            .map(|(set, _)| bits(set))
            .collect();
        let full = (1u32 << items.len()) - 1;
        let missed = (1.0 - self.options.rate).max(1e-6);
        let weight = |cause: u32| {
            if failed.iter().any(|set| cause & !set != 0) {
                return 0.0;
            }
            let chances = passed.iter().filter(|&&set| cause & !set == 0).count();
            // As before any trial: each delta more is less likely, and one of many.
            let size = f64::from(cause.count_ones());
            let prior =
                (self.options.tuning.belief.ratio * size / self.problem.size.max(2) as f64).powf(size);
            prior * missed.powi(chances as i32)
        };
        let total: f64 = (1..=full).map(weight).sum();
        if total > 0.0 { weight(full) / total } else { 0.0 }
    }

    /// What the trials of the rest, without all causes found, have shown; none before that is certain.
    pub(super) fn rest_verdict(&self, rest: &DeltaSet) -> Option<Verdict> {
        let known = self.ledger.get(rest)?;
        if !self.is_flaky() || known == Verdict::Fail {
            return Some(known);
        }
        let passes = self.trials.iter().filter(|(set, _)| set == rest).count();
        let missed = (1.0 - self.options.rate).max(1e-6).powi(passes as i32);
        (missed <= 1.0 - self.options.confidence).then_some(known)
    }

    /// Sets that have the rest of the newest cause but not one delta of it, which cannot be left out
    /// alone; for each such delta the smallest ones.
    fn alternatives(&self) -> Vec<(usize, Vec<DeltaSet>)> {
        let Some(cause) = self.causes.last() else {
            return Vec::new();
        };
        let whole = &cause.witness;
        let implied = whole.iter().filter(|&delta| self.one_less(whole, delta).is_none());
        implied
            .map(|delta| {
                let mut less = whole.clone();
                less.remove(delta);
                let with = |other: usize| {
                    let mut set = less.clone();
                    set.insert(other);
                    self.problem.close(&set).filter(|closed| !closed.contains(delta))
                };
                let others = (0..self.problem.size).filter(|&other| !whole.contains(other));
                let mut sets: Vec<DeltaSet> = others.filter_map(with).collect();
                sets.sort_by_key(|set| (set.len(), set.clone()));
                sets.dedup();
                sets.truncate(self.options.tuning.choice.alternatives);
                (delta, sets)
            })
            .collect()
    }

    /// The trials that pinning the newest cause still needs.
    pub(super) fn pins(&self) -> Vec<DeltaSet> {
        let mut wanted: Vec<DeltaSet> = Vec::new();
        for (_, sets) in self.alternatives() {
            let failed = sets.iter().any(|set| self.ledger.get(set) == Some(Verdict::Fail));
            let next = sets.into_iter().find(|set| self.ledger.get(set).is_none());
            wanted.extend(next.filter(|set| !failed && !wanted.contains(set)));
        }
        wanted
    }

    /// Takes out of the newest cause what other failing sets do without.
    pub(super) fn pin(&mut self) {
        for (delta, sets) in self.alternatives() {
            if sets.iter().any(|set| self.ledger.get(set) == Some(Verdict::Fail))
                && let Some(cause) = self.causes.last_mut()
            {
                cause.core.remove(delta);
            }
        }
    }
}
