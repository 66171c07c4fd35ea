//! Why something that a trial was to do to a call was not done.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::call_error::CallError;

/// Why a perturbation, or the rule that stands for it, could do nothing to the call that it chose.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotApplied {
    /// A reordering needs another call that overtakes its own.
    #[error("no unrelated call to its receiver was answered meanwhile")]
    NothingOvertook,
    /// Only instances of the application are restarted.
    #[error("its receiver is outside")]
    ReceiverOutside,
    /// Another rule restarts the same instance at that time.
    #[error("its receiver was being restarted already")]
    ReceiverRestarting,
    /// An instance is restarted between requests, and others did not end in time.
    #[error("its receiver was still handling other requests")]
    ReceiverBusy,
    /// The instance could not be restarted.
    #[error("{error}")]
    RestartFailed {
        /// Why.
        error: RestartError,
    },
    /// An answer is held back for a bounded time only.
    #[error("its answer is a stream that goes on")]
    AnswerGoesOn,
    /// Caller and callee talk to one another, so that an answer which is held back would stop both.
    #[error("its request was still being sent when it was answered")]
    RequestStillSent,
    /// A request that is sent twice is kept in memory until then.
    #[error("its request was too long")]
    RequestTooLong,
    /// The same, where the end of the request had not even come.
    #[error("its request was not whole when it was answered, or too long")]
    RequestNotWhole,
    /// What follows an upgrade is no answer.
    #[error("it became a connection of another protocol")]
    ProtocolChanged,
    /// The second sending did not reach its callee.
    #[error("{error}")]
    SecondSendingFailed {
        /// How.
        error: CallError,
    },
    /// A sidecar asked on behalf of a trial that had ended.
    #[error("its trial was over")]
    TrialOver,
    /// A sidecar asked a tool that had ended.
    #[error("the tool is gone")]
    ToolGone,
    /// The mesh chose the call and knows no more.
    #[error("the call did not get that far")]
    CallEndedBefore,
    /// What the test's process wrote about its actors is broken.
    #[error("the trace of the test's process cannot be read: {problem}")]
    TraceUnreadable {
        /// Where and why.
        problem: String,
    },
    /// Adapters of actor frameworks know nothing else.
    #[error("messages of actors know only duplicate and restart")]
    UnknownToActors,
    /// A reason in words, as versions before format 3 wrote it.
    #[error("{text}")]
    Described {
        /// The words.
        text: String,
    },
    /// The adapter saw the message and did not say that it acted.
    #[error("the message came, but its adapter did not write `applied`")]
    AdapterSilent,
    /// Nothing of that name came.
    #[error("no such call or message came")]
    NoSuchCall,
}

/// Why an instance could not be restarted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartError {
    /// The platform could not do it.
    #[error("{message}")]
    Platform {
        /// What it says, with the cause.
        message: String,
    },
    /// A sidecar asked a tool that had ended.
    #[error("the tool is gone")]
    ToolGone,
}

impl NotApplied {
    /// The reason of these words, as versions before format 3 wrote it.
    pub fn from_words(words: &str) -> Self {
        let plain = [
            Self::NothingOvertook,
            Self::ReceiverOutside,
            Self::ReceiverRestarting,
            Self::ReceiverBusy,
            Self::AnswerGoesOn,
            Self::RequestStillSent,
            Self::RequestTooLong,
            Self::RequestNotWhole,
            Self::ProtocolChanged,
            Self::TrialOver,
            Self::ToolGone,
            Self::CallEndedBefore,
            Self::UnknownToActors,
            Self::AdapterSilent,
            Self::NoSuchCall,
        ];
        let known = plain.into_iter().find(|reason| reason.to_string() == words);
        known.unwrap_or_else(|| Self::Described { text: words.to_owned() })
    }
}

impl From<RestartError> for NotApplied {
    fn from(error: RestartError) -> Self {
        Self::RestartFailed { error }
    }
}
