//! Runs tests under one circumstance, once or several times, for `test`, `repro`, `check --probe` and `demo`.

use std::sync::Arc;

use faultscope_model::{Run, SlotId, TrialRole};
use tokio_util::sync::CancellationToken;

use crate::driver::{Budget, Driver, Ended, TrialList};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// The results of some trials.
#[derive(Debug)]
pub struct TrialsDone {
    /// The runs, in the order of the requested trials.
    pub runs: Vec<Run>,
    /// Whether it was stopped before all had finished.
    pub stopped: bool,
}

/// Runs trials on all slots of a session, each once.
pub async fn run_trials(
    session: &Arc<Session>,
    requests: Vec<TrialRequest>,
    fail_fast: bool,
    stop: &CancellationToken,
) -> Result<TrialsDone, EngineError> {
    let mut list = TrialList::new(requests.into_iter().map(|request| (TrialRole::Search, request)));
    if fail_fast {
        list = list.stop_at_failure();
    }
    let ended = Driver::new(session, Budget::default(), stop).run(&mut list).await?;
    let runs = list.into_finished().into_iter().map(|trial| trial.run).collect();
    Ok(TrialsDone { runs, stopped: ended != Ended::Done })
}

/// Runs one trial; none if it was stopped.
pub async fn run_trial(
    session: &Arc<Session>,
    request: TrialRequest,
    stop: &CancellationToken,
) -> Result<Option<Run>, EngineError> {
    Ok(run_trials(session, vec![request], false, stop).await?.runs.pop())
}

/// Keeps an application up for people, in the first slot, until its drive ends; none if it was cancelled before.
pub async fn keep_up(
    session: &Session,
    request: TrialRequest,
    cancel: &CancellationToken,
) -> Result<Option<Run>, EngineError> {
    let lease = session.lease(SlotId(0)).await?;
    let trial = session.next_trial(TrialRole::Search);
    match session.run_trial(&lease, trial, &request, cancel).await? {
        TrialEnd::Finished(trial) => Ok(Some(trial.run)),
        TrialEnd::Cancelled => Ok(None),
    }
}
