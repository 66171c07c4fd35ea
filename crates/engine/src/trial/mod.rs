//! One trial: a pipeline from a circumstance to a judged, stored run.
//!
//! Deploy, drive, settle, judge, keep. Only the drive differs, see [`Drive`]. A trial runs in a slot that it
//! holds by a [`Lease`]; however it ends, everything of it is gone before the lease is returned.

mod collector;
mod deploy;
mod drive;
mod exits;
mod judge;
mod keep;
mod sampler;
mod settle;
mod wire;

pub(crate) use collector::SlotCollector;
pub use drive::{Drive, Driven, JudgeFacts, Live, Refined};
pub(crate) use judge::failures_of;
pub(crate) use wire::{PlatformDialer, PlatformRestarter, SlotRecorder};

use std::sync::Arc;

use faultscope_mesh::MeshReports;
use faultscope_model::digest::Digest;
use faultscope_model::event::Event;
use faultscope_model::outcome::Signature;
use faultscope_model::run::{Cost, Evidence, Run};
use faultscope_model::series::{GateOutcome, GateReport};
use faultscope_model::{CampaignKind, Circumstance, Spoiled, Treatment, TrialId};
use faultscope_platform::{PlatformErrorKind, PlatformEvent};
use tokio::sync::broadcast::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drive::{ReplayedAnswer, TrialTrace};
use crate::error::EngineError;
use crate::replay::MockLog;
use crate::session::{Lease, Session, now_us};
use deploy::Deployed;

/// Spreads the seeds of trials, since neighbouring seeds would draw alike (the golden ratio in 64 bits).
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A trial to run, without its number.
#[derive(Debug, Clone)]
pub struct TrialRequest {
    /// What it is given, for those who read its run.
    pub treatment: Treatment,
    /// The settings it runs under.
    pub circumstance: Circumstance,
    /// What drives the application.
    pub drive: Arc<dyn Drive>,
    /// The failure to look for; any if none.
    pub wanted: Option<Signature>,
}

impl TrialRequest {
    /// Equal for trials that ask the same. Results from before an interruption are found by it.
    pub(crate) fn question(&self) -> Digest {
        Digest::hash_json(&serde_json::json!({
            "circumstance": self.circumstance,
            "drive": self.drive.question(),
            "wanted": self.wanted,
        }))
    }
}

/// How a trial ended.
#[derive(Debug)]
pub enum TrialEnd {
    /// It was judged and stored.
    Finished(Box<FinishedTrial>),
    /// It was cancelled, and everything of it is gone.
    Cancelled,
}

/// A judged and stored trial.
#[derive(Debug)]
pub struct FinishedTrial {
    /// The stored record.
    pub run: Run,
    /// What its drive recorded beyond it; none for a run that was read back from the store.
    pub trace: Option<Box<TrialTrace>>,
    /// The answers to requests that were sent again; empty for a run that was read back from the store.
    pub replayed: Vec<ReplayedAnswer>,
    /// What was answered in the place of services that are not deployed.
    pub mocked: Option<MockLog>,
    /// Whether it is from before an interruption.
    pub is_earlier: bool,
}

impl FinishedTrial {
    /// A run from before an interruption.
    pub(crate) fn from_past(run: Run) -> Self {
        Self { run, trace: None, replayed: Vec::new(), mocked: None, is_earlier: true }
    }
}

enum Attempt {
    Judged(Box<FinishedTrial>),
    Invalid(Spoiled),
    Cancelled,
}

impl Session {
    /// Runs a trial in a leased slot. A trial that the infrastructure spoils is repeated; when this
    /// returns for a cancelled one, nothing of it is left.
    pub async fn run_trial(
        &self,
        lease: &Lease,
        trial: TrialId,
        request: &TrialRequest,
        cancel: &CancellationToken,
    ) -> Result<TrialEnd, EngineError> {
        self.events.emit(Event::TrialStarted {
            trial,
            slot: lease.id(),
            treatment: request.treatment.clone(),
            tests: request.drive.n_tests(),
        });
        let mut attempts = 0;
        loop {
            let attempt = self.attempt(lease, trial, request, attempts, cancel);
            let attempt = if request.drive.is_repeatable() {
                let within = self.options.trial_within;
                let late = || Ok(Attempt::Invalid(Spoiled::TookTooLong { within }));
                tokio::time::timeout(within, attempt).await.unwrap_or_else(|_| late())
            } else {
                attempt.await
            };
            match attempt.or_else(spoil)? {
                Attempt::Judged(finished) => {
                    self.keep(&finished.run).await?;
                    return Ok(TrialEnd::Finished(finished));
                }
                Attempt::Cancelled => {
                    self.clear(lease).await?;
                    self.events.emit(Event::TrialCancelled { trial });
                    return Ok(TrialEnd::Cancelled);
                }
                Attempt::Invalid(reason) => {
                    attempts += 1;
                    self.refresh(lease).await?;
                    if attempts > self.options.retries || !request.drive.is_repeatable() {
                        return Err(EngineError::Invalid { trial, tries: attempts, reason });
                    }
                    // The next attempt is recorded under the same name, and this one is no evidence.
                    self.campaign.forget(trial, now_us()).await?;
                    self.events.emit(Event::TrialInvalid { trial, reason, next_try: attempts + 1 });
                }
            }
        }
    }

