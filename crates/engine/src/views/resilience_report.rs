//! What a resilience campaign found, with what every display of it has to work out.

use faultscope_model::outcome::Unresolved;
use serde::Serialize;

use crate::resilience::{ResilienceReport, TestReport, TraceStep, UnresolvedTrials};

/// A resilience report as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResilienceView<'r> {
    /// The report itself.
    pub report: &'r ResilienceReport,
    /// The defects of all tests.
    pub defects: usize,
    /// The trials of all tests.
    pub trials: usize,
    /// Test by test.
    pub tests: Vec<TestView<'r>>,
}

/// A test as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestView<'r> {
    /// What was found out about it.
    pub test: &'r TestReport,
    /// Why trials could not be judged and how many, without the perturbations that were not applied in any trial:
    /// those are listed by themselves.
    pub unresolved: Vec<&'r UnresolvedTrials>,
}

impl<'r> ResilienceView<'r> {
    /// The view of a report.
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
    /// The view of one test.
    pub fn new(test: &'r TestReport) -> Self {
        // What could not be carried out has a list of its own.
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
