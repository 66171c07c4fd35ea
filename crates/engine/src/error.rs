//! Errors that stop a campaign. A failing system under test never does: that is an outcome.

use faultscope_mesh::MeshError;
use faultscope_model::application::PlanError;
use faultscope_model::space::Excluded;
use faultscope_model::{Spoiled, TrialId};
use faultscope_platform::PlatformError;
use faultscope_store::StoreError;

use crate::drive::HookError;

/// Why a campaign stopped.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The application cannot be deployed in this circumstance.
    #[error("this circumstance cannot be deployed")]
    Plan(#[from] PlanError),
    /// The deltas exclude one another.
    #[error("these deltas cannot be combined")]
    Excluded(#[from] Excluded),
    /// An error of the platform.
    #[error("the platform failed")]
    Platform(#[source] Box<PlatformError>),
    /// An error of the mesh.
    #[error("the mesh failed")]
    Mesh(#[from] MeshError),
    /// An error of the store.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The infrastructure spoiled a trial repeatedly.
    #[error("{trial} could not be completed in {tries} attempts; the last one failed: {reason}")]
    Invalid {
        /// The trial.
        trial: TrialId,
        /// The number of attempts.
        tries: u32,
        /// How it was spoiled last.
        reason: Spoiled,
    },
    /// A known circumstance gave another outcome than before, so no answer can be trusted.
    #[error("the environment changed: a repeated trial gave {now} instead of {before}")]
    Sentinel {
        /// The sentinel.
        trial: TrialId,
        /// The earlier outcome.
        before: String,
        /// The outcome now.
        now: String,
    },
    /// An earlier campaign cannot be resumed.
    #[error("the campaign cannot be resumed: {problem}")]
    CannotResume {
        /// The reason.
        problem: String,
    },
    /// The program that changes requests of a replay cannot be used.
    #[error("the hook of the replay failed")]
    Hook(#[from] HookError),
    /// A bug in the tool.
    #[error("internal: {0}")]
    Internal(String),
}

impl From<PlatformError> for EngineError {
    fn from(error: PlatformError) -> Self {
        // By far the largest variant, and rare.
        Self::Platform(Box::new(error))
    }
}
