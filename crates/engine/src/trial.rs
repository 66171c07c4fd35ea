//! One trial: from a circumstance to a judged, stored run.

use std::sync::Arc;

use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::outcome::{Signature, TestResult, judge_start};
use faultscope_model::run::{Cost, Evidence, RuleHits, Run};
use faultscope_model::series::GateOutcome;
use faultscope_model::{Circumstance, DeltaSet, Outcome, SlotId, TrialId};
use faultscope_platform::{PlatformError, PlatformErrorKind};
use faultscope_store::RunRecord;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deploying::Deployed;
use crate::error::EngineError;
use crate::exits;
use crate::judging::unresolved_by_gates;
use crate::perturbing::{Perturbing, ProcessFiles};
use crate::session::{Session, SlotState, now_us};
use crate::testing::TestBed;

/// A trial to carry out.
#[derive(Debug, Clone)]
pub struct TrialRequest {
    /// Its number.
    pub trial: TrialId,
    /// Its deltas, in a search.
    pub deltas: DeltaSet,
    /// Its circumstance.
    pub circumstance: Circumstance,
    /// The tests to run, in order.
    pub tests: Vec<TestCase>,
    /// The failure that is looked for; any failure when none.
    pub wanted: Option<Signature>,
    /// What is done to calls and messages, in a resilience test.
    pub perturbing: Option<Arc<Perturbing>>,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialEnd {
    /// It was judged and stored.
    Finished(Box<Run>),
    /// It was cancelled, and everything of it is gone.
    Cancelled,
}

enum Attempt {
    Judged(Box<Run>),
    Invalid(String),
    Cancelled,
}

impl Session {
    /// Carries out a trial in a slot. A trial that the infrastructure spoils is tried again; a cancelled
    /// one leaves nothing behind when this returns.
    pub async fn trial(
        &self,
        slot: SlotId,
        request: &TrialRequest,
        cancel: &CancellationToken,
    ) -> Result<TrialEnd, EngineError> {
        let slot = self.slot(slot).await?;
        self.events.emit(Event::TrialStarted {
            trial: request.trial,
            slot: slot.id,
            deltas: request.deltas.clone(),
            tests: request.tests.len(),
        });
        let mut tries = 0;
        loop {
            let attempt =
                tokio::time::timeout(self.options.trial_within, self.attempt(slot, request, tries, cancel));
            let attempt = match attempt.await {
                Ok(attempt) => attempt?,
                Err(_) => Attempt::Invalid(format!("it took longer than {:?}", self.options.trial_within)),
            };
            match attempt {
                Attempt::Judged(run) => {
                    self.store(&run).await?;
                    return Ok(TrialEnd::Finished(run));
                }
                Attempt::Cancelled => {
                    self.clear(slot).await?;
                    self.events.emit(Event::TrialCancelled { trial: request.trial });
                    return Ok(TrialEnd::Cancelled);
                }
                Attempt::Invalid(reason) => {
                    tries += 1;
                    self.refresh(slot).await?;
                    if tries > self.options.retries {
                        return Err(EngineError::Invalid { trial: request.trial, tries, reason });
                    }
                    self.events.emit(Event::TrialInvalid {
                        trial: request.trial,
                        reason,
                        next_try: tries + 1,
                    });
                }
            }
        }
    }

