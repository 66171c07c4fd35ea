//! Carries out trials that are not sets of deltas: values of a setting, smaller inputs.

use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Asks until everything is known; says whether it is, rather than being stopped. Everything that was
/// started is gone when this returns.
pub(super) async fn ask(
    session: &Arc<Session>,
    questions: &mut (dyn Questions + Send),
    stop: &CancellationToken,
) -> Result<bool, EngineError> {
    let mut running = JoinSet::new();
    let mut busy: BTreeMap<TrialId, (SlotId, CancellationToken)> = BTreeMap::new();
    let result = turn(session, questions, stop, &mut running, &mut busy).await;
    // Cancelled trials clear their slots themselves; waiting for them is what makes that a promise.
    busy.values().for_each(|(_, cancel)| cancel.cancel());
    while running.join_next().await.is_some() {}
    result
}

type Ended = (TrialId, Result<TrialEnd, EngineError>);

async fn turn(
    session: &Arc<Session>,
    questions: &mut (dyn Questions + Send),
    stop: &CancellationToken,
    running: &mut JoinSet<Ended>,
    busy: &mut BTreeMap<TrialId, (SlotId, CancellationToken)>,
) -> Result<bool, EngineError> {
    loop {
        if stop.is_cancelled() {
            return Ok(false);
        }
        if questions.is_done() {
            return Ok(true);
        }
        let taken: Vec<SlotId> = busy.values().map(|(slot, _)| *slot).collect();
        let free: Vec<SlotId> = session.slots.keys().copied().filter(|slot| !taken.contains(slot)).collect();
        let next = questions.next(free.len())?;
        for (_, cancel) in next.cancel.iter().filter_map(|trial| busy.get(trial)) {
            cancel.cancel();
        }
        for (request, &slot) in next.start.into_iter().zip(&free) {
            let cancel = CancellationToken::new();
            busy.insert(request.trial, (slot, cancel.clone()));
            let session = session.clone();
            running.spawn(async move { (request.trial, session.trial(slot, &request, &cancel).await) });
        }
        if running.is_empty() {
            return Ok(questions.is_done());
        }
        let ended = tokio::select! {
            Some(ended) = running.join_next() => ended,
            () = stop.cancelled() => continue,
        };
        let (trial, end) = ended.map_err(|e| EngineError::Internal(format!("a trial's task broke: {e}")))?;
        busy.remove(&trial);
        if let TrialEnd::Finished(run) = end? {
            questions.answer(&run);
        }
    }
}