    async fn attempt(
        &self,
        lease: &Lease,
        trial: TrialId,
        request: &TrialRequest,
        retries: u32,
        cancel: &CancellationToken,
    ) -> Result<Attempt, EngineError> {
        let (started, started_us) = (Instant::now(), now_us());
        let seed = self.options.seed.wrapping_add(trial.key().wrapping_mul(SEED_STEP));
        let mut news = self.platform.events(lease.id());
        let mut cost = Cost::default();
        let mut evidence = Evidence::default();
        let mut driven = Driven::default();
        let mut sampler = None;
        let mut not_ready = None;
        let mocks = request.drive.mocks();
        match self.deploy(lease, trial, request, seed, mocks.clone(), cancel).await? {
            Deployed::NotReady(found) => {
                let (found, reason) = *found;
                (evidence, not_ready) = (found, Some(reason));
            }
            Deployed::Ready(deployment, took) => {
                cost = Cost::from_deployment(took, deployment.created, deployment.destroyed, deployment.kept);
                self.events.emit(Event::TrialDeployed { trial, took });
                self.ask_declared_services(lease).await;
                sampler = self.start_sampling(lease, trial).await;
                let driving = Instant::now();
                let live = Live { session: self, lease, trial, mocks: mocks.clone() };
                let drive = request.drive.drive(&live, cancel);
                driven = self.watch_exits(trial, drive, &mut news, &mut evidence).await?;
                cost.tests = driving.elapsed();
                self.ask_called_services(lease).await;
            }
        }
        // What a cancelled trial showed is no evidence, and examining it would only take time.
        if cancel.is_cancelled() {
            return Ok(Attempt::Cancelled);
        }
        let reports = self.settle(lease, sampler, &mut news, &driven, &mut evidence).await?;
        let is_lost = |gate: &GateReport| gate.outcome == GateOutcome::ReportLost;
        if reports.lost > 0 || reports.gates.iter().any(is_lost) {
            return Ok(Attempt::Invalid(Spoiled::ReportLost));
        }
        if reports.exhausted {
            return Ok(Attempt::Invalid(Spoiled::NoDescriptors));
        }
        self.redact_results(&mut driven, &mut evidence).await?;
        let judged = self.judge(request, &driven.tests, &evidence, &reports, not_ready);
        let facts = JudgeFacts {
            application: &self.application,
            circumstance: &request.circumstance,
            reports: &reports,
            driven: &driven,
            exits: &evidence.exits,
        };
        let Refined { outcome, perturbed } = request.drive.refine(&facts, judged);
        evidence.tests = std::mem::take(&mut driven.tests);
        keep_reports(&mut evidence, reports);
        self.add_logs(lease, &mut evidence).await;
        evidence.log_lines = self.keep_logs(lease, trial, &request.circumstance, started_us).await?;
        cost.total = self.platform.virtual_time(lease.id()).unwrap_or_else(|| started.elapsed());
        if matches!(self.purpose(), CampaignKind::Debug | CampaignKind::Resilience) {
            let text = self.slow_start.announce(cost.total);
            text.into_iter().for_each(|text| self.events.emit(Event::Note { text }));
        }
        let run = Run {
            id: self.run_id(trial)?,
            trial,
            slot: lease.id(),
            treatment: request.treatment.clone(),
            circumstance: request.circumstance.clone(),
            outcome,
            evidence,
            started_us,
            cost,
            seed,
            retries,
            perturbed,
            question: Some(request.question()),
        };
        let Driven { trace, replayed, .. } = driven;
        let mocked = mocks.map(|mocks| mocks.log());
        let finished = FinishedTrial { run, trace, replayed, mocked, is_earlier: false };
        Ok(Attempt::Judged(Box::new(finished)))
    }

    /// Drives, and meanwhile records instances that end by themselves.
    async fn watch_exits(
        &self,
        trial: TrialId,
        drive: impl Future<Output = Result<Driven, EngineError>>,
        news: &mut Receiver<PlatformEvent>,
        evidence: &mut Evidence,
    ) -> Result<Driven, EngineError> {
        let up_at_least = tokio::time::sleep(self.options.up_at_least);
        let drive = async {
            let driven = drive.await;
            if driven.is_ok() {
                up_at_least.await;
            }
            driven
        };
        tokio::pin!(drive);
        loop {
            tokio::select! {
                biased;
                driven = &mut drive => return driven,
                // A closed channel never yields again; only the drive is left to wait for.
                Ok(event) = news.recv() => {
                    let before = evidence.exits.len();
                    exits::note(event, &mut evidence.exits);
                    for exit in evidence.exits.iter().skip(before) {
                        let (instance, reason) = (exit.instance.clone(), exit.reason.clone());
                        self.events.emit(Event::InstanceExited { trial, instance, reason });
                    }
                }
            }
        }
    }
}

fn keep_reports(evidence: &mut Evidence, reports: MeshReports) {
    let hits = |hits: faultscope_mesh::RuleHits| faultscope_model::run::RuleHits {
        rule: hits.rule,
        matched: hits.matched,
        applied: hits.applied,
    };
    evidence.rules = reports.rules.into_iter().map(hits).collect();
    evidence.gates = reports.gates;
}

/// What an error means for an attempt: the machine failed, or the trial was cancelled. Any other error
/// stops the campaign.
fn spoil(error: EngineError) -> Result<Attempt, EngineError> {
    match error {
        EngineError::Platform(error) if error.kind == PlatformErrorKind::Cancelled => Ok(Attempt::Cancelled),
        EngineError::Platform(error) if error.kind == PlatformErrorKind::Infrastructure => {
            let cause = std::error::Error::source(&*error).map(|c| format!(": {c}")).unwrap_or_default();
            Ok(Attempt::Invalid(Spoiled::Infrastructure { message: format!("{error}{cause}") }))
        }
        other => Err(other),
    }
}
