//! What a trial showed: test results, failure signatures, outcomes, and how results are judged.

mod signature;
mod unresolved;

use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::span::Span;

pub use signature::{Ending, Signature, StartEnding};
pub use unresolved::Unresolved;

/// The outcome of a trial. A search learns from all three.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Outcome {
    /// Every test passed.
    Pass,
    /// The wanted failure occurred, or any failure where none is wanted.
    Fail {
        /// Which failure.
        signature: Signature,
    },
    /// Neither: another failure, or nothing could be tested.
    Unresolved {
        /// Why it shows neither.
        reason: Unresolved,
    },
}

impl Outcome {
    /// One word: `pass`, `fail` or `unresolved`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail { .. } => "fail",
            Self::Unresolved { .. } => "unresolved",
        }
    }
}

/// The result of one test in a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TestResult {
    /// The name of the test.
    pub test: String,
    /// None if it passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// From its start to its end.
    #[serde(with = "crate::units::duration")]
    pub took: Duration,
    /// Its output or the last response, bounded.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

/// How a test failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where and how it ended.
    pub ending: Ending,
    /// The message as the test printed it, not normalised.
    pub message: String,
    /// The HTTP status of the response, if that is what the step did not expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The gRPC status of the response, if that is what the step did not expect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc_status: Option<u16>,
    /// When the failing step was sent, in microseconds since 1970, so that its call is found in the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_us: Option<u64>,
    /// The message with `${name}` in place of the values that steps saved, if it contains any. The signature is made
    /// of it, because such a value may be a new id in every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfilled: Option<String>,
}

impl Failure {
    /// A failure without a status.
    pub fn new(ending: Ending, message: impl Into<String>) -> Self {
        Self {
            ending,
            message: message.into(),
            status: None,
            grpc_status: None,
            since_us: None,
            unfilled: None,
        }
    }

    /// The call that the failing step made, among the calls of a test in the order of their start.
    pub fn find_call<'s>(&self, calls: impl IntoIterator<Item = &'s Span>) -> Option<&'s Span> {
        let since_us = self.since_us?;
        // Steps follow each other, so every earlier call had ended by then.
        calls.into_iter().find(|call| call.start_us.saturating_add(call.duration_us) >= since_us)
    }

    /// The message that is the same in every run of this failure.
    fn stable_message(&self) -> &str {
        self.unfilled.as_deref().unwrap_or(&self.message)
    }
}

impl TestResult {
    /// The signature of its failure; what `pattern` matches in the output becomes the message.
    pub fn signature(&self, pattern: Option<&Regex>) -> Option<Signature> {
        let failure = self.failure.as_ref()?;
        let texts = [failure.stable_message(), &failure.message, &self.output];
        let matched = pattern.and_then(|pattern| texts.into_iter().find_map(|text| pattern.find(text)));
        let message = match matched {
            Some(found) => normalise(found.as_str()),
            None => normalise(failure.stable_message()),
        };
        Some(Signature { test: self.test.clone(), ending: failure.ending, message })
    }
}

/// Judges the failures of a trial. Without a wanted failure any failing test makes it fail. With one, `Fail`
/// means that this test failed in this way and all others passed, `Pass` that all passed, and everything else
/// is unresolved (Zhou et al. 2019, section 4.2).
pub fn judge(failures: &[Signature], wanted: Option<&Signature>) -> Outcome {
    match (failures, wanted) {
        ([], _) => Outcome::Pass,
        ([first, ..], None) => Outcome::Fail { signature: first.clone() },
        ([only], Some(wanted)) if wanted.matches_failure(only) => Outcome::Fail { signature: wanted.clone() },
        (failures, Some(wanted)) => {
            let other = failures.iter().find(|found| !wanted.matches_failure(found)).unwrap_or(&failures[0]);
            Outcome::Unresolved { reason: Unresolved::OtherFailure { signature: other.clone() } }
        }
    }
}

/// Judges a trial in which a service did not become ready. That is a failure only if it is the wanted one:
/// otherwise no test ran, and nothing is known about what it would have shown.
pub fn judge_start(found: Signature, reason: Unresolved, wanted: Option<&Signature>) -> Outcome {
    if wanted == Some(&found) { Outcome::Fail { signature: found } } else { Outcome::Unresolved { reason } }
}

/// Longer messages are cut before they are compared; more would be a log rather than a message.
const MAX_MESSAGE: usize = 400;

