//! The hunt for causes in a set that failed: aim, cut, confirm, peel.
//!
//! A cut keeps two sets apart by what lies between them: one that passes, and one that has the suspects
//! more and fails. So it goes on by the same halving whether one perturbation is to blame or several
//! together: what is left in the end is needed, and when it does not fail by itself, the hunt goes on for
//! what it needs among those that passed.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::DeltaSet;

use super::super::weigh::{Class, aims, class_of, split, weigh};
use super::Screen;
use crate::ledger::Verdict;
use crate::standing::{Cause, Proof};

/// The hunt for one cause, or for several whose actors are known, in a set that failed.
#[derive(Debug)]
pub(super) struct Hunt {
    /// The smallest set that is seen to fail.
    pub(super) known: DeltaSet,
    /// What is known to be needed, and does not fail by itself.
    needed: DeltaSet,
    /// What does not fail together with what is needed.
    passing: DeltaSet,
    /// What fails with both: one of them is needed.
    pub(super) suspects: DeltaSet,
    weights: BTreeMap<Class, f64>,
    /// Single perturbations that are tried now.
    pub(super) aims: Vec<usize>,
    aimed: BTreeSet<Class>,
    /// The parts of the suspects; each is tried with those before it, the last is not.
    parts: Vec<DeltaSet>,
    found: Vec<usize>,
}

impl Hunt {
    /// The sets that are tried to tell in which part the cause is.
    fn cuts(&self) -> Vec<DeltaSet> {
        let mut set = self.needed.union(&self.passing);
        let tried = self.parts.split_last().map_or(&[][..], |(_, tried)| tried);
        tried
            .iter()
            .map(|part| {
                set = set.union(part);
                set.clone()
            })
            .collect()
    }

    /// What is needed with the only suspect, when there is just one.
    fn whole(&self) -> Option<DeltaSet> {
        single(&self.suspects).map(|_| self.needed.union(&self.suspects))
    }
}

