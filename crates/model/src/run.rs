//! A run: the stored record of a trial. Reports, searches and pages are read from runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::circumstance::Circumstance;
use crate::digest::Digest;
use crate::exit_reason::ExitReason;
use crate::ids::{InstanceId, RunId, SlotId};
use crate::not_applied::NotApplied;
use crate::outcome::{Outcome, Signature, StartEnding, TestResult};
use crate::perturbation::{Perturbation, TargetId};
use crate::series::GateReport;
use crate::space::DeltaSet;
use crate::trial_id::TrialId;

/// The stored record of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub id: RunId,
    /// The trial.
    pub trial: TrialId,
    /// Where it ran.
    pub slot: SlotId,
    /// The deltas it had, in a search.
    #[serde(default, skip_serializing_if = "DeltaSet::is_empty")]
    pub deltas: DeltaSet,
    /// Under what it ran.
    pub circumstance: Circumstance,
    /// What it showed.
    pub outcome: Outcome,
    /// On what that rests.
    pub evidence: Evidence,
    /// Microseconds since 1970 at its start.
    pub started_us: u64,
    /// What it took.
    pub cost: Cost,
    /// Decides every random choice in it.
    pub seed: u64,
    /// How often it was tried again because the infrastructure had spoiled it.
    #[serde(default)]
    pub retries: u32,
    /// What was done to its calls and messages, in a resilience test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perturbed: Option<Box<Perturbed>>,
    /// The digest of what it asked, by which a resumed campaign finds its answer; older runs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Digest>,
}

/// What was done to the calls and messages of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Perturbed {
    /// The test.
    pub test: String,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<Perturbation>,
    /// What was asked for and not carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<Missed>,
    /// What the test itself showed, where the run is unresolved because something was not carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Outcome>,
    /// Whose assertions failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<String>,
    /// Whether the test got a degraded answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// What must hold and was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invariants: Vec<TestResult>,
    /// What callers saw of the calls that have names, where little was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallSeen>,
}

/// What a caller saw of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSeen {
    /// The call.
    pub target: TargetId,
    /// Its answer: equal words mean that the caller saw the same.
    pub answer: String,
    /// Whether that is a good answer.
    pub good: bool,
    /// How often it was tried.
    pub attempts: u32,
    /// Bytes of the answer's body.
    pub bytes: u64,
}

/// A perturbation that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Which.
    pub perturbation: Perturbation,
    /// Why it was not.
    pub why: NotApplied,
}

/// What a trial took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Until everything was ready.
    #[serde(with = "crate::units::duration")]
    pub deploy: Duration,
    /// The tests themselves.
    #[serde(with = "crate::units::duration")]
    pub tests: Duration,
    /// All of it, clearing away included.
    #[serde(with = "crate::units::duration")]
    pub total: Duration,
    /// Instances created.
    pub created: u32,
    /// Instances destroyed.
    pub destroyed: u32,
    /// Instances kept.
    pub kept: u32,
}

impl Cost {
    /// What a deployment took; nothing else is known yet.
    pub fn of_deployment(took: Duration, created: usize, destroyed: usize, kept: usize) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            deploy: took,
            tests: Duration::ZERO,
            total: took,
            created: count(created),
            destroyed: count(destroyed),
            kept: count(kept),
        }
    }
}

/// What a trial left behind; its spans are in the store beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Each test's result.
    pub tests: Vec<TestResult>,
    /// Calls the mesh recorded.
    pub spans: u64,
    /// Spans that could not be recorded because the store was too slow.
    #[serde(default)]
    pub spans_dropped: u64,
    /// Instances that ended by themselves, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<InstanceExit>,
    /// What became of gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateReport>,
    /// How often each rule matched and was applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleHits>,
    /// The last lines of instances that ended or that belong to a failing trial.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logs: BTreeMap<InstanceId, Vec<String>>,
}

/// An instance that ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceExit {
    /// Which.
    pub instance: InstanceId,
    /// How it ended.
    pub reason: ExitReason,
    /// How its start ended, where it did not become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartEnding>,
}

impl Evidence {
    /// The failure to come up that kept everything else from being tried, where there was one.
    pub fn start_failure(&self) -> Option<Signature> {
        self.exits.iter().find_map(|exit| Some(Signature::of_start(&exit.instance.service, exit.start?)))
    }
}

/// What a rule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHits {
    /// The rule.
    pub rule: u32,
    /// Calls it selected.
    pub matched: u64,
    /// Calls it took effect on.
    pub applied: u64,
}
