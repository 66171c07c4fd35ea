//! Adapts a search to the driver: its sets become requests, their results become its outcomes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;

use faultscope_model::event::SearchStands;
use faultscope_model::{DeltaSet, Outcome, Run, SlotId, Treatment, TrialRole};
use faultscope_search::resilience::Clues;
use faultscope_search::{Search, Standing, TaskEnd};

use super::asks::{Asks, Moves, RequestedTrial, SlotState, SlotView, Ticket};
use super::past::Past;
use crate::error::EngineError;
use crate::trial::{FinishedTrial, TrialRequest};

/// What the sets of a search stand for: how each becomes a trial, and what that shows beyond its outcome.
pub(crate) trait Meaning {
    /// The trial of a set.
    fn request(&mut self, search: &dyn Search, set: &DeltaSet) -> Result<TrialRequest, EngineError>;

    /// The set of what a trial was given, where that can be told apart from other sets by it.
    fn set_of(&self, _treatment: &Treatment) -> Option<DeltaSet> {
        None
    }

    /// The outcome of a set, if that is known without a trial.
    fn known(&mut self, _set: &DeltaSet) -> Option<Outcome> {
        None
    }

    /// What a finished trial shows beyond its outcome.
    fn clues(&mut self, _set: &DeltaSet, _trial: &mut FinishedTrial) -> Option<Clues> {
        None
    }

    /// How often in a row a set must fail: tests that are flaky without perturbations are repeated.
    fn must_fail(&self) -> u32 {
        1
    }
}

/// What a set of a search showed.
#[derive(Debug, Clone)]
pub(crate) struct SetRun {
    pub(crate) set: DeltaSet,
    pub(crate) run: Run,
}

impl Deref for SetRun {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

/// A search as [`Asks`].
pub(crate) struct SearchAsks<'a> {
    search: &'a mut dyn Search,
    meaning: &'a mut dyn Meaning,
    role: TrialRole,
    pending: BTreeMap<Ticket, Pending>,
    /// Failed trials that must fail again before that counts.
    again: VecDeque<Ticket>,
    /// What sets showed, in the order in which that was known; those of before an interruption first.
    pub(crate) runs: Vec<SetRun>,
    /// How many of these are from before an interruption.
    pub(crate) n_earlier: usize,
    /// The size of the smallest failing set, and how often it shrank: rounds for searches that have none.
    smallest: (usize, usize),
    /// Whether the search receives everything from before an interruption at once.
    recalls: bool,
}

struct Pending {
    set: DeltaSet,
    slot: SlotId,
    request: TrialRequest,
    failures: u32,
    /// The search no longer waits for it.
    is_dropped: bool,
}

impl<'a> SearchAsks<'a> {
    pub(crate) fn new(search: &'a mut dyn Search, meaning: &'a mut dyn Meaning, role: TrialRole) -> Self {
        Self {
            search,
            meaning,
            role,
            pending: BTreeMap::new(),
            again: VecDeque::new(),
            runs: Vec::new(),
            n_earlier: 0,
            smallest: (usize::MAX, 0),
            recalls: false,
        }
    }

    /// For a search that can use answers to questions which it would not ask now.
    pub(crate) fn recalling(self) -> Self {
        Self { recalls: true, ..self }
    }

    /// Continues with the results of an earlier search of the same trials.
    pub(crate) fn after(mut self, runs: Vec<SetRun>, n_earlier: usize) -> Self {
        for SetRun { set, run } in &runs {
            self.search.recall(set, &run.outcome);
        }
        (self.runs, self.n_earlier) = (runs, n_earlier);
        self
    }

    /// The slots in the types of the search.
    fn views(&self, slots: &[SlotView<'_>]) -> Vec<faultscope_search::SlotView> {
        let busy = |view: &SlotView<'_>| match view.state {
            SlotState::Free => {
                // Between two attempts at one trial its slot is not free for another.
                let again =
                    self.again.iter().find(|t| self.pending.get(t).is_some_and(|p| p.slot == view.slot));
                again.copied()
            }
            SlotState::Busy(ticket) => Some(ticket),
            // A number that no search uses.
            SlotState::Taken => Some(Ticket(u64::MAX)),
        };
        let view = |view: &SlotView<'_>| faultscope_search::SlotView {
            slot: view.slot,
            current: view.current.and_then(|treatment| self.meaning.set_of(treatment)),
            busy: busy(view),
        };
        slots.iter().map(view).collect()
    }

    fn repeat_failed(&mut self, moves: &mut Moves) {
        for ticket in std::mem::take(&mut self.again) {
            let Some(pending) = self.pending.get(&ticket) else { continue };
            let (slot, request) = (pending.slot, pending.request.clone());
            moves.start.push(RequestedTrial { ticket, role: self.role, slot, request });
        }
    }

    fn drop_trials(&mut self, tickets: Vec<Ticket>, moves: &mut Moves) {
        for ticket in tickets {
            if let Some(pending) = self.pending.get_mut(&ticket) {
                pending.is_dropped = true;
            }
            self.again.retain(|again| *again != ticket);
            moves.cancel.push(ticket);
        }
    }
}

