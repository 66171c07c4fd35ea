//! Screen, aim, confirm, peel: every defect, each minimal, for perturbations that a correct system tolerates
//! all at once.
//!
//! Beyond De Bleser et al. 2020: one trial with all perturbations clears a sound system. When it fails,
//! the most suspicious perturbation is tried by itself; if that misses, the suspects are cut along their
//! weights, and what follows from the other parts is not tried. A perturbation that fails by itself is an
//! answer; all of its kind at its actor are taken out and the rest is screened again. When no single one
//! fails, several are needed together, and are found one by one by the same cuts.

mod hunt;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use crate::Ticket;
use faultscope_model::{DeltaSet, Outcome};

use super::{Clues, Targets};
use crate::ledger::{Ledger, Verdict};
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Search, SlotView, Start, Tuning};
use hunt::Hunt;

/// What can be chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreenOptions {
    /// How often a failing set shows its failure; 1 for a stable test.
    pub rate: f64,
    /// How certain a pass must be when the test is flaky.
    pub confidence: f64,
    /// Whether, after all is clear, every kind is screened alone: kinds can hide one another.
    pub each_kind: bool,
    /// What random choices are drawn from.
    pub seed: u64,
    /// The constants of the search.
    pub tuning: Tuning,
}

impl Default for ScreenOptions {
    fn default() -> Self {
        Self { rate: 1.0, confidence: 0.99, each_kind: false, seed: 1, tuning: Tuning::default() }
    }
}

/// The default search for neutral perturbations.
#[derive(Debug)]
pub struct Screen {
    targets: Targets,
    options: ScreenOptions,
    ledger: Ledger,
    /// How often a set passed.
    passes: HashMap<DeltaSet, u32>,
    blamed: HashMap<DeltaSet, Vec<usize>>,
    clues: HashMap<Ticket, Clues>,
    screens: VecDeque<DeltaSet>,
    hunt: Option<Hunt>,
    causes: Vec<Cause>,
    /// How often each candidate could not be carried out.
    vanished: BTreeMap<usize, u32>,
    /// Candidates about which nothing could be learnt.
    unresolved: DeltaSet,
    kinds_screened: bool,
    slots: usize,
    round: u32,
}

impl Screen {
    /// Searches all candidates.
    pub fn new(targets: Targets, options: ScreenOptions) -> Self {
        let screens = VecDeque::from([targets.full()]);
        let mut search = Self {
            targets,
            kinds_screened: !options.each_kind,
            options,
            ledger: Ledger::default(),
            passes: HashMap::new(),
            blamed: HashMap::new(),
            clues: HashMap::new(),
            screens,
            hunt: None,
            causes: Vec::new(),
            vanished: BTreeMap::new(),
            unresolved: DeltaSet::new(),
            slots: 1,
            round: 0,
        };
        search.settle();
        search
    }

    /// Candidates that could not be carried out, or whose trials could not be judged.
    pub fn unresolved(&self) -> &DeltaSet {
        &self.unresolved
    }

    /// How many passes of a set are needed to believe them.
    fn needed(&self) -> u32 {
        if self.options.rate >= 1.0 {
            return 1;
        }
        let missed = (1.0 - self.options.rate).clamp(1e-6, 1.0 - 1e-6);
        ((1.0 - self.options.confidence).ln() / missed.ln()).ceil().max(1.0) as u32
    }

    fn verdict(&self, set: &DeltaSet) -> Option<Verdict> {
        match self.ledger.get(set)? {
            Verdict::Pass if self.passes.get(set).copied().unwrap_or(0) < self.needed() => None,
            verdict => Some(verdict),
        }
    }

    fn learn(&mut self, set: &DeltaSet, verdict: Verdict, clues: Option<&Clues>) {
        if verdict == Verdict::Pass {
            *self.passes.entry(set.clone()).or_default() += 1;
        }
        if let Some(clues) = clues {
            self.take(set, verdict, clues);
        }
        self.settle();
    }

    /// Takes what a trial showed beyond its outcome.
    fn take(&mut self, set: &DeltaSet, verdict: Verdict, clues: &Clues) {
        let actors = clues.blamed.iter().filter_map(|name| self.targets.actor(name)).collect();
        self.blamed.insert(set.clone(), actors);
        if verdict != Verdict::Unresolved || clues.missed.is_empty() {
            return;
        }
        for place in clues.missed.iter() {
            *self.vanished.entry(place).or_default() += 1;
        }
        // Without what was not carried out it was a trial like any other.
        let carried = set.difference(&clues.missed);
        if let Some(shown) = clues.shown.as_ref().map(Verdict::from)
            && shown != Verdict::Unresolved
        {
            self.blamed.insert(carried.clone(), self.blamed[set].clone());
            self.ledger.learn(carried.clone(), shown);
            if shown == Verdict::Pass {
                *self.passes.entry(carried.clone()).or_default() += 1;
            }
            if let Some(screen) = self.screens.iter_mut().find(|screen| **screen == *set) {
                *screen = carried;
                self.screen_missed(&clues.missed);
            }
        }
    }

    /// Screens what was not carried out by itself, once: what vanishes twice is given up.
    fn screen_missed(&mut self, missed: &DeltaSet) {
        let again: DeltaSet = missed.iter().filter(|place| self.vanished[place] < 2).collect();
        self.unresolved = self.unresolved.union(&missed.difference(&again));
        if !again.is_empty() {
            self.screens.push_back(again);
        }
    }

