//! A campaign: a search chooses, slots carry out, answers go back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::event::{Event, SearchStands};
use faultscope_model::outcome::Signature;
use faultscope_model::{DeltaSet, Outcome, Run, SlotId, Space, TrialId};
use faultscope_search::resilience::Clues;
use faultscope_search::{Search, SlotView, Standing, TaskEnd};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// What every trial of a campaign has in common, and within which bounds it is carried out.
#[derive(Debug, Clone)]
pub struct Brief {
    /// The deltas.
    pub space: Space,
    /// The tests to run.
    pub tests: Vec<TestCase>,
    /// The failure that is looked for; any when none.
    pub wanted: Option<Signature>,
    /// What known circumstances show; sentinels repeat them in turn. When empty, the first trial of the
    /// campaign that passes or fails becomes the known one.
    pub known: Vec<(DeltaSet, Outcome)>,
    /// Runs of this campaign from before it was interrupted, in the order in which they finished.
    pub earlier: Vec<Run>,
    /// The highest number that a trial of the search had before; a search counts from 1 again.
    pub numbered: u64,
    /// How many trials may finish before the campaign stops; any number when none.
    pub most_trials: Option<usize>,
}

impl Brief {
    /// These tests under the deltas of a space, for any failure, without bounds.
    pub fn new(space: Space, tests: Vec<TestCase>) -> Self {
        Self {
            space,
            tests,
            wanted: None,
            known: Vec::new(),
            earlier: Vec::new(),
            numbered: 0,
            most_trials: None,
        }
    }
}

/// Why a campaign ended before its search was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to, from outside.
    Asked,
    /// As many trials have finished as it was given.
    OutOfTrials,
}

/// What a campaign came to.
#[derive(Debug, Default)]
pub struct Finished {
    /// The stored runs, in the order in which they finished; those of before an interruption first.
    pub runs: Vec<Run>,
    /// How many of them are from before an interruption.
    pub earlier: usize,
    /// The highest number that a trial of the search has had.
    pub numbered: u64,
    /// How many trials were cancelled.
    pub cancelled: usize,
    /// How often a known circumstance was repeated.
    pub sentinels: usize,
    /// Why it ended before the search was done; none when the search is done.
    pub stopped: Option<Stop>,
}

/// What the sets of a search stand for: how each becomes a trial, and what that shows beyond its outcome.
pub(crate) trait Meaning {
    /// The trial of a set.
    fn request(
        &mut self,
        search: &dyn Search,
        trial: TrialId,
        set: &DeltaSet,
    ) -> Result<TrialRequest, EngineError>;

    /// What a finished trial shows beyond its outcome, for the search.
    fn clues(&mut self, _search: &dyn Search, _set: &DeltaSet, _run: &Run) -> Option<Clues> {
        None
    }

    /// A trial of the same set from before an interruption, whose answer is taken instead of another one.
    fn earlier(&mut self, _search: &dyn Search, _set: &DeltaSet) -> Option<Run> {
        None
    }

    /// How often a set must fail in a row to have failed: tests that fail by themselves at times are tried
    /// again.
    fn must_fail(&self) -> u32 {
        1
    }
}

impl Meaning for &Brief {
    fn request(
        &mut self,
        _search: &dyn Search,
        trial: TrialId,
        set: &DeltaSet,
    ) -> Result<TrialRequest, EngineError> {
        Ok(TrialRequest {
            trial,
            deltas: set.clone(),
            circumstance: self.space.circumstance(set)?,
            tests: self.tests.clone(),
            wanted: self.wanted.clone(),
            perturbing: None,
        })
    }
}

struct Busy {
    slot: SlotId,
    set: DeltaSet,
    cancel: CancellationToken,
    /// Which known circumstance it repeats.
    repeats: Option<usize>,
}

type Done = (TrialId, Result<TrialEnd, EngineError>);

struct Loop<'a> {
    session: &'a Arc<Session>,
    brief: &'a Brief,
    meaning: &'a mut dyn Meaning,
    search: &'a mut dyn Search,
    /// Trials whose answers were known before they began.
    answered: VecDeque<(TrialId, Run)>,
    tasks: JoinSet<Done>,
    busy: BTreeMap<TrialId, Busy>,
    deployed: BTreeMap<SlotId, DeltaSet>,
    known: Vec<(DeltaSet, Outcome)>,
    since_sentinel: u32,
    /// The number of search's trials that ended the size of the best set, for searches without rounds.
    best: (usize, usize),
    finished: Finished,
}

