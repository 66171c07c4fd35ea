//! What a test shows without perturbations: whether it passes, always, and what it calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::application::TestCase;
use faultscope_model::outcome::Signature;
use faultscope_model::perturbation::TargetId;
use faultscope_model::run::CallSeen;
use faultscope_model::{Outcome, SlotId, TrialId};
use tokio_util::sync::CancellationToken;

use super::phase::request;
use super::report::{Flaky, Verdict};
use crate::error::EngineError;
use crate::perturbing::Seen;
use crate::session::Session;
use crate::trial::TrialEnd;

/// How often a test that passes at times only is tried.
pub(super) const FLAKY_TRIES: u32 = 8;

/// How probable it may be that a defect is nothing but chance.
const CHANCE: f64 = 0.01;

/// Two runs that passed, and how often others did not.
pub(super) struct Baseline {
    pub(super) first: Seen,
    pub(super) second: Seen,
    pub(super) calls: Vec<CallSeen>,
    /// What callers saw, where both runs agree.
    pub(super) usual: HashMap<TargetId, String>,
    pub(super) flaky: Option<Flaky>,
    /// How long the test took, the quicker of the runs: the first one may have had to build something.
    pub(super) took: Duration,
}

/// What came of the runs without perturbations.
pub(super) enum Based {
    Fine(Box<Baseline>),
    Refused(Verdict, Option<Signature>),
    Stopped,
}

/// Runs a test without perturbations, twice, or more often when it does not always pass.
pub(super) async fn baseline(
    session: &Arc<Session>,
    test: &TestCase,
    checks: &mut u32,
    count: &mut usize,
    stop: &CancellationToken,
) -> Result<Based, EngineError> {
    let mut passed: Vec<(Seen, Vec<CallSeen>)> = Vec::new();
    let (mut failed, mut tried) = (0, 0);
    let (mut signature, mut took) = (None, Duration::MAX);
    while tried < 2 || (failed > 0 && tried < FLAKY_TRIES && !(passed.is_empty() && tried >= 3)) {
        *checks += 1;
        let request = request(session, test, TrialId::check_simplest(*checks), Vec::new(), false);
        let TrialEnd::Finished(run) = session.trial(SlotId(0), &request, stop).await? else {
            return Ok(Based::Stopped);
        };
        tried += 1;
        *count += 1;
        let seen = session.take_seen(run.trial).unwrap_or_default();
        match run.outcome {
            Outcome::Pass => {
                took = took.min(run.evidence.tests.iter().map(|result| result.took).sum());
                passed.push((seen, run.perturbed.map(|p| p.calls).unwrap_or_default()));
            }
            Outcome::Fail { signature: found } => {
                failed += 1;
                signature = Some(found);
            }
            Outcome::Unresolved { reason } => {
                return Ok(Based::Refused(Verdict::Unresolved { reason }, None));
            }
        }
    }
    if failed >= tried - failed {
        return Ok(Based::Refused(Verdict::FailsAlready, signature));
    }
    let flaky = (failed > 0).then(|| Flaky { failed, tried, must_fail: must_fail(failed, tried) });
    let mut passed = passed.into_iter();
    match (passed.next(), passed.next()) {
        (Some((first, calls)), Some((second, again))) => {
            let again: HashMap<&TargetId, &String> = again.iter().map(|c| (&c.target, &c.answer)).collect();
            let agree = calls.iter().filter(|call| again.get(&call.target) == Some(&&call.answer));
            let usual = agree.map(|call| (call.target.clone(), call.answer.clone())).collect();
            Ok(Based::Fine(Box::new(Baseline { first, second, calls, usual, flaky, took })))
        }
        _ => Ok(Based::Refused(Verdict::FailsAlready, signature)),
    }
}

/// How often in a row a set must fail before that is hardly chance.
pub(super) fn must_fail(failed: u32, tried: u32) -> u32 {
    // One failure more than was seen: a rate that is thought too low makes defects of nothing.
    let rate = (f64::from(failed) + 1.0) / (f64::from(tried) + 2.0);
    (CHANCE.ln() / rate.ln()).ceil().clamp(2.0, 12.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_often_a_test_fails_by_itself_the_more_failures_are_wanted() {
        assert_eq!(must_fail(1, 8), 3);
        assert_eq!(must_fail(3, 8), 6);
    }
}
