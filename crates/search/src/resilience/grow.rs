//! Sets of growing size, for perturbations that may rightly change an answer.
//!
//! Such perturbations cannot be tried all at once: the first one hides the rest. They are tried one by
//! one, then in pairs, and so on, without sets that can tell nothing new: those with a call that the
//! others remove (unreachable), those in which every service sees only answers together that it has seen
//! together before (service encapsulation, as in Filibuster and Reynard), and those that hold a set which
//! fails. Sets that leave a way to the good outcome untouched (lineage-driven fault injection) come last.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::Ticket;
use faultscope_model::perturbation::{Kind, Perturbation, TargetId};
use faultscope_model::{DeltaSet, Outcome};

use super::Clues;
use crate::ledger::{Ledger, Verdict};
use crate::standing::{Cause, Proof, Standing};
use crate::{Moves, Search, SlotView, Start};

/// A call that a trial showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCall {
    /// How it is known again.
    pub target: TargetId,
    /// The call in whose handling it was made; none for the test.
    pub parent: Option<TargetId>,
    /// What its caller saw: equal words mean that it saw the same.
    pub answer: String,
    /// Whether that is a good answer.
    pub good: bool,
    /// What is not to be done to it.
    pub spared: Vec<Kind>,
}

/// What can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrowOptions {
    /// What is done to calls.
    pub kinds: Vec<Kind>,
    /// The most perturbations at once; [`Grow::grow_to`] raises it later.
    pub most: usize,
    /// Whether sets are left out in which no service sees anything new.
    pub encapsulation: bool,
    /// Whether sets are left out that leave a way to the good outcome untouched. Such a set can still lose
    /// data without a word, so by default it is only tried later.
    pub lineage: bool,
}

impl Default for GrowOptions {
    fn default() -> Self {
        Self { kinds: vec![Kind::Error], most: 2, encapsulation: true, lineage: false }
    }
}

/// How far the sets of one size were tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeCount {
    /// Sets that were tried.
    pub tried: usize,
    /// Sets that were left out because they can tell nothing new.
    pub pruned: usize,
    /// Sets that are still to be tried.
    pub left: usize,
}

/// What one handling saw and what its caller saw of it.
type SeenTogether = (BTreeMap<TargetId, String>, String);

/// The search by growing size.
#[derive(Debug)]
pub struct Grow {
    options: GrowOptions,
    /// All perturbations known so far; more become known when calls appear that only failures cause.
    candidates: Vec<Perturbation>,
    places: HashMap<Perturbation, usize>,
    ledger: Ledger,
    clues: HashMap<Ticket, Vec<SeenCall>>,
    /// The calls of each set that was tried and did not fail.
    calls: HashMap<DeltaSet, Vec<SeenCall>>,
    /// For each handling, what it has seen together. The test is the handling without a target.
    seen: HashMap<Option<TargetId>, Vec<SeenTogether>>,
    /// What the caller sees of each perturbation.
    answers: HashMap<usize, String>,
    /// The calls that carried each passing trial.
    supports: Vec<HashSet<TargetId>>,
    /// What the test was answered without perturbations.
    good: BTreeMap<TargetId, String>,
    waiting: VecDeque<DeltaSet>,
    /// Sets of the present size that did not fail, to be grown.
    grown: Vec<DeltaSet>,
    size: usize,
    offered: HashSet<DeltaSet>,
    causes: Vec<Cause>,
    unresolved: DeltaSet,
    /// By size, from 1; what is left is counted when it is asked for.
    sizes: Vec<SizeCount>,
}

impl Grow {
    /// Grows sets from the calls of an unperturbed run.
    pub fn new(baseline: &[SeenCall], options: GrowOptions) -> Self {
        let mut search = Self {
            options,
            candidates: Vec::new(),
            places: HashMap::new(),
            ledger: Ledger::default(),
            clues: HashMap::new(),
            calls: HashMap::new(),
            seen: HashMap::new(),
            answers: HashMap::new(),
            supports: Vec::new(),
            good: BTreeMap::new(),
            waiting: VecDeque::new(),
            grown: Vec::new(),
            size: 0,
            offered: HashSet::new(),
            causes: Vec::new(),
            unresolved: DeltaSet::new(),
            sizes: Vec::new(),
        };
        search.observe(&DeltaSet::new(), baseline.to_vec());
        search.settle();
        search
    }

    /// Goes on with larger sets, once those of the present sizes are known.
    pub fn grow_to(&mut self, most: usize) {
        self.options.most = self.options.most.max(most);
        self.settle();
    }

    /// How far sets were tried, by size from 1 on.
    pub fn sizes(&self) -> Vec<SizeCount> {
        let mut sizes = self.sizes.clone();
        for set in self.waiting.iter().chain(self.ledger.running().values()) {
            count_of(&mut sizes, set).left += 1;
        }
        sizes
    }