    /// Goes on as far as outcomes are known.
    fn settle(&mut self) {
        loop {
            let moved = if self.hunt.is_some() { self.settle_hunt() } else { self.settle_screen() };
            if !moved {
                return;
            }
        }
    }

    fn settle_screen(&mut self) -> bool {
        let Some(screen) = self.screens.front().cloned() else {
            if self.kinds_screened || !self.causes.is_empty() {
                return false;
            }
            self.kinds_screened = true;
            let mut kinds: BTreeMap<_, DeltaSet> = BTreeMap::new();
            for (place, candidate) in self.targets.candidates.iter().enumerate() {
                kinds.entry(candidate.perturbation.kind).or_default().insert(place);
            }
            if kinds.len() > 1 {
                self.screens.extend(kinds.into_values());
            }
            return !self.screens.is_empty();
        };
        if screen.is_empty() {
            self.screens.pop_front();
            return true;
        }
        match self.verdict(&screen) {
            None => return false,
            Some(Verdict::Pass) => {}
            Some(Verdict::Fail) => self.start_hunt(screen),
            Some(Verdict::Unresolved) if screen.len() > 1 => {
                let items: Vec<usize> = screen.iter().collect();
                for part in crate::ddmin::partition(&items, 2) {
                    self.screens.push_back(part.iter().copied().collect());
                }
            }
            Some(Verdict::Unresolved) => self.unresolved = self.unresolved.union(&screen),
        }
        self.screens.pop_front();
        true
    }

    fn blame(&self, set: &DeltaSet) -> &[usize] {
        self.blamed.get(set).map_or(&[], Vec::as_slice)
    }

    /// The sets that are wanted now, the most urgent first.
    fn wanted(&self) -> Vec<DeltaSet> {
        let Some(hunt) = &self.hunt else {
            return self.screens.iter().filter(|set| !set.is_empty()).cloned().collect();
        };
        self.wanted_by(hunt)
    }
}

impl Search for Screen {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        self.slots = slots.len().max(1);
        self.round += 1;
        if self.is_done() {
            moves.cancel = in_flight.to_vec();
            return moves;
        }
        let wanted = self.wanted();
        let stale: Vec<Ticket> = self
            .ledger
            .running()
            .iter()
            .filter(|(_, set)| !wanted.contains(set))
            .map(|(trial, _)| *trial)
            .collect();
        for trial in stale {
            self.ledger.drop(trial);
            moves.cancel.push(trial);
        }
        let is_free = |slot: &&SlotView| slot.busy.is_none_or(|trial| moves.cancel.contains(&trial));
        let mut free = slots.iter().filter(is_free).map(|slot| slot.slot).collect::<VecDeque<_>>();
        for set in wanted {
            let running = self.ledger.running().values().filter(|running| **running == set).count() as u32;
            let passed = self.passes.get(&set).copied().unwrap_or(0);
            for _ in 0..self.needed().saturating_sub(running + passed) {
                let Some(slot) = free.pop_front() else {
                    break;
                };
                let trial = self.ledger.start(set.clone());
                moves.start.push(Start { trial, set: set.clone(), slot });
            }
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        let clues = self.clues.remove(&trial);
        let Some(set) = self.ledger.finish(trial, outcome.into()) else {
            return;
        };
        self.learn(&set, outcome.into(), clues.as_ref());
    }

    fn is_done(&self) -> bool {
        self.screens.is_empty() && self.hunt.is_none()
    }

    fn hear(&mut self, trial: Ticket, clues: &Clues) {
        self.clues.insert(trial, clues.clone());
    }

    fn recall(&mut self, set: &DeltaSet, outcome: &Outcome) {
        self.ledger.learn(set.clone(), outcome.into());
        self.learn(set, outcome.into(), None);
    }

    fn hear_of(&mut self, set: &DeltaSet, clues: &Clues) {
        let actors = clues.blamed.iter().filter_map(|name| self.targets.actor(name)).collect();
        self.blamed.insert(set.clone(), actors);
    }

    fn lose(&mut self, trial: Ticket) {
        self.ledger.drop(trial);
    }

    fn standing(&self) -> Standing {
        let known = self.hunt.as_ref().map(|hunt| hunt.known.clone());
        let left = match (&self.hunt, self.screens.front()) {
            (Some(hunt), _) => hunt.suspects.len(),
            (None, Some(screen)) => screen.len(),
            (None, None) => 0,
        };
        let remaining = match &self.hunt {
            Some(_) => (left.max(1) as f64).log2() + 2.0,
            None => self.screens.len() as f64,
        };
        Standing {
            best: known.or_else(|| self.causes.first().map(|c| c.witness.clone())).unwrap_or_default(),
            proof: if self.causes.is_empty() { Proof::Given } else { Proof::Minimal },
            causes: self.causes.clone(),
            none_left: self.is_done() && self.unresolved.is_empty(),
            round: self.round,
            left,
            unproven: self.screens.len(),
            belief: if self.is_done() { 1.0 } else { 0.0 },
            finished: self.ledger.finished(),
            remaining: if self.is_done() { 0.0 } else { remaining },
        }
    }
}
