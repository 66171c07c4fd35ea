//! At-least-once delivery with confirmation, and deduplication on the receiving side.

use std::collections::{BTreeMap, BTreeSet};

/// Messages that were sent and not confirmed yet.
///
/// ```
/// use faultscope_journal::Deliveries;
/// let mut deliveries = Deliveries::new();
/// let (id, message) = deliveries.deliver("stock", |id| format!("reserve {id}"));
/// assert_eq!(message, "reserve 1");
/// assert_eq!(deliveries.unconfirmed().count(), 1);
/// assert!(deliveries.confirm(id));
/// assert!(!deliveries.confirm(id), "a second confirmation changes nothing");
/// assert_eq!(deliveries.unconfirmed().count(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliveries<M> {
    next: u64,
    open: BTreeMap<u64, (String, M)>,
}

impl<M> Default for Deliveries<M> {
    fn default() -> Self {
        Self { next: 1, open: BTreeMap::new() }
    }
}

impl<M: Clone> Deliveries<M> {
    /// Without open deliveries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a message with its own number; it is to be sent now, and again until it is confirmed.
    /// Created again in the same order after a restart, messages have the same numbers.
    pub fn deliver(&mut self, to: &str, make: impl FnOnce(u64) -> M) -> (u64, M) {
        let id = self.next;
        self.next += 1;
        let message = make(id);
        self.open.insert(id, (to.to_owned(), message.clone()));
        (id, message)
    }

    /// Handles a confirmation; returns whether the delivery was open.
    pub fn confirm(&mut self, id: u64) -> bool {
        self.open.remove(&id).is_some()
    }

    /// The messages to send again: number, receiver, message.
    pub fn unconfirmed(&self) -> impl Iterator<Item = (u64, &str, &M)> {
        self.open.iter().map(|(id, (to, message))| (*id, to.as_str(), message))
    }
}

/// The deliveries that a receiver has already handled.
///
/// ```
/// let mut seen = faultscope_journal::HandledDeliveries::new();
/// assert!(seen.insert("order", 1));
/// assert!(!seen.insert("order", 1), "the same delivery again");
/// assert!(seen.insert("payment", 1), "another sender has its own numbers");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandledDeliveries(BTreeMap<String, BTreeSet<u64>>);

impl HandledDeliveries {
    /// Without any delivery.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records a delivery and returns whether it is new.
    pub fn insert(&mut self, sender: &str, id: u64) -> bool {
        match self.0.get_mut(sender) {
            Some(seen) => seen.insert(id),
            None => self.0.entry(sender.to_owned()).or_default().insert(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is confirmed, lost and sent again, everything arrives, and counts once.
        #[test]
        fn everything_arrives_and_counts_once(losses in proptest::collection::vec(any::<bool>(), 1..200)) {
            let (mut deliveries, mut seen, mut sum) = (Deliveries::new(), HandledDeliveries::new(), 0);
            let count = 20;
            for _ in 0..count {
                deliveries.deliver("b", |id| id);
            }
            let mut losses = losses.into_iter().chain(std::iter::repeat(false));
            while deliveries.unconfirmed().count() > 0 {
                let open: Vec<u64> = deliveries.unconfirmed().map(|(id, ..)| id).collect();
                for id in open {
                    if losses.next() == Some(true) {
                        continue;
                    }
                    if seen.insert("a", id) {
                        sum += id;
                    }
                    if losses.next() == Some(false) {
                        deliveries.confirm(id);
                    }
                }
            }
            prop_assert_eq!(sum, count * (count + 1) / 2);
        }
    }
}