    /// Everything that can be done to the calls seen so far.
    pub fn candidates(&self) -> &[Perturbation] {
        &self.candidates
    }

    /// Learns from the calls of a trial that did not fail.
    fn observe(&mut self, set: &DeltaSet, calls: Vec<SeenCall>) {
        let faulted: HashMap<TargetId, usize> =
            set.iter().map(|place| (self.candidates[place].target.clone(), place)).collect();
        let mut vectors: HashMap<Option<TargetId>, BTreeMap<TargetId, String>> = HashMap::new();
        vectors.entry(None).or_default();
        let mut support = HashSet::new();
        for call in &calls {
            vectors.entry(call.parent.clone()).or_default().insert(call.target.clone(), call.answer.clone());
            match faulted.get(&call.target) {
                Some(&place) => {
                    self.answers.insert(place, call.answer.clone());
                }
                None => {
                    vectors.entry(Some(call.target.clone())).or_default();
                    if call.good {
                        support.insert(call.target.clone());
                    }
                }
            }
            for &kind in self.options.kinds.iter().filter(|kind| !call.spared.contains(kind)) {
                let perturbation = Perturbation { kind, target: call.target.clone() };
                let next = self.candidates.len();
                if *self.places.entry(perturbation.clone()).or_insert(next) == next {
                    self.candidates.push(perturbation);
                }
            }
        }
        let answer_of: HashMap<&TargetId, &String> = calls.iter().map(|c| (&c.target, &c.answer)).collect();
        for (handling, vector) in vectors {
            let answer = handling.as_ref().and_then(|target| answer_of.get(target).copied());
            let answer = answer.cloned().unwrap_or_default();
            let seen = self.seen.entry(handling).or_default();
            if !seen.iter().any(|(known, _)| *known == vector) {
                seen.push((vector, answer));
            }
        }
        // Only what led to the same answer as without perturbations carries the good outcome.
        let answers: BTreeMap<TargetId, String> = calls
            .iter()
            .filter(|call| call.parent.is_none())
            .map(|call| (call.target.clone(), call.answer.clone()))
            .collect();
        if set.is_empty() {
            self.good = answers.clone();
        }
        if answers == self.good {
            self.supports.push(support);
        }
        self.calls.insert(set.clone(), calls);
        self.grown.push(set.clone());
    }

    /// Offers the sets of the next size when those of this one are known.
    fn settle(&mut self) {
        while self.waiting.is_empty()
            && self.ledger.running().is_empty()
            && !self.grown.is_empty()
            && self.size < self.options.most
        {
            self.size += 1;
            let mut bases = std::mem::take(&mut self.grown);
            bases.sort();
            for base in bases {
                let reachable: Vec<TargetId> = self.calls[&base].iter().map(|c| c.target.clone()).collect();
                for target in reachable {
                    for kind in self.options.kinds.clone() {
                        let perturbation = Perturbation { kind, target: target.clone() };
                        if let Some(&place) = self.places.get(&perturbation) {
                            self.offer(&base, place);
                        }
                    }
                }
            }
            let mut waiting: Vec<DeltaSet> = self.waiting.drain(..).collect();
            waiting.sort_by_cached_key(|set| self.spares_a_support(set));
            self.waiting = waiting.into();
        }
    }

    fn offer(&mut self, base: &DeltaSet, place: usize) {
        let mut set = base.clone();
        let target = &self.candidates[place].target;
        let same_call = base.iter().any(|other| self.candidates[other].target == *target);
        if same_call || !set.insert(place) || !self.offered.insert(set.clone()) {
            return;
        }
        if self.tells_nothing(&set) {
            count_of(&mut self.sizes, &set).pruned += 1;
        } else if self.ledger.get(&set).is_none() {
            self.waiting.push_back(set);
        }
    }

    fn tells_nothing(&self, set: &DeltaSet) -> bool {
        let explained = self.causes.iter().any(|cause| cause.witness.is_subset(set));
        let spares = self.options.lineage && self.spares_a_support(set);
        explained || spares || self.is_unreachable(set) || self.is_nothing_new(set)
    }

    /// Whether the others remove the call of one of its perturbations.
    fn is_unreachable(&self, set: &DeltaSet) -> bool {
        set.iter().any(|place| {
            let mut others = set.clone();
            others.remove(place);
            let target = &self.candidates[place].target;
            let calls = self.calls.get(&others);
            calls.is_some_and(|calls| !calls.iter().any(|call| call.target == *target))
        })
    }

    /// Whether a way to the good outcome is left untouched.
    fn spares_a_support(&self, set: &DeltaSet) -> bool {
        let targets: Vec<&TargetId> = set.iter().map(|place| &self.candidates[place].target).collect();
        self.supports.iter().any(|support| !targets.iter().any(|target| support.contains(*target)))
    }

