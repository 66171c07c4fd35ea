//! What a resilience campaign found, with what every display of it has to work out.

use serde::Serialize;

use crate::resilience::{ResilienceReport, TestReport, TraceStep};

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
    pub unresolved: Vec<(&'r str, usize)>,
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
        let is_listed =
            |reason: &str| test.missed.iter().any(|missed| reason.contains(&missed.perturbation.to_string()));
        let reasons = test.unresolved.iter().filter(|(reason, _)| !is_listed(reason));
        Self { test, unresolved: reasons.map(|(reason, trials)| (reason.as_str(), *trials)).collect() }
    }
}

/// Microseconds from the start of a failing trace to the end of its last step; 0 for messages, which have no times.
pub fn trace_length_us(steps: &[TraceStep]) -> u64 {
    steps.iter().map(|step| step.start_us + step.took_us).max().unwrap_or_default()
}
