//! What can be perturbed, read from the trace of a test, and what caused what in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use faultscope_model::DeltaSet;
use faultscope_model::perturbation::{Event, Kind, Perturbation, TargetId};

/// A perturbation that a test can be run with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What is done, and to which message.
    pub perturbation: Perturbation,
    /// Who sends the message.
    pub from: String,
    /// Its type or operation.
    pub message: String,
    /// Who receives it: a place among the actors.
    pub actor: usize,
    /// The turn in which it was handled: a place among the turns.
    pub turn: usize,
}

/// A handled message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    actor: usize,
    /// The turn in which the message was sent; an earlier place. None for the test.
    cause: Option<usize>,
}

/// The candidates of a test; a [`DeltaSet`] holds places among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Targets {
    /// What can be done.
    pub candidates: Vec<Candidate>,
    /// Everyone who handles messages.
    pub actors: Vec<String>,
    turns: Vec<Turn>,
}

/// How far back a message is looked at to see whether it is an answer.
const MAX_STEPS: usize = 1_000;

/// Which candidates are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Of which kinds; of these, [`Targets::new`] knows duplicates and restarts.
    pub kinds: Vec<Kind>,
    /// Whether messages of the test itself are perturbed, too; the paper leaves them alone.
    pub from_test: bool,
}

impl Default for Scope {
    fn default() -> Self {
        Self { kinds: vec![Kind::Duplicate, Kind::Restart], from_test: false }
    }
}

struct Sent<'a> {
    from: &'a str,
    to: &'a str,
    message: &'a str,
    turn: Option<u64>,
    at_least_once: bool,
    target: TargetId,
}

impl Targets {
    /// A duplicate for each message that is sent at least once, a restart for each one to a persistent
    /// actor (section 3.3); only messages that were handled can be perturbed.
    pub fn new(events: &[Event], scope: &Scope) -> Self {
        let mut targets = Self::default();
        let mut persistent: BTreeSet<&str> = BTreeSet::new();
        let mut sends: HashMap<u64, Sent<'_>> = HashMap::new();
        let mut ordinals: HashMap<(Option<u64>, &str, &str), u32> = HashMap::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut ids: HashMap<u64, TargetId> = HashMap::new();
        let mut actors: BTreeMap<&str, usize> = BTreeMap::new();
        let mut seen: BTreeSet<Perturbation> = BTreeSet::new();
        // Turns in which something was sent.
        let mut busy: BTreeSet<usize> = BTreeSet::new();
        for event in events {
            match event {
                Event::Create { child, persistent: true, .. } => {
                    persistent.insert(child);
                }
                Event::Send { from, to, message, send, turn, at_least_once, target } => {
                    busy.extend(turn.and_then(|turn| places.get(&turn).copied()));
                    let ordinal = ordinals.entry((*turn, to.as_str(), message.as_str())).or_default();
                    *ordinal += 1;
                    let root = TargetId::root();
                    let cause = turn.and_then(|turn| ids.get(&turn)).unwrap_or(&root);
                    let target = target.clone().unwrap_or_else(|| cause.then(to, message, *ordinal));
                    let (turn, at_least_once) = (*turn, *at_least_once);
                    sends.insert(*send, Sent { from, to, message, turn, at_least_once, target });
                }
                Event::Turn { to, send, turn } => {
                    let next = actors.len();
                    let actor = *actors.entry(to).or_insert(next);
                    if actor == next {
                        targets.actors.push(to.clone());
                    }
                    let sent = sends.get(send);
                    let cause = sent.and_then(|sent| places.get(&sent.turn?).copied());
                    let place = targets.turns.len();
                    places.insert(*turn, place);
                    targets.turns.push(Turn { actor, cause });
                    let Some(sent) = sent else { continue };
                    ids.insert(*turn, sent.target.clone());
                    if sent.turn.is_none() && !scope.from_test {
                        continue;
                    }
                    for &kind in &scope.kinds {
                        let possible = match kind {
                            Kind::Duplicate => sent.at_least_once,
                            Kind::Restart => persistent.contains(sent.to),
                            _ => false,
                        };
                        let perturbation = Perturbation { kind, target: sent.target.clone() };
                        if possible && seen.insert(perturbation.clone()) {
                            let (from, message) = (sent.from.to_owned(), sent.message.to_owned());
                            let candidate = Candidate { perturbation, from, message, actor, turn: place };
                            targets.candidates.push(candidate);
                        }
                    }
                }
                _ => {}
            }
        }
        targets.leave_last_questions(&busy);
        targets
    }

