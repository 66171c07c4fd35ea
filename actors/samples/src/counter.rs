//! What an actor of the generated systems does, without its framework (section 5.1 of the paper).

use faultscope_journal::{Deliveries, Journal, Seen};
use faultscope_model::perturbation::Kind;
use serde::Serialize;

/// What an actor keeps.
#[derive(Debug, Clone, Serialize)]
pub(crate) enum Kept {
    /// An update came from a sender under its number.
    Updated(String, u64),
    /// A delivery was confirmed.
    Confirmed(u64),
}

/// An actor's state: a counter, what it has seen, and what it has delivered.
#[derive(Debug)]
pub(crate) struct Counter {
    name: String,
    journal: Journal<Kept>,
    defect: Option<Kind>,
    successors: usize,
    counter: u64,
    seen: Seen,
    deliveries: Deliveries<usize>,
}

impl Counter {
    /// Reads back what was kept. With a defect in persistence the counter is not counted again.
    pub(crate) fn recover(
        name: &str,
        journal: &Journal<Kept>,
        defect: Option<Kind>,
        successors: usize,
    ) -> Self {
        let (name, kept) = (name.to_owned(), journal.clone());
        let (seen, deliveries) = (Seen::new(), Deliveries::new());
        let mut counter = Self { name, journal: kept, defect, successors, counter: 0, seen, deliveries };
        let mut events = Vec::new();
        journal.replay(&counter.name, |event| events.push(event.clone()));
        for event in events {
            match event {
                Kept::Updated(sender, id) => {
                    counter.apply(&sender, id);
                }
                Kept::Confirmed(id) => {
                    counter.deliveries.confirm(id);
                }
            }
        }
        if defect == Some(Kind::Restart) {
            counter.counter = 0;
        }
        counter
    }

    /// Takes an update; gives the numbers under which to tell each successor.
    pub(crate) fn update(&mut self, sender: &str, id: u64) -> Vec<u64> {
        // In memory nothing can fail.
        let _ = self.journal.append(&self.name, Kept::Updated(sender.to_owned(), id));
        self.apply(sender, id)
    }

    fn apply(&mut self, sender: &str, id: u64) -> Vec<u64> {
        if !self.seen.first(sender, id) && self.defect != Some(Kind::Duplicate) {
            return Vec::new();
        }
        self.counter += 1;
        (0..self.successors).map(|to| self.deliveries.deliver(&self.name, |_| to).0).collect()
    }

    /// Takes a confirmation.
    pub(crate) fn confirm(&mut self, id: u64) {
        let _ = self.journal.append(&self.name, Kept::Confirmed(id));
        self.deliveries.confirm(id);
    }

    pub(crate) fn value(&self) -> u64 {
        self.counter
    }
}
