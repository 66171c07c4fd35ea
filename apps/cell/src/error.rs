//! Errors that keep a cell from running.

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
    /// The spec is invalid.
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
    /// An environment variable has an invalid value.
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
    /// The name of an operation is not a route.
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
    /// The port cannot be bound.
    #[error("cannot listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// There is no event loop or no signal handler.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}
