//! What a debug campaign found, as plain data for terminal, JSON and pages.

use std::time::Duration;

use faultscope_model::circumstance::Order;
use faultscope_model::outcome::{Signature, Unresolved};
use faultscope_model::space::{Delta, Dimension};
use faultscope_model::units::count;
use faultscope_model::{RunId, Space};
use faultscope_search::Proof;
use serde::{Deserialize, Serialize};

use super::table::RoundCounts;
use super::{
    Calibration, Confirmation, ConfirmationStatus, InputReport, Printed, StartReport, Strategy, ValueBoundary,
};
use crate::session::Session;

/// What a debug campaign found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DebugReport {
    /// Its campaign.
    pub campaign: String,
    /// The application.
    pub application: String,
    /// How trials were chosen.
    pub strategy: Strategy,
    /// How many deltas there were.
    pub deltas: usize,
    /// The order of concurrent calls in trials without a delta of it, as the simplest circumstance showed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
    /// The failure that was looked for.
    pub signature: Option<Signature>,
    /// How it ended.
    pub verdict: Verdict,
    /// How often the failure shows where its cause is there.
    pub calibration: Option<Calibration>,
    /// Whether the search came to its end; what was to be looked into after it may not have.
    #[serde(default)]
    pub searched: bool,
    /// The causes that were found.
    pub causes: Vec<FoundCause>,
    /// The smallest failing set so far, when it was stopped.
    pub best: Vec<NamedDelta>,
    /// What is proven about that set.
    pub proof: Proof,
    /// How many sets with one delta less are yet to be tried.
    pub unproven: usize,
    /// How probable the answer is, in the eyes of the search; 1 when trials prove it, less when the failure
    /// does not always show.
    pub belief: f64,
    /// Whether a passing trial showed that no further cause is left.
    pub none_left: bool,
    /// Why further causes are not excluded, where all of them were looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
    /// Where the minimal failing run differs first from the nearest passing one.
    pub difference: Option<Difference>,
    /// How the service ended, where the failure is that it does not come up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartReport>,
    /// What became of the tasks of each round, where the search has rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<RoundCounts>,
    /// Where the failure starts, for numbers in the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boundaries: Vec<ValueBoundary>,
    /// What became of the input of the failing test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputReport>,
    /// What it cost.
    pub trials: Trials,
    /// How long it took.
    #[serde(with = "faultscope_model::units::duration")]
    pub took: Duration,
}

/// How a debug campaign ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// The failure was reduced to its cause.
    Reduced,
    /// Simplest and failing are the same.
    NoDeltas,
    /// The test fails already in the simplest circumstance.
    FailsAlready,
    /// The test does not fail with all deltas.
    NotReproduced,
    /// The test fails in the simplest circumstance and passes with all deltas.
    FailsWithout,
    /// Other tests fail, or several.
    OtherTestsFail {
        /// The test that was to fail.
        named: Option<String>,
        /// Those that do.
        failing: Vec<String>,
    },
    /// One end could not be judged.
    Unresolved {
        /// Which one.
        end: End,
        /// Why.
        reason: Unresolved,
    },
    /// The test fails at times, and it does so in the simplest circumstance too.
    FailsAtTimes,
    /// It was stopped.
    Stopped,
    /// The time or the trials it was given are used up.
    OutOfBudget,
}

/// One end of what is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The simplest circumstance.
    Simplest,
    /// The failing circumstance.
    Failing,
}

/// A delta by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDelta {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub dimension: Dimension,
    /// The value it changes from.
    pub from: String,
    /// The value it changes to.
    pub to: String,
}

impl NamedDelta {
    pub(super) fn from_delta(delta: &Delta) -> Self {
        Self {
            name: delta.name.clone(),
            dimension: delta.dimension,
            from: delta.from.clone(),
            to: delta.to.clone(),
        }
    }
}

/// A cause that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FoundCause {
    /// The deltas that are needed.
    pub deltas: Vec<NamedDelta>,
    /// All deltas of the failing trial; pairs of calls may imply further ones.
    pub witness: Vec<NamedDelta>,
    /// Whether every smaller set was shown not to fail.
    pub minimal: bool,
    /// Whether none of the smaller sets could be judged, so that nothing could be left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_reduced: bool,
    /// Deltas of the witness that constraints tie to others, so that they were only tried together with those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tied: Vec<String>,
    /// Whether it was repeated until chance was excluded.
    #[serde(default)]
    pub confirmation: Confirmation,
    /// The run that failed with it.
    pub run: Option<RunId>,
    /// Where leaving one of its deltas out makes neither this failure nor none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<Otherwise>,
    /// The command that shows the failure again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<String>,
}

/// Something else than the failure that is looked for, seen where one delta of a cause is left out: the delta is
/// needed for this failure, not for any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Otherwise {
    /// The delta that was left out.
    pub without: String,
    /// What was seen.
    pub reason: Unresolved,
    /// In which run.
    pub run: RunId,
}

