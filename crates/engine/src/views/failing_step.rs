//! The traces that the failed tests of a run ended with, which is what its reader looks for.

use std::collections::BTreeSet;

use faultscope_model::{Run, ServiceName, Span, TraceId};

/// Finds the trace of each failing step.
pub(super) fn find_failing_traces(run: &Run, spans: &[Span]) -> BTreeSet<TraceId> {
    let is_test = |call: &&Span| call.caller.service.as_str() == ServiceName::TEST;
    let mut calls: Vec<&Span> = spans.iter().filter(is_test).collect();
    calls.sort_by_key(|call| (call.start_us, call.id));
    let failures = run.evidence.tests.iter().filter_map(|test| test.failure.as_ref());
    failures.filter_map(|failure| failure.find_call(calls.iter().copied())).map(|call| call.trace).collect()
}
