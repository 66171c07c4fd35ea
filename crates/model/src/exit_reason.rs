//! How an instance ended by itself.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::ByteSize;

/// How an instance ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitReason {
    /// Its main process exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// It was killed by a signal.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel killed it because memory ran out.
    OutOfMemory,
    /// The kernel killed one of its child processes because memory ran out; the instance goes on.
    ChildOutOfMemory,
    /// It was killed because its trial wrote more to disk than it may.
    OutOfDisk {
        /// The most bytes of a trial.
        limit: ByteSize,
    },
    /// It ended in an unknown way, for example because its supervisor is gone.
    Ended,
    /// It did not become ready.
    NotReady {
        /// What was expected and what happened: `exited with 1`, `not ready within 10s`.
        detail: String,
    },
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exited with {code}"),
            Self::Signalled { signal } => write!(f, "killed by signal {signal}"),
            Self::OutOfMemory => f.write_str("killed: out of memory"),
            Self::ChildOutOfMemory => f.write_str("a child was killed: out of memory"),
            Self::OutOfDisk { limit } => write!(f, "killed: its trial wrote more than {limit} to disk"),
            Self::Ended => f.write_str("ended"),
            Self::NotReady { detail } => f.write_str(detail),
        }
    }
}
