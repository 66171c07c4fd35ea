//! What campaigns that go on later have in common: which one, and whether it still rests on the same.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use faultscope_model::event::Event;
use faultscope_model::{Application, CampaignId, Run};
use faultscope_store::{Store, StoreErrorKind, StoredCampaign};
use serde::Serialize;

use crate::error::EngineError;
use crate::session::Session;
use crate::stored;

/// What campaigns rest on first.
const APPLICATION: &str = "the application file";

/// The campaign of a kind to go on with: the one that is named, or the newest of this application that has
/// no answer yet. Files may share a name: those of this very file come first.
pub(crate) fn find_unfinished(
    store: &Store,
    kind: &str,
    application: &Application,
    named: Option<&str>,
) -> Result<CampaignId, EngineError> {
    let refuse = |problem: String| Err(EngineError::CannotResume { problem });
    let name = application.name.as_str();
    let Some(named) = named else {
        let mut newest = None;
        for campaign in store.campaigns()? {
            let own = campaign.meta.kind == kind && campaign.meta.application == name;
            if !own || campaign.is_live() || has_answer(&campaign)? {
                continue;
            }
            let rested = rested(&events(&campaign)?).and_then(|on| on.get(APPLICATION).cloned());
            if rested.is_none_or(|rested| rested == fingerprint(application)) {
                return Ok(campaign.meta.id);
            }
            newest.get_or_insert(campaign.meta.id);
        }
        return match newest {
            // What has changed is said when it is compared.
            Some(newest) => Ok(newest),
            None => refuse(format!("no {kind} campaign of `{name}` is unfinished")),
        };
    };
    let campaign = match store.campaign_by(named) {
        Ok(campaign) => campaign,
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            return refuse(format!("there is no campaign `{named}`"));
        }
        Err(error) => return Err(error.into()),
    };
    if campaign.meta.kind != kind || campaign.meta.application != name {
        return refuse(format!("campaign `{named}` is no {kind} campaign of `{name}`"));
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

/// What an earlier part of a campaign has left.
#[derive(Debug)]
pub(crate) struct Left {
    /// What happened, in order.
    pub(crate) events: Vec<Event>,
    /// The runs in the order in which they finished.
    pub(crate) runs: Vec<Run>,
}

/// What the earlier part of a session's campaign has left, made sure that it rests on the same; none where
/// the campaign begins.
pub(crate) fn left(session: &Session, rests: BTreeMap<String, String>) -> Result<Option<Left>, EngineError> {
    if session.options.resume.is_none() {
        session.events().emit(Event::CampaignRests { on: rests });
        return Ok(None);
    }
    let campaign = Store::open(&session.options.state)?.campaign_by(session.id().as_str())?;
    let events = events(&campaign)?;
    match rested(&events) {
        // It was killed before its first trial.
        None => session.events().emit(Event::CampaignRests { on: rests }),
        Some(rested) => compare(session.id(), rested, &rests)?,
    }
    let mut runs = stored::runs(&campaign.reader()?)?;
    runs.sort_by_key(|run| run.started_us + run.cost.total.as_micros() as u64);
    Ok(Some(Left { events, runs }))
}

/// What happened in a campaign, in order.
fn events(campaign: &StoredCampaign) -> Result<Vec<Event>, EngineError> {
    Ok(campaign.events::<Event>(0)?.events.into_iter().map(|logged| logged.event).collect())
}

/// What a campaign said it rests on.
fn rested(events: &[Event]) -> Option<&BTreeMap<String, String>> {
    events.iter().rev().find_map(|event| match event {
        Event::CampaignRests { on } => Some(on),
        _ => None,
    })
}

/// An application in short.
fn fingerprint(application: &Application) -> String {
    digest(&format!("{application:?}"))
}

/// Refuses to go on where something has changed.
fn compare(
    campaign: &CampaignId,
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Result<(), EngineError> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    let changed: Vec<String> =
        names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect();
    if changed.is_empty() {
        return Ok(());
    }
    let verb = if changed.len() == 1 { "has" } else { "have" };
    let problem = format!("{} {verb} changed since campaign `{campaign}` began", changed.join(" and "));
    Err(EngineError::CannotResume { problem })
}

/// A text in short.
pub(crate) fn digest(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// What trials rest on: what is deployed and tested, and how it is searched.
pub(crate) fn rests_on(session: &Session, options: &impl Serialize) -> BTreeMap<String, String> {
    let mut on = BTreeMap::from([
        (APPLICATION.to_owned(), fingerprint(session.application())),
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
        let id: CampaignId = "beb0".parse().unwrap();
        assert!(compare(&id, &on("a", "true"), &on("a", "true")).is_ok());
        let refused = compare(&id, &on("a", "true"), &on("b", "false")).unwrap_err().to_string();
        assert_eq!(
            refused,
            "the campaign cannot be resumed: the list of deltas and the option `all` have changed since campaign \
             `beb0` began"
        );
    }
}
