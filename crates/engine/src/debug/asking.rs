//! Carries out trials that are not sets of deltas: values of a setting, smaller inputs.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use faultscope_model::event::Event;
use faultscope_model::{Run, SlotId, TrialId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// Something that learns from trials which trials to ask for next.
pub(super) trait Questions {
    /// Trials for so many free slots, and running ones that nobody needs any more.
    fn next(&mut self, free: usize) -> Result<Next, EngineError>;

    /// Tells what a trial showed.
    fn answer(&mut self, run: &Run);

    /// Whether everything is known.
    fn is_done(&self) -> bool;
}

/// What to do next.
#[derive(Debug, Default)]
pub(super) struct Next {
    pub(super) start: Vec<TrialRequest>,
    pub(super) cancel: Vec<TrialId>,
}

/// What all questions of a campaign share: answers of before an interruption, and how many trials are left.
#[derive(Debug, Default)]
pub(super) struct Means {
    /// Runs by what they were to show, in the order in which they finished. Each answers one question: what
    /// does not always fail is asked more than once.
    pub(super) earlier: BTreeMap<String, VecDeque<Run>>,
    /// The highest number of a trial for a boundary.
    pub(super) boundaries: u32,
    /// The highest number of a trial for an input.
    pub(super) inputs: u32,
    /// How many trials may finish; any number when none.
    pub(super) most: Option<usize>,
    /// How many have finished now.
    pub(super) finished: usize,
    /// Whether there was a question for which no trial was left.
    pub(super) spent: bool,
}

impl Means {
    fn is_left(&self, running: usize) -> bool {
        self.most.is_none_or(|most| self.finished + running < most)
    }

    fn recall(&mut self, digest: &str) -> Option<Run> {
        self.earlier.get_mut(digest)?.pop_front()
    }
}

/// Asks until everything is known; says whether it is, rather than being stopped or out of trials.
/// Everything that was started is gone when this returns.
pub(super) async fn ask(
    session: &Arc<Session>,
    questions: &mut (dyn Questions + Send),
    means: &mut Means,
    stop: &CancellationToken,
) -> Result<bool, EngineError> {
    let mut asking = Asking { session, running: JoinSet::new(), busy: BTreeMap::new() };
    let result = asking.turn(questions, means, stop).await;
    // Cancelled trials clear their slots themselves; waiting for them is what makes that a promise.
    asking.busy.values().for_each(|(_, cancel)| cancel.cancel());
    while asking.running.join_next().await.is_some() {}
    result
}

type Ended = (TrialId, Result<TrialEnd, EngineError>);

struct Asking<'a> {
    session: &'a Arc<Session>,
    running: JoinSet<Ended>,
    busy: BTreeMap<TrialId, (SlotId, CancellationToken)>,
}

impl Asking<'_> {
    async fn turn(
        &mut self,
        questions: &mut (dyn Questions + Send),
        means: &mut Means,
        stop: &CancellationToken,
    ) -> Result<bool, EngineError> {
        loop {
            if stop.is_cancelled() {
                return Ok(false);
            }
            if questions.is_done() {
                return Ok(true);
            }
            if !means.spent && self.start(questions, means)? {
                continue;
            }
            if self.running.is_empty() {
                return Ok(questions.is_done());
            }
            let ended = tokio::select! {
                Some(ended) = self.running.join_next() => ended,
                () = stop.cancelled() => continue,
            };
            let (trial, end) =
                ended.map_err(|e| EngineError::Internal(format!("a trial's task broke: {e}")))?;
            self.busy.remove(&trial);
            if let TrialEnd::Finished(run) = end? {
                means.finished += 1;
                questions.answer(&run);
            }
        }
    }

    /// Starts what is asked for; says whether an earlier trial had answered something.
    fn start(
        &mut self,
        questions: &mut (dyn Questions + Send),
        means: &mut Means,
    ) -> Result<bool, EngineError> {
        let taken: Vec<SlotId> = self.busy.values().map(|(slot, _)| *slot).collect();
        let free: Vec<SlotId> =
            self.session.slots.keys().copied().filter(|slot| !taken.contains(slot)).collect();
        let next = questions.next(free.len())?;
        for (_, cancel) in next.cancel.iter().filter_map(|trial| self.busy.get(trial)) {
            cancel.cancel();
        }
        let mut answered = false;
        let mut free = free.into_iter();
        for request in next.start {
            let trial = request.trial;
            let digest = digest(&request);
            if let Some(run) = means.recall(&digest) {
                questions.answer(&Run { trial, ..run });
                answered = true;
                continue;
            }
            let running = self.busy.values().filter(|(_, cancel)| !cancel.is_cancelled()).count();
            if !means.is_left(running) {
                means.spent = true;
                continue;
            }
            let Some(slot) = free.next() else { continue };
            let cancel = CancellationToken::new();
            self.busy.insert(trial, (slot, cancel.clone()));
            self.session.events().emit(Event::QuestionAsked { trial, digest });
            let session = self.session.clone();
            self.running.spawn(async move { (trial, session.trial(slot, &request, &cancel).await) });
        }
        Ok(answered)
    }
}

/// The same for the same circumstance and tests, with all that they read.
fn digest(request: &TrialRequest) -> String {
    let mut hasher = DefaultHasher::new();
    format!("{:?} {:?} {:?}", request.deltas, request.circumstance, request.tests).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
