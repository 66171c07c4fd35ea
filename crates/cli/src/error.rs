//! What a command reports when it cannot do its work: a kind, a chain of causes, a hint.

use faultscope_bench::{BenchError, BenchErrorKind};
use faultscope_engine::EngineError;
use faultscope_model::application::SpecError;
use faultscope_platform::{PlatformError, PlatformErrorKind};
use faultscope_store::{StoreError, StoreErrorKind};

use crate::exit::Exit;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
    /// Lines of a service that explain it.
    pub(crate) lines: Vec<String>,
}

impl CommandError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), causes: Vec::new(), hint: None, lines: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Exit::Internal, message)
    }

    pub(crate) fn because(mut self, cause: impl Into<BoxError>) -> Self {
        let cause = cause.into();
        self.causes = chain(&*cause);
        self
    }

    /// The error as the one document that `--json` prints.
    pub(crate) fn to_json(&self) -> String {
        let Self { exit, message, causes, hint, lines } = self;
        let exit = *exit as u8;
        let error = serde_json::json!({
            "exit": exit, "message": message, "causes": causes, "hint": hint, "lines": lines,
        });
        format!("{:#}", serde_json::json!({ "error": error }))
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect()
}

impl From<SpecError> for CommandError {
    fn from(error: SpecError) -> Self {
        Self { hint: error.hint.clone(), ..Self::new(Exit::Spec, error.to_string()) }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        let mut texts = chain(&error);
        let message = texts.remove(0);
        let exit = match error.kind {
            StoreErrorKind::NotPermitted | StoreErrorKind::DiskFull | StoreErrorKind::InUse => {
                Exit::Environment
            }
            _ => Exit::Internal,
        };
        Self { causes: texts, ..Self::new(exit, message) }
    }
}

impl From<PlatformError> for CommandError {
    fn from(error: PlatformError) -> Self {
        let mut texts = chain(&error);
        let message = texts.remove(0);
        let base = Self { causes: texts, ..Self::new(Exit::Platform, message) };
        match error.kind {
            PlatformErrorKind::NotReady { reason, last_lines, .. } => {
                Self { exit: Exit::Unresolved, causes: vec![reason], lines: last_lines, ..base }
            }
            PlatformErrorKind::BadPlan => Self { exit: Exit::Spec, ..base },
            PlatformErrorKind::Infrastructure => Self { exit: Exit::Environment, ..base },
            PlatformErrorKind::Cancelled => Self { exit: Exit::Interrupted, ..base },
            PlatformErrorKind::Unavailable | PlatformErrorKind::Unsupported => base,
        }
    }
}

impl From<EngineError> for CommandError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Platform(error) => (*error).into(),
            EngineError::Store(error) => error.into(),
            other => {
                let exit = match &other {
                    EngineError::Plan(_) | EngineError::Excluded(_) => Exit::Spec,
                    EngineError::Invalid { .. } | EngineError::Sentinel { .. } => Exit::Environment,
                    EngineError::CannotResume { .. } => Exit::Usage,
                    _ => Exit::Internal,
                };
                let hint = match &other {
                    EngineError::CannotResume { .. } => Some(
                        "leave `--resume` out to start anew; `faultscope runs ls` lists campaigns".into(),
                    ),
                    _ => None,
                };
                let mut texts = chain(&other);
                let message = texts.remove(0);
                Self { causes: texts, hint, ..Self::new(exit, message) }
            }
        }
    }
}

impl From<BenchError> for CommandError {
    fn from(error: BenchError) -> Self {
        let BenchError { kind, message, causes, hint } = error;
        let exit = match kind {
            BenchErrorKind::Spec(error) => return (*error).into(),
            BenchErrorKind::Engine(error) => return (*error).into(),
            BenchErrorKind::Platform(error) => return (*error).into(),
            BenchErrorKind::Store(error) => return (*error).into(),
            BenchErrorKind::Usage => Exit::Usage,
            BenchErrorKind::Unavailable => Exit::Platform,
            BenchErrorKind::Environment => Exit::Environment,
            BenchErrorKind::Unresolved => Exit::Unresolved,
            BenchErrorKind::Interrupted => Exit::Interrupted,
            BenchErrorKind::Internal => Exit::Internal,
        };
        Self { causes, hint, ..Self::new(exit, message) }
    }
}
