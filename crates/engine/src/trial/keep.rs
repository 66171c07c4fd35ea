//! Stores a trial: redacted texts, last lines, the run.

use faultscope_model::event::Event;
use faultscope_model::log::{InstanceLog, bound_logs};
use faultscope_model::outcome::TestResult;
use faultscope_model::run::{Evidence, Run};
use faultscope_model::{Circumstance, InstanceId, SlotId, TrialId};
use faultscope_store::RunRecord;

use super::Driven;
use crate::error::EngineError;
use crate::session::{Lease, Session};

/// Lines kept of the log of an instance that ended.
const LOG_LINES: usize = 50;

/// Bytes stored of the log of one instance, and of all of a trial. A campaign of some hundred trials stays below the
/// store's bound for all its logs.
const MAX_INSTANCE_BYTES: usize = 32 << 10;
const MAX_TRIAL_BYTES: usize = 256 << 10;

impl Session {
    /// Redacts the output of tests and instances before it is judged, printed or stored: the same
    /// failure must read the same everywhere.
    pub(super) async fn redact_results(
        &self,
        driven: &mut Driven,
        evidence: &mut Evidence,
    ) -> Result<(), EngineError> {
        // Once all calls are written, the secrets in them are known.
        self.campaign.flush().await?;
        let redactor = self.campaign.redactor();
        for TestResult { output, failure, .. } in driven.results_mut() {
            redactor.redact(output);
            if let Some(failure) = failure {
                redactor.redact(&mut failure.message);
                failure.unfilled.iter_mut().for_each(|message| redactor.redact(message));
            }
        }
        evidence.logs.values_mut().flatten().for_each(|line| redactor.redact(line));
        Ok(())
    }

    /// Adds the last lines of instances that ended.
    pub(super) async fn add_logs(&self, lease: &Lease, evidence: &mut Evidence) {
        let ended: Vec<_> = evidence.exits.iter().map(|e| e.instance.clone()).collect();
        for instance in ended {
            if evidence.logs.contains_key(&instance) {
                continue;
            }
            let lines = self.last_lines(lease.id(), &instance).await;
            evidence.logs.insert(instance, lines);
        }
    }

    /// The last lines that an instance printed, without secrets; none where the platform does not know it any more.
    pub async fn last_lines(&self, slot: SlotId, instance: &InstanceId) -> Vec<String> {
        let Ok(InstanceLog { mut lines, .. }) = self.platform.log(slot, instance).await else {
            return Vec::new();
        };
        lines.drain(..lines.len().saturating_sub(LOG_LINES));
        let mut lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        lines.iter_mut().for_each(|line| self.campaign.redactor().redact(line));
        lines
    }

    /// Stores what the instances of a trial printed since it began, and says how many lines that are.
    pub(super) async fn keep_logs(
        &self,
        lease: &Lease,
        trial: TrialId,
        circumstance: &Circumstance,
        since_us: u64,
    ) -> Result<u64, EngineError> {
        let mut logs = Vec::new();
        for service in self.application.services.keys() {
            for ordinal in 1..=circumstance.instances_of(service) {
                let instance = InstanceId::new(service.clone(), ordinal);
                // An instance whose start was never reached has none.
                let Ok(mut log) = self.platform.log(lease.id(), &instance).await else { continue };
                log.keep_since(since_us);
                log.keep_last(MAX_INSTANCE_BYTES);
                logs.push(log);
            }
        }
        bound_logs(&mut logs, MAX_TRIAL_BYTES);
        let mut n_lines = 0;
        for log in logs.into_iter().filter(|log| !log.lines.is_empty() || log.dropped > 0) {
            n_lines += log.lines.len() as u64;
            self.campaign.put_log(trial, log)?;
        }
        Ok(n_lines)
    }

    /// Stores a run and emits its event.
    pub(super) async fn keep(&self, run: &Run) -> Result<(), EngineError> {
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
}
