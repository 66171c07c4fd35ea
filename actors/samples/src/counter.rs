//! An actor of the generated systems, without its framework (section 5.1 of the paper).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faultscope_journal::{Deliveries, HandledDeliveries, Journal};
use faultscope_probe::Probe;
use faultscope_probe_format::{Kind, TargetId};
use serde::Serialize;

use crate::Faults;

/// The defect of one actor.
#[derive(Debug, Clone, Default)]
pub(crate) struct Broken {
    /// Its kind; none for a sound actor.
    pub(crate) defect: Option<Kind>,
    /// The only second handling, or restart, that triggers it.
    trigger: Option<TargetId>,
    pair: Option<Arc<Pair>>,
}

/// Two second handlings, or restarts, that a system does not tolerate together.
#[derive(Debug)]
pub(crate) struct Pair {
    targets: [TargetId; 2],
    seen: [AtomicBool; 2],
}

impl Pair {
    pub(crate) fn new(faults: &Faults) -> Option<Arc<Self>> {
        let targets = faults.pair.as_ref()?.each_ref().map(TargetId::again);
        Some(Arc::new(Self { targets, seen: Default::default() }))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.seen.iter().all(|seen| seen.load(Ordering::Relaxed))
    }
}

impl Broken {
    pub(crate) fn new(kind: Kind, faults: &Faults, actor: usize, pair: Option<&Arc<Pair>>) -> Self {
        Self {
            defect: faults.actors.contains(&actor).then_some(kind),
            trigger: faults.trigger.as_ref().map(TargetId::again),
            pair: pair.cloned(),
        }
    }

    /// Whether the defect shows in what is handled now.
    fn shows(&self, kind: Kind) -> bool {
        self.defect == Some(kind) && (self.trigger.is_none() || Probe::handling() == self.trigger)
    }

    fn note(&self) {
        let Some(pair) = &self.pair else {
            return;
        };
        let now = Probe::handling();
        for (target, seen) in pair.targets.iter().zip(&pair.seen) {
            seen.fetch_or(now.as_ref() == Some(target), Ordering::Relaxed);
        }
    }
}

/// What an actor persists.
#[derive(Debug, Clone, Serialize)]
pub(crate) enum Kept {
    /// An update came from a sender under its number.
    Updated(String, u64),
    /// A delivery was confirmed.
    Confirmed(u64),
    /// The counter was lost, and stays lost.
    Lost,
}

/// An actor's state: a counter, what it has seen, and what it has delivered.
#[derive(Debug)]
pub(crate) struct Counter {
    name: String,
    journal: Journal<Kept>,
    broken: Broken,
    successors: usize,
    counter: u64,
    seen: HandledDeliveries,
    deliveries: Deliveries<usize>,
}

impl Counter {
    /// Restores the persisted state. With a defect in persistence the counter is not restored.
    pub(crate) fn recover(name: &str, journal: &Journal<Kept>, broken: &Broken, successors: usize) -> Self {
        let (name, kept, broken) = (name.to_owned(), journal.clone(), broken.clone());
        broken.note();
        if broken.shows(Kind::Restart) {
            // In memory nothing can fail.
            let _ = journal.append(&name, Kept::Lost);
        }
        let (seen, deliveries) = (HandledDeliveries::new(), Deliveries::new());
        let mut counter = Self { name, journal: kept, broken, successors, counter: 0, seen, deliveries };
        // Without a trigger no update is deduplicated, so all of them count again.
        let careless = counter.broken.trigger.is_none() && counter.broken.defect == Some(Kind::Duplicate);
        let mut events = Vec::new();
        journal.replay(&counter.name, |event| events.push(event.clone()));
        for event in events {
            match event {
                Kept::Updated(sender, id) => {
                    counter.apply(&sender, id, careless);
                }
                Kept::Confirmed(id) => {
                    counter.deliveries.confirm(id);
                }
                Kept::Lost => counter.counter = 0,
            }
        }
        counter
    }

    /// Handles an update; returns the delivery numbers for the successors.
    pub(crate) fn update(&mut self, sender: &str, id: u64) -> Vec<u64> {
        // In memory nothing can fail.
        let _ = self.journal.append(&self.name, Kept::Updated(sender.to_owned(), id));
        self.broken.note();
        let careless = self.broken.shows(Kind::Duplicate);
        self.apply(sender, id, careless)
    }

    fn apply(&mut self, sender: &str, id: u64, careless: bool) -> Vec<u64> {
        if !self.seen.insert(sender, id) && !careless {
            return Vec::new();
        }
        self.counter += 1;
        (0..self.successors).map(|to| self.deliveries.deliver(&self.name, |_| to).0).collect()
    }

    /// Handles a confirmation.
    pub(crate) fn confirm(&mut self, id: u64) {
        let _ = self.journal.append(&self.name, Kept::Confirmed(id));
        self.deliveries.confirm(id);
    }

    pub(crate) fn value(&self) -> u64 {
        self.counter
    }
}
