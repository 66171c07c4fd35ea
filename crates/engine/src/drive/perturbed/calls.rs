//! The responses that callers got, in a form in which two runs can be compared.

use std::collections::BTreeMap;

use faultscope_model::Span;
use faultscope_model::digest::Digest;
use faultscope_model::outcome::normalise;
use faultscope_model::perturbation::TargetId;
use faultscope_model::run::CallSeen;

/// Hexadecimal digits of a body's digest: enough to distinguish the responses of one test.
const BODY_DIGITS: usize = 8;

/// The responses to the calls of a test, in the order of their first attempts.
pub(crate) fn calls_of(spans: &[Span]) -> Vec<CallSeen> {
    let mut calls: Vec<CallSeen> = Vec::new();
    let mut places: BTreeMap<&TargetId, usize> = BTreeMap::new();
    for span in spans {
        let Some(target) = span.target.as_ref().filter(|target| target.is_of_test()) else { continue };
        let (answer, good) = (answer_of(span), !span.failed());
        let next = calls.len();
        let place = *places.entry(target).or_insert(next);
        if place == next {
            let bytes = span.response_bytes;
            calls.push(CallSeen { target: target.clone(), answer, good, attempts: 1, bytes });
        } else {
            let call = &mut calls[place];
            (call.answer, call.good, call.bytes) = (answer, good, span.response_bytes);
            call.attempts += 1;
        }
    }
    calls
}

/// A summary of a response that is the same in the next run: ids and times in a body are masked.
fn answer_of(span: &Span) -> String {
    let mut words: Vec<String> = vec![span.describe_status()];
    words.retain(|word| !word.is_empty());
    match span.response_text().filter(|_| span.error.is_none()) {
        Some(body) => {
            let message = span.grpc_message().unwrap_or_default();
            let body = normalise(&format!("{message}{body}"));
            words.push(Digest::hash_bytes(body.as_bytes()).to_string()[..BODY_DIGITS].to_owned());
        }
        None => words.push(format!("{} bytes", span.response_bytes)),
    }
    words.join(" ")
}
