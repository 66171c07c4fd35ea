//! Errors of benchmarks.

use faultscope_engine::EngineError;
use faultscope_model::application::SpecError;
use faultscope_platform::PlatformError;
use faultscope_store::StoreError;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a benchmark could not measure.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BenchError {
    /// Decides the exit code.
    pub kind: BenchErrorKind,
    /// What could not be done.
    pub message: String,
    /// The causes, nearest first.
    pub causes: Vec<String>,
    /// What to try.
    pub hint: Option<String>,
}

/// Kinds of errors.
#[derive(Debug)]
pub enum BenchErrorKind {
    /// The command line is wrong.
    Usage,
    /// A peer or a measured program is missing.
    Unavailable,
    /// The machine does not provide what is needed.
    Environment,
    /// What was to be measured gave no answer.
    Unresolved,
    /// It was interrupted.
    Interrupted,
    /// A bug in the benchmark.
    Internal,
    /// An application file is wrong.
    Spec(Box<SpecError>),
    /// The engine failed.
    Engine(Box<EngineError>),
    /// The platform failed.
    Platform(Box<PlatformError>),
    /// The store failed.
    Store(Box<StoreError>),
}

impl BenchError {
    pub(crate) fn new(kind: BenchErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), causes: Vec::new(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(BenchErrorKind::Usage, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(BenchErrorKind::Unavailable, message)
    }

    pub(crate) fn environment(message: impl Into<String>) -> Self {
        Self::new(BenchErrorKind::Environment, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(BenchErrorKind::Internal, message)
    }

    pub(crate) fn interrupted() -> Self {
        Self::new(BenchErrorKind::Interrupted, "interrupted")
    }

    pub(crate) fn because(mut self, cause: impl Into<BoxError>) -> Self {
        let cause = cause.into();
        let chain = std::iter::successors(Some(&*cause as &dyn std::error::Error), |e| e.source());
        self.causes = chain.map(ToString::to_string).collect();
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<SpecError> for BenchError {
    fn from(error: SpecError) -> Self {
        let message = error.to_string();
        Self::new(BenchErrorKind::Spec(Box::new(error)), message)
    }
}

impl From<EngineError> for BenchError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        Self::new(BenchErrorKind::Engine(Box::new(error)), message)
    }
}

impl From<PlatformError> for BenchError {
    fn from(error: PlatformError) -> Self {
        let message = error.to_string();
        Self::new(BenchErrorKind::Platform(Box::new(error)), message)
    }
}

impl From<StoreError> for BenchError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        Self::new(BenchErrorKind::Store(Box::new(error)), message)
    }
}