impl Otherwise {
    /// Whether tests fail, in another way than the one that is looked for.
    pub fn is_failure(&self) -> bool {
        matches!(self.reason, Unresolved::OtherFailure { .. })
    }

    /// For people, in one line.
    pub fn describe(&self) -> String {
        let Self { without, reason, run } = self;
        format!(
            "Without {without} something else happens in run {run}: {}",
            reason.to_string().replace('\n', " ")
        )
    }
}

impl FoundCause {
    /// What it is called: how much is known about it.
    pub fn title(&self) -> &'static str {
        match (self.not_reduced, self.minimal) {
            (true, _) => "Cause, not reduced",
            (false, true) => "Minimal cause",
            (false, false) => "Cause",
        }
    }

    /// For people: which of its deltas could not be tried alone.
    pub fn describe_tied(&self) -> Option<String> {
        let tied = self.tied.join(" and ");
        (!tied.is_empty()).then(|| format!("constraints allow {tied} only together with others of these"))
    }

    /// What to do where other failures were seen that may be the same one to people.
    pub fn hint(&self) -> Option<&'static str> {
        self.otherwise.iter().any(Otherwise::is_failure).then_some(
            "If that is the same failure to you, say what they have in common by `failure: PATTERN` in the test",
        )
    }
}

/// What became of all deltas together that no cause needs, where they do not pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Rest {
    /// Something else than the failure that is looked for happens with them.
    Unresolved {
        /// What.
        reason: Unresolved,
        /// In which run.
        run: RunId,
    },
    /// They cannot be without a cause that is known: deltas need one another.
    Bound,
}

impl Rest {
    /// For people, in one line.
    pub fn describe(&self) -> String {
        let what = match self {
            Self::Unresolved { reason, run } => {
                format!("with all other deltas together something else happens in run {run}: {reason}")
            }
            Self::Bound => "the other deltas cannot be tried without one of these causes".to_owned(),
        };
        format!("Further causes are not excluded: {what}")
    }

    /// The run to look at.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Unresolved { run, .. } => Some(run),
            Self::Bound => None,
        }
    }
}

/// The first call in which two runs differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The failing run.
    pub failing: RunId,
    /// The passing run that is nearest to it.
    pub passing: RunId,
    /// The deltas that the passing run lacks.
    pub without: Vec<String>,
    /// The call from outside that made the test fail, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_call: Option<String>,
    /// The call in the failing run, for people.
    pub failing_call: Option<String>,
    /// The call in its place in the passing run.
    pub passing_call: Option<String>,
    /// What the services of the failing call printed meanwhile, and not when the test passes.
    #[serde(default, skip_serializing_if = "Printed::is_empty")]
    pub printed: Printed,
    /// The calls around it in the failing run, callers first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failing_tree: Vec<TreeCall>,
    /// The calls in their place in the passing run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passing_tree: Vec<TreeCall>,
}

impl Difference {
    /// Whether a call differs in more than chance; otherwise only the failed call is known.
    pub fn is_found(&self) -> bool {
        self.failing_call.is_some() || self.passing_call.is_some()
    }

    /// The failed call, where it is not the one that differs.
    pub fn further_call(&self) -> Option<&str> {
        self.failed_call.as_deref().filter(|failed| Some(*failed) != self.failing_call.as_deref())
    }

    /// The failing and the passing call, for people.
    pub fn calls(&self) -> (&str, &str) {
        let nothing = "no such call";
        (self.failing_call.as_deref().unwrap_or(nothing), self.passing_call.as_deref().unwrap_or(nothing))
    }
}

/// A call in a tree of calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeCall {
    /// How deep it is; calls below it are deeper.
    pub depth: usize,
    /// Who was called.
    pub callee: String,
    /// For what.
    pub operation: String,
    /// How it ended.
    pub ending: String,
    /// Whether this is the one that differs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub differs: bool,
}

/// What a campaign cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trials {
    /// Trials of the search that finished; start-up checks and sentinels are not among them.
    pub finished: usize,
    /// Trials for boundaries and smaller inputs that finished now.
    #[serde(default)]
    pub deeper: usize,
    /// Repetitions of what the answer rests on.
    #[serde(default)]
    pub confirmations: usize,
    /// Start-up checks.
    pub checks: usize,
    /// Finished trials that are from before an interruption.
    pub earlier: usize,
    /// Repetitions of a known circumstance.
    pub sentinels: usize,
    /// Questions of the search that earlier trials had answered.
    pub reused: usize,
    /// Trials that were cancelled because nobody needed them any more.
    pub cancelled: usize,
    /// Finished ones that showed something else than passing or this failure.
    pub unresolved: usize,
}

impl Trials {
    /// For people: `6 trials`, or `6 trials, 14 confirmations`.
    pub fn describe(&self) -> String {
        let trials = count(self.finished, "trial");
        match self.confirmations {
            0 => trials,
            n => format!("{trials}, {}", count(n, "confirmation")),
        }
    }
}