    /// Adds a handling that nothing caused, for what is done to an actor as a whole before everything else; gives its
    /// place.
    pub fn add_turn(&mut self, actor: usize) -> usize {
        self.turns.push(Turn { actor, cause: None });
        self.turns.len() - 1
    }

    /// Takes out restarts after messages of the test that caused nothing and after which their receivers
    /// handle nothing, such as the question for a result: nobody could see them, and the test's process may
    /// have ended before.
    fn leave_last_questions(&mut self, busy: &BTreeSet<usize>) {
        let last: HashMap<usize, usize> =
            self.turns.iter().enumerate().map(|(place, turn)| (turn.actor, place)).collect();
        let (turns, candidates) = (&self.turns, &mut self.candidates);
        candidates.retain(|c| {
            let asks = turns[c.turn].cause.is_none() && !busy.contains(&c.turn);
            c.perturbation.kind != Kind::Restart || !asks || last.get(&c.actor) != Some(&c.turn)
        });
    }

    /// All candidates.
    pub fn full(&self) -> DeltaSet {
        (0..self.candidates.len()).collect()
    }

    /// The perturbations of a set.
    pub fn perturbations(&self, set: &DeltaSet) -> Vec<Perturbation> {
        set.iter().filter_map(|place| self.candidates.get(place)).map(|c| c.perturbation.clone()).collect()
    }

    /// The set of these perturbations; what is no candidate is left out.
    pub fn set_of(&self, perturbations: &[Perturbation]) -> DeltaSet {
        let places: HashMap<&Perturbation, usize> =
            self.candidates.iter().enumerate().map(|(place, c)| (&c.perturbation, place)).collect();
        perturbations.iter().filter_map(|p| places.get(p).copied()).collect()
    }

    /// The place of an actor.
    pub fn actor(&self, name: &str) -> Option<usize> {
        self.actors.iter().position(|actor| actor == name)
    }

    /// The candidates that can have affected an actor's state (Algorithms 1 to 3): those whose turns are
    /// the actor's own, caused one of these, or came before such a turn at the same actor. The paper
    /// enumerates paths; as every turn has one cause, a single pass backwards gives the same set.
    pub fn affecting(&self, actor: usize) -> DeltaSet {
        let mut caused = vec![false; self.turns.len()];
        let mut concerned = vec![false; self.actors.len()];
        let mut affected = vec![false; self.turns.len()];
        for (place, turn) in self.turns.iter().enumerate().rev() {
            if turn.actor == actor || concerned[turn.actor] || caused[place] {
                affected[place] = true;
                concerned[turn.actor] = true;
                if let Some(cause) = turn.cause {
                    caused[cause] = true;
                }
            }
        }
        let chosen = self.candidates.iter().enumerate().filter(|(_, c)| affected[c.turn]);
        chosen.map(|(place, _)| place).collect()
    }

    /// For every actor, over how many messages it leads to this one: 0 for itself, none when it does
    /// not. Ways that come back to the actor, as confirmations do, do not count.
    pub fn upstream(&self, actor: usize) -> Vec<Option<u32>> {
        let mut nearest: Vec<Option<u32>> = vec![None; self.actors.len()];
        nearest[actor] = Some(0);
        // Which turns have a turn of the actor among their causes.
        let mut behind = vec![false; self.turns.len()];
        for (place, turn) in self.turns.iter().enumerate() {
            behind[place] = turn.cause.is_some_and(|c| behind[c] || self.turns[c].actor == actor);
            if turn.actor != actor || behind[place] {
                continue;
            }
            let (mut at, mut hops) = (turn.cause, 1);
            while let Some(cause) = at {
                let found = &mut nearest[self.turns[cause].actor];
                *found = Some(found.map_or(hops, |before| before.min(hops)));
                (at, hops) = (self.turns[cause].cause, hops + 1);
            }
        }
        nearest
    }

