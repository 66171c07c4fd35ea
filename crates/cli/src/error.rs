//! Errors of commands: an exit code, a chain of causes, a hint.

use faultscope_bench::{BenchError, BenchErrorKind};
use faultscope_engine::EngineError;
use faultscope_engine::views::{Subject, ViewError};
use faultscope_model::application::SpecError;
use faultscope_platform::{PlatformError, PlatformErrorKind};
use faultscope_store::{StoreError, StoreErrorKind};

use crate::exit::Exit;

/// The limit of open files that is suggested at least: what systemd gives its services as hard limit is far above.
const LEAST_SUGGESTED: u64 = 4096;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A command that failed.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
    /// The last lines of a service that explain it.
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
            StoreErrorKind::NotPermitted
            | StoreErrorKind::DiskFull
            | StoreErrorKind::InUse
            | StoreErrorKind::Sealed => Exit::Environment,
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
            PlatformErrorKind::OpenFiles { needed, limit } => Self {
                exit: Exit::Environment,
                causes: vec![format!("about {needed} are needed, and the hard limit is {limit}")],
                hint: Some(format!(
                    "raise the limit of this shell with `sudo prlimit --pid $$ --nofile={0}:{0}`, or use fewer --slots",
                    needed.next_power_of_two().max(LEAST_SUGGESTED)
                )),
                ..base
            },
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
                    EngineError::CannotResume { .. } | EngineError::Hook(_) => Exit::Usage,
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

impl From<ViewError> for CommandError {
    fn from(error: ViewError) -> Self {
        let hint = match &error {
            // The store's own errors have their exit codes.
            ViewError::Unreadable(_) => None,
            ViewError::NoReport(_) => Some("only a debug campaign that has ended has one"),
            ViewError::NoStore { wanted: subject, .. } => Some(match subject {
                Subject::Run => {
                    "runs lie beside the application file: name its folder, or run `faultscope test` first"
                }
                Subject::Campaign | Subject::Report => {
                    "campaigns lie beside the application file: name its folder with --folder"
                }
                Subject::Metric => {
                    "they lie beside the application file: name its folder, or run `faultscope test` first"
                }
                Subject::Span | Subject::Trace | Subject::TraceOfRun => {
                    "`faultscope serve` takes them in, `faultscope traces import FILE` reads them from a file"
                }
            }),
            ViewError::Empty(Subject::Run) => Some("`faultscope test` makes one"),
            ViewError::Empty(Subject::Report) => Some("`faultscope debug` makes one"),
            ViewError::Empty(subject)
            | ViewError::NotFound { subject, .. }
            | ViewError::BadName { subject, .. }
            | ViewError::Ambiguous { subject, .. } => match subject {
                Subject::Run | Subject::Campaign | Subject::Report => Some("`faultscope runs ls` lists them"),
                Subject::Trace | Subject::Span => Some("`faultscope traces ls` lists traces"),
                Subject::Metric => Some("`faultscope metrics ls` lists them; use --since to look further"),
                Subject::TraceOfRun => None,
            },
        };
        match error {
            ViewError::Unreadable(error) => error.into(),
            other => Self { hint: hint.map(str::to_owned), ..Self::usage(other.to_string()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_a_wrong_command_line_with_a_hint() {
        let not_found = |subject| ViewError::NotFound { subject, name: "beef".into() };
        let no_store = |wanted| ViewError::NoStore { wanted, place: "./.faultscope".into() };
        for (error, message, hint) in [
            (ViewError::Empty(Subject::Run), "there are no runs yet", "`faultscope test` makes one"),
            (not_found(Subject::Run), "there is no run `beef`", "`faultscope runs ls` lists them"),
            (not_found(Subject::Campaign), "there is no campaign `beef`", "`faultscope runs ls` lists them"),
            (not_found(Subject::Trace), "there is no trace `beef`", "`faultscope traces ls` lists traces"),
            (
                not_found(Subject::Metric),
                "there is no metric `beef` here",
                "`faultscope metrics ls` lists them; use --since to look further",
            ),
            (
                no_store(Subject::Metric),
                "there are no metrics at ./.faultscope",
                "they lie beside the application file: name its folder, or run `faultscope test` first",
            ),
            (
                no_store(Subject::Report),
                "there are no campaigns at ./.faultscope",
                "campaigns lie beside the application file: name its folder with --folder",
            ),
        ] {
            let error = CommandError::from(error);
            assert_eq!((error.exit, error.message.as_str()), (Exit::Usage, message));
            assert_eq!(error.hint.as_deref(), Some(hint), "{message}");
        }
        assert_eq!(CommandError::from(not_found(Subject::TraceOfRun)).hint, None);
    }
}
