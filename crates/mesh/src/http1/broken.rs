//! How an exchange fails to come to its end.

/// Why an exchange did not come to its end. What was a reset stays one for the other side, and what was
/// closed in order stays so too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    CallerGone,
    CalleeReset,
    CalleeClosed,
    BadRequest,
    BadAnswer,
}

impl Broken {
    /// What the span says.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::CallerGone => "caller gone",
            Self::CalleeReset => "reset by callee",
            Self::CalleeClosed => "closed by callee",
            Self::BadRequest => "malformed request",
            Self::BadAnswer => "malformed answer",
        }
    }
}
