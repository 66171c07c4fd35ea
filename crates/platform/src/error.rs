//! What can go wrong between the tool and its platform.

use faultscope_model::InstanceId;
use faultscope_model::outcome::StartEnding;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Something the platform could not do.
#[derive(Debug, thiserror::Error)]
#[error("{platform}: cannot {action}")]
pub struct PlatformError {
    /// What kind of failure it is.
    pub kind: PlatformErrorKind,
    /// The back end's name.
    pub platform: &'static str,
    /// What it tried, as a verb phrase.
    pub action: String,
    /// Why it failed.
    #[source]
    pub source: Option<BoxError>,
}

/// Kinds of failures that callers tell apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformErrorKind {
    /// The back end is not there or lacks a right.
    Unavailable,
    /// The back end cannot do this at all.
    Unsupported,
    /// An instance died or stayed silent at its start: a property of the circumstance, not of the tool.
    NotReady {
        /// Which.
        instance: InstanceId,
        /// In which way, as far as two failures of the same cause have it in common.
        ending: StartEnding,
        /// Why: `exited with 1`, `killed: out of memory`, `not ready within 10s`.
        reason: String,
        /// The last lines it printed.
        last_lines: Vec<String>,
    },
    /// The plan itself cannot be carried out (no such program, a port declared twice, a template unknown).
    BadPlan,
    /// This user may not open as many files as the plan needs.
    OpenFiles {
        /// About how many the tool would have open, what is open already included.
        needed: u64,
        /// How many it may.
        limit: u64,
    },
    /// It was asked to stop.
    Cancelled,
    /// The machine refused (disk full, no file descriptors, a vanished process): the trial is invalid.
    Infrastructure,
}

impl PlatformError {
    /// A failure of this kind, with what was tried.
    pub fn new(kind: PlatformErrorKind, platform: &'static str, action: impl Into<String>) -> Self {
        Self { kind, platform, action: action.into(), source: None }
    }

    /// The same, with its cause.
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}
