//! Sets of a search as the parts of an input that are kept.

use faultscope_model::input::{Input, Stage};
use faultscope_model::{DeltaSet, GivenInput, Outcome, Treatment};
use faultscope_search::Search;
use faultscope_search::resilience::Clues;

use super::{Progress, Reduction};
use crate::drive::Tests;
use crate::driver::Meaning;
use crate::error::EngineError;
use crate::trial::{FinishedTrial, TrialRequest};

/// The parts of an input at one stage, and what inputs are known to show.
pub(super) struct Parts<'a> {
    pub(super) reduction: &'a Reduction<'a>,
    pub(super) input: &'a Input,
    pub(super) stage: Stage,
    pub(super) progress: &'a mut Progress,
}

impl Meaning for Parts<'_> {
    fn request(&mut self, _search: &dyn Search, set: &DeltaSet) -> Result<TrialRequest, EngineError> {
        let smaller = self.input.keep(self.stage, set);
        Ok(TrialRequest {
            treatment: Treatment::Input {
                deltas: self.reduction.deltas.clone(),
                test: self.reduction.test.name.clone(),
                input: GivenInput::of(smaller.render()),
            },
            circumstance: self.reduction.circumstance.clone(),
            drive: Tests::new(vec![self.reduction.test_with(&smaller)]),
            wanted: Some(self.reduction.wanted.clone()),
        })
    }

    /// Stages overlap: the same input comes up again when others are cut.
    fn known(&mut self, set: &DeltaSet) -> Option<Outcome> {
        self.progress.known.get(&self.input.keep(self.stage, set).render()).cloned()
    }

    fn clues(&mut self, set: &DeltaSet, trial: &mut FinishedTrial) -> Option<Clues> {
        self.progress.trials += 1;
        // A flaky test may pass where it could have failed: only failures are remembered then.
        let outcome = &trial.run.outcome;
        if self.reduction.rate >= 1.0 || matches!(outcome, Outcome::Fail { .. }) {
            let text = self.input.keep(self.stage, set).render();
            self.progress.known.insert(text, outcome.clone());
        }
        None
    }
}
