//! Going on with a resilience campaign that was killed, interrupted or out of budget.
//!
//! A fresh search asks the same questions in the same order, and those that were answered before are
//! answered from the store. That is only right while application and options are the same.

use std::collections::BTreeSet;

use faultscope_model::event::Event;
use faultscope_model::{Application, CampaignId, TrialId};
use faultscope_store::Store;

use super::ResilienceOptions;
use super::phase::Answers;
use crate::error::EngineError;
use crate::resume::{find_unfinished, left, rests_on};
use crate::session::Session;

/// What an earlier part of the campaign has left.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) answers: Answers,
    pub(super) numbered: u64,
    pub(super) checks: u32,
}

/// The resilience campaign to go on with: the one that is named, or the newest of this application that has
/// no answer yet.
pub fn unfinished(
    store: &Store,
    application: &Application,
    named: Option<&str>,
) -> Result<CampaignId, EngineError> {
    find_unfinished(store, "resilience", application, named)
}

/// Makes sure that an earlier part rests on the same, and gives what it has left.
pub(super) fn past(session: &Session, options: &ResilienceOptions) -> Result<Past, EngineError> {
    let Some(left) = left(session, rests_on(session, options))? else { return Ok(Past::default()) };
    let mut past = Past::default();
    let mut again = 0;
    for event in left.events {
        match event {
            Event::TrialStarted { trial, .. } if trial.is_chosen() => {
                past.numbered = past.numbered.max(trial.0);
            }
            Event::TrialStarted { trial, .. } if trial >= TrialId::again(0) => again += 1,
            Event::TrialStarted { .. } => past.checks += 1,
            _ => {}
        }
    }
    session.count_again_from(again);
    for run in left.runs.into_iter().filter(|run| run.trial.is_chosen()) {
        let Some(perturbed) = &run.perturbed else { continue };
        let asked: BTreeSet<_> = perturbed.asked.iter().cloned().collect();
        past.answers.entry((perturbed.test.clone(), asked)).or_default().push_back(run);
    }
    Ok(past)
}
