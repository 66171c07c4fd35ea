//! One trial: from a circumstance to a judged, stored run.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use faultscope_mesh::MeshReports;
use faultscope_model::application::TestCase;
use faultscope_model::event::Event;
use faultscope_model::outcome::{Signature, TestResult};
use faultscope_model::run::{Cost, Evidence, InstanceExit, RuleHits, Run};
use faultscope_model::series::GateOutcome;
use faultscope_model::{Circumstance, DeltaSet, Outcome, SlotId, TrialId};
use faultscope_platform::{Deployment, PlatformError, PlatformErrorKind, PlatformEvent};
use faultscope_store::RunRecord;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::EngineError;
use crate::judging::unresolved_by_gates;
use crate::perturbing::{Perturbing, ProcessFiles};
use crate::session::{Session, SlotState, now_us};
use crate::testing::TestBed;
use crate::wire;
use crate::{collector, exits};

/// How long calls that outlive the tests may still run before the trial is judged.
const QUIET_WITHIN: Duration = Duration::from_millis(500);

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

/// What a deployment came to.
pub(crate) enum Deployed {
    Ready(Deployment, Duration),
    /// The circumstance itself keeps an instance from starting.
    NotReady(Evidence, String),
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
        let outcome = trouble
            .or_else(|| unresolved_by_gates(request, &reports))
            .map_or_else(|| self.judge(request, &evidence.tests), |reason| Outcome::Unresolved { reason });
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

    /// Reserves listeners, hands them to the mesh, and brings the plan up.
    pub(crate) async fn deploy(
        &self,
        slot: &SlotState,
        request: &TrialRequest,
        seed: u64,
        cancel: &CancellationToken,
    ) -> Result<Deployed, EngineError> {
        let mut plan = self.application.plan(&request.circumstance, &slot.expansion)?;
        if slot.collector.is_some() {
            collector::announce(&mut plan);
        }
        let started = Instant::now();
        if let Some(mesh) = &slot.mesh {
            mesh.reset_connections();
        }
        slot.recorder.begin(request.trial);
        slot.recorder.keep(request.perturbing.is_some());
        let reservation = self.platform.reserve(slot.id, &plan).await?;
        if let Some(mesh) = &slot.mesh {
            let record = self.options.record.unwrap_or(self.application.record.level);
            let (callers, endpoints) = (reservation.callers, reservation.endpoints);
            if let Some(collector) = &slot.collector {
                collector.begin(request.trial, &callers);
            }
            let mut wiring =
                wire::wiring(&self.application, &plan, slot.id, seed, callers, endpoints, record);
            wiring.targets = request.perturbing.is_some();
            wiring.campaign = {
                let mut hasher = DefaultHasher::new();
                self.campaign.id().as_str().hash(&mut hasher);
                hasher.finish()
            };
            mesh.configure(wiring);
            collector::share(slot.collector.as_ref(), mesh, reservation.listeners)
                .map_err(|e| EngineError::Internal(format!("the collector cannot listen: {e}")))?;
        }
        let mut happenings = self.platform.events(slot.id);
        let apply = self.platform.apply(slot.id, &plan, cancel);
        tokio::pin!(apply);
        let mut ready = 0;
        let mut tell = |event| {
            if let PlatformEvent::Ready { instance } = event {
                ready += 1;
                let all = plan.instances.len();
                self.events.emit(Event::InstanceReady { trial: request.trial, instance, ready, all });
            }
        };
        let applied = loop {
            tokio::select! {
                applied = &mut apply => break applied,
                Ok(event) = happenings.recv() => tell(event),
            }
        };
        // The last ones became ready in the same moment in which the whole did.
        while let Ok(event) = happenings.try_recv() {
            tell(event);
        }
        match applied {
            Ok(deployment) => Ok(Deployed::Ready(deployment, started.elapsed())),
            Err(PlatformError {
                kind: PlatformErrorKind::NotReady { instance, reason, last_lines }, ..
            }) => {
                let mut evidence = Evidence::default();
                let text = format!("{instance} did not become ready: {reason}");
                evidence.notes.push(text.clone());
                evidence.exits.push(InstanceExit { instance: instance.clone(), reason });
                evidence.logs.insert(instance, last_lines);
                Ok(Deployed::NotReady(evidence, text))
            }
            Err(error) => Err(error.into()),
        }
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

    /// Waits until calls that outlive the tests have ended, and takes what the mesh has to say.
    pub(crate) async fn settle(&self, slot: &SlotState) -> MeshReports {
        match &slot.mesh {
            Some(mesh) => {
                mesh.quiet(QUIET_WITHIN).await;
                let reports = mesh.reports();
                if let Some(collector) = &slot.collector {
                    collector.settle(reports.traced).await;
                }
                reports
            }
            None => MeshReports::default(),
        }
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

    /// Removes everything of a trial from its slot.
    pub(crate) async fn clear(&self, slot: &SlotState) -> Result<(), EngineError> {
        if let Some(mesh) = &slot.mesh {
            mesh.close_listeners();
            mesh.reset_connections();
        }
        if let Some(collector) = &slot.collector {
            collector.close();
        }
        self.platform.clear_slot(slot.id).await?;
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