impl DebugReport {
    pub(super) fn new(session: &Session, space: &Space, strategy: Strategy) -> Self {
        Self {
            campaign: session.id().to_string(),
            application: session.application().name.clone(),
            strategy,
            deltas: space.full().len(),
            orders: Vec::new(),
            signature: None,
            verdict: Verdict::Stopped,
            calibration: None,
            searched: false,
            causes: Vec::new(),
            best: Vec::new(),
            proof: Proof::default(),
            unproven: 0,
            belief: 0.0,
            none_left: false,
            rest: None,
            difference: None,
            start: None,
            rounds: Vec::new(),
            boundaries: Vec::new(),
            input: None,
            trials: Trials::default(),
            took: Duration::ZERO,
        }
    }

    /// What the failure is, for people: `the test fails`, or `service order does not come up`.
    pub fn failing(&self) -> String {
        match self.signature.as_ref().and_then(Signature::service) {
            Some(service) => format!("service {service} does not come up"),
            None => "the test fails".into(),
        }
    }

    /// What is seen where the failure is not: `the test passes`, or `everything comes up`.
    pub fn passing(&self) -> &'static str {
        match self.signature.as_ref().and_then(Signature::service) {
            Some(_) => "everything comes up",
            None => "the test passes",
        }
    }

    /// What a number of deltas does: `make the test fail`, or `keep service order from coming up`.
    pub fn effect(&self, deltas: usize) -> String {
        let s = if deltas == 1 { "s" } else { "" };
        match self.signature.as_ref().and_then(Signature::service) {
            Some(service) => format!("keep{s} service {service} from coming up"),
            None => format!("make{s} the test fail"),
        }
    }

    /// Whether every cause was confirmed.
    pub fn is_confirmed(&self) -> bool {
        self.causes.iter().all(|cause| cause.confirmation.is_confirmed())
    }

    /// `the cause is found`, and how far its confirmation is where that is not over.
    fn found(&self) -> String {
        let of = |count: fn(&Confirmation) -> usize| -> usize {
            self.causes.iter().map(|cause| count(&cause.confirmation)).sum()
        };
        let unfinished = |cause: &FoundCause| cause.confirmation.status == ConfirmationStatus::Unfinished;
        if self.causes.iter().any(unfinished) {
            let (finished, planned) = (of(|c| c.finished), of(|c| c.planned));
            return format!("the cause is found, but not confirmed ({finished} of {planned})");
        }
        "the cause is found".into()
    }

    /// The report in one line.
    pub fn summary(&self) -> String {
        match &self.verdict {
            Verdict::Reduced => {
                let sizes: Vec<_> = self.causes.iter().map(|c| c.deltas.len().to_string()).collect();
                format!(
                    "reduced {} to {} in {}{}",
                    count(self.deltas, "delta"),
                    sizes.join(" and "),
                    self.trials.describe(),
                    if self.is_confirmed() { "" } else { ", not confirmed" }
                )
            }
            Verdict::NoDeltas => "simplest and failing circumstance are the same".into(),
            Verdict::FailsAlready if self.start.is_some() => {
                format!("{} in the simplest circumstance either: look inside the service", self.failing())
            }
            Verdict::FailsAlready => {
                "the test fails already in the simplest circumstance: look inside the service".into()
            }
            Verdict::NotReproduced => {
                "the test does not fail with all deltas: it is flaky, or a dimension is missing".into()
            }
            Verdict::FailsWithout => {
                let seen = "the test fails in the simplest circumstance and passes with all deltas";
                format!("{seen}: exchange `simplest` and `failing`, or it is flaky")
            }
            Verdict::OtherTestsFail { named: Some(named), failing } if !failing.contains(named) => {
                format!("`{named}` does not fail with all deltas, but these do: {}", failing.join(", "))
            }
            Verdict::OtherTestsFail { failing, .. } => {
                format!("more than one test fails with all deltas: {}", failing.join(", "))
            }
            Verdict::Unresolved { end: End::Failing, reason } => reason.to_string(),
            Verdict::Unresolved { end: End::Simplest, reason } => match reason {
                Unresolved::OtherFailure { signature } if signature.failing_test().is_some() => {
                    format!("in the simplest circumstance another test fails: {signature}")
                }
                Unresolved::OtherFailure { signature } => format!("the simplest circumstance: {signature}"),
                reason => format!("the simplest circumstance: {reason}"),
            },
            Verdict::FailsAtTimes => {
                let failing = self.failing();
                format!("{failing} at times, also in the simplest circumstance: look inside the service")
            }
            Verdict::Stopped if self.searched => {
                format!("{}; stopped before the rest was done", self.found())
            }
            Verdict::OutOfBudget if self.searched => {
                format!("{}; the budget is used up before the rest was done", self.found())
            }
            Verdict::Stopped if self.best.is_empty() => "stopped before the search began".into(),
            Verdict::OutOfBudget if self.best.is_empty() => {
                "the budget was used up before the search began".into()
            }
            Verdict::Stopped => format!("stopped at {} of {}", self.best.len(), count(self.deltas, "delta")),
            Verdict::OutOfBudget => {
                format!("the budget is used up at {} of {}", self.best.len(), count(self.deltas, "delta"))
            }
        }
    }
}
