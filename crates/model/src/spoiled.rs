//! How the infrastructure spoiled a trial.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::show_duration;

/// How the infrastructure spoiled a trial, so that it shows nothing and is repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Spoiled {
    /// It did not end in time.
    TookTooLong {
        /// How long it was given.
        #[serde(with = "crate::units::duration")]
        within: Duration,
    },
    /// A proxy could not say what became of its calls.
    ReportLost,
    /// The mesh could not accept or open a connection, since the tool has as many open as it may have.
    NoDescriptors,
    /// The machine or the platform refused something, or a part of them vanished.
    Infrastructure {
        /// What they said.
        message: String,
    },
}

impl fmt::Display for Spoiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TookTooLong { within } => write!(f, "it took longer than {}", show_duration(*within)),
            Self::ReportLost => f.write_str("a report of a proxy was lost"),
            Self::NoDescriptors => f.write_str("the tool has no file descriptors left; raise `ulimit -n`"),
            Self::Infrastructure { message } => f.write_str(message),
        }
    }
}
