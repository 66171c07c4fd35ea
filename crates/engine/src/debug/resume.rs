//! Going on with a campaign that was killed, interrupted or out of budget.
//!
//! Everything that finished is in the store, so a fresh search is told all of it and at most the trials
//! that were running are repeated. That is only right while application, deltas and options are the same.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use faultscope_model::event::Event;
use faultscope_model::{CampaignId, Run, Space, TrialId};
use faultscope_store::{Store, StoreErrorKind, StoredCampaign};

use super::DebugOptions;
use crate::error::EngineError;
use crate::session::Session;
use crate::stored;

/// What an earlier part of the campaign has left.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Start-up checks.
    pub(super) checks: BTreeMap<TrialId, Run>,
    /// Trials of the search in the order in which they finished.
    pub(super) runs: Vec<Run>,
    /// The highest number a trial of the search has had.
    pub(super) numbered: u64,
}

/// The debug campaign to go on with: the one that is named, or the newest of this application that has
/// no answer yet.
pub fn unfinished(store: &Store, application: &str, named: Option<&str>) -> Result<CampaignId, EngineError> {
    let refuse = |problem: String| Err(EngineError::CannotResume { problem });
    let Some(named) = named else {
        for campaign in store.campaigns()? {
            let own = campaign.meta.kind == "debug" && campaign.meta.application == application;
            if own && !campaign.is_live() && !has_answer(&campaign)? {
                return Ok(campaign.meta.id);
            }
        }
        return refuse(format!("no debug campaign of `{application}` is unfinished"));
    };
    let campaign = match store.campaign_by(named) {
        Ok(campaign) => campaign,
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            return refuse(format!("there is no campaign `{named}`"));
        }
        Err(error) => return Err(error.into()),
    };
    if campaign.meta.kind != "debug" || campaign.meta.application != application {
        return refuse(format!("campaign `{named}` is no debug campaign of `{application}`"));
    }
    if campaign.is_live() {
        return refuse(format!("campaign `{named}` is running"));
    }
    if has_answer(&campaign)? {
        return refuse(format!("campaign `{named}` has its answer already"));
    }
    Ok(campaign.meta.id)
}

/// Whether a campaign came to its end, whatever that was.
fn has_answer(campaign: &StoredCampaign) -> Result<bool, EngineError> {
    let report: Option<serde_json::Value> = campaign.report()?;
    let kind = report.as_ref().and_then(|report| report["verdict"]["kind"].as_str());
    Ok(kind.is_some_and(|kind| !matches!(kind, "stopped" | "out_of_budget")))
}

/// Makes sure that an earlier part rests on the same, and gives what it has left.
pub(super) fn past(session: &Session, space: &Space, options: &DebugOptions) -> Result<Past, EngineError> {
    let rests = rests_on(session, space, options);
    if session.options.resume.is_none() {
        session.events().emit(Event::CampaignRests { on: rests });
        return Ok(Past::default());
    }
    let store = Store::open(&session.options.state)?;
    let campaign = store.campaign_by(session.id().as_str())?;
    let mut past = Past::default();
    let mut rested = None;
    let mut sentinels = 0;
    for logged in campaign.events::<Event>(0)?.events {
        match logged.event {
            Event::CampaignRests { on } => rested = Some(on),
            Event::TrialStarted { trial, .. } if trial.is_chosen() => {
                past.numbered = past.numbered.max(trial.0);
            }
            Event::TrialStarted { trial, .. } if trial < TrialId::check_simplest(0) => sentinels += 1,
            Event::SentinelChecked { agrees: false, .. } => {
                let problem = "the environment changed during it, so its trials cannot be trusted".into();
                return Err(EngineError::CannotResume { problem });
            }
            _ => {}
        }
    }
    session.count_sentinels_from(sentinels);
    match rested {
        // It was killed before its first trial.
        None => session.events().emit(Event::CampaignRests { on: rests }),
        Some(rested) => compare(&rested, &rests)?,
    }
    for run in stored::runs(&campaign.reader()?)? {
        if run.trial.is_chosen() {
            past.runs.push(run);
        } else {
            past.checks.insert(run.trial, run);
        }
    }
    past.runs.sort_by_key(|run| run.started_us + run.cost.total.as_micros() as u64);
    Ok(past)
}

fn compare(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Result<(), EngineError> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    let changed: Vec<String> =
        names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect();
    if changed.is_empty() {
        return Ok(());
    }
    let verb = if changed.len() == 1 { "has" } else { "have" };
    let problem = format!("{} {verb} changed since it began", changed.join(" and "));
    Err(EngineError::CannotResume { problem })
}

/// What the trials rest on: what is deployed and tested, between which ends, and how it is searched.
fn rests_on(session: &Session, space: &Space, options: &DebugOptions) -> BTreeMap<String, String> {
    let digest = |text: &str| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    let deltas: Vec<String> =
        space.deltas.iter().map(|d| format!("{}\t{}\t{}", d.name, d.from, d.to)).collect();
    let mut on = BTreeMap::from([
        ("the application file".to_owned(), digest(&format!("{:?}", session.application()))),
        ("the list of deltas".to_owned(), digest(&deltas.join("\n"))),
        ("the platform".to_owned(), session.platform().name().to_owned()),
        ("the seed".to_owned(), session.options.seed.to_string()),
    ]);
    if let Ok(serde_json::Value::Object(options)) = serde_json::to_value(options) {
        let named = |(name, value): (String, serde_json::Value)| {
            (format!("the option `{}`", name.replace('_', "-")), value.to_string())
        };
        on.extend(options.into_iter().map(named));
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named() {
        let on = |deltas: &str, all: &str| {
            BTreeMap::from([
                ("the list of deltas".to_owned(), deltas.to_owned()),
                ("the option `all`".to_owned(), all.to_owned()),
            ])
        };
        assert!(compare(&on("a", "true"), &on("a", "true")).is_ok());
        let refused = compare(&on("a", "true"), &on("b", "false")).unwrap_err().to_string();
        assert_eq!(
            refused,
            "the campaign cannot be resumed: the list of deltas and the option `all` have changed since it began"
        );
    }
}
