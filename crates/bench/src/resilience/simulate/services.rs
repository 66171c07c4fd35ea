//! Trees of services that call each other, with defects in how they tolerate failures.

use std::collections::HashMap;

use faultscope_model::Outcome;
use faultscope_model::perturbation::{Kind, Perturbation, TargetId};

use super::failure;
use crate::random::{Random, mix};
use faultscope_search::resilience::{Clues, SeenCall};

/// What a service does if a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// It fails as well.
    Propagate,
    /// It answers without it and says so.
    Degrade,
    /// It answers as if nothing had happened: data is lost.
    Lose,
    /// It calls another service, and fails if that fails.
    Instead(usize),
    /// It calls another service, and if that fails answers as if nothing had happened.
    InsteadOrLose(usize),
}

/// Services, the first of which the test calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// For each service its calls, and what it does if one fails.
    pub calls: Vec<Vec<(usize, Fallback)>>,
}

impl Tree {
    /// Draws a tree of services, some with fallbacks, with `single` defects of one failed call and `double`
    /// of two.
    pub fn generate(seed: u64, services: usize, single: usize, double: usize) -> Self {
        let mut random = Random::new(mix(seed));
        let mut calls: Vec<Vec<(usize, Fallback)>> = vec![Vec::new()];
        let mut edges: Vec<(usize, usize)> = Vec::new();
        while calls.len() < services.max(2) {
            let from = random.below(calls.len());
            let to = calls.len();
            let fallback = if random.below(3) == 0 { Fallback::Degrade } else { Fallback::Propagate };
            calls[from].push((to, fallback));
            edges.push((from, calls[from].len() - 1));
            calls.push(Vec::new());
        }
        random.shuffle(&mut edges);
        for (number, &(from, call)) in edges.iter().enumerate() {
            if number < single {
                calls[from][call].1 = Fallback::Lose;
            } else if number < single + double + 1 {
                let other = calls.len();
                calls.push(Vec::new());
                let sound = number == single + double;
                calls[from][call].1 =
                    if sound { Fallback::Instead(other) } else { Fallback::InsteadOrLose(other) };
            }
        }
        Self { calls }
    }

    /// Runs the test with these perturbations: it fails if data is lost silently.
    pub fn run(&self, perturbations: &[Perturbation]) -> (Outcome, Clues) {
        let faults: HashMap<&TargetId, Kind> = perturbations.iter().map(|p| (&p.target, p.kind)).collect();
        let (mut seen, mut lost) = (Vec::new(), false);
        let target = TargetId::root().then("s0", "get", 1);
        self.call(0, &target, None, &faults, &mut seen, &mut lost);
        let outcome = if lost { failure("data lost".into()) } else { Outcome::Pass };
        (outcome, Clues { calls: seen, ..Clues::default() })
    }

    fn call(
        &self,
        service: usize,
        target: &TargetId,
        parent: Option<&TargetId>,
        faults: &HashMap<&TargetId, Kind>,
        seen: &mut Vec<SeenCall>,
        lost: &mut bool,
    ) -> bool {
        let place = seen.len();
        let (answer, good) = match faults.get(target) {
            Some(kind) => (kind.word().to_owned(), false),
            None => ("ok".to_owned(), true),
        };
        seen.push(SeenCall {
            target: target.clone(),
            parent: parent.cloned(),
            answer,
            good,
            spared: Vec::new(),
        });
        if !good {
            return false;
        }
        let ask = |to: usize| target.then(&format!("s{to}"), "get", 1);
        let mut answer = "ok";
        for &(to, fallback) in &self.calls[service] {
            if self.call(to, &ask(to), Some(target), faults, seen, lost) {
                continue;
            }
            let instead = match fallback {
                Fallback::Instead(other) | Fallback::InsteadOrLose(other) => Some(other),
                _ => None,
            };
            if instead.is_some_and(|to| self.call(to, &ask(to), Some(target), faults, seen, lost)) {
                continue;
            }
            match fallback {
                Fallback::Propagate | Fallback::Instead(_) => {
                    answer = "error";
                    break;
                }
                Fallback::Degrade => answer = "degraded",
                Fallback::Lose | Fallback::InsteadOrLose(_) => *lost = true,
            }
        }
        seen[place].answer = answer.to_owned();
        seen[place].good = answer != "error";
        answer != "error"
    }

    /// The number of sets of at most two failed calls: the trials of an exhaustive search.
    pub fn enumeration(&self, kinds: usize) -> usize {
        let fallbacks = self
            .calls
            .iter()
            .flatten()
            .filter(|(_, f)| matches!(f, Fallback::Instead(_) | Fallback::InsteadOrLose(_)));
        let calls = self.calls.iter().map(Vec::len).sum::<usize>() + 1 + fallbacks.count();
        calls * kinds + calls * (calls - 1) / 2 * kinds * kinds
    }

    /// For each defect, the calls that must fail for it to show.
    pub fn defects(&self) -> Vec<Vec<TargetId>> {
        let mut defects = Vec::new();
        let mut waiting = vec![(0, TargetId::root().then("s0", "get", 1))];
        while let Some((service, target)) = waiting.pop() {
            for &(to, fallback) in &self.calls[service] {
                let ask = |to: usize| target.then(&format!("s{to}"), "get", 1);
                match fallback {
                    Fallback::Lose => defects.push(vec![ask(to)]),
                    Fallback::InsteadOrLose(other) => defects.push(vec![ask(to), ask(other)]),
                    _ => {}
                }
                waiting.push((to, ask(to)));
            }
        }
        defects
    }
}