    async fn attempt(
        &self,
        slot: &SlotState,
        request: &TrialRequest,
        retries: u32,
        cancel: &CancellationToken,
    ) -> Result<Attempt, EngineError> {
        let (started, started_us) = (Instant::now(), now_us());
        let seed = self.options.seed.wrapping_add(request.trial.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut happenings = self.platform.events(slot.id);
        let deployed = match self.deploy(slot, request, seed, cancel).await {
            Ok(deployed) => deployed,
            Err(error) => return self.spoiled(error),
        };
        let mut cost = Cost::default();
        let mut evidence = Evidence::default();
        let mut trouble = None;
        let mut sampler = None;
        let mut aftermath = None;
        match deployed {
            Deployed::NotReady(found, reason) => {
                (evidence, trouble) = (found, Some(reason));
            }
            Deployed::Ready(deployment, took) => {
                let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                cost.deploy = took;
                cost.created = count(deployment.created);
                cost.destroyed = count(deployment.destroyed);
                cost.kept = count(deployment.kept);
                self.events.emit(Event::TrialDeployed { trial: request.trial, took });
                sampler = self.measure(slot, request.trial).await;
                let tests_started = Instant::now();
                let files = request.perturbing.as_deref().map(|p| ProcessFiles::write(self.id(), slot.id, p));
                let files = match files.transpose() {
                    Ok(files) => files,
                    Err(error) => {
                        return Ok(Attempt::Invalid(format!("the perturbations cannot be written: {error}")));
                    }
                };
                let tested =
                    self.run_tests(slot, &request.tests, files.as_ref(), request.trial, cancel).await;
                match tested {
                    Ok(results) => evidence.tests = results,
                    Err(error) => return self.spoiled(error.into()),
                }
                if let (Some(perturbing), Some(files)) = (&request.perturbing, files) {
                    match self.look_after(slot, request, perturbing, files, &evidence.tests, cancel).await {
                        Ok(after) => aftermath = Some(after),
                        Err(error) => return self.spoiled(error.into()),
                    }
                }
                cost.tests = tests_started.elapsed();
            }
        }
        if cancel.is_cancelled() {
            return Ok(Attempt::Cancelled);
        }
        let reports = self.settle(slot).await;
        if let Some(sampler) = sampler {
            sampler.finish().await;
        }
        if let Err(error) = self.platform.intact(slot.id).await {
            return self.spoiled(error.into());
        }
        if reports.gates.iter().any(|g| g.outcome == GateOutcome::ReportLost) {
            return Ok(Attempt::Invalid("a report of a proxy was lost".into()));
        }
        if slot.recorder.broken() && !evidence.tests.is_empty() {
            exits::wait(&mut happenings, &mut evidence.exits).await;
        }
        exits::collect(&mut happenings, &mut evidence.exits);
        evidence.spans = slot.recorder.recorded();
        evidence.spans_dropped = self.campaign.dropped();
        self.hide_secrets(&mut evidence).await?;
        let outcome = match trouble.and_then(|reason| Some((evidence.start_failure()?, reason))) {
            Some((found, reason)) => judge_start(found, reason, request.wanted.as_ref()),
            None => match unresolved_by_gates(request, &reports) {
                Some(reason) => Outcome::Unresolved { reason },
                None => self.judge(request, &evidence.tests),
            },
        };
        let (outcome, perturbed) = match (&request.perturbing, aftermath) {
            (Some(perturbing), Some(after)) => {
                let mut perturbed =
                    self.perturbed(request, perturbing, after, &reports, &evidence.tests, outcome);
                self.hide_secrets_of(&mut perturbed.1);
                (perturbed.0, Some(Box::new(perturbed.1)))
            }
            _ => (outcome, None),
        };
        evidence.gates = reports.gates;
        let hits =
            |h: faultscope_mesh::RuleHits| RuleHits { rule: h.rule, matched: h.matched, applied: h.applied };
        evidence.rules = reports.rules.into_iter().map(hits).collect();
        if outcome != Outcome::Pass {
            self.keep_logs(slot, &mut evidence).await;
            self.hide_secrets(&mut evidence).await?;
        }
        cost.total = self.platform.virtual_time(slot.id).unwrap_or_else(|| started.elapsed());
        let run = Run {
            id: self.run_id(request.trial)?,
            trial: request.trial,
            slot: slot.id,
            deltas: request.deltas.clone(),
            circumstance: request.circumstance.clone(),
            outcome,
            evidence,
            started_us,
            cost,
            seed,
            retries,
            perturbed,
        };
        Ok(Attempt::Judged(Box::new(run)))
    }

    pub(crate) async fn run_tests(
        &self,
        slot: &SlotState,
        tests: &[TestCase],
        files: Option<&ProcessFiles>,
        trial: TrialId,
        cancel: &CancellationToken,
    ) -> Result<Vec<TestResult>, PlatformError> {
        let bed = TestBed {
            application: &self.application,
            platform: &self.platform,
            mesh: slot.mesh.as_ref(),
            slot: slot.id,
            root: &self.options.root,
            expansion: &slot.expansion,
            campaign: self.campaign.id().as_str(),
            env: files.map(ProcessFiles::env).unwrap_or_default(),
        };
        let mut results = Vec::new();
        for test in tests {
            self.events.emit(Event::TestStarted { trial, test: test.name.clone() });
            let one = tokio::select! {
                one = bed.run(test, cancel) => one?,
                () = cancel.cancelled() => break,
            };
            for result in &one {
                self.events.emit(Event::TestFinished {
                    trial,
                    test: result.test.clone(),
                    passed: result.failure.is_none(),
                    took: result.took,
                });
            }
            results.extend(one);
        }
        Ok(results)
    }

    pub(crate) async fn store(&self, run: &Run) -> Result<(), EngineError> {
        let json =
            serde_json::to_string(run).map_err(|e| EngineError::Internal(format!("a run as JSON: {e}")))?;
        let record = RunRecord {
            trial: run.trial,
            id: &run.id,
            outcome: run.outcome.word(),
            started_us: run.started_us,
            duration_us: u64::try_from(run.cost.total.as_micros()).unwrap_or(u64::MAX),
            json: &json,
        };
        self.campaign.put_run(record).await?;
        self.events.emit(Event::TrialFinished {
            trial: run.trial,
            run: run.id.clone(),
            outcome: run.outcome.clone(),
            took: run.cost.total,
        });
        Ok(())
    }

    fn spoiled(&self, error: EngineError) -> Result<Attempt, EngineError> {
        match error {
            EngineError::Platform(error) if error.kind == PlatformErrorKind::Cancelled => {
                Ok(Attempt::Cancelled)
            }
            EngineError::Platform(error) if error.kind == PlatformErrorKind::Infrastructure => {
                let cause = std::error::Error::source(&*error).map(|c| format!(": {c}")).unwrap_or_default();
                Ok(Attempt::Invalid(format!("{error}{cause}")))
            }
            other => Err(other),
        }
    }
}
