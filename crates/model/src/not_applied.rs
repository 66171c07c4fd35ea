//! Why a perturbation had no effect on its call.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::call_error::CallError;

/// Why a perturbation, or the rule that implements it, had no effect on the call it selected. Format 2 stored these
/// texts, so changing one breaks its migration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotApplied {
    /// A reordering needs another call that overtakes its own.
    #[error("no unrelated call to its receiver was answered meanwhile")]
    NothingOvertook,
    /// Only instances of the application can be restarted.
    #[error("its receiver is outside")]
    ReceiverOutside,
    /// Another rule was restarting the same instance.
    #[error("its receiver was being restarted already")]
    ReceiverRestarting,
    /// An instance is restarted between requests, and other requests did not end in time.
    #[error("its receiver was still handling other requests")]
    ReceiverBusy,
    /// The instance could not be restarted.
    #[error("{error}")]
    RestartFailed {
        /// What the platform reported.
        error: RestartError,
    },
    /// A response can be held back for a bounded time only.
    #[error("its answer is a stream that goes on")]
    AnswerGoesOn,
    /// Caller and callee exchange messages, so holding back the response would block both.
    #[error("its request was still being sent when it was answered")]
    RequestStillSent,
    /// A duplicated request is buffered in memory, which is bounded.
    #[error("its request was too long")]
    RequestTooLong,
    /// As above; here not even the end of the request had arrived.
    #[error("its request was not whole when it was answered, or too long")]
    RequestNotWhole,
    /// After an upgrade there is no response to act on.
    #[error("it became a connection of another protocol")]
    ProtocolChanged,
    /// The second copy of a request did not reach its callee.
    #[error("{error}")]
    SecondSendingFailed {
        /// How the second call failed.
        error: CallError,
    },
    /// A sidecar asked for a trial that had ended.
    #[error("its trial was over")]
    TrialOver,
    /// A sidecar lost the connection to the tool.
    #[error("the tool is gone")]
    ToolGone,
    /// The rule selected the call, but nothing is known about what followed.
    #[error("the call did not get that far")]
    CallEndedBefore,
    /// An outage before the test is felt by those who are connected or try to connect.
    #[error("nobody was connected to it, or tried to connect, before the test")]
    NobodyConnected,
    /// An outage during the test begins with a call of another service.
    #[error("other services did not call it that often during the test")]
    NotCalled,
    /// What the test's process wrote about its actors is broken.
    #[error("the trace of the test's process cannot be read: {problem}")]
    TraceUnreadable {
        /// File, line and reason.
        problem: String,
    },
    /// Adapters of actor frameworks cannot do this.
    #[error("messages of actors know only duplicate and restart")]
    UnknownToActors,
    /// A text stored by versions before format 3.
    #[error("{text}")]
    Described {
        /// The text as stored.
        text: String,
    },
    /// The adapter received the message but did not confirm the perturbation.
    #[error("the message came, but its adapter did not write `applied`")]
    AdapterSilent,
    /// No call or message of that name occurred.
    #[error("no such call or message came")]
    NoSuchCall,
}

/// Why an instance could not be restarted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartError {
    /// The platform reported an error.
    #[error("{message}")]
    Platform {
        /// The error with its causes.
        message: String,
    },
    /// A sidecar lost the connection to the tool.
    #[error("the tool is gone")]
    ToolGone,
}

impl NotApplied {
    /// Reads a text that a version before format 3 stored.
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
            Self::NobodyConnected,
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
