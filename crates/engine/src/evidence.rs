//! What is kept of what tests and instances said.

use faultscope_model::run::{Evidence, Perturbed};

use crate::error::EngineError;
use crate::session::{Session, SlotState};

/// Lines kept of the log of an instance that matters.
const LOG_LINES: usize = 50;

impl Session {
    /// Takes secrets out of what tests and instances said, before it is judged, printed or stored: the same
    /// failure must read the same everywhere.
    pub(crate) async fn hide_secrets(&self, evidence: &mut Evidence) -> Result<(), EngineError> {
        // Once all calls are written, the secrets in them are known.
        self.campaign.flush().await?;
        let redactor = self.campaign.redactor();
        for test in &mut evidence.tests {
            redactor.redact(&mut test.output);
            if let Some(failure) = &mut test.failure {
                redactor.redact(&mut failure.message);
            }
        }
        let lines = evidence.logs.values_mut().flatten();
        evidence.notes.iter_mut().chain(lines).for_each(|text| redactor.redact(text));
        Ok(())
    }

    /// Takes secrets out of what invariants said; call it after [`Self::hide_secrets`].
    pub(crate) fn hide_secrets_of(&self, perturbed: &mut Perturbed) {
        let redactor = self.campaign.redactor();
        for test in &mut perturbed.invariants {
            redactor.redact(&mut test.output);
            if let Some(failure) = &mut test.failure {
                redactor.redact(&mut failure.message);
            }
        }
    }

    /// Adds the last lines of instances that ended.
    pub(crate) async fn keep_logs(&self, slot: &SlotState, evidence: &mut Evidence) {
        let ended: Vec<_> = evidence.exits.iter().map(|e| e.instance.clone()).collect();
        for instance in ended {
            if evidence.logs.contains_key(&instance) {
                continue;
            }
            if let Ok(mut lines) = self.platform.logs(slot.id, &instance).await {
                let surplus = lines.len().saturating_sub(LOG_LINES);
                lines.drain(..surplus);
                evidence.logs.insert(instance, lines);
            }
        }
    }
}
