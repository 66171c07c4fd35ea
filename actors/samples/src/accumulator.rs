//! The two actors of the paper's Listing 1, without their framework.

use faultscope_journal::{Deliveries, HandledDeliveries, Journal};
use serde::Serialize;

/// How many numbers are summed up.
pub(crate) const NUMBERS: u64 = 10;

/// What the delivering actor persists.
#[derive(Debug, Clone, Serialize)]
pub(crate) enum Kept {
    /// A number is to be delivered.
    Plus(u64),
    /// A delivery was confirmed.
    Confirmed(u64),
}

/// The persistent actor that delivers numbers at least once.
#[derive(Debug)]
pub(crate) struct Delivering {
    journal: Journal<Kept>,
    deliveries: Deliveries<u64>,
}

impl Delivering {
    /// Restores the persisted state.
    pub(crate) fn recover(journal: &Journal<Kept>) -> Self {
        let mut deliveries = Deliveries::new();
        journal.replay("gda", |event| match event {
            Kept::Plus(amount) => {
                deliveries.deliver("accumulator", |_| *amount);
            }
            Kept::Confirmed(id) => {
                deliveries.confirm(*id);
            }
        });
        Self { journal: journal.clone(), deliveries }
    }

    /// The deliveries to send again after a restart: number and amount.
    pub(crate) fn unconfirmed(&self) -> Vec<(u64, u64)> {
        self.deliveries.unconfirmed().map(|(id, _, amount)| (id, *amount)).collect()
    }

    /// Accepts a number; returns its delivery.
    pub(crate) fn plus(&mut self, amount: u64) -> u64 {
        // In memory nothing can fail.
        let _ = self.journal.append("gda", Kept::Plus(amount));
        self.deliveries.deliver("accumulator", |_| amount).0
    }

    /// Handles a confirmation.
    pub(crate) fn confirm(&mut self, id: u64) {
        let _ = self.journal.append("gda", Kept::Confirmed(id));
        self.deliveries.confirm(id);
    }
}

/// The actor that sums up. As in the listing it does not deduplicate, unless repaired.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accumulator {
    pub(crate) repaired: bool,
    pub(crate) sum: u64,
    seen: HandledDeliveries,
}

impl Accumulator {
    pub(crate) fn new(repaired: bool) -> Self {
        Self { repaired, ..Self::default() }
    }

    pub(crate) fn count(&mut self, id: u64, amount: u64) {
        if self.seen.insert("gda", id) || !self.repaired {
            self.sum += amount;
        }
    }
}
