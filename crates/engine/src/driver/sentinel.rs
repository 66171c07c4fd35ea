//! Repeats known circumstances now and then: if one gives another outcome, the environment has changed and no
//! answer can be trusted.

use faultscope_model::Outcome;

use crate::trial::TrialRequest;

/// The known circumstances, and the trials since the last check.
#[derive(Debug, Default)]
pub(super) struct Sentinels {
    /// After how many trials of a search one is repeated; 0 for never.
    pub(super) every: u32,
    known: Vec<(TrialRequest, Outcome)>,
    since: u32,
    /// The number of started sentinels.
    pub(super) started: usize,
}

impl Sentinels {
    pub(super) fn new(every: u32) -> Self {
        Self { every, ..Self::default() }
    }

    /// Sets the circumstances to repeat in turn. If there are none, the first trial that passes or fails becomes one.
    pub(super) fn watch(&mut self, known: Vec<(TrialRequest, Outcome)>) {
        (self.known, self.since) = (known, 0);
    }

    /// Counts a trial of a search.
    pub(super) fn count(&mut self, request: &TrialRequest, outcome: &Outcome) {
        if self.every == 0 {
            return;
        }
        self.since += 1;
        if self.known.is_empty() && !matches!(outcome, Outcome::Unresolved { .. }) {
            self.known.push((request.clone(), outcome.clone()));
        }
    }

    /// The known circumstance that is due, with its expected outcome.
    pub(super) fn take_due(&mut self) -> Option<(TrialRequest, Outcome)> {
        if self.every == 0 || self.since < self.every || self.known.is_empty() {
            return None;
        }
        self.since = 0;
        let which = self.started % self.known.len();
        self.started += 1;
        self.known.get(which).cloned()
    }
}
