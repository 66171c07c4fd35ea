//! The numbers of trials: runs are named by them, so none is used twice, not even after an interruption.

use std::collections::BTreeMap;

use faultscope_model::TrialId;

use crate::driver::TrialRole;

/// The highest number of each role that was used.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: BTreeMap<TrialRole, u32>,
}

impl Numbers {
    /// Goes on behind these trials.
    pub(crate) fn after(started: impl Iterator<Item = TrialId>) -> Self {
        let mut numbers = Self::default();
        for trial in started {
            let role = Self::role_of(trial);
            let last = numbers.last.entry(role).or_default();
            *last = (*last).max(number_of(trial, role));
        }
        numbers
    }

    /// The next trial of a role.
    pub(crate) fn next(&mut self, role: TrialRole) -> TrialId {
        let last = self.last.entry(role).or_default();
        *last += 1;
        trial(role, *last)
    }

    /// What a trial is for.
    pub(crate) fn role_of(id: TrialId) -> TrialRole {
        const ROLES: [TrialRole; 6] = [
            TrialRole::Baseline,
            TrialRole::Input,
            TrialRole::Boundary,
            TrialRole::CheckFailing,
            TrialRole::CheckSimplest,
            TrialRole::Sentinel,
        ];
        let is_of = |role: &TrialRole| id >= trial(*role, 0);
        ROLES.into_iter().find(is_of).unwrap_or(TrialRole::Search)
    }
}

fn trial(role: TrialRole, number: u32) -> TrialId {
    match role {
        TrialRole::Search => TrialId(number.into()),
        TrialRole::Sentinel => TrialId::sentinel(number),
        TrialRole::Baseline => TrialId::baseline(number),
        TrialRole::CheckSimplest => TrialId::check_simplest(number),
        TrialRole::CheckFailing => TrialId::check_failing(number),
        TrialRole::Boundary => TrialId::boundary(number),
        TrialRole::Input => TrialId::input(number),
    }
}

fn number_of(id: TrialId, role: TrialRole) -> u32 {
    id.after(trial(role, 0))
}
