//! Series: concurrent calls made by one handling of one request, and the gates that order them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::ServiceName;
use crate::operation::OperationPattern;
use crate::units;

/// One call of a series: callee, operation and, if the same call is made more than once, its ordinal.
/// Written `stock PUT /s` or `stock PUT /s#2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallName {
    /// The called service.
    pub callee: ServiceName,
    /// Method and path.
    pub operation: OperationPattern,
    /// Counts equal calls of one handling, from 1.
    pub ordinal: u32,
}

/// A text that is not the name of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a call; write service, method and path, such as `stock PUT /items` or `stock PUT /items#2`"
)]
pub struct InvalidCall(String);

impl FromStr for CallName {
    type Err = InvalidCall;

    fn from_str(text: &str) -> Result<Self, InvalidCall> {
        let invalid = || InvalidCall(text.chars().take(160).collect());
        let (callee, rest) = text.trim().split_once(char::is_whitespace).ok_or_else(invalid)?;
        let (operation, ordinal) = match rest.rsplit_once('#') {
            Some((operation, ordinal)) => (operation, ordinal.trim().parse().map_err(|_| invalid())?),
            None => (rest, 1),
        };
        if ordinal == 0 {
            return Err(invalid());
        }
        Ok(Self {
            callee: callee.parse().map_err(|_| invalid())?,
            operation: operation.parse().map_err(|_| invalid())?,
            ordinal,
        })
    }
}

impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.callee, self.operation)?;
        if self.ordinal > 1 { write!(f, "#{}", self.ordinal) } else { Ok(()) }
    }
}

impl Serialize for CallName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CallName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Holds the calls of a series until all have arrived, then releases them one by one: each after the
/// response to the one before has reached the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Reports refer to the gate by this number.
    pub id: u32,
    /// The service whose handling makes the calls.
    pub from: ServiceName,
    /// The request it handles.
    #[serde(rename = "in")]
    pub handling: OperationPattern,
    /// The order of release.
    pub order: Vec<CallName>,
    /// How long to wait for all calls to arrive, and then for each response.
    #[serde(with = "units::duration")]
    pub wait: Duration,
}

/// What a gate did in one handling of its request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum GateOutcome {
    /// All calls arrived and were released in the requested order.
    Completed,
    /// The caller makes some calls only after the response to others, so they can never be held together.
    Synchronous {
        /// Calls that arrived.
        arrived: Vec<CallName>,
        /// Calls that did not.
        missing: Vec<CallName>,
    },
    /// Some calls did not arrive in time while others to the same callee did: a client pool may be exhausted.
    PoolExhausted {
        /// Calls that did not arrive.
        missing: Vec<CallName>,
    },
    /// The handling ended without making all calls.
    Missing {
        /// Calls that were never made.
        missing: Vec<CallName>,
    },
    /// The response to a released call did not come in time.
    Unanswered {
        /// The unanswered call.
        call: CallName,
    },
    /// The report of a sidecar was lost: the trial is invalid, it shows nothing about the application.
    ReportLost,
}

impl fmt::Display for GateOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |calls: &[CallName]| calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Completed => f.write_str("all calls were released in the requested order"),
            Self::Synchronous { missing, .. } => {
                let missing = names(missing);
                write!(
                    f,
                    "the calls are not concurrent: {missing} came only after the response to another one"
                )
            }
            Self::PoolExhausted { missing } => {
                write!(f, "the caller's connection pool may be too small: {} did not arrive", names(missing))
            }
            Self::Missing { missing } => write!(f, "the caller never made {}", names(missing)),
            Self::Unanswered { call } => write!(f, "{call} was not answered in time"),
            Self::ReportLost => f.write_str("the report of a sidecar was lost"),
        }
    }
}

/// What one gate did in one handling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateReport {
    /// The number of the gate.
    pub gate: u32,
    /// Whether the order could be imposed.
    pub outcome: GateOutcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_read_back() {
        for text in ["stock PUT /s", "stock PUT /s#2"] {
            assert_eq!(text.parse::<CallName>().unwrap().to_string(), text);
        }
        for bad in ["", "stock", "stock PUT", "stock PUT /s#0", "stock PUT /s#x", "a/b GET /x"] {
            assert!(bad.parse::<CallName>().is_err(), "{bad}");
        }
    }
}
