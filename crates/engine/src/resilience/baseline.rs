//! What a test shows without perturbations: whether it passes, always, and what it calls.

use std::collections::HashMap;
use std::time::Duration;

use faultscope_model::application::TestCase;
use faultscope_model::outcome::Signature;
use faultscope_model::perturbation::TargetId;
use faultscope_model::run::CallSeen;
use faultscope_model::{Outcome, TrialRole};

use super::phase::request_alone;
use super::report::{Flaky, Verdict};
use crate::drive::{Repetition, TrialTrace};
use crate::driver::Driver;
use crate::error::EngineError;

/// How often a test that passes at times only is tried.
pub(super) const FLAKY_TRIES: u32 = 8;

/// How probable it may be that a defect is nothing but chance.
const CHANCE: f64 = 0.01;

/// Two runs that passed, and how often others did not.
pub(super) struct Baseline {
    pub(super) first: TrialTrace,
    pub(super) second: TrialTrace,
    pub(super) calls: Vec<CallSeen>,
    /// What callers saw, where both runs agree.
    pub(super) usual: HashMap<TargetId, String>,
    /// What a second run showed in the same deployment.
    pub(super) repetition: Repetition,
    pub(super) flaky: Option<Flaky>,
    /// How long the test took, the quicker of the runs: the first one may have had to build something.
    pub(super) took: Duration,
}

/// What came of the runs without perturbations.
pub(super) enum Based {
    Fine(Box<Baseline>),
    Refused(Verdict, Option<Signature>),
    /// Stopped, or out of time.
    Stopped,
}

/// Runs a test without perturbations, twice, or more often when it does not always pass. All slots take part.
pub(super) async fn baseline(
    driver: &mut Driver,
    test: &TestCase,
    repeats: bool,
    count: &mut usize,
) -> Result<Based, EngineError> {
    let mut passed: Vec<(TrialTrace, Vec<CallSeen>)> = Vec::new();
    let (mut failed, mut tried) = (0, 0);
    let (mut signature, mut took) = (None, Duration::MAX);
    loop {
        let wanted = match (tried, failed, passed.is_empty()) {
            (0..2, _, _) => 2 - tried,
            (_, 0, _) => 0,
            // Three failures and no pass: it does not work at all.
            (2, _, true) => 1,
            (3.., _, true) => 0,
            _ => FLAKY_TRIES.saturating_sub(tried),
        };
        if wanted == 0 {
            break;
        }
        // One of them is enough to know what a second run shows.
        let alone = |number: u32| request_alone(driver.session(), test, repeats && tried + number == 1);
        let trials: Vec<_> = (0..wanted).map(|number| (TrialRole::Baseline, alone(number))).collect();
        let Some(finished) = driver.run_all(trials).await? else { return Ok(Based::Stopped) };
        *count += finished.len();
        for trial in finished {
            tried += 1;
            let run = trial.run;
            match run.outcome {
                Outcome::Pass => {
                    took = took.min(run.evidence.tests.iter().map(|result| result.took).sum());
                    let trace = trial.trace.map(|trace| *trace).unwrap_or_default();
                    passed.push((trace, run.perturbed.map(|p| p.calls).unwrap_or_default()));
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
    }
    if failed >= tried - failed {
        return Ok(Based::Refused(Verdict::FailsAlready, signature));
    }
    let flaky = (failed > 0).then(|| Flaky { failed, tried, must_fail: must_fail(failed, tried) });
    let known = passed.iter().map(|(trace, _)| trace.repetition).find(|r| *r != Repetition::Unknown);
    let repetition = known.unwrap_or_default();
    let mut passed = passed.into_iter();
    match (passed.next(), passed.next()) {
        (Some((first, calls)), Some((second, again))) => {
            let again: HashMap<&TargetId, &String> = again.iter().map(|c| (&c.target, &c.answer)).collect();
            let agree = calls.iter().filter(|call| again.get(&call.target) == Some(&&call.answer));
            let usual = agree.map(|call| (call.target.clone(), call.answer.clone())).collect();
            Ok(Based::Fine(Box::new(Baseline { first, second, calls, usual, repetition, flaky, took })))
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
