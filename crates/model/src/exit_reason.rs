//! How an instance ended by itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an instance ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ExitReason {
    /// It exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel ended it because memory ran out.
    OutOfMemory,
    /// The kernel ended one of its children because memory ran out, and it goes on.
    ChildOutOfMemory,
    /// It ended, and nobody knows how.
    Ended,
    /// It did not come up.
    NotReady {
        /// What was waited for and seen: `exited with 1`, `not ready within 10s`.
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
            Self::Ended => f.write_str("ended"),
            Self::NotReady { detail } => f.write_str(detail),
        }
    }
}
