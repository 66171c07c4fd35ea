//! One memory budget for everything that is held on behalf of others: bodies while they arrive, what is decoded
//! from them, what waits for the writer, and what is read for an answer.
//!
//! A [`Hold`] is taken before the memory is, travels with what it stands for, and gives the memory back when it is
//! dropped. Whoever finds no room is asked to come again.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit that is counted.
const UNIT: usize = 1024;

/// The bytes that may be held at the same time. Clones share them.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Free units.
    free: Arc<Semaphore>,
}

/// A part of a [`Budget`].
#[derive(Debug)]
pub struct Hold {
    budget: Budget,
    bytes: usize,
    units: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new((bytes / UNIT).clamp(1, Semaphore::MAX_PERMITS))) }
    }

    /// A hold of nothing, to be grown.
    pub fn hold_nothing(&self) -> Hold {
        Hold { budget: self.clone(), bytes: 0, units: None }
    }

    /// Free bytes.
    pub fn free(&self) -> usize {
        self.free.available_permits().saturating_mul(UNIT)
    }
}

impl Hold {
    /// Holds this many bytes more; false if there is no room, and then nothing changes.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let wanted = self.bytes.saturating_add(bytes);
        let missing = units(wanted).saturating_sub(self.n_units());
        if missing > 0 {
            let Ok(missing) = u32::try_from(missing) else { return false };
            let free = Arc::clone(&self.budget.free);
            let Ok(more) = free.try_acquire_many_owned(missing) else { return false };
            match &mut self.units {
                Some(units) => units.merge(more),
                None => self.units = Some(more),
            }
        }
        self.bytes = wanted;
        true
    }

    /// Gives back everything beyond this many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            return;
        }
        let surplus = self.n_units() - units(bytes).min(self.n_units());
        drop(self.units.as_mut().and_then(|units| units.split(surplus)));
        self.bytes = bytes;
    }

    /// Held bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn n_units(&self) -> usize {
        self.units.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

fn units(bytes: usize) -> usize {
    bytes.div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_held_comes_back() {
        let budget = Budget::new(10 * UNIT);
        let mut hold = budget.hold_nothing();
        assert!(hold.grow(1) && hold.grow(UNIT - 1));
        assert_eq!(budget.free(), 9 * UNIT, "a unit is counted once");
        assert!(hold.grow(8 * UNIT));
        assert!(!hold.grow(UNIT + 1), "there is one unit left");
        assert_eq!(hold.bytes(), 9 * UNIT, "a refusal changes nothing");
        hold.shrink_to(UNIT + 1);
        assert_eq!(budget.free(), 8 * UNIT);
        hold.shrink_to(5 * UNIT);
        assert_eq!((hold.bytes(), budget.free()), (UNIT + 1, 8 * UNIT), "shrinking never grows");
        drop(hold);
        assert_eq!(budget.free(), 10 * UNIT);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_overdrawn(steps in prop::collection::vec((any::<bool>(), 0..9000_usize), 0..40)) {
            let budget = Budget::new(16 * UNIT);
            let mut holds = [budget.hold_nothing(), budget.hold_nothing()];
            for (at, (grows, bytes)) in steps.into_iter().enumerate() {
                let hold = &mut holds[at % 2];
                if grows { let _ = hold.grow(bytes); } else { hold.shrink_to(bytes); }
                let held: usize = holds.iter().map(|hold| units(hold.bytes())).sum();
                prop_assert_eq!(budget.free(), (16 - held) * UNIT);
            }
        }
    }
}
