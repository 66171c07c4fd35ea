//! The one loop that runs trials: it owns the slots, the budget, the numbers of trials, the sentinels and
//! the answers from before an interruption.
//!
//! Whatever needs trials implements [`Asks`] and is run by [`Driver::run`], one after another. A campaign has one
//! driver from its first check to its last confirmation.

mod asks;
mod budget;
mod list;
mod past;
mod programs;
mod search;
mod sentinel;

pub(crate) use asks::{Asks, Moves, RequestedTrial, SlotState, SlotView, Ticket};
pub use budget::Budget;
pub(crate) use list::TrialList;
pub(crate) use past::{Foundations, Past, find_unfinished};
pub(crate) use search::{Meaning, SearchAsks, SetRun};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use faultscope_model::event::Event;
use faultscope_model::{Outcome, Run, SlotId, Treatment, TrialId, TrialRole};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{FinishedTrial, TrialEnd, TrialRequest};
use budget::Meter;
use sentinel::Sentinels;

/// How a run of the driver ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No more trials are needed.
    Done,
    /// The caller stopped it.
    Stopped,
    /// The trials or the time of the budget are used up.
    OutOfBudget,
}

/// Runs the trials of one campaign.
#[derive(Debug)]
pub(crate) struct Driver {
    session: Arc<Session>,
    meter: Meter,
    past: Past,
    sentinels: Sentinels,
    /// Trials that were cancelled because they were no longer needed.
    cancelled: usize,
}

impl Driver {
    /// A driver for a campaign that can be resumed. Fails if something that the campaign depends on has changed.
    pub(crate) fn open(
        session: &Arc<Session>,
        foundations: &Foundations,
        budget: Budget,
        stop: &CancellationToken,
    ) -> Result<Self, EngineError> {
        let past = past::load(session, foundations)?;
        Ok(Self { past, ..Self::new(session, budget, stop) })
    }

    /// A driver for a campaign that cannot be resumed.
    pub(crate) fn new(session: &Arc<Session>, budget: Budget, stop: &CancellationToken) -> Self {
        Self {
            session: session.clone(),
            meter: Meter::start(budget, stop),
            past: Past::default(),
            sentinels: Sentinels::new(session.options.sentinel_every),
            cancelled: 0,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The number of slots.
    pub(crate) fn n_slots(&self) -> usize {
        self.session.slot_ids().len()
    }

    /// Finished trials that count for the budget.
    pub(crate) fn n_finished(&self) -> usize {
        self.meter.finished
    }

    /// Trials that were cancelled because they were no longer needed.
    pub(crate) fn n_cancelled(&self) -> usize {
        self.cancelled
    }

    /// The number of sentinels that ran.
    pub(crate) fn n_sentinels(&self) -> usize {
        self.sentinels.started
    }

    /// Why it must stop: the budget or the caller.
    pub(crate) fn halted(&self) -> Ended {
        if self.meter.ran_out_of_time() { Ended::OutOfBudget } else { Ended::Stopped }
    }

    /// Waits for services as long as the application file says from now on, and takes no answer from before an
    /// interruption in which that was not so.
    pub(crate) fn wait_out_starts(&mut self) {
        self.session.start_limits.shorten(false);
        self.past.forget_cut_runs();
    }

    /// Sets the circumstances that sentinels repeat in turn.
    pub(crate) fn watch(&mut self, known: Vec<(TrialRequest, Outcome)>) {
        self.sentinels.watch(known);
    }

    /// Runs trials until no more are needed, the driver is stopped, or the budget is used up.
    /// Everything that was started is gone when this returns.
    pub(crate) async fn run(&mut self, asks: &mut dyn Asks) -> Result<Ended, EngineError> {
        asks.recall(&mut self.past);
        let slots = self.session.slot_ids().map(|slot| (slot, SlotUse::default())).collect();
        let mut turn = Turn { driver: self, asks, slots, tasks: JoinSet::new(), answered: VecDeque::new() };
        let ended = turn.run().await;
        // Cancelled trials clear their slots themselves; waiting for them is what makes that a promise.
        turn.slots.values().flat_map(|slot| &slot.running).for_each(|running| running.cancel.cancel());
        while turn.tasks.join_next().await.is_some() {}
        ended
    }

    /// Runs a list of trials on all slots; none if it could not finish.
    pub(crate) async fn run_all(
        &mut self,
        trials: impl IntoIterator<Item = (TrialRole, TrialRequest)>,
    ) -> Result<Option<Vec<FinishedTrial>>, EngineError> {
        let mut list = TrialList::new(trials);
        let ended = self.run(&mut list).await?;
        Ok((ended == Ended::Done).then(|| list.into_finished()))
    }
}

/// One run of the driver.
struct Turn<'a> {
    driver: &'a mut Driver,
    asks: &'a mut dyn Asks,
    slots: BTreeMap<SlotId, SlotUse>,
    tasks: JoinSet<(SlotId, Result<TrialEnd, EngineError>)>,
    /// Trials whose answers were known before they started.
    answered: VecDeque<(Ticket, FinishedTrial)>,
}

#[derive(Default)]
struct SlotUse {
    /// What the last trial there was given; none where nothing is deployed.
    current: Option<Treatment>,
    running: Option<Running>,
    /// Starts when the slot is clear.
    waiting: Option<RequestedTrial>,
}

struct Running {
    owner: Owner,
    request: TrialRequest,
    role: TrialRole,
    cancel: CancellationToken,
}

enum Owner {
    Asker(Ticket),
    /// It must give this outcome again.
    Sentinel(TrialId, Outcome),
}

impl SlotUse {
    fn state(&self) -> SlotState {
        match (&self.waiting, &self.running) {
            (Some(waiting), _) => SlotState::Busy(waiting.ticket),
            (None, None) => SlotState::Free,
            (None, Some(Running { owner: Owner::Asker(ticket), cancel, .. })) if !cancel.is_cancelled() => {
                SlotState::Busy(*ticket)
            }
            (None, Some(_)) => SlotState::Taken,
        }
    }

