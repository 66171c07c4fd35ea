//! What stops a campaign. A failing system under test never does: that is an outcome.

use faultscope_mesh::MeshError;
use faultscope_model::TrialId;
use faultscope_model::application::PlanError;
use faultscope_model::space::Excluded;
use faultscope_platform::PlatformError;
use faultscope_store::StoreError;

/// What stops a campaign.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The application cannot have this circumstance.
    #[error("this circumstance cannot be deployed")]
    Plan(#[from] PlanError),
    /// The deltas exclude one another.
    #[error("these deltas cannot be combined")]
    Excluded(#[from] Excluded),
    /// The platform refused.
    #[error("the platform failed")]
    Platform(#[source] Box<PlatformError>),
    /// The mesh refused.
    #[error("the mesh failed")]
    Mesh(#[from] MeshError),
    /// The store refused.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// The infrastructure spoiled a trial again and again.
    #[error("{trial} was spoiled {tries} times, the last time because {reason}")]
    Invalid {
        /// Which.
        trial: TrialId,
        /// How often it was tried.
        tries: u32,
        /// Why it failed last.
        reason: String,
    },
    /// A known circumstance no longer shows what it showed before, so no answer could be trusted.
    #[error("the environment changed: a known circumstance gave {now} where it had given {before}")]
    Sentinel {
        /// The repetition.
        trial: TrialId,
        /// What it gave first.
        before: String,
        /// What it gave now.
        now: String,
    },
    /// An earlier campaign cannot go on.
    #[error("the campaign cannot be resumed: {problem}")]
    CannotResume {
        /// Why.
        problem: String,
    },
    /// Something of the tool itself broke.
    #[error("internal: {0}")]
    Internal(String),
}

impl From<PlatformError> for EngineError {
    fn from(error: PlatformError) -> Self {
        // By far the largest of all, and rare.
        Self::Platform(Box::new(error))
    }
}
