//! A run: the stored record of a trial. Reports, resumed searches and pages are computed from runs.

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
use crate::treatment::Treatment;
use crate::trial_id::TrialId;
use crate::wiring::OutageMode;

/// The stored record of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Campaign and trial: `7f3a.12`.
    pub id: RunId,
    /// Role and number within the campaign.
    pub trial: TrialId,
    /// The slot it ran in.
    pub slot: SlotId,
    /// What it was given.
    pub treatment: Treatment,
    /// The settings it ran under.
    pub circumstance: Circumstance,
    /// How its evidence was judged.
    pub outcome: Outcome,
    /// What the outcome was judged by.
    pub evidence: Evidence,
    /// Its start in microseconds since 1970.
    pub started_us: u64,
    /// Time and instances it took.
    pub cost: Cost,
    /// The source of every random choice in it.
    pub seed: u64,
    /// Earlier attempts that the infrastructure spoiled.
    #[serde(default)]
    pub retries: u32,
    /// What was done to its calls and messages by a resilience test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perturbed: Option<Box<Perturbed>>,
    /// The digest of its question, by which a resumed campaign finds the answer; older runs have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Digest>,
}

/// What was done to the calls and messages of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Perturbed {
    /// The name of the perturbed test.
    pub test: String,
    /// The requested perturbations that had no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<Missed>,
    /// The outcome of the test itself, where the run is unresolved because a perturbation had no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<Outcome>,
    /// Services or actors that the failure message blames.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<String>,
    /// The services that first answered otherwise than without perturbations, the innermost ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub diverged: Vec<String>,
    /// Whether the test got a degraded response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// Results of the invariants that were checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invariants: Vec<TestResult>,
    /// What callers got from named calls; recorded only for runs with few perturbations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallSeen>,
    /// The outages that were carried out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<OutageSeen>,
    /// How the test failed after an outage had ended, in a way that need not be the outage's fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<Signature>,
}

/// An outage that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutageSeen {
    /// The perturbation; its target says who went away, and when.
    pub perturbation: Perturbation,
    /// What callers met.
    pub how: OutageMode,
    /// Whether connections were accepted and reset where they should have been refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
    /// From its beginning to its end.
    #[serde(rename = "for", with = "crate::units::duration")]
    pub lasted: Duration,
    /// From its end to the start of the first run of the test that passed; none if no run did.
    #[serde(default, with = "crate::units::duration::option", skip_serializing_if = "Option::is_none")]
    pub recovered_after: Option<Duration>,
}

/// The response that a caller got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSeen {
    /// The stable name of the call.
    pub target: TargetId,
    /// A summary of the response: equal texts mean that the caller got the same.
    pub answer: String,
    /// Whether the response was a success.
    pub good: bool,
    /// Number of attempts, including retries of the caller.
    pub attempts: u32,
    /// Size of the response body.
    pub bytes: u64,
}

/// A perturbation that had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// The requested perturbation.
    pub perturbation: Perturbation,
    /// Why it had no effect.
    pub why: NotApplied,
}

/// The time and the instances that a trial took.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// Until all instances were ready.
    #[serde(with = "crate::units::duration")]
    pub deploy: Duration,
    /// The tests alone.
    #[serde(with = "crate::units::duration")]
    pub tests: Duration,
    /// Everything, including clearing the slot.
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
    /// The cost of a deployment; the other fields are filled in later.
    pub fn from_deployment(took: Duration, created: usize, destroyed: usize, kept: usize) -> Self {
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

/// What a trial showed; its spans are in the store beside it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Evidence {
    /// Results of the tests, in order.
    pub tests: Vec<TestResult>,
    /// Number of calls that the mesh recorded.
    pub spans: u64,
    /// Spans that were dropped because the store was too slow.
    #[serde(default)]
    pub spans_dropped: u64,
    /// Calls, reported spans and points that were not kept, because the trial had its most.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Instances that ended by themselves, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<InstanceExit>,
    /// What the gates did, one entry per handling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateReport>,
    /// How often each rule matched and took effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleHits>,
    /// The last lines of instances that ended by themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub logs: BTreeMap<InstanceId, Vec<String>>,
    /// Lines of all instances that were handed to the store.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub log_lines: u64,
}

/// An instance that ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceExit {
    /// The instance.
    pub instance: InstanceId,
    /// How it ended.
    pub reason: ExitReason,
    /// How its start failed, if it never became ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartEnding>,
    /// Whether it was waited for more briefly than the application file says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
}

impl Evidence {
    /// Whether a service was waited for more briefly than the application file says.
    pub fn is_cut(&self) -> bool {
        self.exits.iter().any(|exit| exit.is_cut)
    }

    /// The failed start because of which no test ran, if there was one.
    pub fn start_failure(&self) -> Option<Signature> {
        self.exits.iter().find_map(|exit| Some(Signature::for_start(&exit.instance.service, exit.start?)))
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a rule did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleHits {
    /// The number of the rule.
    pub rule: u32,
    /// Calls it selected.
    pub matched: u64,
    /// Calls it took effect on.
    pub applied: u64,
}
