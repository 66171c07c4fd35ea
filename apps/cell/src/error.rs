//! Why a cell cannot run.

use std::io;
use std::path::PathBuf;

use crate::expression::EvaluationError;
use crate::spec::SpecError;

/// Why a cell cannot run.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The spec cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The spec is wrong.
    #[error("{path} is not a spec", path = path.display())]
    Spec {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SpecError,
    },
    /// The spec has no such service.
    #[error("the spec has no service `{0}`")]
    NoService(String),
    /// An environment variable has a value that cannot be used.
    #[error("environment variable {variable}: {message}")]
    Environment {
        /// The variable.
        variable: String,
        /// What is wrong with it.
        message: String,
    },
    /// A limit cannot be computed from the settings.
    #[error("the limits of service `{service}` cannot be computed")]
    Limits {
        /// The service.
        service: String,
        /// Why.
        source: EvaluationError,
    },
    /// An operation has a name that is no route.
    #[error("operation `{route}`: {message}")]
    Route {
        /// The name.
        route: String,
        /// What is wrong with it.
        message: String,
    },
    /// The service failed before its first request.
    #[error("service `{service}` cannot start: {message}")]
    Startup {
        /// The service.
        service: String,
        /// Why.
        message: String,
    },
    /// The port cannot be had.
    #[error("cannot listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The system gives no event loop or signals.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}
