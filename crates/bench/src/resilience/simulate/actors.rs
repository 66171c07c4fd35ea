//! The paper's generated systems: actors that count and forward updates (section 5.1).
//!
//! Fifty actors, messages only to higher numbers. Each counts the updates it has not seen before, informs
//! its successors, and confirms; its counter must equal the number of paths from actor 0. A defect in
//! idempotence skips the check for duplicates; one in persistence loses the counter in a restart.

use std::collections::{HashSet, VecDeque};

use faultscope_model::perturbation::{Event, Kind};
use faultscope_model::{DeltaSet, Outcome};

use super::failure;
use super::systems::System;
use crate::random::{Random, mix};
use faultscope_search::resilience::{Clues, Scope, Targets};

/// The defects of a system.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Defects {
    /// Actors with a defect.
    pub actors: Vec<usize>,
    /// The only perturbation that triggers it; if none, any at these actors does.
    pub trigger: Option<usize>,
    /// Instead: two perturbations that are tolerated alone but not together.
    pub pair: Option<(usize, usize)>,
}

/// What the test asserts, and what it reports about a failed assertion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asserted {
    /// Every counter, in the order of the actors; the first wrong one is reported.
    First,
    /// Every counter; all wrong ones are reported.
    All,
    /// Every counter; only the verdict is reported.
    Verdict,
    /// The counters of actors without successors; all wrong ones are reported.
    Sinks,
}

/// A system with defects, its targets, and its behaviour.
#[derive(Debug, Clone)]
pub struct Mutant {
    system: System,
    ways: Vec<usize>,
    /// The updates of an unperturbed run: actor, and the updates that each causes.
    updates: Vec<(usize, Vec<usize>)>,
    /// For each candidate: its update, and whether it is about the confirmation.
    about: Vec<(usize, bool)>,
    /// What can be perturbed.
    pub targets: Targets,
    /// The defects.
    pub defects: Defects,
    /// What is asserted.
    pub asserted: Asserted,
}

struct Message {
    to: usize,
    /// The update of an unperturbed run; none for those that a duplicate causes.
    update: Option<usize>,
    /// Sender and delivery number; none for a confirmation.
    delivery: Option<(usize, u32)>,
}

#[derive(Default, Clone)]
struct Actor {
    counter: usize,
    seen: HashSet<(usize, u32)>,
    deliveries: u32,
}

impl Mutant {
    /// The system without a defect.
    pub fn new(system: System) -> Self {
        let mut updates: Vec<(usize, Vec<usize>)> = vec![(0, Vec::new())];
        let mut events: Vec<Event> = (0..system.successors.len())
            .map(|actor| Event::Create { parent: None, child: name(actor), persistent: true })
            .collect();
        // In the order of arrival; confirmations come after all updates of their turn.
        let mut queue: VecDeque<(usize, bool, u64, usize)> = VecDeque::from([(0, false, 0, 0)]);
        let mut order: Vec<(usize, bool)> = Vec::new();
        let mut sends = 0;
        let mut send = |events: &mut Vec<Event>, from: String, to: usize, turn, confirm: bool| {
            let message = if confirm { "Confirm" } else { "Update" }.to_owned();
            let (send, at_least_once) = (sends, !confirm);
            events.push(Event::Send { from, to: name(to), message, send, turn, at_least_once, target: None });
            sends += 1;
            send
        };
        send(&mut events, String::new(), 0, None, false);
        let mut turns = 0;
        while let Some((update, confirm, number, sender)) = queue.pop_front() {
            let actor = if confirm { sender } else { updates[update].0 };
            events.push(Event::Turn { to: name(actor), send: number, turn: turns });
            order.push((update, confirm));
            if !confirm {
                for &to in &system.successors[actor] {
                    let next = updates.len();
                    updates.push((to, Vec::new()));
                    updates[update].1.push(next);
                    let number = send(&mut events, name(actor), to, Some(turns), false);
                    queue.push_back((next, false, number, actor));
                }
                if update != 0 {
                    let number = send(&mut events, name(actor), sender, Some(turns), true);
                    queue.push_back((update, true, number, sender));
                }
            }
            turns += 1;
        }
        let scope = Scope { kinds: vec![system.kind], from_test: false };
        let targets = Targets::new(&events, &scope);
        let about = targets.candidates.iter().map(|c| order[c.turn]).collect();
        let (defects, asserted) = (Defects::default(), Asserted::First);
        Self { ways: system.ways(), system, updates, about, targets, defects, asserted }
    }

    /// The system with these defects.
    pub fn with(&self, defects: Defects, asserted: Asserted) -> Self {
        Self { defects, asserted, ..self.clone() }
    }

    /// The system.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// Whether the actor of this name has no successors.
    pub fn is_sink(&self, actor: &str) -> bool {
        let number = actor.strip_prefix('a').and_then(|number| number.parse::<usize>().ok());
        number.and_then(|number| self.system.successors.get(number)).is_some_and(Vec::is_empty)
    }

    /// The index of an actor among the targets' actors.
    pub fn place(&self, actor: usize) -> Option<usize> {
        self.targets.actor(&name(actor))
    }

