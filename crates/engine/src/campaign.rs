//! A campaign: a search chooses, slots carry out, answers go back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::outcome::Signature;
use faultscope_model::{DeltaSet, Outcome, Run, SlotId, Space, TrialId};
use faultscope_search::{Search, SlotView};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// Sentinel trials have numbers from here on, so that they never meet a search's own.
const SENTINELS: u64 = 1 << 32;

/// What every trial of a campaign has in common.
#[derive(Debug, Clone)]
pub struct Brief {
    /// The deltas.
    pub space: Space,
    /// The tests to run.
    pub tests: Vec<TestCase>,
    /// The failure that is looked for; any when none.
    pub wanted: Option<Signature>,
}

/// What a campaign came to.
#[derive(Debug)]
pub struct Finished {
    /// The stored runs, in the order in which they finished.
    pub runs: Vec<Run>,
    /// How many trials were cancelled.
    pub cancelled: usize,
    /// Whether it was stopped from outside before the search was done.
    pub stopped: bool,
}

struct Busy {
    slot: SlotId,
    set: DeltaSet,
    cancel: CancellationToken,
    sentinel: bool,
}

type Done = (TrialId, Result<TrialEnd, EngineError>);

struct Loop<'a> {
    session: &'a Arc<Session>,
    brief: &'a Brief,
    search: &'a mut dyn Search,
    tasks: JoinSet<Done>,
    busy: BTreeMap<TrialId, Busy>,
    deployed: BTreeMap<SlotId, DeltaSet>,
    known: Option<(DeltaSet, Outcome)>,
    since_sentinel: u32,
    sentinels: u64,
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
    let mut state = Loop {
        session,
        brief,
        search,
        tasks: JoinSet::new(),
        busy: BTreeMap::new(),
        deployed: BTreeMap::new(),
        known: None,
        since_sentinel: 0,
        sentinels: 0,
        finished: Finished { runs: Vec::new(), cancelled: 0, stopped: false },
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
                self.finished.stopped = true;
                return Ok(());
            }
            self.start_what_is_wanted()?;
            if self.tasks.is_empty() {
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
        if let Some((set, _)) = self.known.clone()
            && self.session.options.sentinel_every > 0
            && self.since_sentinel >= self.session.options.sentinel_every
            && let Some(slot) = self.free_slots().first().copied()
        {
            self.since_sentinel = 0;
            self.sentinels += 1;
            self.start(TrialId(SENTINELS + self.sentinels), set, slot, true)?;
        }
        let slots: Vec<SlotView> = self.session.slots.keys().map(|&slot| self.view(slot)).collect();
        let in_flight: Vec<TrialId> =
            self.busy.iter().filter(|(_, b)| !b.sentinel).map(|(&t, _)| t).collect();
        let moves = self.search.plan(&slots, &in_flight);
        for trial in moves.cancel {
            if let Some(busy) = self.busy.get(&trial) {
                busy.cancel.cancel();
            }
        }
        for start in moves.start {
            self.start(start.trial, start.set, start.slot, false)?;
        }
        Ok(())
    }

    fn view(&self, slot: SlotId) -> SlotView {
        let busy = self.busy.iter().find(|(_, b)| b.slot == slot).map(|(&trial, _)| trial);
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
        sentinel: bool,
    ) -> Result<(), EngineError> {
        let request = TrialRequest {
            trial,
            deltas: set.clone(),
            circumstance: self.brief.space.circumstance(&set)?,
            tests: self.brief.tests.clone(),
            wanted: self.brief.wanted.clone(),
        };
        let cancel = CancellationToken::new();
        self.deployed.insert(slot, set.clone());
        self.busy.insert(trial, Busy { slot, set, cancel: cancel.clone(), sentinel });
        let session = self.session.clone();
        self.tasks.spawn(async move { (trial, session.trial(slot, &request, &cancel).await) });
        Ok(())
    }

    fn handle(&mut self, trial: TrialId, end: TrialEnd) -> Result<(), EngineError> {
        let Some(busy) = self.busy.remove(&trial) else {
            return Err(EngineError::Internal(format!("{trial} ended but had not been started")));
        };
        let run = match end {
            TrialEnd::Cancelled => {
                self.deployed.remove(&busy.slot);
                self.finished.cancelled += 1;
                return Ok(());
            }
            TrialEnd::Finished(run) => *run,
        };
        if busy.sentinel {
            return self.compare(trial, &run);
        }
        self.since_sentinel += 1;
        if self.known.is_none() && !matches!(run.outcome, Outcome::Unresolved { .. }) {
            self.known = Some((busy.set, run.outcome.clone()));
        }
        let cost: Duration = run.cost.total;
        self.search.record(trial, &run.outcome, cost);
        self.finished.runs.push(run);
        Ok(())
    }

    /// A known circumstance must show again what it showed before.
    fn compare(&mut self, trial: TrialId, run: &Run) -> Result<(), EngineError> {
        let before = self.known.as_ref().map(|(_, outcome)| outcome);
        let agrees = before == Some(&run.outcome);
        self.session.events.emit(Event::SentinelChecked { trial, agrees });
        if agrees {
            return Ok(());
        }
        let before = before.map_or("nothing", Outcome::word).to_owned();
        Err(EngineError::Sentinel { trial, before, now: run.outcome.word().to_owned() })
    }
}