impl Asks for SearchAsks<'_> {
    fn ask(&mut self, slots: &[SlotView<'_>]) -> Result<Moves, EngineError> {
        let mut moves = Moves::default();
        loop {
            let in_flight: Vec<Ticket> =
                self.pending.iter().filter(|(_, p)| !p.is_dropped).map(|(ticket, _)| *ticket).collect();
            let mut views = self.views(slots);
            // The search may have chosen it before a known outcome made it superfluous.
            for asked in &moves.start {
                let view = views.iter_mut().find(|view| view.slot == asked.slot);
                view.into_iter().for_each(|view| view.busy = Some(asked.ticket));
            }
            let chosen = self.search.plan(&views, &in_flight);
            self.drop_trials(chosen.cancel, &mut moves);
            let mut is_answered = false;
            for start in chosen.start {
                if let Some(outcome) = self.meaning.known(&start.set) {
                    self.search.record(start.trial, &outcome, std::time::Duration::ZERO);
                    is_answered = true;
                    continue;
                }
                let request = self.meaning.request(&*self.search, &start.set)?;
                let (ticket, slot) = (start.trial, start.slot);
                let pending = Pending {
                    set: start.set,
                    slot,
                    request: request.clone(),
                    failures: 0,
                    is_dropped: false,
                };
                self.pending.insert(ticket, pending);
                moves.start.push(RequestedTrial { ticket, role: self.role, slot, request });
            }
            if !is_answered || self.search.is_done() {
                break;
            }
        }
        self.repeat_failed(&mut moves);
        Ok(moves)
    }

    fn answer(&mut self, ticket: Ticket, mut trial: FinishedTrial) -> Result<(), EngineError> {
        let Some(mut pending) = self.pending.remove(&ticket) else { return Ok(()) };
        let failed = matches!(trial.run.outcome, Outcome::Fail { .. });
        pending.failures += u32::from(failed);
        if failed && pending.failures < self.meaning.must_fail() && !pending.is_dropped {
            self.pending.insert(ticket, pending);
            self.again.push_back(ticket);
            return Ok(());
        }
        let clues = self.meaning.clues(&pending.set, &mut trial);
        let FinishedTrial { run, is_earlier, .. } = trial;
        if pending.is_dropped {
            // It ended just before it could be cancelled, and its result is valid.
            self.search.recall(&pending.set, &run.outcome);
        } else {
            if let Some(clues) = clues {
                self.search.hear(ticket, &clues);
            }
            self.search.record(ticket, &run.outcome, run.cost.total);
        }
        self.n_earlier += usize::from(is_earlier);
        self.runs.push(SetRun { set: pending.set, run });
        let best = self.search.standing().best.len();
        if best < self.smallest.0 {
            self.smallest = (best, self.smallest.1 + 1);
        }
        Ok(())
    }

    fn withdraw(&mut self, ticket: Ticket) {
        self.pending.remove(&ticket);
        self.search.lose(ticket);
    }

    fn is_done(&self) -> bool {
        self.search.is_done()
    }

    fn recall(&mut self, past: &mut Past) {
        if !self.recalls {
            return;
        }
        let (search, meaning) = (&mut *self.search, &mut *self.meaning);
        let mut recognise = |run: &Run| {
            let set = meaning.set_of(&run.treatment)?;
            let request = meaning.request(&*search, &set).ok()?;
            (Some(request.question()) == run.question).then_some((set, request.treatment))
        };
        let mut recalled = Vec::new();
        for run in past.take_all(self.role, |run| recognise(run).is_some()) {
            let Some((set, treatment)) = recognise(&run) else { continue };
            recalled.push(SetRun { set, run: Run { treatment, ..run } });
        }
        for SetRun { set, run } in &recalled {
            self.search.recall(set, &run.outcome);
        }
        self.n_earlier += recalled.len();
        self.runs.extend(recalled);
    }

    fn progress(&self) -> Option<SearchStands> {
        let standing = self.search.standing();
        if standing == Standing::default() {
            // A plain list of sets has no progress.
            return None;
        }
        let rounds = self.search.rounds();
        let reused: usize = rounds.iter().map(|round| round.count(TaskEnd::Reused)).sum();
        Some(SearchStands {
            round: if rounds.is_empty() { self.smallest.1 } else { rounds.len() },
            left: standing.left,
            unproven: standing.unproven,
            causes: standing.causes.len(),
            finished: self.runs.len(),
            cancelled: 0,
            reused: reused + self.n_earlier,
            busy: 0,
            slots: 0,
            remaining: standing.remaining,
            belief: standing.belief,
        })
    }
}
