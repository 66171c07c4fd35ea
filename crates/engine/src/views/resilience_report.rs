//! The result of a resilience campaign, with everything that every display of it would compute.

use faultscope_model::outcome::Unresolved;
use serde::Serialize;

use crate::resilience::{ResilienceReport, TestReport, TraceStep, UnresolvedTrials};

/// A resilience report, prepared for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResilienceView<'r> {
    /// The report itself.
    pub report: &'r ResilienceReport,
    /// Number of defects of all tests.
    pub defects: usize,
    /// Number of trials of all tests.
    pub trials: usize,
    /// The tests, in order.
    pub tests: Vec<TestView<'r>>,
}

/// A test, prepared for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestView<'r> {
    /// The report of the test.
    pub test: &'r TestReport,
    /// Why trials could not be judged and how many, except for perturbations that had no effect in any trial:
    /// those are listed separately.
    pub unresolved: Vec<&'r UnresolvedTrials>,
}

impl<'r> ResilienceView<'r> {
    /// Prepares a report.
    pub fn new(report: &'r ResilienceReport) -> Self {
        Self {
            report,
            defects: report.tests.iter().map(|test| test.defects.len()).sum(),
            trials: report.tests.iter().map(|test| test.trials.all()).sum(),
            tests: report.tests.iter().map(TestView::new).collect(),
        }
    }
}

impl<'r> TestView<'r> {
    /// Prepares the report of one test.
    pub fn new(test: &'r TestReport) -> Self {
        // Perturbations that had no effect have their own list.
        let is_listed = |reason: &Unresolved| match reason {
            Unresolved::NotApplied { perturbation, .. } => {
                test.missed.iter().any(|missed| missed.perturbation == *perturbation)
            }
            _ => false,
        };
        let unresolved = test.unresolved.iter().filter(|unresolved| !is_listed(&unresolved.reason));
        Self { test, unresolved: unresolved.collect() }
    }
}

/// Microseconds from the start of a failing trace to the end of its last step; 0 for messages, which have no times.
pub fn trace_length_us(steps: &[TraceStep]) -> u64 {
    steps.iter().map(|step| step.start_us + step.took_us).max().unwrap_or_default()
}
