//! How an exchange fails to come to its end.

use faultscope_model::CallError;

/// Why an exchange did not come to its end. What was a reset stays one for the other side, and what was
/// closed in order stays so too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    CallerGone,
    CalleeReset,
    CalleeClosed,
    BadRequest,
    BadAnswer,
    EndlessInterim,
}

impl Broken {
    /// What the span says.
    pub(super) fn why(self) -> CallError {
        match self {
            Self::CallerGone => CallError::CallerGone,
            Self::CalleeReset => CallError::ResetByCallee,
            Self::CalleeClosed => CallError::ClosedByCallee,
            Self::BadRequest => CallError::MalformedRequest,
            Self::BadAnswer => CallError::MalformedAnswer,
            Self::EndlessInterim => CallError::EndlessInterimAnswers,
        }
    }
}
