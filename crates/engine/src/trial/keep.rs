//! Stores a trial: redacted texts, last lines, the run.

use faultscope_model::event::Event;
use faultscope_model::outcome::TestResult;
use faultscope_model::run::{Evidence, Run};
use faultscope_model::{InstanceId, SlotId};
use faultscope_store::RunRecord;

use super::Driven;
use crate::error::EngineError;
use crate::session::{Lease, Session};

/// Lines kept of the log of an instance that ended.
const LOG_LINES: usize = 50;

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
        let mut lines = self.platform.logs(slot, instance).await.unwrap_or_default();
        lines.drain(..lines.len().saturating_sub(LOG_LINES));
        lines.iter_mut().for_each(|line| self.campaign.redactor().redact(line));
        lines
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
