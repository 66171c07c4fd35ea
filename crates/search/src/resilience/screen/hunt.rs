//! The hunt for causes in a set that failed: aim, cut, confirm, peel.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use faultscope_model::outcome::{Ending, Signature};
use faultscope_model::{DeltaSet, Outcome};

use super::super::weigh::{Class, MISSED, class_of, roots, split, weigh};
use super::{CHECK, Screen};
use crate::ledger::Verdict;
use crate::standing::{Cause, Proof};
use crate::{Bayes, BayesOptions, Problem, Search};

/// A class with this share of all suspicion is aimed at.
const AIM: f64 = 0.6;

/// The hunt for one cause, or for several whose actors are known, in a set that failed.
#[derive(Debug)]
pub(super) struct Hunt {
    /// The smallest set that is seen to fail.
    pub(super) known: DeltaSet,
    /// Where the cause is if it is a single perturbation.
    pub(super) suspects: DeltaSet,
    /// How many halvings of it rest on passes alone.
    pub(super) deduced: u32,
    weights: BTreeMap<Class, f64>,
    /// Single perturbations that are tried now.
    pub(super) aims: Vec<usize>,
    aimed: BTreeSet<Class>,
    /// The parts of the suspects; the last is not tried.
    pub(super) parts: Vec<DeltaSet>,
    found: Vec<usize>,
}

impl Screen {
    pub(super) fn start_hunt(&mut self, known: DeltaSet) {
        let blamed = self.blame(&known);
        let weights = weigh(&self.targets, &known, blamed);
        let mut hunt = Hunt {
            suspects: known.clone(),
            known,
            deduced: 0,
            weights,
            aims: Vec::new(),
            aimed: BTreeSet::new(),
            parts: Vec::new(),
            found: Vec::new(),
        };
        // Failed assertions that do not follow from one another are aimed at together.
        for root in roots(&self.targets, blamed) {
            let class = hunt.weights.keys().copied().find(|class| class.0 == root);
            if let Some(class) = class {
                hunt.aimed.insert(class);
                hunt.aims.extend(self.likeliest(&hunt.suspects, class));
            }
        }
        self.hunt = Some(hunt);
    }

    /// The member of a class to try first: its last message, when most has happened before it.
    fn likeliest(&self, set: &DeltaSet, class: Class) -> Option<usize> {
        let members = set.iter().filter(|&place| class_of(&self.targets, place) == class);
        members.max_by_key(|&place| self.targets.candidates[place].turn)
    }

    pub(super) fn settle_hunt(&mut self) -> bool {
        let Some(mut hunt) = self.hunt.take() else {
            return false;
        };
        if !hunt.aims.is_empty() {
            let moved = self.settle_aims(&mut hunt);
            if hunt.aims.is_empty() && !hunt.found.is_empty() {
                self.peel(&hunt);
                return true;
            }
            self.hunt = Some(hunt);
            return moved;
        }
        if hunt.suspects.is_empty() {
            self.search_together(&hunt.known);
            self.hunt = Some(hunt);
            return true;
        }
        if let Some(only) = single(&hunt.suspects) {
            match self.verdict(&hunt.suspects) {
                None => self.hunt = Some(hunt),
                Some(Verdict::Fail) => {
                    hunt.found.push(only);
                    self.peel(&hunt);
                    return true;
                }
                Some(_) => {
                    self.search_together(&hunt.known);
                    self.hunt = Some(hunt);
                    return true;
                }
            }
            return false;
        }
        if hunt.deduced >= CHECK {
            let verdict = self.verdict(&hunt.suspects);
            match verdict {
                Some(Verdict::Fail) => {
                    (hunt.known, hunt.deduced) = (hunt.suspects.clone(), 0);
                }
                Some(_) => self.search_together(&hunt.known),
                None => {}
            }
            self.hunt = Some(hunt);
            return verdict.is_some();
        }
        let moved = if hunt.parts.is_empty() { self.cut(&mut hunt) } else { self.settle_parts(&mut hunt) };
        self.hunt = Some(hunt);
        moved
    }

    fn settle_aims(&self, hunt: &mut Hunt) -> bool {
        let before = hunt.aims.len();
        let mut open = Vec::new();
        for aim in std::mem::take(&mut hunt.aims) {
            let alone = DeltaSet::from_iter([aim]);
            match self.verdict(&alone) {
                None => open.push(aim),
                Some(Verdict::Fail) => hunt.found.push(aim),
                Some(_) => {
                    hunt.suspects.remove(aim);
                    if let Some(weight) = hunt.weights.get_mut(&class_of(&self.targets, aim)) {
                        *weight *= MISSED;
                    }
                }
            }
        }
        hunt.aims = open;
        hunt.aims.len() < before
    }

