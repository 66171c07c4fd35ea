//! Chooses the trials to start and those to give up.

use std::collections::HashMap;

use crate::Ticket;
use faultscope_model::DeltaSet;
use foldhash::fast::FixedState;

use super::pools::{Cells, Shape};
use super::{Bayes, Phase, distance};
use crate::SlotView;

impl Bayes {
    /// Chooses trials for free slots, the most worthy first.
    pub(super) fn choose(&mut self, free: &[&SlotView]) -> Vec<DeltaSet> {
        let slots = free.len();
        match &self.phase {
            _ if slots == 0 => Vec::new(),
            Phase::Done => Vec::new(),
            Phase::Rest(rest) => {
                let runs = self.ledger.running().values().filter(|set| *set == rest).count();
                let wanted = if self.is_flaky() { slots } else { 1 };
                vec![rest.clone(); wanted.saturating_sub(runs)]
            }
            Phase::Pin => {
                let pins = self.pins().into_iter().filter(|set| self.ledger.running_as(set).is_none());
                pins.take(slots).collect()
            }
            Phase::Find if self.idle > self.patience() && !self.is_flaky() => self.last_resort(slots),
            Phase::Find => {
                if let Some(probe) = self.probe() {
                    let mut chosen = self.most_worthy(&free[1..]);
                    chosen.retain(|set| *set != probe);
                    chosen.push(probe);
                    return chosen;
                }
                let chosen = self.most_worthy(free);
                if chosen.is_empty() && self.ledger.running().is_empty() {
                    self.last_resort(slots)
                } else {
                    chosen
                }
            }
        }
    }

    /// A trial without one run that probably belongs together, if the belief has led nowhere for a while.
    ///
    /// Deltas that belong together beside the cause look much like a cause that has them, too, and whose parts make
    /// trials unresolved. A belief in that never tries to do without them.
    fn probe(&mut self) -> Option<DeltaSet> {
        let every = self.options.tuning.choice.probe;
        let is_due = self.idle >= every && self.trials.len() >= self.probed + every;
        if self.ties.is_empty() || self.is_flaky() || !is_due {
            return None;
        }
        self.probed = self.trials.len();
        let ties = self.learn_ties(|_| 0.0);
        let without = |run: &DeltaSet| self.problem.close(&self.best.difference(run));
        let mut probes = ties.likely_runs(&self.best).into_iter().filter_map(|run| without(&run));
        probes.find(|set| *set != self.best && self.is_new(set))
    }

    /// Running trials that tell nothing any more. Unless their slot is needed they may as well finish.
    pub(super) fn needless(&self, crowded: bool) -> Vec<Ticket> {
        let explained = |set: &DeltaSet| self.causes.iter().any(|cause| cause.witness.is_subset(set));
        let stale = self.ledger.running().iter().filter(|(_, set)| explained(set)).map(|(trial, _)| *trial);
        if self.phase != Phase::Find || !crowded {
            return stale.collect();
        }
        let cells = Cells::new(&self.belief, 1.0);
        let proofs = self.proofs(&cells, 1);
        let useless = |set: &DeltaSet| {
            let fails = cells.failing(set);
            let certain = fails.min(1.0 - fails) < self.options.tuning.choice.certain;
            certain && !proofs.iter().any(|(proof, _)| proof == set) && !self.proves(set)
        };
        let running = self.ledger.running().iter();
        running.filter(|(_, set)| explained(set) || useless(set)).map(|(trial, _)| *trial).collect()
    }

    /// Whether a trial of this set is needed for the proof of the best set.
    fn proves(&self, set: &DeltaSet) -> bool {
        set.is_subset(&self.best) && (set.len() + 1 == self.best.len() || self.unproven().contains(set))
    }

    /// After this many trials without a smaller set the belief is not trusted any more.
    pub(super) fn patience(&self) -> usize {
        let tuning = &self.options.tuning.choice;
        let count = self.best.len().max(2) as f64;
        (tuning.patience + tuning.patience_a_bit * count.log2()) as usize
            + (tuning.patience_share * self.trials.len() as f64) as usize
    }

