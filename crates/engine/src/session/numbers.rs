//! The numbers of trials: runs are named by them, so none is used twice, not even after an interruption.

use std::collections::BTreeMap;

use faultscope_model::{TrialId, TrialRole};

/// The highest used number of each role.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: BTreeMap<TrialRole, u32>,
}

impl Numbers {
    /// Continues after these trials.
    pub(crate) fn after(started: impl Iterator<Item = TrialId>) -> Self {
        let mut numbers = Self::default();
        for TrialId { role, number } in started {
            let last = numbers.last.entry(role).or_default();
            *last = (*last).max(number);
        }
        numbers
    }

    /// The next trial of a role.
    pub(crate) fn next(&mut self, role: TrialRole) -> TrialId {
        let last = self.last.entry(role).or_default();
        *last += 1;
        TrialId::new(role, *last)
    }
}
