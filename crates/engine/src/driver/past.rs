//! Resumes a campaign that was killed, interrupted or out of budget.
//!
//! Everything that finished is in the store. A resumed campaign asks its questions again, and each stored run
//! answers one of them. That is only valid while everything the campaign depends on is unchanged: see [`Foundations`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use faultscope_model::digest::Digest;
use faultscope_model::event::Event;
use faultscope_model::{Application, CampaignId, CampaignKind, Run, TrialRole};
use faultscope_store::{Store, StoreErrorKind, StoredCampaign};
use serde::{Deserialize, Serialize};

use super::programs::{PROGRAM, digest_programs};
use crate::error::EngineError;
use crate::session::{Numbers, Session};
use crate::stored;

/// The first foundation of every campaign.
const APPLICATION: &str = "the application file";

/// What all trials of a campaign depend on: values or digests by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foundations(BTreeMap<String, String>);

impl Foundations {
    /// The application, the platform, and the options of the search.
    pub(crate) fn new(session: &Session, options: &impl Serialize) -> Self {
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
        on.extend(digest_programs(session.application(), &session.options.root));
        Self(on)
    }

    /// Adds a foundation.
    pub(crate) fn with(mut self, name: &str, document: &impl Serialize) -> Self {
        self.0.insert(name.to_owned(), Digest::hash_json(document).to_string());
        self
    }

    /// Fails if something has changed.
    fn compare(&self, campaign: &CampaignId, before: &BTreeMap<String, String>) -> Result<(), EngineError> {
        let now = &self.0;
        // Campaigns of earlier versions know no digests of programs.
        let is_program = |name: &&String| name.starts_with(PROGRAM);
        let knows_programs = before.keys().any(|name| is_program(&name));
        let names: BTreeSet<_> =
            before.keys().chain(now.keys()).filter(|name| knows_programs || !is_program(name)).collect();
        let changed: Vec<String> =
            names.into_iter().filter(|name| before.get(*name) != now.get(*name)).cloned().collect();
        if changed.is_empty() {
            return Ok(());
        }
        let verb = if changed.len() == 1 { "has" } else { "have" };
        let problem = format!("{} {verb} changed since campaign `{campaign}` began", changed.join(" and "));
        Err(EngineError::CannotResume { problem })
    }
}

fn fingerprint(application: &Application) -> String {
    Digest::hash_json(application).to_string()
}

/// Results from before an interruption, by role and question; each run answers one question.
#[derive(Debug, Default)]
pub(crate) struct Past {
    runs: BTreeMap<(TrialRole, Digest), VecDeque<Run>>,
}

impl Past {
    /// Removes and returns the answer to a question, the one that finished first.
    pub(super) fn take(&mut self, role: TrialRole, question: Digest) -> Option<Run> {
        self.runs.get_mut(&(role, question))?.pop_front()
    }

    /// Forgets runs in which a service was waited for more briefly than the application file says.
    pub(super) fn forget_cut_runs(&mut self) {
        self.runs.values_mut().for_each(|runs| runs.retain(|run| !run.evidence.is_cut()));
    }

    /// Removes and returns all answers of a role that `wants` accepts, in the order in which they finished.
    pub(crate) fn take_all(&mut self, role: TrialRole, mut wants: impl FnMut(&Run) -> bool) -> Vec<Run> {
        let mut taken = Vec::new();
        for (_, runs) in self.runs.iter_mut().filter(|((of, _), _)| *of == role) {
            let (wanted, kept) = std::mem::take(runs).into_iter().partition(&mut wants);
            *runs = kept;
            taken.extend::<VecDeque<Run>>(wanted);
        }
        taken.sort_by_key(finished_us);
        taken
    }
}

fn finished_us(run: &Run) -> u64 {
    run.started_us.saturating_add(u64::try_from(run.cost.total.as_micros()).unwrap_or(u64::MAX))
}

