//! Counts what became of every perturbation, so that no verdict says more than was done.

use std::fmt;
use std::ops::AddAssign;

use faultscope_model::perturbation::{Perturbation, TargetId};
use faultscope_model::run::{OutageSeen, Perturbed};
use faultscope_model::units::count;
use faultscope_model::{Outcome, RunId};
use serde::{Deserialize, Serialize};

use super::phase::TestFindings;
use super::report::TestReport;

/// What became of the perturbations of a test, or of all tests. Each is counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// The test passed with it.
    pub passed: usize,
    /// The test failed in a way that is accepted: the file calls it degraded, or it was answered with an error.
    pub degraded: usize,
    /// It belongs to a defect.
    pub broke: usize,
    /// It was carried out only together with something that breaks the test.
    pub unclear: usize,
    /// It was tried, but could not be carried out in any trial.
    pub not_applied: usize,
    /// It was never tried; the list of skipped ones says why.
    pub never_tried: usize,
}

impl Tally {
    /// Perturbations that were carried out at least once.
    pub fn carried_out(&self) -> usize {
        self.passed + self.degraded + self.broke + self.unclear
    }

    /// Counts the perturbations of a test.
    pub(super) fn new(report: &TestReport, found: &TestFindings) -> Self {
        let breaks = |p: &Perturbation| {
            let mut sets =
                report.defects.iter().flat_map(|d| std::iter::once(&d.perturbations).chain(&d.also));
            sets.any(|set| set.contains(p))
        };
        let mut tally = Self {
            not_applied: report.missed.len(),
            never_tried: report.skipped.iter().map(|skipped| skipped.number).sum(),
            ..Self::default()
        };
        for perturbation in &found.applied {
            let counter = match found.shown.get(perturbation) {
                _ if breaks(perturbation) => &mut tally.broke,
                Some(ShownWith { result: Shown::Passed, .. }) => &mut tally.passed,
                Some(ShownWith { result: Shown::Degraded, .. }) => &mut tally.degraded,
                Some(ShownWith { result: Shown::Failed, .. }) | None => &mut tally.unclear,
            };
            *counter += 1;
        }
        tally
    }
}

impl fmt::Display for Tally {
    /// What was carried out and how the test took it, then what was not; zeros are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} carried out", count(self.carried_out(), "perturbation"))?;
        let shown = [
            (self.passed, "passed"),
            (self.degraded, "degraded"),
            (self.broke, "broke the test"),
            (self.unclear, "only tried beside a defect"),
        ];
        let mut separator = " (";
        for (number, what) in shown.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, "{separator}{number} {what}")?;
            separator = ", ";
        }
        if self.carried_out() > 0 {
            f.write_str(")")?;
        }
        if self.not_applied > 0 {
            write!(f, ", {} not applied", self.not_applied)?;
        }
        if self.never_tried > 0 {
            write!(f, ", {} never tried", self.never_tried)?;
        }
        Ok(())
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.degraded += other.degraded;
        self.broke += other.broke;
        self.unclear += other.unclear;
        self.not_applied += other.not_applied;
        self.never_tried += other.never_tried;
    }
}

/// What the smallest trial with a perturbation showed: of several, the one that says most about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownWith {
    /// How many perturbations were carried out in that trial.
    pub(super) size: usize,
    pub(super) result: Shown,
}

/// What a test showed, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// It passed.
    Passed,
    /// It failed in a way that is accepted.
    Degraded,
    /// It failed.
    Failed,
}

impl Shown {
    /// What a run showed with what was carried out in it; none where it could not be judged.
    pub(super) fn of_run(outcome: &Outcome, perturbed: &Perturbed) -> Option<Self> {
        match perturbed.shown.as_ref().unwrap_or(outcome) {
            Outcome::Pass if perturbed.degraded => Some(Self::Degraded),
            Outcome::Pass => Some(Self::Passed),
            Outcome::Fail { .. } => Some(Self::Failed),
            Outcome::Unresolved { .. } => None,
        }
    }
}

impl TestFindings {
    /// Notes what a test showed with a perturbation, of `size` that were carried out together.
    pub(super) fn note_shown(&mut self, perturbation: &Perturbation, size: usize, result: Shown) {
        let new = ShownWith { size, result };
        let known = self.shown.entry(perturbation.clone()).or_insert(new);
        let says_more = size < known.size || (size == known.size && result > known.result);
        if says_more {
            *known = new;
        }
    }
}

/// What an outage did to a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutageResult {
    /// Who was away, how, and for how long.
    #[serde(flatten)]
    pub outage: OutageSeen,
    /// What the test showed.
    pub shown: Shown,
    /// The run that shows it.
    pub run: RunId,
}

impl TestFindings {
    /// Notes what an outage did, of `size` perturbations that were asked for together.
    pub(super) fn note_outage(&mut self, outage: &OutageSeen, size: usize, shown: Shown, run: &RunId) {
        let known = self.outages.get(&outage.perturbation);
        // A failure says more than a pass, which others may have had by chance.
        if known.is_none_or(|(before, result)| size < *before || (size == *before && shown > result.shown)) {
            let result = OutageResult { outage: outage.clone(), shown, run: run.clone() };
            self.outages.insert(outage.perturbation.clone(), (size, result));
        }
    }
}

/// Something that was not tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The reason.
    pub why: SkipReason,
    /// How many perturbations; for services that receive no calls, how many services.
    pub number: usize,
    /// Operations or services that it concerns; a few, where there are many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// How many more operations or services there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Why something was not tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A request is repeated only if its operation is declared `at-least-once`, or is idempotent by its method.
    NoDelivery,
    /// A service is restarted only if the file says that it keeps its state.
    NotDurable,
    /// Bytes of another protocol show no requests.
    NotHttp,
    /// The test leads to no call of this service, such as a consumer of messages.
    NoCalls,
    /// The call was made without trace context, so its cause is unknown.
    UnknownCause,
    /// Only one of the unperturbed runs made the call.
    Unstable,
    /// The budget was used up before.
    OutOfBudget,
    /// The campaign was stopped before.
    Stopped,
    /// The chosen strategy ends with its first defect.
    Strategy,
}

/// Something that a campaign noticed and that breaks no test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Finding {
    /// A request that arrived twice was answered with something else the second time, such as another transaction.
    AnswerDiffers {
        /// The call.
        target: TargetId,
        /// Both statuses.
        status: [u16; 2],
        /// The fields that differ, as paths into the body.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<String>,
        /// The run that shows it.
        run: RunId,
    },
    /// The test failed after an outage had ended, but without an error. What its interrupted run left half done may
    /// be the reason.
    FailsAfterOutage {
        /// The outage.
        perturbation: Perturbation,
        /// How the test failed.
        message: String,
        /// The run that shows it.
        run: RunId,
    },
}

impl Finding {
    /// The call or service that it concerns.
    pub fn target(&self) -> &TargetId {
        match self {
            Self::AnswerDiffers { target, .. } => target,
            Self::FailsAfterOutage { perturbation, .. } => &perturbation.target,
        }
    }
}

/// How far sets of one size were tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetsTried {
    /// Perturbations in each set.
    pub size: usize,
    /// Sets that were tried.
    pub tried: usize,
    /// Sets that were left out, because they could not show anything new.
    pub pruned: usize,
    /// Sets that were still to be tried when it ended.
    pub left: usize,
}
