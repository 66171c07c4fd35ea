//! What is looked into once a cause is known: where its numbers begin to fail, how small the input can be.

use std::collections::BTreeSet;

use faultscope_model::application::{TestCase, test_named};
use faultscope_model::outcome::Signature;
use faultscope_model::{Circumstance, DeltaSet, Outcome, Run, Space, Treatment, TrialRole};

use super::boundary::{CONFIRMATIONS, Setting};
use super::input::Reduction;
use super::{DebugOptions, DebugReport, End, Flaky, InputReport, Verdict};
use crate::drive::Tests;
use crate::driver::{Driver, Ended};
use crate::error::EngineError;
use crate::trial::TrialRequest;

/// How sure a passing value must be when the failure does not always show.
const CERTAINTY: f64 = 0.01;

/// On what the search for the cause stood.
pub(super) struct Ground<'a> {
    pub(super) options: &'a DebugOptions,
    pub(super) space: &'a Space,
    pub(super) tests: &'a [TestCase],
    /// Also those that no trial ran because a service did not come up.
    pub(super) all_tests: &'a [TestCase],
    /// The only test that decides, where one was named.
    pub(super) judged: Option<&'a str>,
    pub(super) wanted: &'a Signature,
    /// What was tried before.
    pub(super) seen: &'a [&'a Run],
    /// How often the failure shows where its cause is there.
    pub(super) rate: f64,
}

impl Ground<'_> {
    /// Looks into what was asked for and puts it into the report.
    pub(super) async fn look_deeper(
        &self,
        driver: &mut Driver,
        report: &mut DebugReport,
    ) -> Result<(), EngineError> {
        let before = driver.n_finished();
        let ended = self.look(driver, report).await?;
        report.trials.deeper = driver.n_finished() - before;
        if ended != Ended::Done {
            // What is missing can be looked for later.
            report.verdict = ended.into();
        }
        Ok(())
    }

    async fn look(&self, driver: &mut Driver, report: &mut DebugReport) -> Result<Ended, EngineError> {
        let causes: Vec<DeltaSet> = report.causes.iter().map(|cause| self.set_of(&cause.witness)).collect();
        if self.options.boundary {
            let repeats = repeats(self.rate);
            let confirmations = if self.options.flaky == Flaky::Off { 1 } else { repeats.max(CONFIRMATIONS) };
            let setting = Setting {
                space: self.space,
                tests: self.all_tests,
                judged: self.judged,
                wanted: self.wanted,
                repeats,
                confirmations,
                seen: self.seen,
            };
            for cause in &causes {
                let ended = setting.search_boundaries(driver, cause, &mut report.boundaries).await?;
                if ended != Ended::Done {
                    return Ok(ended);
                }
            }
        }
        if self.options.input
            && let Some(cause) = causes.first()
        {
            let circumstance = self.space.circumstance(cause)?;
            let ended;
            (report.input, ended) = self.reduce_input(driver, self.space.names(cause), &circumstance).await?;
            return Ok(ended);
        }
        Ok(Ended::Done)
    }

    async fn reduce_input(
        &self,
        driver: &mut Driver,
        deltas: BTreeSet<String>,
        circumstance: &Circumstance,
    ) -> Result<(Option<InputReport>, Ended), EngineError> {
        // A service that does not come up has no input.
        let named = self.wanted.failing_test();
        let Some(test) = self.tests.iter().find(|test| Some(test.name.as_str()) == named) else {
            return Ok((None, Ended::Done));
        };
        let (wanted, rate) = (self.wanted, self.rate);
        Reduction { test, circumstance, deltas, wanted, rate }.reduce(driver).await
    }

    fn set_of(&self, named: &[super::NamedDelta]) -> DeltaSet {
        let find = |name: &str| self.space.deltas.iter().position(|delta| delta.name == name);
        named.iter().filter_map(|delta| find(&delta.name)).collect()
    }
}

/// The input alone, for a test that fails in the simplest circumstance.
pub(super) async fn input_alone(
    driver: &mut Driver,
    options: &DebugOptions,
    (space, tests): (&Space, &[TestCase]),
    report: &mut DebugReport,
) -> Result<(), EngineError> {
    let session = driver.session().clone();
    let named = options.test.as_ref().or(session.application().failing_test.as_ref());
    let circumstance = space.circumstance(&DeltaSet::new())?;
    let whole = match named {
        Some(name) => test_named(tests, name).into_iter().collect(),
        None => tests.to_vec(),
    };
    let request = TrialRequest {
        treatment: Treatment::Nothing,
        circumstance: circumstance.clone(),
        drive: Tests::new(whole),
        wanted: None,
    };
    // The trial of the whole input is a start-up check, which no budget counts.
    let Some(finished) = driver.run_all([(TrialRole::CheckSimplest, request)]).await? else {
        report.verdict = driver.halted().into();
        return Ok(());
    };
    report.trials.finished += finished.len();
    let outcome = finished.into_iter().next().map(|trial| trial.run.outcome);
    let wanted = match outcome {
        Some(Outcome::Fail { signature }) => signature,
        Some(Outcome::Unresolved { reason }) => {
            report.verdict = Verdict::Unresolved { end: End::Failing, reason };
            return Ok(());
        }
        Some(Outcome::Pass) | None => {
            report.verdict = Verdict::NotReproduced;
            return Ok(());
        }
    };
    let ground = Ground {
        options,
        space,
        tests,
        all_tests: tests,
        judged: None,
        wanted: &wanted,
        rate: 1.0,
        seen: &[],
    };
    let before = driver.n_finished();
    let ended;
    (report.input, ended) = ground.reduce_input(driver, BTreeSet::new(), &circumstance).await?;
    report.trials.deeper = driver.n_finished() - before;
    report.verdict = if ended == Ended::Done { Verdict::FailsAlready } else { ended.into() };
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