    /// Chooses what is tried next: one perturbation when it is suspicious enough, else parts.
    fn cut(&self, hunt: &mut Hunt) -> bool {
        let classes: BTreeSet<Class> =
            hunt.suspects.iter().map(|place| class_of(&self.targets, place)).collect();
        let weight = |class: &Class| hunt.weights.get(class).copied().unwrap_or(0.0);
        let total: f64 = classes.iter().map(weight).sum();
        let top = classes.iter().copied().max_by(|a, b| weight(a).total_cmp(&weight(b)).then(b.cmp(a)));
        if let Some(class) = top
            && weight(&class) >= AIM * total
            && hunt.aimed.insert(class)
        {
            hunt.aims.extend(self.likeliest(&hunt.suspects, class));
            return true;
        }
        hunt.parts = split(&self.targets, &hunt.suspects, &hunt.weights, self.slots + 1);
        true
    }

    fn settle_parts(&self, hunt: &mut Hunt) -> bool {
        let Some((last, tried)) = hunt.parts.split_last() else {
            return false;
        };
        let verdicts: Vec<Option<Verdict>> = tried.iter().map(|part| self.verdict(part)).collect();
        if let Some(place) = verdicts.iter().position(|verdict| *verdict == Some(Verdict::Fail)) {
            hunt.suspects = tried[place].clone();
            hunt.known = hunt.suspects.clone();
            hunt.deduced = 0;
            let blamed = self.blame(&hunt.suspects);
            if !blamed.is_empty() {
                hunt.weights = weigh(&self.targets, &hunt.suspects, blamed);
                for class in &hunt.aimed {
                    if let Some(weight) = hunt.weights.get_mut(class) {
                        *weight *= MISSED;
                    }
                }
            }
        } else if verdicts.iter().all(Option::is_some) {
            hunt.suspects = last.clone();
            hunt.deduced += tried.len().ilog2() + 1;
        } else {
            return false;
        }
        hunt.parts = Vec::new();
        true
    }

    /// Notes what was found and screens the rest without everything of its kind at its actor.
    fn peel(&mut self, hunt: &Hunt) {
        let mut rest = hunt.known.clone();
        for &found in &hunt.found {
            let witness = DeltaSet::from_iter([found]);
            let class = class_of(&self.targets, found);
            self.note(witness);
            rest = rest.iter().filter(|&place| class_of(&self.targets, place) != class).collect();
            for screen in &mut self.screens {
                *screen = screen.iter().filter(|&place| class_of(&self.targets, place) != class).collect();
            }
        }
        let all = self.unexplained(&rest);
        self.screens.push_front(all);
    }

    fn note(&mut self, witness: DeltaSet) {
        let core = witness.clone();
        self.causes.push(Cause { witness, core, proof: Proof::Minimal, confirmations: 1 });
    }

    /// Everything that no cause explains: what was screened together is screened together again.
    fn unexplained(&self, rest: &DeltaSet) -> DeltaSet {
        let mut all = self.targets.full().difference(&self.unresolved);
        for screen in &self.screens {
            all = all.difference(screen);
        }
        for cause in &self.causes {
            if let Some(found) = single(&cause.witness) {
                let class = class_of(&self.targets, found);
                all = all.iter().filter(|&place| class_of(&self.targets, place) != class).collect();
            } else {
                all = all.difference(&cause.witness);
            }
        }
        if all.is_empty() { rest.clone() } else { all }
    }

    /// No single perturbation fails: several are needed together.
    fn search_together(&mut self, known: &DeltaSet) {
        let items: Vec<usize> = known.iter().collect();
        let options =
            BayesOptions { seed: self.options.seed, rate: self.options.rate, ..BayesOptions::default() };
        let mut search = Bayes::new(Problem::new(items.len()), options);
        for (set, verdict) in self.ledger.known().filter(|(set, _)| set.is_subset(known) && *set != known) {
            let inner = set.iter().filter_map(|place| items.binary_search(&place).ok()).collect();
            let signature =
                || Signature { test: String::new(), ending: Ending::Case, message: String::new() };
            let outcome = match verdict {
                Verdict::Pass => Outcome::Pass,
                Verdict::Fail => Outcome::Fail { signature: signature() },
                Verdict::Unresolved => continue,
            };
            search.recall(&inner, &outcome);
        }
        self.together = Some((items, search, HashMap::new()));
    }

    pub(super) fn settle_together(&mut self) -> bool {
        let Some((items, search, _)) = self.together.as_ref().filter(|(_, search, _)| search.is_done())
        else {
            return false;
        };
        let witness: DeltaSet = search.standing().best.iter().map(|place| items[place]).collect();
        let rest = self.hunt.take().map_or_else(DeltaSet::new, |hunt| hunt.known.difference(&witness));
        self.together = None;
        for screen in &mut self.screens {
            *screen = screen.difference(&witness);
        }
        self.note(witness);
        let all = self.unexplained(&rest);
        self.screens.push_front(all);
        true
    }
}

fn single(set: &DeltaSet) -> Option<usize> {
    let mut items = set.iter();
    items.next().filter(|_| items.next().is_none())
}