    /// The next sets of a sweep over complements, from halves to single deltas (Algorithm 1). Those that probably cannot
    /// be judged are left for the end.
    pub(super) fn sweep(&self, most: usize) -> Vec<DeltaSet> {
        let likely = self.sweep_where(most, |set| self.ties.resolves(set) >= 0.5);
        if likely.is_empty() { self.sweep_where(most, |_| true) } else { likely }
    }

    fn sweep_where(&self, most: usize, wanted: impl Fn(&DeltaSet) -> bool) -> Vec<DeltaSet> {
        let items: Vec<usize> = self.best.iter().collect();
        let mut sets: Vec<DeltaSet> = Vec::new();
        let mut parts = 2;
        loop {
            for part in crate::ddmin::partition(&items, parts) {
                let part: DeltaSet = part.iter().copied().collect();
                let Some(set) = self.problem.close(&self.best.difference(&part)) else {
                    continue;
                };
                if set != self.best && self.is_new(&set) && !sets.contains(&set) && wanted(&set) {
                    sets.push(set);
                }
                if sets.len() == most {
                    return sets;
                }
            }
            if parts >= items.len() {
                return sets;
            }
            parts = (2 * parts).min(items.len());
        }
    }

    /// What to try when nothing seems worth a trial: what is missing for the proof.
    fn last_resort(&self, slots: usize) -> Vec<DeltaSet> {
        if !self.is_flaky() {
            let mut sets = self.sweep(slots);
            if sets.is_empty() {
                sets = self.unproven();
                sets.truncate(slots);
            }
            return sets;
        }
        let mut smaller: Vec<(usize, DeltaSet)> = self
            .best
            .iter()
            .filter_map(|delta| self.one_less(&self.best, delta))
            .map(|set| (self.trials.iter().filter(|(tried, _)| *tried == set).count(), set))
            .collect();
        smaller.sort();
        smaller.into_iter().map(|(_, set)| set).take(slots).collect()
    }

    fn is_new(&self, set: &DeltaSet) -> bool {
        if self.is_flaky() {
            return *set != self.best && !set.is_empty();
        }
        self.ledger.get(set).is_none() && self.ledger.running_as(set).is_none()
    }

    fn most_worthy(&mut self, free: &[&SlotView]) -> Vec<DeltaSet> {
        let mut random = self.random.clone();
        let tuning = &self.options.tuning.choice;
        let mut cells = Cells::new(&self.belief, self.options.rate as f32);
        for set in self.ledger.running().values() {
            cells.add(set);
        }
        let proofs = self.proofs(&cells, free.len());
        // Near the end, what is started is likely to be cancelled.
        let (_, remaining) = self.outlook_of(&cells);
        let crowd = tuning.crowd * (tuning.near / remaining).min(1.0).powi(2);
        let mut alone = self.ledger.running().is_empty();
        let untied = if self.ties.is_empty() { 0 } else { tuning.untied_pools };
        let shapes = || {
            let drawn = |shape, count| std::iter::repeat_n(shape, count);
            drawn(Shape::Nested, tuning.nested_pools)
                .chain(drawn(Shape::Contiguous, tuning.contiguous_pools))
                .chain(drawn(Shape::Scattered, tuning.scattered_pools))
                .chain(drawn(Shape::Untied, untied))
        };
        let mut chosen: Vec<DeltaSet> = Vec::new();
        for _ in 0..free.len() {
            let running = self.ledger.running().len() + chosen.len();
            let mut best: Option<(f64, DeltaSet)> = None;
            let mut consider = |set: DeltaSet, worth: f64| {
                let switch =
                    free.iter().filter_map(|slot| slot.current.as_ref()).map(|now| distance(now, &set));
                let worth = worth
                    - tuning.switch * switch.min().unwrap_or(0) as f64 / self.problem.size.max(1) as f64;
                if best.as_ref().is_none_or(|(most, _)| worth > *most) {
                    best = Some((worth, set));
                }
            };
            for (set, worth) in &proofs {
                if self.is_flaky() || !chosen.contains(set) {
                    consider(set.clone(), cells.gain(set) * self.ties.resolves(set) + worth);
                }
            }
            for shape in shapes() {
                // A single trial needs no fine tuning: any pool that is hit in half of the cases will do.
                let polish = if alone || shape != Shape::Scattered { 0 } else { tuning.polish };
                let (pool, gain) = match shape {
                    Shape::Untied => cells.propose_untied(&mut random, &self.ties),
                    _ => cells.propose(&mut random, shape, polish),
                };
                let nested = if shape == Shape::Nested { tuning.nested } else { 0.0 };
                let kept = self.problem.keep_kin(pool.clone(), &self.best);
                // What belongs together is taken apart only where the rest tells little any more.
                let apart = (kept != pool).then(|| (pool.clone(), nested - tuning.kin));
                for (asked, extra) in [Some((kept, nested)), apart].into_iter().flatten() {
                    let Some(set) = self.problem.close(&asked) else {
                        continue;
                    };
                    if self.is_new(&set) && (self.is_flaky() || !chosen.contains(&set)) {
                        let gain = if set == pool { gain } else { cells.gain(&set) };
                        let gain = gain * self.ties.resolves(&set);
                        consider(set, gain + extra);
                    }
                }
            }
            let least = tuning.least + crowd * running as f64;
            match best {
                Some((worth, set)) if worth >= least => {
                    cells.add(&set);
                    chosen.push(set);
                    alone = false;
                }
                _ => break,
            }
        }
        self.random = random;
        chosen
    }

