//! Why a call failed, as the mesh saw it from the caller's side.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a call did not complete normally. Its `Display` text is for people; no code decides by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallError {
    /// Nobody listens on the callee's port.
    ConnectRefused,
    /// The callee could not be reached for another reason.
    ConnectFailed,
    /// The callee could not be reached, or the caller did not send a complete request head, within the time limit.
    TimedOut,
    /// The callee's service has no instance.
    NoInstance,
    /// The callee does not speak TLS, or rejected the handshake.
    TlsRefused,
    /// The callee ended the call with a reset.
    ResetByCallee,
    /// The callee closed its connection before its response was complete.
    ClosedByCallee,
    /// The caller disconnected before its response was complete.
    CallerGone,
    /// The whole connection was dropped with the call in it, as between trials.
    ConnectionDropped,
    /// What the caller sent is not a valid request.
    MalformedRequest,
    /// What the callee sent is not a valid response.
    MalformedAnswer,
    /// The callee sent interim answers (1xx) without end instead of a response.
    EndlessInterimAnswers,
    /// The request head exceeds the limit of bytes or headers.
    HeadTooLarge,
    /// A rule dropped the request.
    DroppedByRule,
    /// A rule dropped the response.
    AnswerLostByRule,
    /// The host is declared under `external` with `allow: false`.
    ExternalRefused,
    /// The link between two nodes lost the call.
    LostOnLink,
    /// The host is not declared under `external`, so it has no address.
    UndeclaredHost,
    /// The service is known, but the port is not declared under its `ports`, so nothing listens there.
    UndeclaredPort,
    /// The service was away: an outage ended the connection or turned it away.
    ServiceAway,
    /// A recorded answer should have been given in the callee's place, and there is none.
    MockMissed,
    /// A text from an older version that matches none of the above.
    Described {
        /// The text as stored.
        text: String,
    },
}

impl CallError {
    /// Everything that the mesh can say today.
    pub const ALL: [Self; 21] = [
        Self::ConnectRefused,
        Self::ConnectFailed,
        Self::TimedOut,
        Self::NoInstance,
        Self::TlsRefused,
        Self::ResetByCallee,
        Self::ClosedByCallee,
        Self::CallerGone,
        Self::ConnectionDropped,
        Self::MalformedRequest,
        Self::MalformedAnswer,
        Self::EndlessInterimAnswers,
        Self::HeadTooLarge,
        Self::DroppedByRule,
        Self::AnswerLostByRule,
        Self::ExternalRefused,
        Self::LostOnLink,
        Self::UndeclaredHost,
        Self::UndeclaredPort,
        Self::ServiceAway,
        Self::MockMissed,
    ];

    /// Whether the callee refused the call or broke it off, which is what a service does that is going down.
    pub fn is_by_callee(&self) -> bool {
        matches!(
            self,
            Self::ConnectRefused | Self::ConnectFailed | Self::ResetByCallee | Self::ClosedByCallee
        )
    }

    /// The text for people. Format 2 stored these texts, so changing one breaks its migration.
    pub fn words(&self) -> &str {
        match self {
            Self::ConnectRefused => "connect refused",
            Self::ConnectFailed => "connect failed",
            Self::TimedOut => "time-out",
            Self::NoInstance => "no instance",
            Self::TlsRefused => "tls refused",
            Self::ResetByCallee => "reset by callee",
            Self::ClosedByCallee => "closed by callee",
            Self::CallerGone => "caller gone",
            Self::ConnectionDropped => "connection dropped",
            Self::MalformedRequest => "malformed request",
            Self::MalformedAnswer => "malformed answer",
            Self::EndlessInterimAnswers => "interim answers without end",
            Self::HeadTooLarge => "head too large",
            Self::DroppedByRule => "dropped by a rule",
            Self::AnswerLostByRule => "answer lost by a rule",
            Self::ExternalRefused => "external call refused",
            Self::LostOnLink => "lost on link",
            Self::UndeclaredHost => "not declared under `external`",
            Self::UndeclaredPort => "not declared under `ports`",
            Self::ServiceAway => "service away",
            Self::MockMissed => "no recorded answer",
            Self::Described { text } => text,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl std::error::Error for CallError {}

/// Reads the text back that format 2 stored.
impl FromStr for CallError {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let known = Self::ALL.into_iter().find(|error| error.words() == text);
        Ok(known.unwrap_or_else(|| Self::Described { text: text.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn words_are_read_back() {
        for error in CallError::ALL {
            assert_eq!(error.to_string().parse(), Ok(error));
        }
        let words: BTreeSet<_> = CallError::ALL.iter().map(CallError::words).collect();
        assert_eq!(words.len(), CallError::ALL.len(), "each has words of its own");
        let old = CallError::Described { text: "gone fishing".into() };
        assert_eq!("gone fishing".parse(), Ok(old.clone()));
        assert_eq!(old.to_string(), "gone fishing");
    }

    #[test]
    fn json_has_kinds() {
        let json = |error: &CallError| serde_json::to_string(error).unwrap();
        assert_eq!(json(&CallError::ClosedByCallee), r#""closed_by_callee""#);
        assert_eq!(json(&CallError::Described { text: "x".into() }), r#"{"described":{"text":"x"}}"#);
        for error in CallError::ALL {
            assert_eq!(serde_json::from_str::<CallError>(&json(&error)).unwrap(), error);
        }
    }

    #[test]
    fn callees_refuse_and_break_off() {
        let by_callee: Vec<_> = CallError::ALL.into_iter().filter(CallError::is_by_callee).collect();
        let words: Vec<_> = by_callee.iter().map(CallError::words).collect();
        assert_eq!(words, ["connect refused", "connect failed", "reset by callee", "closed by callee"]);
    }
}
