//! The traces that the failed tests of a run ended with, which is what its reader looks for.

use std::collections::BTreeSet;

use faultscope_model::outcome::Ending;
use faultscope_model::{Run, ServiceName, Span, TraceId};

/// Finds the trace of each failing step.
pub(super) fn find_failing_traces(run: &Run, spans: &[Span]) -> BTreeSet<TraceId> {
    let failures = run.evidence.tests.iter().filter_map(|test| test.failure.as_ref());
    let steps = failures.filter(|failure| matches!(failure.ending, Ending::Step(_)));
    steps.filter_map(|failure| find_named_trace(&failure.message, spans)).collect()
}

/// The trace of the last call of a test whose path a message names.
fn find_named_trace(message: &str, spans: &[Span]) -> Option<TraceId> {
    let is_named = |call: &&Span| {
        let is_test = call.caller.service.as_str() == ServiceName::TEST;
        is_test && !call.path.is_empty() && message.contains(call.path.as_str())
    };
    // `/` is part of every address, so the longest path counts.
    let named = spans.iter().filter(is_named).max_by_key(|call| (call.path.len(), call.start_us));
    named.map(|call| call.trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::span;

    #[test]
    fn the_step_that_failed() {
        let call = |trace: u128, path: &str| Span {
            trace: TraceId(trace),
            path: path.to_owned(),
            start_us: trace as u64,
            caller: faultscope_model::InstanceId::test(),
            ..span()
        };
        let calls = [call(1, "/"), call(2, "/shop.Orders/Place"), call(3, "/shop.Orders/Place"), call(4, "")];
        let trace = |message: &str| find_named_trace(message, &calls).map(|trace| trace.0);
        assert_eq!(trace("grpc orders:50051/shop.Orders/Place: code INTERNAL"), Some(3), "the last of two");
        assert_eq!(trace("GET http://web:8080/: status 500 != 200"), Some(1));
        assert_eq!(trace("no answer"), None);
        let inner = Span { caller: "web-1".parse().unwrap(), ..call(5, "/shop.Orders/Place") };
        assert_eq!(find_named_trace("/shop.Orders/Place", &[inner]), None, "no call of the test");
    }
}