    /// Whether every handling would see only answers that it has seen together.
    fn is_nothing_new(&self, set: &DeltaSet) -> bool {
        if !self.options.encapsulation || set.len() < 2 {
            return false;
        }
        let faults: HashMap<&TargetId, usize> =
            set.iter().map(|place| (&self.candidates[place].target, place)).collect();
        let mut known = HashMap::new();
        self.predict(None, &faults, &mut known).is_some()
    }

    /// What the caller of a handling would see; none when that is not known.
    fn predict(
        &self,
        handling: Option<&TargetId>,
        faults: &HashMap<&TargetId, usize>,
        known: &mut HashMap<TargetId, Option<String>>,
    ) -> Option<String> {
        let seen = self.seen.get(&handling.cloned())?;
        for (vector, answer) in seen {
            let mut fits = true;
            for (target, expected) in vector {
                let predicted = match (faults.get(target), known.get(target)) {
                    (Some(place), _) => self.answers.get(place).cloned(),
                    (None, Some(before)) => before.clone(),
                    (None, None) => {
                        let predicted = self.predict(Some(target), faults, known);
                        known.insert(target.clone(), predicted.clone());
                        predicted
                    }
                };
                if predicted.as_ref() != Some(expected) {
                    fits = false;
                    break;
                }
            }
            if fits {
                return Some(answer.clone());
            }
        }
        None
    }

    fn learn(&mut self, set: &DeltaSet, verdict: Verdict, calls: Option<Vec<SeenCall>>) {
        count_of(&mut self.sizes, set).tried += 1;
        match verdict {
            Verdict::Fail => {
                let (witness, core) = (set.clone(), set.clone());
                self.causes.push(Cause { witness, core, proof: Proof::Minimal, confirmations: 1 });
                let causes = &self.causes;
                let explained = |set: &DeltaSet| causes.iter().any(|cause| cause.witness.is_subset(set));
                let sizes = &mut self.sizes;
                self.waiting.retain(|set| {
                    let is_needed = !explained(set);
                    count_of(sizes, set).pruned += usize::from(!is_needed);
                    is_needed
                });
            }
            Verdict::Pass => self.observe(set, calls.unwrap_or_default()),
            Verdict::Unresolved => self.unresolved = self.unresolved.union(set),
        }
        self.settle();
    }
}

fn count_of<'s>(sizes: &'s mut Vec<SizeCount>, set: &DeltaSet) -> &'s mut SizeCount {
    let place = set.len().max(1) - 1;
    if sizes.len() <= place {
        sizes.resize(place + 1, SizeCount::default());
    }
    &mut sizes[place]
}

impl Search for Grow {
    fn plan(&mut self, slots: &[SlotView], in_flight: &[Ticket]) -> Moves {
        let mut moves = Moves::default();
        if self.is_done() {
            moves.cancel = in_flight.to_vec();
            return moves;
        }
        for slot in slots.iter().filter(|slot| slot.busy.is_none()) {
            // What became known since a set was offered may have made it needless.
            let Some(set) = std::iter::from_fn(|| self.waiting.pop_front())
                .find(|set| self.ledger.get(set).is_none() && self.ledger.running_as(set).is_none())
            else {
                break;
            };
            let trial = self.ledger.start(set.clone());
            moves.start.push(Start { trial, set, slot: slot.slot });
        }
        moves
    }

    fn record(&mut self, trial: Ticket, outcome: &Outcome, _cost: Duration) {
        let calls = self.clues.remove(&trial);
        if let Some(set) = self.ledger.finish(trial, outcome.into()) {
            self.learn(&set, outcome.into(), calls);
        }
    }

    fn is_done(&self) -> bool {
        let can_grow = !self.grown.is_empty() && self.size < self.options.most;
        self.waiting.is_empty() && self.ledger.running().is_empty() && !can_grow
    }

    fn perturbations(&self, set: &DeltaSet) -> Vec<Perturbation> {
        set.iter().filter_map(|place| self.candidates.get(place).cloned()).collect()
    }

    fn hear(&mut self, trial: Ticket, clues: &Clues) {
        self.clues.insert(trial, clues.calls.clone());
    }

    fn lose(&mut self, trial: Ticket) {
        if let Some(set) = self.ledger.drop(trial) {
            self.waiting.push_front(set);
        }
    }

    fn standing(&self) -> Standing {
        let left: BTreeSet<usize> = self.waiting.iter().flat_map(DeltaSet::iter).collect();
        Standing {
            best: self.causes.first().map(|cause| cause.witness.clone()).unwrap_or_default(),
            proof: if self.causes.is_empty() { Proof::Given } else { Proof::Minimal },
            causes: self.causes.clone(),
            none_left: self.is_done() && self.unresolved.is_empty(),
            round: self.size as u32,
            left: left.len(),
            unproven: self.waiting.len(),
            belief: if self.is_done() { 1.0 } else { 0.0 },
            finished: self.ledger.finished(),
            remaining: self.waiting.len() as f64,
        }
    }
}
