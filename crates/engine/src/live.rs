//! An application that is kept up: deployed like a trial, ended by people.

use faultscope_model::outcome::StartEnding;
use faultscope_model::run::{Cost, Evidence, Run};
use faultscope_model::{Outcome, SlotId};
use faultscope_platform::{PlatformError, PlatformErrorKind};
use tokio_util::sync::CancellationToken;

use crate::deploying::Deployed;
use crate::error::EngineError;
use crate::session::{Session, now_us};
use crate::trial::TrialRequest;

impl Session {
    /// Deploys a circumstance and returns when everything is ready; calls are recorded from then on.
    pub async fn bring_up(
        &self,
        slot: SlotId,
        request: &TrialRequest,
        cancel: &CancellationToken,
    ) -> Result<Cost, EngineError> {
        let slot = self.slot(slot).await?;
        match self.deploy(slot, request, self.options.seed, cancel).await? {
            Deployed::Ready(deployment, took) => {
                let sampler = self.measure(slot, request.trial).await;
                *slot.sampler() = sampler;
                let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                Ok(Cost {
                    deploy: took,
                    total: took,
                    created: count(deployment.created),
                    destroyed: count(deployment.destroyed),
                    kept: count(deployment.kept),
                    ..Cost::default()
                })
            }
            Deployed::NotReady(evidence, reason) => {
                let Some(exit) = evidence.exits.into_iter().next() else {
                    return Err(EngineError::Internal(reason));
                };
                let last_lines = evidence.logs.into_values().next().unwrap_or_default();
                let kind = PlatformErrorKind::NotReady {
                    instance: exit.instance.clone(),
                    ending: exit.start.unwrap_or(StartEnding::Ended),
                    reason: exit.reason,
                    last_lines,
                };
                let action = format!("start {}", exit.instance);
                Err(PlatformError::new(kind, self.platform.name(), action).into())
            }
        }
    }

    /// Calls recorded in a slot since its deployment.
    pub fn recorded(&self, slot: SlotId) -> u64 {
        self.slots.get(&slot).map_or(0, |slot| slot.recorder.recorded())
    }

    /// Stores what was seen while the application was up.
    pub async fn take_down(&self, slot: SlotId, request: &TrialRequest) -> Result<(), EngineError> {
        let sampler = self.slots.get(&slot).and_then(|slot| slot.sampler().take());
        if let Some(sampler) = sampler {
            sampler.finish().await;
        }
        let evidence = Evidence {
            spans: self.recorded(slot),
            spans_dropped: self.campaign.dropped(),
            ..Evidence::default()
        };
        let run = Run {
            id: self.run_id(request.trial)?,
            trial: request.trial,
            slot,
            deltas: request.deltas.clone(),
            circumstance: request.circumstance.clone(),
            outcome: Outcome::Pass,
            evidence,
            started_us: now_us(),
            cost: Cost::default(),
            seed: self.options.seed,
            retries: 0,
            perturbed: None,
        };
        self.store(&run).await
    }
}