/// Masks what differs between two runs of the same failure: ids, addresses, times, ports, long numbers.
/// Keeps the last non-empty lines, where programs print what went wrong.
///
/// ```
/// use faultscope_model::outcome::normalise;
/// assert_eq!(
///     normalise("order 7f3a9c1e-1111-4222-8333-944445555666 at 10.0.0.7:41234 after 17.3ms\n"),
///     "order <id> at <address> after <time>"
/// );
/// ```
pub fn normalise(message: &str) -> String {
    static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let mask = |pattern: &str, to| (Regex::new(pattern).expect("a constant pattern"), to);
        vec![
            mask(r"\x1b\[[0-9;]*[A-Za-z]", ""),
            mask(r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
            mask(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?", "<time>"),
            mask(r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
            mask(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b", "<address>"),
            mask(r"\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\](?::\d+)?", "<address>"),
            mask(r"\blocalhost:\d+\b", "<address>"),
            mask(r"\b0x[0-9a-fA-F]+\b", "<id>"),
            mask(r"\b\d+(?:\.\d+)?\s?(?:ns|us|µs|ms|s|sec|seconds)\b", "<time>"),
            mask(r"\b(?:pid|port|PID|Port)[ =:]+\d+\b", "<number>"),
            mask(r"\b[0-9a-f]{12,}\b", "<id>"),
            mask(r"\b\d{6,}\b", "<number>"),
        ]
    });
    // The masks run in linear time, but a message may be a whole log.
    let tail: String = {
        let lines: Vec<&str> = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    };
    let mut text: String = tail.chars().take(8 * MAX_MESSAGE).collect();
    for (pattern, to) in MASKS.iter() {
        text = pattern.replace_all(&text, *to).into_owned();
    }
    whole_lines(&text)
}

/// As many whole lines as fit into the limit; if not even the first one does, its beginning.
fn whole_lines(text: &str) -> String {
    let short: String = text.chars().take(MAX_MESSAGE).collect();
    let is_cut = text.len() > short.len() && !text[short.len()..].starts_with('\n');
    let whole = if is_cut { short.rsplit_once('\n').map(|(whole, _)| whole) } else { None };
    whole.unwrap_or(&short).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signature(test: &str) -> Signature {
        Signature { test: test.into(), ending: Ending::Code(1), message: "balance 3 != 4".into() }
    }

    #[test]
    fn masks() {
        let same = [
            ("2026-11-15T10:00:01.123Z failed", "2025-01-02 11:22:33 failed"),
            ("connect to 127.0.0.1:41233 refused", "connect to 10.200.0.3:8080 refused"),
            ("object at 0x7f00aa", "object at 0x12"),
            ("took 12.5ms", "took 3 s"),
            ("trace 0af7651916cd43dd8448eb211c80319c", "trace 1bf7651916cd43dd8448eb211c80319d"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
        ];
        for (a, b) in same {
            assert_eq!(normalise(a), normalise(b));
        }
        assert_ne!(normalise("balance 3 != 4"), normalise("balance 3 != 5"));
        let long = format!("first\n{}\n{}", "x".repeat(300), "y".repeat(300));
        assert_eq!(normalise(&long), format!("first\n{}", "x".repeat(300)), "no line is cut in its middle");
    }

    #[test]
    fn judging() {
        let (a, b) = (signature("a"), signature("b"));
        assert_eq!(judge(&[], Some(&a)), Outcome::Pass);
        assert_eq!(judge(std::slice::from_ref(&a), Some(&a)), Outcome::Fail { signature: a.clone() });
        assert_eq!(judge(std::slice::from_ref(&b), None).word(), "fail");
        assert_eq!(judge(std::slice::from_ref(&b), Some(&a)).word(), "unresolved");
        assert_eq!(judge(&[a.clone(), b], Some(&a)).word(), "unresolved");
    }

    #[test]
    fn what_differs_from_run_to_run_does_not_count() {
        let said = |message: &str| Signature { message: message.into(), ..signature("a") };
        let common = said("item plum\nis missing").common(&said("item kiwi\nis missing")).unwrap();
        assert_eq!(
            judge(&[said("item fig is missing")], Some(&common)),
            Outcome::Fail { signature: common.clone() }
        );
        assert_eq!(judge(&[said("item fig is gone")], Some(&common)).word(), "unresolved");
        assert_eq!(common.common(&said("item fig is gone")).unwrap().message, "item <any> is <any>");
        let anything = common.common(&said("no answer")).unwrap();
        assert!(anything.matches_failure(&said("whatever")) && !anything.matches_failure(&signature("b")));
        let otherwise = Signature { ending: Ending::Code(2), ..said("item plum is missing") };
        assert!(common.common(&otherwise).is_none() && !common.matches_failure(&otherwise));
        let total = said("total: `210` does not match `1275`").without_numbers();
        assert!(
            total.matches_failure(&said("total: `1200` does not match `1275`"))
                && !total.matches_failure(&said("total: no answer"))
        );
        assert!(!said("a  b").matches_failure(&said("a b")), "without an open word every character counts");
    }

    #[test]
    fn starts_are_the_same_failure_by_service_and_ending() {
        let (back, front) = ("back".parse().unwrap(), "front".parse().unwrap());
        let found = |service, ending| Signature::for_start(service, ending);
        let wanted = found(&back, StartEnding::Code(3));
        let judged = |found: Signature, wanted| judge_start(found, "not ready".into(), wanted);
        assert_eq!(judged(wanted.clone(), Some(&wanted)), Outcome::Fail { signature: wanted.clone() });
        let unresolved = Outcome::Unresolved { reason: "not ready".into() };
        for other in [found(&front, StartEnding::Code(3)), found(&back, StartEnding::Late)] {
            assert_eq!(judged(other, Some(&wanted)), unresolved);
        }
        assert_eq!(judged(wanted.clone(), None), unresolved, "a test was to be seen");
        assert_eq!(wanted.to_string(), "service back does not come up: exited with 3");
        assert_eq!((wanted.service(), wanted.failing_test()), (Some("back"), None));
        assert!(wanted.is_about_same(&found(&back, StartEnding::OutOfMemory)));
        assert!(!wanted.is_about_same(&signature("back")), "a test of the same name is something else");
        // All services are ready but a test fails: neither the wanted failure nor a pass.
        assert_eq!(judge(&[signature("a")], Some(&wanted)).word(), "unresolved");
        let written = serde_json::to_string(&wanted).unwrap();
        assert_eq!(written, r#"{"test":"back","ending":{"start":{"code":3}},"message":""}"#);
    }

    #[test]
    fn the_call_of_a_failing_step_is_found_by_its_time() {
        let call = |id: u64, start_us: u64| -> Span {
            let json = serde_json::json!({
                "trace": "1", "id": format!("{id:x}"), "caller": "test-1", "callee": "shop", "port": 80,
                "wire": "http1", "method": "GET", "path": "/same", "start_us": start_us, "duration_us": 10,
                "request_bytes": 0, "response_bytes": 0, "status": 404,
            });
            serde_json::from_value(json).unwrap()
        };
        // Another test had made the same call before, and a later one makes it again.
        let calls = [call(1, 100), call(2, 205), call(3, 300)];
        let failed = Failure { since_us: Some(200), ..Failure::new(Ending::Step(2), "GET /same: 404") };
        assert_eq!(failed.find_call(&calls).map(|call| call.id.0), Some(2));
        assert!(Failure::new(Ending::Step(2), "").find_call(&calls).is_none(), "of an earlier version");
    }

    #[test]
    fn a_saved_value_is_not_part_of_the_signature() {
        let ending = Ending::Step(2);
        let failed = |id: &str| TestResult {
            test: "pay".into(),
            failure: Some(Failure {
                unfilled: Some("GET http://a/${id}: left: `8` does not match `9`".into()),
                ..Failure::new(ending, format!("GET http://a/{id}: left: `8` does not match `9`"))
            }),
            took: Duration::ZERO,
            output: String::new(),
        };
        let found = failed("plum").signature(None).unwrap();
        assert_eq!(found, failed("kiwi").signature(None).unwrap());
        // Older versions and their bundles kept the value in the URL.
        let old = |message: &str| Signature { test: "pay".into(), ending, message: message.into() };
        assert!(old("GET http://a/plum: left: `8` does not match `9`").matches_failure(&found));
        assert!(!old("GET http://b/plum: left: `8` does not match `9`").matches_failure(&found));
        assert!(!old("GET http://a/plum: left: `7` does not match `9`").matches_failure(&found));
        let pattern = Regex::new("http://a/\\S+").unwrap();
        assert_eq!(failed("fig").signature(Some(&pattern)).unwrap().message, "http://a/${id}:");
        let pattern = Regex::new("a/fig").unwrap();
        assert_eq!(failed("fig").signature(Some(&pattern)).unwrap().message, "a/fig");
    }

    #[test]
    fn pattern_chooses_the_message() {
        let result = TestResult {
            test: "pay".into(),
            failure: Some(Failure::new(Ending::Code(1), "long text")),
            took: Duration::ZERO,
            output: "x\nbalance 3 != 4\ny".into(),
        };
        let pattern = Regex::new("balance .* != .*").unwrap();
        assert_eq!(result.signature(Some(&pattern)).unwrap().message, "balance 3 != 4");
        assert_eq!(result.signature(None).unwrap().message, "long text");
    }

    proptest! {
        #[test]
        fn normalising_is_bounded_and_stable(text in "(?s).{0,2000}") {
            let once = normalise(&text);
            prop_assert!(once.chars().count() <= MAX_MESSAGE);
        }
    }
}
