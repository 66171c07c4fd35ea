//! Lets a search over the parts of an input ask trials.

use std::collections::BTreeMap;
use std::time::Duration;

use faultscope_model::input::{Input, Stage};
use faultscope_model::{DeltaSet, Outcome, Run, SlotId, TrialId};
use faultscope_search::{Fixed, Search, SlotView, Standing};

use super::{Progress, Reduction};
use crate::debug::asking::{Next, Questions};
use crate::error::EngineError;
use crate::trial::TrialRequest;

/// A trial that the search waits for.
struct Waiting {
    /// What the search calls it.
    own: TrialId,
    slot: SlotId,
    text: String,
}

/// A search, what its sets mean, and what is known already.
pub(super) struct Asker<'a> {
    reduction: &'a Reduction<'a>,
    input: &'a Input,
    stage: Stage,
    search: Box<dyn Search + Send>,
    progress: &'a mut Progress,
    waiting: BTreeMap<TrialId, Waiting>,
    last: Option<Outcome>,
}

impl<'a> Asker<'a> {
    pub(super) fn new(
        reduction: &'a Reduction<'a>,
        input: &'a Input,
        stage: Stage,
        search: Box<dyn Search + Send>,
        progress: &'a mut Progress,
    ) -> Self {
        Self { reduction, input, stage, search, progress, waiting: BTreeMap::new(), last: None }
    }

    /// Asks only for the input without anything of the stage.
    pub(super) fn single(
        reduction: &'a Reduction<'a>,
        input: &'a Input,
        stage: Stage,
        progress: &'a mut Progress,
    ) -> Self {
        Self::new(reduction, input, stage, Box::new(Fixed::new(vec![DeltaSet::new()])), progress)
    }

    /// What the only trial showed.
    pub(super) fn only_outcome(self) -> Option<Outcome> {
        self.last
    }

    /// Where the search stands.
    pub(super) fn standing(&self) -> Standing {
        self.search.standing()
    }

    fn views(&self, free: usize) -> Vec<SlotView> {
        let busy = self.waiting.values().map(|w| (w.slot, Some(w.own)));
        let taken: Vec<SlotId> = self.waiting.values().map(|w| w.slot).collect();
        let open = (0..u16::MAX).map(SlotId).filter(|slot| !taken.contains(slot)).take(free);
        let views = busy.chain(open.map(|slot| (slot, None)));
        views.map(|(slot, busy)| SlotView { slot, current: None, busy }).collect()
    }

    fn tell(&mut self, own: TrialId, outcome: &Outcome, cost: Duration) {
        self.last = Some(outcome.clone());
        self.search.record(own, outcome, cost);
    }
}

impl Questions for Asker<'_> {
    fn next(&mut self, free: usize) -> Result<Next, EngineError> {
        let mut next = Next::default();
        let mut free = free;
        loop {
            let in_flight: Vec<TrialId> = self.waiting.values().map(|w| w.own).collect();
            let moves = self.search.plan(&self.views(free), &in_flight);
            let needless = |w: &Waiting| moves.cancel.contains(&w.own);
            let cancelled: Vec<TrialId> =
                self.waiting.iter().filter(|(_, w)| needless(w)).map(|(&trial, _)| trial).collect();
            for trial in cancelled {
                self.waiting.remove(&trial);
                next.cancel.push(trial);
            }
            let mut answered = false;
            for start in moves.start {
                let smaller = self.input.keep(self.stage, &start.set);
                let text = smaller.render();
                if let Some(outcome) = self.progress.known.get(&text).cloned() {
                    self.tell(start.trial, &outcome, Duration::ZERO);
                    answered = true;
                    continue;
                }
                self.progress.trials += 1;
                let trial = TrialId::input(self.progress.first + self.progress.trials);
                self.waiting.insert(trial, Waiting { own: start.trial, slot: start.slot, text });
                free = free.saturating_sub(1);
                next.start.push(TrialRequest {
                    trial,
                    deltas: self.reduction.deltas.clone(),
                    circumstance: self.reduction.circumstance.clone(),
                    tests: vec![self.reduction.test_with(&smaller)],
                    wanted: Some(self.reduction.wanted.clone()),
                    perturbing: None,
                });
            }
            if !answered || self.search.is_done() {
                return Ok(next);
            }
        }
    }

    fn answer(&mut self, run: &Run) {
        let Some(waiting) = self.waiting.remove(&run.trial) else { return };
        // A flaky test may pass where it could have failed: only failures are remembered then.
        if self.reduction.rate >= 1.0 || matches!(run.outcome, Outcome::Fail { .. }) {
            self.progress.known.insert(waiting.text, run.outcome.clone());
        }
        self.tell(waiting.own, &run.outcome, run.cost.total);
    }

    fn is_done(&self) -> bool {
        self.search.is_done()
    }
}