    /// Runs the test with a set of perturbations; messages arrive in an order drawn from the seed.
    pub fn run(&self, set: &DeltaSet, seed: u64) -> (Outcome, Clues) {
        if let Some((a, b)) = self.defects.pair {
            let broken = set.contains(a) && set.contains(b);
            let outcome = if broken { failure("a pair".into()) } else { Outcome::Pass };
            return (outcome, Clues::default());
        }
        let wrong = self.wrong(set, seed);
        let is_sink = |actor: &usize| self.system.successors[*actor].is_empty();
        let seen: Vec<usize> = match self.asserted {
            Asserted::Sinks => wrong.into_iter().filter(is_sink).collect(),
            _ => wrong,
        };
        let Some(&first) = seen.first() else {
            return (Outcome::Pass, Clues::default());
        };
        let blamed = match self.asserted {
            Asserted::Verdict => Vec::new(),
            Asserted::First => vec![name(first)],
            Asserted::All | Asserted::Sinks => seen.iter().map(|&actor| name(actor)).collect(),
        };
        (failure(format!("error@[{}]", name(first))), Clues { blamed, ..Clues::default() })
    }

    /// The actors with wrong counters in the end.
    fn wrong(&self, set: &DeltaSet, seed: u64) -> Vec<usize> {
        let mut random = Random::new(mix(seed));
        let mut actors = vec![Actor::default(); self.system.successors.len()];
        let chosen: HashSet<(usize, bool)> = set.iter().map(|place| self.about[place]).collect();
        let trigger = self.defects.trigger.map(|place| self.about[place]);
        let breaks = |actor: usize, about: (usize, bool)| {
            self.defects.actors.contains(&actor) && trigger.is_none_or(|trigger| trigger == about)
        };
        let mut queue = vec![Message { to: 0, update: Some(0), delivery: Some((usize::MAX, 0)) }];
        while !queue.is_empty() {
            let message = queue.swap_remove(random.below(queue.len()));
            let Some(key) = message.delivery else {
                self.restart(&mut actors, &message, true, &chosen, &breaks);
                continue;
            };
            self.update(&mut actors, &mut queue, &message, key, false);
            let about = message.update.map(|update| (update, false));
            if let Some(about) = about
                && self.system.kind == Kind::Duplicate
                && chosen.contains(&about)
            {
                let copy = Message { update: None, ..message };
                self.update(&mut actors, &mut queue, &copy, key, breaks(copy.to, about));
                continue;
            }
            self.restart(&mut actors, &message, false, &chosen, &breaks);
        }
        (0..actors.len()).filter(|&actor| actors[actor].counter != self.ways[actor]).collect()
    }

    fn update(
        &self,
        actors: &mut [Actor],
        queue: &mut Vec<Message>,
        message: &Message,
        key: (usize, u32),
        careless: bool,
    ) {
        let me = &mut actors[message.to];
        if me.seen.insert(key) || careless {
            me.counter += 1;
            for (place, &to) in self.system.successors[message.to].iter().enumerate() {
                me.deliveries += 1;
                let update = message.update.map(|update| self.updates[update].1[place]);
                queue.push(Message { to, update, delivery: Some((message.to, me.deliveries)) });
            }
        }
        if key.0 != usize::MAX {
            queue.push(Message { to: key.0, update: message.update, delivery: None });
        }
    }

    fn restart(
        &self,
        actors: &mut [Actor],
        message: &Message,
        confirm: bool,
        chosen: &HashSet<(usize, bool)>,
        breaks: &dyn Fn(usize, (usize, bool)) -> bool,
    ) {
        let Some(about) = message.update.map(|update| (update, confirm)) else {
            return;
        };
        if self.system.kind == Kind::Restart && chosen.contains(&about) && breaks(message.to, about) {
            // The journal restores what was seen, but the counter is not recomputed.
            actors[message.to].counter = 0;
        }
    }
}

fn name(actor: usize) -> String {
    format!("a{actor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_systems_bear_everything_and_defects_show_where_they_are() {
        for (seed, system) in (0u64..).zip(System::ten(5)) {
            let sound = Mutant::new(system.clone());
            let expected = if system.kind == Kind::Duplicate { 1 } else { 2 } * system.updates();
            assert_eq!(sound.targets.candidates.len(), expected);
            let all = sound.targets.full();
            assert_eq!(sound.run(&all, seed).0, Outcome::Pass);
            for actor in [5, 25, 45] {
                let defects = Defects { actors: vec![actor], ..Defects::default() };
                let mutant = sound.with(defects, Asserted::First);
                assert_eq!(mutant.run(&DeltaSet::new(), seed).0, Outcome::Pass);
                assert_eq!(mutant.run(&all, seed).1.blamed, [name(actor)]);
                let place = mutant.place(actor);
                let other = |p: &usize| Some(mutant.targets.candidates[*p].actor) != place;
                assert_eq!(mutant.run(&all.iter().filter(other).collect(), seed).0, Outcome::Pass);
            }
        }
    }
}