/// The results of the earlier part of a session's campaign, after checking its foundations; empty for a new
/// campaign.
pub(super) fn load(session: &Session, foundations: &Foundations) -> Result<Past, EngineError> {
    let begin = || session.events().emit(Event::CampaignRests { on: foundations.0.clone() });
    if session.options.resume.is_none() {
        begin();
        return Ok(Past::default());
    }
    let campaign = Store::open(&session.options.state)?.find_campaign(session.id().as_str())?;
    let events = events(&campaign)?;
    match rested(&events) {
        // It was killed before its first trial.
        None => begin(),
        Some(before) if !is_of_this_format(before) => {
            let problem =
                format!("campaign `{}` was begun by an earlier version of faultscope", session.id());
            return Err(EngineError::CannotResume { problem });
        }
        Some(before) => foundations.compare(session.id(), before)?,
    }
    if events.iter().any(|event| matches!(event, Event::SentinelChecked { agrees: false, .. })) {
        let problem = "the environment changed during it, so its trials cannot be trusted".into();
        return Err(EngineError::CannotResume { problem });
    }
    let started = events.iter().filter_map(|event| match event {
        Event::TrialStarted { trial, .. } => Some(*trial),
        _ => None,
    });
    session.number_after(Numbers::after(started));
    let mut past = Past::default();
    let mut runs = stored::runs(&campaign.reader()?)?;
    runs.sort_by_key(finished_us);
    for run in runs {
        let role = run.trial.role;
        if let (Some(question), true) = (run.question, role.is_resumable()) {
            past.runs.entry((role, question)).or_default().push_back(run);
        }
    }
    Ok(past)
}

/// The campaign of a kind to resume: the one that is named, or the newest of this application without
/// an answer. Files may share a name: campaigns of this very file are preferred.
pub(crate) fn find_unfinished(
    store: &Store,
    kind: CampaignKind,
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
            // Changes are reported later, when the foundations are compared.
            Some(newest) => Ok(newest),
            None => refuse(format!("there is no unfinished {kind} campaign of `{name}`")),
        };
    };
    let campaign = match store.find_campaign(named) {
        Ok(campaign) => campaign,
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            return refuse(format!("there is no campaign `{named}`"));
        }
        Err(error) => return Err(error.into()),
    };
    if campaign.meta.kind != kind || campaign.meta.application != name {
        return refuse(format!("`{named}` is not a {kind} campaign of `{name}`"));
    }
    if campaign.is_live() {
        return refuse(format!("campaign `{named}` is still running"));
    }
    if has_answer(&campaign)? {
        return refuse(format!("campaign `{named}` is already finished"));
    }
    Ok(campaign.meta.id)
}

/// The part that reports of all kinds have in common.
#[derive(Deserialize)]
struct AnyReport {
    verdict: AnyVerdict,
}

/// Every kind of report has a verdict, and these two mean that there is no answer yet.
#[derive(Deserialize, PartialEq)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum AnyVerdict {
    Stopped,
    OutOfBudget,
    #[serde(other)]
    Answered,
}

/// Whether a campaign reached its end, with whatever result.
fn has_answer(campaign: &StoredCampaign) -> Result<bool, EngineError> {
    let report: Option<AnyReport> = campaign.report()?;
    Ok(report.is_some_and(|report| report.verdict == AnyVerdict::Answered))
}

/// The events of a campaign, in order.
fn events(campaign: &StoredCampaign) -> Result<Vec<Event>, EngineError> {
    Ok(campaign.events::<Event>(0)?.events.into_iter().map(|logged| logged.event).collect())
}

/// Whether foundations have digests of the present form; earlier ones cannot be compared.
fn is_of_this_format(foundations: &BTreeMap<String, String>) -> bool {
    foundations.get(APPLICATION).is_some_and(|digest| digest.parse::<Digest>().is_ok())
}

/// The foundations that a campaign recorded.
fn rested(events: &[Event]) -> Option<&BTreeMap<String, String>> {
    events.iter().rev().find_map(|event| match event {
        Event::CampaignRests { on } => Some(on),
        _ => None,
    })
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
        let compare = |before, now| Foundations(now).compare(&id, &before);
        assert!(compare(on("a", "true"), on("a", "true")).is_ok());
        let refused = compare(on("a", "true"), on("b", "false")).unwrap_err().to_string();
        assert_eq!(
            refused,
            "the campaign cannot be resumed: the list of deltas and the option `all` have changed since campaign \
             `beb0` began"
        );
    }
}
