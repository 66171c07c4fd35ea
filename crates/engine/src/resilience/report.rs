//! What a resilience campaign found, as plain data for terminal, JSON and pages.

use std::collections::BTreeMap;
use std::time::Duration;

use faultscope_model::RunId;
use faultscope_model::outcome::{Signature, Unresolved};
use faultscope_model::perturbation::{Kind, Perturbation};
use faultscope_model::run::Missed;
use faultscope_model::units::count;
use serde::{Deserialize, Serialize};

use super::Strategy;
use super::tally::{Finding, OutageResult, SetsTried, Skipped, Tally};
use crate::driver::Ended;

/// What a resilience campaign found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResilienceReport {
    /// Its campaign.
    pub campaign: String,
    /// The application.
    pub application: String,
    /// How trials were chosen.
    pub strategy: Strategy,
    /// Decides every random choice.
    pub seed: u64,
    /// How it ended; the same words as for each test.
    pub verdict: Verdict,
    /// What became of the perturbations of all tests.
    #[serde(default)]
    pub tally: Tally,
    /// Test by test.
    pub tests: Vec<TestReport>,
    /// Tests that were not begun when it was stopped or the budget was used up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_begun: Vec<String>,
    /// What the file declares and no test exercises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How long it took.
    #[serde(with = "faultscope_model::units::duration")]
    pub took: Duration,
}

/// How a test took its perturbations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Verdict {
    /// No perturbation breaks it; the tally says how many were carried out, and how the test took them.
    Clean,
    /// Some perturbations make it fail.
    Defects,
    /// It fails without any perturbation.
    FailsAlready,
    /// There was nothing that could be done to it.
    NothingToPerturb,
    /// It could not be judged.
    Unresolved {
        /// Why.
        reason: Unresolved,
    },
    /// It was stopped before all was tried.
    Stopped,
    /// The budget was used up before all was tried.
    OutOfBudget,
}

impl From<Ended> for Verdict {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Done => Self::Clean,
            Ended::Stopped => Self::Stopped,
            Ended::OutOfBudget => Self::OutOfBudget,
        }
    }
}

/// What was found out about one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestReport {
    /// The test.
    pub test: String,
    /// How it ended.
    pub verdict: Verdict,
    /// How it fails without perturbations, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// How long it was given when it was perturbed.
    #[serde(
        default,
        with = "faultscope_model::units::duration::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub within: Option<Duration>,
    /// Calls and messages that were seen without perturbations.
    pub seen: usize,
    /// Those that only one of two runs had, and that were left alone.
    #[serde(default)]
    pub unstable: usize,
    /// How many neutral perturbations there are of each kind.
    pub candidates: BTreeMap<Kind, usize>,
    /// What became of all perturbations.
    #[serde(default)]
    pub tally: Tally,
    /// What was not tried, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// How far sets of perturbations that may change an answer were tried, by size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<SetsTried>,
    /// What outages did, by service and moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<OutageResult>,
    /// What makes it fail.
    pub defects: Vec<Defect>,
    /// What was noticed and breaks nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Why trials could not be judged, and how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<UnresolvedTrials>,
    /// What could not be carried out in any trial, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missed: Vec<Missed>,
    /// How often it failed without perturbations, where it did so at times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaky: Option<Flaky>,
    /// The trials it took.
    pub trials: Trials,
    /// What else people should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How long it took.
    #[serde(with = "faultscope_model::units::duration")]
    pub took: Duration,
}

/// Trials that could not be judged, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresolvedTrials {
    /// Why.
    pub reason: Unresolved,
    /// How many trials.
    pub trials: usize,
}

/// A test that fails by itself at times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flaky {
    /// How often it failed.
    pub failed: u32,
    /// How often it was tried.
    pub tried: u32,
    /// How often in a row a set had to fail.
    pub must_fail: u32,
}

/// The trials of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Trials {
    /// Without perturbations.
    pub baseline: usize,
    /// With neutral perturbations.
    pub neutral: usize,
    /// With perturbations that may change an answer.
    pub changing: usize,
    /// That made sure of what was found, or tried alone what had no chance beside others.
    #[serde(default)]
    pub confirming: usize,
    /// Those that could not be judged.
    pub unresolved: usize,
    /// Those from before an interruption.
    #[serde(default)]
    pub earlier: usize,
    /// Sets that were left out because they could tell nothing new.
    #[serde(default)]
    pub pruned: usize,
}

impl Trials {
    /// All of them.
    pub fn all(&self) -> usize {
        self.baseline + self.neutral + self.changing + self.confirming
    }
}

/// Perturbations that make a test fail, and nothing less does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Defect {
    /// What is done; all of it.
    pub perturbations: Vec<Perturbation>,
    /// Other sets that break the test at the same place: of other kinds to the same calls, or to other calls of
    /// the same receiver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Vec<Perturbation>>,
    /// Whether a trial showed that none of them can be left out.
    pub minimal: bool,
    /// How the test fails then.
    pub signature: Option<Signature>,
    /// Whether it is an invariant that does not hold.
    #[serde(default)]
    pub invariant: bool,
    /// Who is blamed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<String>,
    /// The place in the code that the failure names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Instances that ended by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<String>,
    /// The failing run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Its calls or messages, with what was done to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<TraceStep>,
    /// The command that shows it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reproduce: Option<String>,
}

/// A call or message of a failing run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStep {
    /// How deep it lies under the test.
    pub depth: usize,
    /// Who received it.
    pub receiver: String,
    /// What was asked.
    pub operation: String,
    /// How it ended; empty for messages.
    pub ending: String,
    /// Microseconds from the first one to its start.
    pub start_us: u64,
    /// Microseconds it took.
    pub took_us: u64,
    /// What was done to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
}

impl ResilienceReport {
    /// What was found, in one line.
    pub fn summary(&self) -> String {
        let defects: usize = self.tests.iter().map(|test| test.defects.len()).sum();
        let defects = count(defects, "defect");
        let of = count(self.tests.len(), "test");
        match &self.verdict {
            Verdict::Clean => format!("no defect found in {of}: {}", self.tally),
            Verdict::NothingToPerturb => "there is nothing that could be perturbed".into(),
            Verdict::Defects => format!("{defects} in {of}: {}", self.tally),
            Verdict::FailsAlready => "a test fails without any perturbation".into(),
            Verdict::Unresolved { reason } => reason.to_string(),
            Verdict::Stopped => format!("stopped: {defects} so far{}", self.describe_not_begun()),
            Verdict::OutOfBudget => {
                format!("the budget is used up: {defects} so far{}", self.describe_not_begun())
            }
        }
    }

    /// `, 2 tests not begun`, or nothing.
    fn describe_not_begun(&self) -> String {
        match self.not_begun.len() {
            0 => String::new(),
            n => format!(", {} not begun", count(n, "test")),
        }
    }
}

/// How a campaign ended, given its tests.
pub(super) fn overall(tests: &[TestReport]) -> Verdict {
    let any = |wanted: fn(&Verdict) -> bool| tests.iter().map(|test| &test.verdict).find(|v| wanted(v));
    any(|v| *v == Verdict::Stopped)
        .or_else(|| any(|v| *v == Verdict::OutOfBudget))
        .or_else(|| any(|v| *v == Verdict::Defects))
        .or_else(|| any(|v| *v == Verdict::FailsAlready))
        .or_else(|| any(|v| matches!(v, Verdict::Unresolved { .. })))
        .or_else(|| any(|v| *v == Verdict::Clean))
        .cloned()
        .unwrap_or(Verdict::NothingToPerturb)
}