    /// The trials that the likeliest causes need for their proof, with what they are worth for it.
    fn proofs(&self, cells: &Cells<'_>, slots: usize) -> Vec<(DeltaSet, f64)> {
        let tuning = &self.options.tuning.choice;
        let mut shares: HashMap<DeltaSet, f64, FixedState> = HashMap::default();
        for (cause, share) in cells.likeliest(tuning.proof_causes) {
            if share < tuning.proof_share {
                break;
            }
            let Some(cause) = self.problem.close(&cause) else {
                continue;
            };
            if self.is_flaky() {
                // How often smaller sets must pass is a matter of information; failing once is proof.
                let shown = self.ledger.get(&cause) == Some(crate::ledger::Verdict::Fail);
                *shares.entry(cause.clone()).or_default() += if shown { 0.0 } else { share };
                for set in cause.iter().filter_map(|delta| self.one_less(&cause, delta)) {
                    shares.entry(set).or_default();
                }
                continue;
            }
            let smaller = cause.iter().filter_map(|delta| self.one_less(&cause, delta));
            let open: Vec<DeltaSet> =
                smaller.chain([cause.clone()]).filter(|set| self.ledger.get(set).is_none()).collect();
            // A proof that is complete after the trials of this moment saves all slots another round.
            let spare = slots.saturating_sub(open.len()) as f64;
            let worth = share * (1.0 + tuning.finish * spare / open.len().max(1) as f64);
            for set in open {
                if self.ledger.running_as(&set).is_none() {
                    *shares.entry(set).or_default() += worth;
                }
            }
        }
        let mut shares: Vec<_> = shares.into_iter().filter(|(set, _)| self.is_new(set)).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        shares.truncate(tuning.most_proofs);
        shares
    }

    /// How probable the best set is as the answer, and how many trials may be left.
    pub(super) fn outlook(&self) -> (f64, f64) {
        self.outlook_of(&Cells::new(&self.belief, 1.0))
    }

    fn outlook_of(&self, cells: &Cells<'_>) -> (f64, f64) {
        let causes = cells.groups();
        let as_large = causes.iter().filter(|(_, cause)| cause.items.len() == self.best.len());
        let right =
            as_large.filter(|(_, cause)| cells.cause(cause) == self.best).map(|(share, _)| share).sum();
        let entropy: f64 = causes.iter().map(|(share, _)| -share * share.log2()).sum();
        let size: f64 = causes.iter().map(|(share, cause)| share * (cause.items.len() as f64 + 1.0)).sum();
        (right, entropy + size)
    }
}