/// Lets a search choose trials until it is done, all slots are told to stop, or something breaks.
/// Everything that was started is gone when this returns.
pub async fn run(
    session: &Arc<Session>,
    brief: &Brief,
    search: &mut dyn Search,
    stop: &CancellationToken,
) -> Result<Finished, EngineError> {
    run_as(session, brief, &mut &*brief, search, stop).await
}

/// The same where sets stand for something else than deltas of a space.
pub(crate) async fn run_as(
    session: &Arc<Session>,
    brief: &Brief,
    meaning: &mut dyn Meaning,
    search: &mut dyn Search,
    stop: &CancellationToken,
) -> Result<Finished, EngineError> {
    for run in &brief.earlier {
        search.recall(&run.deltas, &run.outcome);
    }
    let mut state = Loop {
        session,
        brief,
        meaning,
        search,
        answered: VecDeque::new(),
        tasks: JoinSet::new(),
        busy: BTreeMap::new(),
        deployed: BTreeMap::new(),
        known: brief.known.clone(),
        since_sentinel: 0,
        best: (usize::MAX, 0),
        finished: Finished {
            runs: brief.earlier.clone(),
            earlier: brief.earlier.len(),
            numbered: brief.numbered,
            cancelled: 0,
            sentinels: 0,
            stopped: None,
        },
    };
    let result = state.turn(stop).await;
    // Cancelled trials clear their slots themselves; waiting for them is what makes that a promise.
    state.busy.values().for_each(|busy| busy.cancel.cancel());
    while state.tasks.join_next().await.is_some() {}
    result.map(|()| state.finished)
}

