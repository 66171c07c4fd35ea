//! What is looked into once a cause is known: where its numbers begin to fail, how small the input can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use faultscope_model::application::{TestCase, test_named};
use faultscope_model::outcome::Signature;
use faultscope_model::{Circumstance, DeltaSet, Outcome, Run, SlotId, Space, TrialId};
use tokio_util::sync::CancellationToken;

use super::asking::Means;
use super::boundary::Setting;
use super::input::Reduction;
use super::{DebugOptions, DebugReport, Verdict};
use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{TrialEnd, TrialRequest};

/// How sure a passing value must be when the failure does not always show.
const CERTAINTY: f64 = 0.01;

/// On what the search for the cause stood.
pub(super) struct Ground<'a> {
    pub(super) session: &'a Arc<Session>,
    pub(super) options: &'a DebugOptions,
    pub(super) space: &'a Space,
    pub(super) tests: &'a [TestCase],
    pub(super) wanted: &'a Signature,
    /// How often the failure shows where its cause is there.
    pub(super) rate: f64,
    pub(super) stop: &'a CancellationToken,
}

impl Ground<'_> {
    /// Looks into what was asked for and puts it into the report.
    pub(super) async fn look_deeper(
        &self,
        report: &mut DebugReport,
        means: &mut Means,
    ) -> Result<(), EngineError> {
        let causes: Vec<DeltaSet> = report.causes.iter().map(|cause| self.set_of(&cause.witness)).collect();
        if self.options.boundary {
            let setting = Setting {
                session: self.session,
                space: self.space,
                tests: self.tests,
                wanted: self.wanted,
                repeats: repeats(self.rate),
                stop: self.stop,
            };
            for cause in &causes {
                report.boundaries.extend(setting.boundaries(cause, means).await?);
            }
        }
        if self.options.input
            && let Some(cause) = causes.first()
        {
            let circumstance = self.space.circumstance(cause)?;
            report.input = self.reduce_input(cause, &circumstance, self.wanted, means).await?;
        }
        report.trials.deeper = means.finished;
        // What is missing can be looked for later.
        if means.spent {
            report.verdict = Verdict::OutOfBudget;
        } else if self.stop.is_cancelled() {
            report.verdict = Verdict::Stopped;
        }
        Ok(())
    }

    async fn reduce_input(
        &self,
        deltas: &DeltaSet,
        circumstance: &Circumstance,
        wanted: &Signature,
        means: &mut Means,
    ) -> Result<Option<super::InputReport>, EngineError> {
        // A service that does not come up has no input.
        let named = wanted.failing_test();
        let Some(test) = self.tests.iter().find(|test| Some(test.name.as_str()) == named) else {
            return Ok(None);
        };
        let (session, rate, stop) = (self.session, self.rate, self.stop);
        Reduction { session, test, circumstance, deltas, wanted, rate, stop }.reduce(means).await
    }

    fn set_of(&self, named: &[super::NamedDelta]) -> DeltaSet {
        let find = |name: &str| self.space.deltas.iter().position(|delta| delta.name == name);
        named.iter().filter_map(|delta| find(&delta.name)).collect()
    }
}

/// The input alone, for a test that fails in the simplest circumstance.
pub(super) async fn input_alone(
    session: &Arc<Session>,
    options: &DebugOptions,
    (space, tests): (&Space, &[TestCase]),
    (checks, means): (&BTreeMap<TrialId, Run>, &mut Means),
    report: &mut DebugReport,
    stop: &CancellationToken,
) -> Result<(), EngineError> {
    let named = options.test.as_ref().or(session.application().failing_test.as_ref());
    let deltas = DeltaSet::new();
    let circumstance = space.circumstance(&deltas)?;
    let request = TrialRequest {
        trial: TrialId::input(0),
        deltas: deltas.clone(),
        circumstance: circumstance.clone(),
        tests: match named {
            Some(name) => test_named(tests, name).into_iter().collect(),
            None => tests.to_vec(),
        },
        wanted: None,
        perturbing: None,
    };
    let run = match checks.get(&request.trial) {
        Some(run) => run.clone(),
        None => match session.trial(SlotId(0), &request, stop).await? {
            TrialEnd::Finished(run) => *run,
            TrialEnd::Cancelled => {
                report.verdict = Verdict::Stopped;
                return Ok(());
            }
        },
    };
    report.trials.finished += 1;
    let wanted = match &run.outcome {
        Outcome::Fail { signature } => signature.clone(),
        Outcome::Pass => {
            report.verdict = Verdict::NotReproduced;
            return Ok(());
        }
        Outcome::Unresolved { reason } => {
            report.verdict = Verdict::Unresolved { reason: reason.clone() };
            return Ok(());
        }
    };
    let ground = Ground { session, options, space, tests, wanted: &wanted, rate: 1.0, stop };
    // The trial of the whole input is a start-up check, which no budget counts.
    report.input = ground.reduce_input(&deltas, &circumstance, &wanted, means).await?;
    report.trials.deeper = means.finished;
    report.verdict = match (means.spent, stop.is_cancelled()) {
        (true, _) => Verdict::OutOfBudget,
        (false, true) => Verdict::Stopped,
        (false, false) => Verdict::FailsAlready,
    };
    report.signature = Some(wanted);
    Ok(())
}

/// How many passing trials make a value pass when the failure shows at this rate.
fn repeats(rate: f64) -> u32 {
    if rate >= 1.0 {
        return 1;
    }
    let tries = (CERTAINTY.ln() / (1.0 - rate).ln()).ceil();
    (tries as u32).clamp(2, 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarer_the_failure_the_more_often_a_value_must_pass() {
        assert_eq!((repeats(1.0), repeats(0.9), repeats(0.5), repeats(0.3)), (1, 2, 7, 13));
    }
}
