//! Errors of platforms, in kinds that a caller can act on.

use faultscope_model::InstanceId;
use faultscope_model::outcome::StartEnding;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An action that the platform could not carry out.
#[derive(Debug, thiserror::Error)]
#[error("{platform}: cannot {action}")]
pub struct PlatformError {
    /// What a caller can act on.
    pub kind: PlatformErrorKind,
    /// The name of the back end.
    pub platform: &'static str,
    /// What was tried, as an infinitive after "cannot".
    pub action: String,
    /// The cause.
    #[source]
    pub source: Option<BoxError>,
}

/// Kinds of errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformErrorKind {
    /// The back end is not there, or a permission is missing.
    Unavailable,
    /// The back end does not support this at all.
    Unsupported,
    /// An instance ended or did not become ready: a property of the circumstance, not of the tool.
    NotReady {
        /// The instance.
        instance: InstanceId,
        /// How its start failed, as far as two failures of the same cause agree.
        ending: StartEnding,
        /// Why: `exited with 1`, `killed: out of memory`, `not ready within 10s`.
        reason: String,
        /// The last lines it printed.
        last_lines: Vec<String>,
    },
    /// The plan itself cannot be carried out (a missing program, a port declared twice, an unknown template).
    BadPlan,
    /// This user may not open as many files as the plan needs.
    OpenFiles {
        /// About how many the tool would have open, what is open already included.
        needed: u64,
        /// How many it may.
        limit: u64,
    },
    /// It was cancelled.
    Cancelled,
    /// The machine failed (disk full, no file descriptors, a vanished process): the trial is invalid.
    Infrastructure,
}

impl PlatformError {
    /// An error without a cause.
    pub fn new(kind: PlatformErrorKind, platform: &'static str, action: impl Into<String>) -> Self {
        Self { kind, platform, action: action.into(), source: None }
    }

    /// Adds the cause.
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}
