//! Judges a trial, whatever drove it.

use faultscope_mesh::MeshReports;
use faultscope_model::Outcome;
use faultscope_model::application::{TestCase, test_named};
use faultscope_model::outcome::{Signature, TestResult, Unresolved, judge, judge_start};
use faultscope_model::run::Evidence;
use faultscope_model::series::GateOutcome;
use regex::Regex;

use super::TrialRequest;
use crate::session::Session;

impl Session {
    /// A failed start decides first, then gates that could not impose their order, then the tests.
    pub(super) fn judge(
        &self,
        request: &TrialRequest,
        results: &[TestResult],
        evidence: &Evidence,
        reports: &MeshReports,
        not_ready: Option<Unresolved>,
    ) -> Outcome {
        if let (Some(reason), Some(found)) = (not_ready, evidence.start_failure()) {
            return judge_start(found, reason, request.wanted.as_ref());
        }
        if let Some(reason) = unresolved_by_gates(request, reports) {
            return Outcome::Unresolved { reason };
        }
        let mut failures = failures_of(&self.application.tests, results);
        if let Some(test) = request.drive.judged_test() {
            failures.retain(|failure| failure.test == test);
        }
        judge(&failures, request.wanted.as_ref())
    }
}

/// The failures among the results of these tests.
pub(crate) fn failures_of(tests: &[TestCase], results: &[TestResult]) -> Vec<Signature> {
    let pattern_of = |result: &TestResult| {
        // The pattern was checked when the file was read.
        test_named(tests, &result.test)?.failure.and_then(|pattern| Regex::new(&pattern).ok())
    };
    results.iter().filter_map(|r| r.signature(pattern_of(r).as_ref())).collect()
}

/// A gate that could not impose its order makes the trial unresolved.
fn unresolved_by_gates(request: &TrialRequest, reports: &MeshReports) -> Option<Unresolved> {
    for (index, order) in request.circumstance.sequence.iter().enumerate() {
        let id = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let mut own = reports.gates.iter().filter(|g| g.gate == id).peekable();
        if own.peek().is_none() {
            // No such request was handled, so its order does not matter.
            continue;
        }
        let completed = |outcome: &GateOutcome| match outcome {
            GateOutcome::Completed | GateOutcome::ReportLost => true,
            // A handling that ended before its first call, such as a rejected request, has no order to impose.
            GateOutcome::Missing { missing } => missing.len() == order.order.len(),
            _ => false,
        };
        if let Some(report) = own.find(|report| !completed(&report.outcome)) {
            return Some(Unresolved::OrderNotImposed {
                from: order.from.clone(),
                handling: order.handling.clone(),
                gate: report.outcome.clone(),
            });
        }
    }
    None
}