impl Loop<'_> {
    async fn turn(&mut self, stop: &CancellationToken) -> Result<(), EngineError> {
        loop {
            if stop.is_cancelled() {
                self.finished.stopped = Some(Stop::Asked);
                return Ok(());
            }
            self.start_what_is_wanted()?;
            self.tell();
            if let Some((trial, run)) = self.answered.pop_front() {
                self.finished.earlier += 1;
                self.handle(trial, TrialEnd::Finished(Box::new(run)))?;
                continue;
            }
            if self.tasks.is_empty() {
                let out = self.spent() && !self.search.is_done();
                self.finished.stopped = out.then_some(Stop::OutOfTrials);
                return Ok(());
            }
            let done = tokio::select! {
                Some(done) = self.tasks.join_next() => done,
                () = stop.cancelled() => continue,
            };
            let (trial, end) =
                done.map_err(|e| EngineError::Internal(format!("a trial's task broke: {e}")))?;
            self.handle(trial, end?)?;
        }
    }

    fn start_what_is_wanted(&mut self) -> Result<(), EngineError> {
        if self.search.is_done() {
            // What still runs is a sentinel or a leftover; nobody waits for its answer.
            self.busy.values().for_each(|busy| busy.cancel.cancel());
            return Ok(());
        }
        if self.session.options.sentinel_every > 0
            && self.since_sentinel >= self.session.options.sentinel_every
            && !self.known.is_empty()
            && !self.spent()
            && let Some(slot) = self.free_slots().first().copied()
        {
            let which = self.finished.sentinels % self.known.len();
            let set = self.known[which].0.clone();
            self.since_sentinel = 0;
            self.finished.sentinels += 1;
            let number = self.session.next_sentinel();
            self.start(TrialId::sentinel(number), set, slot, Some(which))?;
        }
        let slots: Vec<SlotView> = self.session.slots.keys().map(|&slot| self.view(slot)).collect();
        let in_flight: Vec<TrialId> =
            self.busy.iter().filter(|(_, b)| b.repeats.is_none()).map(|(&t, _)| self.inner(t)).collect();
        let moves = self.search.plan(&slots, &in_flight);
        for trial in moves.cancel {
            if let Some(busy) = self.busy.get(&self.outer(trial)) {
                busy.cancel.cancel();
            }
        }
        for start in moves.start {
            if self.spent() {
                self.search.lose(start.trial);
            } else {
                self.start(self.outer(start.trial), start.set, start.slot, None)?;
            }
        }
        Ok(())
    }

    /// Whether no further trial may be started: those that run would use up what is left.
    fn spent(&self) -> bool {
        let running = self.busy.values().filter(|b| b.repeats.is_none() && !b.cancel.is_cancelled()).count();
        let finished = self.finished.runs.len() - self.finished.earlier;
        self.brief.most_trials.is_some_and(|most| finished + running >= most)
    }

    /// The number under which a search's trial is stored.
    fn outer(&self, trial: TrialId) -> TrialId {
        TrialId(trial.0 + self.brief.numbered)
    }

    /// The number by which the search knows a trial.
    fn inner(&self, trial: TrialId) -> TrialId {
        TrialId(trial.0 - self.brief.numbered)
    }

    fn view(&self, slot: SlotId) -> SlotView {
        let busy = self.busy.iter().find(|(_, b)| b.slot == slot).map(|(&trial, b)| match b.repeats {
            Some(_) => trial,
            None => self.inner(trial),
        });
        SlotView { slot, current: self.deployed.get(&slot).cloned(), busy }
    }

    fn free_slots(&self) -> Vec<SlotId> {
        self.session.slots.keys().copied().filter(|&slot| self.view(slot).busy.is_none()).collect()
    }

    fn start(
        &mut self,
        trial: TrialId,
        set: DeltaSet,
        slot: SlotId,
        repeats: Option<usize>,
    ) -> Result<(), EngineError> {
        let request = self.meaning.request(&*self.search, trial, &set)?;
        if repeats.is_none() {
            self.finished.numbered = self.finished.numbered.max(trial.0);
        }
        let cancel = CancellationToken::new();
        self.deployed.insert(slot, set.clone());
        let earlier = self.meaning.earlier(&*self.search, &set).filter(|_| repeats.is_none());
        self.busy.insert(trial, Busy { slot, set, cancel: cancel.clone(), repeats });
        if let Some(run) = earlier {
            self.answered.push_back((trial, run));
            return Ok(());
        }
        let (session, must_fail) = (self.session.clone(), self.meaning.must_fail());
        self.tasks.spawn(async move { (trial, session.tried(slot, request, must_fail, &cancel).await) });
        Ok(())
    }

    fn handle(&mut self, trial: TrialId, end: TrialEnd) -> Result<(), EngineError> {
        let Some(busy) = self.busy.remove(&trial) else {
            return Err(EngineError::Internal(format!("{trial} ended but had not been started")));
        };
        let run = match end {
            TrialEnd::Cancelled => {
                self.deployed.remove(&busy.slot);
                self.finished.cancelled += usize::from(busy.repeats.is_none());
                return Ok(());
            }
            TrialEnd::Finished(run) => *run,
        };
        if let Some(which) = busy.repeats {
            return self.compare(trial, which, &run);
        }
        self.since_sentinel += 1;
        if self.known.is_empty() && !matches!(run.outcome, Outcome::Unresolved { .. }) {
            self.known.push((busy.set.clone(), run.outcome.clone()));
        }
        if let Some(clues) = self.meaning.clues(&*self.search, &busy.set, &run) {
            self.search.hear(self.inner(trial), &clues);
        }
        self.search.record(self.inner(trial), &run.outcome, run.cost.total);
        self.finished.runs.push(run);
        Ok(())
    }

    /// A known circumstance must show again what it showed before.
    fn compare(&mut self, trial: TrialId, which: usize, run: &Run) -> Result<(), EngineError> {
        let before = &self.known[which].1;
        let agrees = before == &run.outcome;
        self.session.events.emit(Event::SentinelChecked { trial, agrees });
        if agrees {
            return Ok(());
        }
        let (before, now) = (before.word().to_owned(), run.outcome.word().to_owned());
        Err(EngineError::Sentinel { trial, before, now })
    }

    /// Tells where the search stands.
    fn tell(&mut self) {
        let standing = self.search.standing();
        if standing == Standing::default() {
            // A plain list of trials stands nowhere.
            return;
        }
        if standing.best.len() < self.best.0 {
            self.best = (standing.best.len(), self.best.1 + 1);
        }
        let rounds = self.search.rounds();
        let reused: usize = rounds.iter().map(|round| round.count(TaskEnd::Reused)).sum();
        self.session.events.emit(Event::SearchStands(SearchStands {
            round: if rounds.is_empty() { self.best.1 } else { rounds.len() },
            left: standing.left,
            unproven: standing.unproven,
            causes: standing.causes.len(),
            finished: self.finished.runs.len(),
            cancelled: self.finished.cancelled,
            reused: reused + self.finished.earlier,
            busy: self.busy.len(),
            slots: self.session.slots.len(),
            remaining: standing.remaining,
            belief: standing.belief,
        }));
    }
}
