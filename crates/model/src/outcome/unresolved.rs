//! Why a trial shows neither the wanted failure nor a pass.

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
    /// Another test failed, or the wanted one in another way.
    OtherFailure {
        /// The first failure that is not the wanted one.
        signature: Signature,
    },
    /// An instance did not become ready, so no test ran.
    NotReady {
        /// The instance.
        instance: InstanceId,
        /// How its start ended.
        reason: ExitReason,
    },
    /// A gate could not release the calls of a series in the requested order.
    OrderNotImposed {
        /// The service that makes the calls.
        from: ServiceName,
        /// The request it handles.
        handling: OperationPattern,
        /// The outcome of the gate.
        gate: GateOutcome,
    },
    /// Some perturbations had no effect, so the trial shows nothing about them.
    NotApplied {
        /// The first of them.
        perturbation: Perturbation,
        /// Why it had no effect.
        why: NotApplied,
        /// The number of others.
        #[serde(default, skip_serializing_if = "is_zero")]
        more: usize,
    },
    /// The trace file that the test's process wrote cannot be read.
    TraceUnreadable {
        /// File, line and reason.
        problem: String,
    },
    /// A text: stored by versions before format 3, or sent by an adapter.
    Described {
        /// The text.
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
