//! Going on with a campaign that was killed, interrupted or out of budget.
//!
//! Everything that finished is in the store, so a fresh search is told all of it and at most the trials
//! that were running are repeated. That is only right while application, deltas and options are the same.

use std::collections::BTreeMap;

use faultscope_model::event::Event;
use faultscope_model::{Application, CampaignId, Run, Space, TrialId};
use faultscope_store::Store;

use super::DebugOptions;
use super::asking::Means;
use crate::error::EngineError;
use crate::resume::{digest, find_unfinished, left, rests_on};
use crate::session::Session;

/// What an earlier part of the campaign has left.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Start-up checks.
    pub(super) checks: BTreeMap<TrialId, Run>,
    /// Trials of the search in the order in which they finished.
    pub(super) runs: Vec<Run>,
    /// The highest number a trial of the search has had.
    pub(super) numbered: u64,
    /// Trials beyond the search.
    pub(super) means: Means,
}

/// The debug campaign to go on with: the one that is named, or the newest of this application that has
/// no answer yet.
pub fn unfinished(
    store: &Store,
    application: &Application,
    named: Option<&str>,
) -> Result<CampaignId, EngineError> {
    find_unfinished(store, "debug", application, named)
}

/// Makes sure that an earlier part rests on the same, and gives what it has left.
pub(super) fn past(session: &Session, space: &Space, options: &DebugOptions) -> Result<Past, EngineError> {
    let Some(left) = left(session, rests(session, space, options))? else { return Ok(Past::default()) };
    let mut past = Past::default();
    let mut sentinels = 0;
    let mut asked = BTreeMap::new();
    for event in left.events {
        match event {
            Event::TrialStarted { trial, .. } if trial.is_chosen() => {
                past.numbered = past.numbered.max(trial.0);
            }
            Event::TrialStarted { trial, .. } if trial < TrialId::check_simplest(0) => sentinels += 1,
            Event::TrialStarted { trial, .. } if trial >= TrialId::input(0) => {
                past.means.inputs = past.means.inputs.max(trial.after(TrialId::input(0)));
            }
            Event::TrialStarted { trial, .. } if trial >= TrialId::boundary(0) => {
                past.means.boundaries = past.means.boundaries.max(trial.after(TrialId::boundary(0)));
            }
            Event::QuestionAsked { trial, digest } => {
                asked.insert(trial, digest);
            }
            Event::SentinelChecked { agrees: false, .. } => {
                let problem = "the environment changed during it, so its trials cannot be trusted".into();
                return Err(EngineError::CannotResume { problem });
            }
            _ => {}
        }
    }
    session.count_sentinels_from(sentinels);
    for run in left.runs {
        if run.trial.is_chosen() {
            past.runs.push(run);
        } else if let Some(digest) = asked.remove(&run.trial) {
            past.means.earlier.entry(digest).or_default().push_back(run);
        } else {
            past.checks.insert(run.trial, run);
        }
    }
    Ok(past)
}

/// What the trials rest on: what is deployed and tested, between which ends, and how it is searched.
fn rests(session: &Session, space: &Space, options: &DebugOptions) -> BTreeMap<String, String> {
    let deltas: Vec<String> =
        space.deltas.iter().map(|d| format!("{}\t{}\t{}", d.name, d.from, d.to)).collect();
    let mut on = rests_on(session, options);
    on.insert("the list of deltas".to_owned(), digest(&deltas.join("\n")));
    on
}