    /// For every actor, the ends that it leads to: actors that pass nothing on, but to whom they have it
    /// from. An end leads to itself.
    pub fn ends(&self) -> Vec<BTreeSet<usize>> {
        let mut next: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); self.actors.len()];
        for turn in &self.turns {
            let causes = std::iter::successors(turn.cause, |&cause| self.turns[cause].cause);
            let is_answer = causes.take(MAX_STEPS).any(|cause| self.turns[cause].actor == turn.actor);
            if let Some(cause) = turn.cause.filter(|_| !is_answer) {
                next[self.turns[cause].actor].insert(turn.actor);
            }
        }
        let reached = |from: usize| {
            let (mut seen, mut open) = (BTreeSet::from([from]), vec![from]);
            while let Some(actor) = open.pop() {
                open.extend(next[actor].iter().copied().filter(|&to| seen.insert(to)));
            }
            seen.into_iter().filter(|&actor| next[actor].is_empty()).collect()
        };
        (0..self.actors.len()).map(reached).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(from: &str, to: &str, send: u64, turn: Option<u64>) -> Event {
        let (from, to, message) = (from.into(), to.into(), "Update".into());
        Event::Send { from, to, message, send, turn, at_least_once: true, target: None }
    }

    fn turn(to: &str, send: u64, turn: u64) -> Event {
        Event::Turn { to: to.into(), send, turn }
    }

    /// The test wakes a; a tells b and c; b tells c and d.
    fn diamond() -> Vec<Event> {
        let create =
            |child: &str| Event::Create { parent: None, child: child.into(), persistent: child != "d" };
        let mut events: Vec<Event> = ["a", "b", "c", "d"].map(create).into();
        events.extend([send("", "a", 1, None), turn("a", 1, 1)]);
        events.extend([send("a", "b", 2, Some(1)), send("a", "c", 3, Some(1)), turn("b", 2, 2)]);
        events.extend([send("b", "c", 4, Some(2)), send("b", "d", 5, Some(2))]);
        events.extend([turn("c", 3, 3), turn("d", 5, 4), turn("c", 4, 5), send("c", "d", 6, Some(5))]);
        events
    }

    #[test]
    fn candidates_are_handled_messages_of_the_right_kind() {
        let targets = Targets::new(&diamond(), &Scope::default());
        let names: Vec<String> = targets.candidates.iter().map(|c| c.perturbation.to_string()).collect();
        let expected = [
            "duplicate a.Update/b.Update",
            "restart a.Update/b.Update",
            "duplicate a.Update/c.Update",
            "restart a.Update/c.Update",
            "duplicate a.Update/b.Update/d.Update",
            "duplicate a.Update/b.Update/c.Update",
            "restart a.Update/b.Update/c.Update",
        ];
        assert_eq!(names, expected, "d is not persistent, and its second message was never handled");
        let all = targets.perturbations(&targets.full());
        assert_eq!(targets.set_of(&all), targets.full());
        let scope = Scope { from_test: true, kinds: vec![Kind::Restart] };
        assert_eq!(Targets::new(&diamond(), &scope).candidates.len(), 4);
    }

    #[test]
    fn messages_of_the_test_are_perturbed_but_for_its_last_question() {
        let create = Event::Create { parent: None, child: "stock".into(), persistent: true };
        let question = Event::Send {
            from: String::new(),
            to: "stock".into(),
            message: "Left".into(),
            send: 2,
            turn: None,
            at_least_once: false,
            target: None,
        };
        let events = [create, send("", "stock", 1, None), turn("stock", 1, 1), question, turn("stock", 2, 2)];
        let targets = Targets::new(&events, &Scope { from_test: true, ..Scope::default() });
        let names: Vec<String> = targets.candidates.iter().map(|c| c.perturbation.to_string()).collect();
        assert_eq!(names, ["duplicate stock.Update", "restart stock.Update"]);
        assert_eq!(Targets::new(&events, &Scope::default()).candidates, []);
    }

    #[test]
    fn causes_are_found_backwards() {
        let targets = Targets::new(&diamond(), &Scope { kinds: vec![Kind::Duplicate], from_test: false });
        let affecting = |name: &str| -> Vec<String> {
            let set = targets.affecting(targets.actor(name).unwrap());
            targets.perturbations(&set).iter().map(|p| p.target.to_string()).collect()
        };
        assert_eq!(affecting("b"), ["a.Update/b.Update"]);
        assert_eq!(affecting("d"), ["a.Update/b.Update", "a.Update/b.Update/d.Update"], "not over c");
        assert_eq!(affecting("c").len(), 3, "over b as well");
        let d = targets.actor("d").unwrap();
        assert_eq!(targets.upstream(d), [Some(2), Some(1), None, Some(0)]);
        let (c, both) = (targets.actor("c").unwrap(), BTreeSet::from([targets.actor("c").unwrap(), d]));
        let ends = targets.ends();
        assert_eq!((&ends[0], &ends[1]), (&both, &both), "a and b lead to both");
        assert_eq!((&ends[c], &ends[d]), (&BTreeSet::from([c]), &BTreeSet::from([d])));
    }
}
