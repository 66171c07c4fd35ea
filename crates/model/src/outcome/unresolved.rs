//! Why a trial shows neither the failure that is looked for nor its absence.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Signature;
use crate::exit_reason::ExitReason;
use crate::ids::{InstanceId, ServiceName};
use crate::not_applied::NotApplied;
use crate::operation::OperationPattern;
use crate::perturbation::Perturbation;
use crate::series::GateOutcome;

/// Why a trial is unresolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Unresolved {
    /// Tests fail in another way than is looked for, or others fail too.
    OtherFailure {
        /// The first failure that is not looked for.
        signature: Signature,
    },
    /// An instance did not come up, so nothing could be tested.
    NotReady {
        /// The instance that was waited for.
        instance: InstanceId,
        /// How its start ended.
        reason: ExitReason,
    },
    /// The calls of a series could not be released in the order that was asked for.
    OrderNotImposed {
        /// The service that makes the calls.
        from: ServiceName,
        /// The request in whose handling it makes them.
        handling: OperationPattern,
        /// What became of the gate.
        gate: GateOutcome,
    },
    /// Perturbations were not carried out, so the trial says nothing about them.
    NotApplied {
        /// The first of them.
        perturbation: Perturbation,
        /// Why it was not.
        why: NotApplied,
        /// How many more there are.
        #[serde(default, skip_serializing_if = "is_zero")]
        more: usize,
    },
    /// What the test's process wrote about its messages cannot be read.
    TraceUnreadable {
        /// Where and why.
        problem: String,
    },
    /// A reason in words: what versions before format 3 wrote, or what an adapter said.
    Described {
        /// The words.
        text: String,
    },
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl From<&str> for Unresolved {
    fn from(text: &str) -> Self {
        Self::Described { text: text.to_owned() }
    }
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherFailure { signature } => write!(f, "another failure: {signature}"),
            Self::NotReady { instance, reason } => write!(f, "{instance} did not become ready: {reason}"),
            Self::OrderNotImposed { from, handling, gate } => {
                write!(f, "the order of {from} {handling} could not be imposed: {gate}")
            }
            Self::NotApplied { perturbation, why, more } => {
                write!(f, "not applied: {perturbation} ({why})")?;
                if *more > 0 { write!(f, ", and {more} more") } else { Ok(()) }
            }
            Self::TraceUnreadable { problem } => {
                write!(f, "the trace of the test's process cannot be read: {problem}")
            }
            Self::Described { text } => f.write_str(text),
        }
    }
}