    /// Trials in the slot that count for the budget.
    fn n_budgeted(&self) -> usize {
        let running = self.running.iter().filter(|r| r.role.is_budgeted() && !r.cancel.is_cancelled());
        running.count() + self.waiting.iter().filter(|asked| asked.role.is_budgeted()).count()
    }
}

impl Turn<'_> {
    async fn run(&mut self) -> Result<Ended, EngineError> {
        let halt = self.driver.meter.halt().clone();
        loop {
            if halt.is_cancelled() {
                return Ok(self.driver.halted());
            }
            if !self.asks.is_done() {
                self.start_sentinel();
                self.ask()?;
                self.emit_progress();
            }
            if let Some((ticket, trial)) = self.answered.pop_front() {
                self.asks.answer(ticket, trial)?;
                continue;
            }
            if self.asks.is_done() {
                return Ok(Ended::Done);
            }
            if self.tasks.is_empty() {
                let refused = self.driver.meter.refused;
                return Ok(if refused { Ended::OutOfBudget } else { Ended::Done });
            }
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.finish(ended)?,
                () = halt.cancelled() => {}
            }
            // Handle everything that has finished by now before deciding, so that chance does not order results.
            while let Some(ended) = self.tasks.try_join_next() {
                self.finish(ended)?;
            }
        }
    }

    fn ask(&mut self) -> Result<(), EngineError> {
        let mut views = Vec::with_capacity(self.slots.len());
        for (&slot, used) in &self.slots {
            views.push(SlotView { slot, current: used.current.as_ref(), state: used.state() });
        }
        let Moves { start, cancel } = self.asks.ask(&views)?;
        for ticket in cancel {
            self.cancel(ticket);
        }
        start.into_iter().try_for_each(|asked| self.start(asked))
    }

    /// Cancels a trial. One that still waits for its slot has cost nothing.
    fn cancel(&mut self, ticket: Ticket) {
        for slot in self.slots.values_mut() {
            slot.waiting.take_if(|waiting| waiting.ticket == ticket);
            if let Some(Running { owner: Owner::Asker(running), cancel, .. }) = &slot.running
                && *running == ticket
            {
                cancel.cancel();
            }
        }
    }

    fn start(&mut self, asked: RequestedTrial) -> Result<(), EngineError> {
        let question = asked.request.question();
        if let Some(run) = self.driver.past.take(asked.role, question) {
            // It was given the same; what earlier versions stored of that has no names.
            let run = Run { treatment: asked.request.treatment, ..run };
            self.answered.push_back((asked.ticket, FinishedTrial::from_past(run)));
            return Ok(());
        }
        let n_running = self.slots.values().map(SlotUse::n_budgeted).sum();
        if asked.role.is_budgeted() && !self.driver.meter.has_room(n_running) {
            self.driver.meter.refused = true;
            self.asks.withdraw(asked.ticket);
            return Ok(());
        }
        let slot = asked.slot;
        match self.slots.get_mut(&slot) {
            Some(used) if used.running.is_none() => self.spawn(asked),
            Some(used) if used.waiting.is_none() => used.waiting = Some(asked),
            _ => {
                return Err(EngineError::Internal(format!(
                    "a trial was requested on {slot}, which is in use"
                )));
            }
        }
        Ok(())
    }

    fn spawn(&mut self, asked: RequestedTrial) {
        let RequestedTrial { ticket, role, slot, request } = asked;
        let trial = self.driver.session.next_trial(role);
        self.launch(slot, trial, role, Owner::Asker(ticket), request);
    }

    fn launch(&mut self, slot: SlotId, trial: TrialId, role: TrialRole, owner: Owner, request: TrialRequest) {
        let cancel = CancellationToken::new();
        let used = self.slots.entry(slot).or_default();
        used.current = Some(request.treatment.clone());
        used.running = Some(Running { owner, request: request.clone(), role, cancel: cancel.clone() });
        let session = self.driver.session.clone();
        self.tasks.spawn(async move {
            let ended = async {
                let lease = session.lease(slot).await?;
                session.run_trial(&lease, trial, &request, &cancel).await
            };
            (slot, ended.await)
        });
    }

    /// Repeats a known circumstance on a free slot if that is due.
    fn start_sentinel(&mut self) {
        let free = self.slots.iter().find(|(_, used)| used.state() == SlotState::Free).map(|(&slot, _)| slot);
        let Some(slot) = free.filter(|_| self.driver.meter.has_room(0)) else { return };
        let Some((request, outcome)) = self.driver.sentinels.take_due() else { return };
        let trial = self.driver.session.next_trial(TrialRole::Sentinel);
        self.launch(slot, trial, TrialRole::Sentinel, Owner::Sentinel(trial, outcome), request);
    }

    fn finish(
        &mut self,
        ended: Result<(SlotId, Result<TrialEnd, EngineError>), tokio::task::JoinError>,
    ) -> Result<(), EngineError> {
        let (slot, end) =
            ended.map_err(|e| EngineError::Internal(format!("a trial's task panicked: {e}")))?;
        let used = self.slots.entry(slot).or_default();
        let running = used.running.take();
        let waiting = used.waiting.take();
        let Some(Running { owner, request, role, .. }) = running else {
            return Err(EngineError::Internal(format!("a trial ended on {slot} that had not been started")));
        };
        match (end?, owner) {
            (TrialEnd::Cancelled, owner) => {
                used.current = None;
                self.driver.cancelled += usize::from(matches!(owner, Owner::Asker(_)));
            }
            (TrialEnd::Finished(trial), Owner::Sentinel(id, before)) => {
                self.check_sentinel(id, &before, &trial.run.outcome)?;
            }
            (TrialEnd::Finished(trial), Owner::Asker(ticket)) => {
                self.driver.meter.finished += usize::from(role.is_budgeted());
                if role == TrialRole::Search {
                    self.driver.sentinels.count(&request, &trial.run.outcome);
                }
                self.asks.answer(ticket, *trial)?;
            }
        }
        if let Some(asked) = waiting {
            self.spawn(asked);
        }
        Ok(())
    }

    /// Checks that a known circumstance gave the same outcome as before.
    fn check_sentinel(&self, trial: TrialId, before: &Outcome, now: &Outcome) -> Result<(), EngineError> {
        let agrees = before == now;
        self.driver.session.events.emit(Event::SentinelChecked { trial, agrees });
        if agrees {
            return Ok(());
        }
        let (before, now) = (before.word().to_owned(), now.word().to_owned());
        Err(EngineError::Sentinel { trial, before, now })
    }

    fn emit_progress(&self) {
        let Some(mut stands) = self.asks.progress() else { return };
        stands.cancelled = self.driver.cancelled;
        stands.busy = self.slots.values().filter(|used| used.running.is_some()).count();
        stands.slots = self.slots.len();
        self.driver.session.events.emit(Event::SearchStands(stands));
    }
}