impl Screen {
    pub(super) fn start_hunt(&mut self, known: DeltaSet) {
        let blamed = self.blame(&known);
        let weights = weigh(&self.targets, &known, blamed, &self.options.tuning.suspicion);
        let mut hunt = Hunt {
            suspects: known.clone(),
            known,
            needed: DeltaSet::new(),
            passing: DeltaSet::new(),
            weights,
            aims: Vec::new(),
            aimed: BTreeSet::new(),
            parts: Vec::new(),
            found: Vec::new(),
        };
        // Failed assertions that do not follow from one another are aimed at together.
        for root in aims(&self.targets, blamed) {
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

    /// What the hunt wants tried now.
    pub(super) fn wanted_by(&self, hunt: &Hunt) -> Vec<DeltaSet> {
        let mut wanted: Vec<DeltaSet> = hunt.aims.iter().map(|&aim| DeltaSet::from_iter([aim])).collect();
        if wanted.is_empty() {
            match hunt.whole() {
                Some(whole) if self.verdict(&whole) == Some(Verdict::Fail) => wanted.extend(smaller(&whole)),
                Some(whole) => wanted.push(whole),
                None => wanted = hunt.cuts(),
            }
        }
        wanted.retain(|set| self.verdict(set).is_none());
        wanted
    }

    pub(super) fn settle_hunt(&mut self) -> bool {
        let Some(mut hunt) = self.hunt.take() else {
            return false;
        };
        let moved = if !hunt.aims.is_empty() {
            self.settle_aims(&mut hunt)
        } else if let Some(whole) = hunt.whole() {
            match self.verdict(&whole) {
                None => false,
                Some(Verdict::Fail) => return self.settle_found(hunt, whole),
                // It needs others, which are among those that passed without it.
                Some(_) if !hunt.passing.is_empty() => {
                    hunt.suspects = std::mem::take(&mut hunt.passing);
                    hunt.needed = whole;
                    // Nothing is known of what it needs: each perturbation is as likely.
                    hunt.weights.clear();
                    for place in hunt.suspects.iter() {
                        *hunt.weights.entry(class_of(&self.targets, place)).or_default() += 1.0;
                    }
                    true
                }
                // What failed before does not fail again: all that can be said is what was seen.
                Some(_) => {
                    let rest = hunt.known.clone();
                    self.note(rest.clone(), Proof::Fails);
                    self.go_on(&DeltaSet::new());
                    return true;
                }
            }
        } else if hunt.parts.is_empty() {
            self.cut(&mut hunt);
            true
        } else {
            self.settle_parts(&mut hunt)
        };
        if hunt.aims.is_empty() && !hunt.found.is_empty() {
            self.peel(&hunt);
        } else {
            self.hunt = Some(hunt);
        }
        moved
    }

    fn settle_aims(&self, hunt: &mut Hunt) -> bool {
        let before = hunt.aims.len();
        let mut open = Vec::new();
        for aim in std::mem::take(&mut hunt.aims) {
            match self.verdict(&DeltaSet::from_iter([aim])) {
                None => open.push(aim),
                Some(Verdict::Fail) => hunt.found.push(aim),
                Some(_) => {
                    if let Some(weight) = hunt.weights.get_mut(&class_of(&self.targets, aim)) {
                        *weight *= self.options.tuning.suspicion.missed;
                    }
                }
            }
        }
        hunt.aims = open;
        hunt.aims.len() < before
    }

    /// Chooses what is tried next: one perturbation when it is suspicious enough, else parts.
    fn cut(&self, hunt: &mut Hunt) {
        let classes: BTreeSet<Class> =
            hunt.suspects.iter().map(|place| class_of(&self.targets, place)).collect();
        let weight = |class: &Class| hunt.weights.get(class).copied().unwrap_or(0.0);
        let total: f64 = classes.iter().map(weight).sum();
        let top = classes.iter().copied().max_by(|a, b| weight(a).total_cmp(&weight(b)).then(b.cmp(a)));
        if let Some(class) = top
            && hunt.needed.is_empty()
            && weight(&class) >= self.options.tuning.suspicion.aim * total
            && hunt.aimed.insert(class)
        {
            hunt.aims.extend(self.likeliest(&hunt.suspects, class));
            return;
        }
        let parts = self.slots + 1;
        hunt.parts = split(&self.targets, &hunt.suspects, &hunt.weights, parts, self.options.seed);
    }

    fn settle_parts(&self, hunt: &mut Hunt) -> bool {
        let cuts = hunt.cuts();
        let verdicts: Vec<Option<Verdict>> = cuts.iter().map(|cut| self.verdict(cut)).collect();
        // The first cut that fails has the cause in its last part; those before it must be known to pass.
        let first = verdicts.iter().position(|verdict| !matches!(verdict, Some(v) if *v != Verdict::Fail));
        let place = match first {
            Some(place) if verdicts[place].is_none() => return false,
            Some(place) => place,
            None => hunt.parts.len() - 1,
        };
        let parts = std::mem::take(&mut hunt.parts);
        for part in &parts[..place] {
            hunt.passing = hunt.passing.union(part);
        }
        hunt.suspects = parts[place].clone();
        if let Some(failed) = cuts.get(place) {
            hunt.known = failed.clone();
            let blamed = self.blame(failed);
            if !blamed.is_empty() {
                hunt.weights = weigh(&self.targets, &hunt.suspects, blamed, &self.options.tuning.suspicion);
                for class in &hunt.aimed {
                    if let Some(weight) = hunt.weights.get_mut(class) {
                        *weight *= self.options.tuning.suspicion.missed;
                    }
                }
            }
        }
        true
    }

    /// A set fails: it is an answer when nothing can be left out.
    fn settle_found(&mut self, mut hunt: Hunt, whole: DeltaSet) -> bool {
        if let Some(found) = single(&whole) {
            hunt.found.push(found);
            self.peel(&hunt);
            return true;
        }
        let verdicts: Vec<_> = smaller(&whole).map(|set| (self.verdict(&set), set)).collect();
        if let Some((_, less)) = verdicts.iter().find(|(verdict, _)| *verdict == Some(Verdict::Fail)) {
            (hunt.known, hunt.suspects) = (less.clone(), less.clone());
            (hunt.needed, hunt.passing) = (DeltaSet::new(), DeltaSet::new());
        } else if verdicts.iter().all(|(verdict, _)| verdict.is_some()) {
            self.note(whole.clone(), Proof::Minimal);
            self.go_on(&hunt.known.difference(&whole));
            return true;
        } else {
            self.hunt = Some(hunt);
            return false;
        }
        self.hunt = Some(hunt);
        true
    }

    /// Screens the rest after a cause of several was noted.
    fn go_on(&mut self, rest: &DeltaSet) {
        if let Some(cause) = self.causes.last() {
            for screen in &mut self.screens {
                *screen = screen.difference(&cause.witness);
            }
        }
        let all = self.unexplained(rest);
        self.screens.push_front(all);
    }

    /// Notes what was found and screens the rest without everything of its kind at its actor.
    fn peel(&mut self, hunt: &Hunt) {
        let mut rest = hunt.known.clone();
        for &found in &hunt.found {
            let witness = DeltaSet::from_iter([found]);
            let class = class_of(&self.targets, found);
            self.note(witness, Proof::Minimal);
            rest = rest.iter().filter(|&place| class_of(&self.targets, place) != class).collect();
            for screen in &mut self.screens {
                *screen = screen.iter().filter(|&place| class_of(&self.targets, place) != class).collect();
            }
        }
        let all = self.unexplained(&rest);
        self.screens.push_front(all);
    }

    fn note(&mut self, witness: DeltaSet, proof: Proof) {
        let core = witness.clone();
        self.causes.push(Cause { witness, core, proof, confirmations: 1 });
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
}

fn single(set: &DeltaSet) -> Option<usize> {
    let mut items = set.iter();
    items.next().filter(|_| items.next().is_none())
}

/// The set without each of its members.
fn smaller(set: &DeltaSet) -> impl Iterator<Item = DeltaSet> + '_ {
    set.iter().map(|less| set.iter().filter(|&place| place != less).collect())
}
