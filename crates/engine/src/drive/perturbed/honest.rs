//! Which failures of a perturbed test are acceptable: those that the file declares as degraded, or that follow from an
//! error the test itself received.

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::application::{TestCase, test_named};
use faultscope_model::outcome::{Ending, TestResult};
use faultscope_model::perturbation::TargetId;
use faultscope_model::{ServiceName, Span};
use regex::Regex;

/// The gRPC statuses that correspond to HTTP 500 and above: unknown, deadline exceeded, internal, unavailable.
const GRPC_ERRORS: [u16; 4] = [2, 4, 13, 14];

/// Whether a failure is a degraded response by the file. If the file says nothing, an error response to a step, or
/// to a request that a command itself made, counts as degraded.
pub(crate) fn is_degraded(tests: &[TestCase], result: &TestResult, got_error: bool) -> bool {
    let Some(failure) = &result.failure else { return false };
    let declared = test_named(tests, &result.test).and_then(|test| test.degraded);
    match declared.as_deref() {
        Some("") => false,
        Some(pattern) => Regex::new(pattern)
            .is_ok_and(|pattern| pattern.is_match(&failure.message) || pattern.is_match(&result.output)),
        None => match failure.ending {
            Ending::Step(_) => {
                failure.status.is_some_and(|status| status >= 500)
                    || failure.grpc_status.is_some_and(|status| GRPC_ERRORS.contains(&status))
            }
            Ending::Code(_) | Ending::Case => got_error,
            Ending::Signal(_) | Ending::TimedOut | Ending::Ended | Ending::Start(_) => false,
        },
    }
}

/// Calls of the test itself whose last attempt ended in an error.
pub(crate) fn errors_of_test(spans: &[Span]) -> BTreeSet<TargetId> {
    let mut last: BTreeMap<&TargetId, bool> = BTreeMap::new();
    for span in spans {
        let own = span.target.as_ref().filter(|target| target.is_of_test() && target.cause().is_none());
        if let Some(target) = own {
            last.insert(target, is_honest_error(span));
        }
    }
    last.into_iter().filter(|(_, is_error)| *is_error).map(|(target, _)| target.clone()).collect()
}

/// Whether a call was answered with an error.
fn is_honest_error(span: &Span) -> bool {
    span.status.is_some_and(|status| status >= 500)
        || span.grpc_status.is_some_and(|status| GRPC_ERRORS.contains(&status))
}

/// Whether a call ended in an error, be it an answer or none.
pub(super) fn is_error(span: &Span) -> bool {
    span.error.is_some() || is_honest_error(span)
}

/// Whether the test itself called a service that was away, and failed. Only where callers share a listener: otherwise
/// the test is spared.
pub(super) fn has_met_outage(spans: &[Span], away: &BTreeSet<ServiceName>) -> bool {
    spans.iter().any(|span| span.caller.is_test() && away.contains(&span.callee) && span.error.is_some())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use faultscope_model::SpanId;
    use faultscope_model::application::Application;
    use faultscope_model::outcome::Failure;

    use super::*;
    use crate::sample;

    fn span(number: u64, target: TargetId, status: Option<u16>, grpc_status: Option<u16>) -> Span {
        let (id, target) = (SpanId(number), Some(target));
        Span { id, start_us: number, status, grpc_status, target, ..sample::span() }
    }

    #[test]
    fn only_errors_that_the_test_itself_was_left_with_count() {
        let call = |path: &str| TargetId::root().call("shop", "GET", path, 1);
        let spans = [
            span(1, call("/buy"), Some(503), None),
            span(2, call("/buy").call("stock", "GET", "/", 1), Some(500), None),
            span(3, call("/again"), Some(500), None),
            span(4, call("/again"), Some(200), None),
            span(5, call("/none"), Some(404), None),
            span(6, call("/rpc"), Some(200), Some(14)),
            span(7, call("/missing"), Some(200), Some(5)),
        ];
        assert_eq!(errors_of_test(&spans), BTreeSet::from([call("/buy"), call("/rpc")]));
    }

    #[test]
    fn commands_that_got_an_error_are_degraded_unless_the_file_says_otherwise() {
        let text = "name: x\ntests: [{ name: a, run: [t] }, { name: b, run: [t], degraded: '' }]\n";
        let tests = Application::read_alone(text, "x.yaml").unwrap().tests;
        let result = |test: &str, ending| TestResult {
            test: test.into(),
            failure: Some(Failure::new(ending, "503 != 200")),
            took: Duration::ZERO,
            output: String::new(),
        };
        assert!(is_degraded(&tests, &result("a", Ending::Code(1)), true));
        assert!(!is_degraded(&tests, &result("a", Ending::Code(1)), false));
        assert!(!is_degraded(&tests, &result("b", Ending::Code(1)), true));
        assert!(
            !is_degraded(&tests, &result("a", Ending::TimedOut), true),
            "who waits for ever was not told"
        );
    }
}
