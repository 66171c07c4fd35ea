//! Rules: what the mesh does to chosen calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceId, ServiceName};
use crate::operation::OperationPattern;
use crate::perturbation::TargetId;
use crate::units;

/// An effect on the calls it selects. Rules are applied in order; all that match take effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Spans and reports refer to the rule by this number.
    pub id: u32,
    /// The calls it applies to.
    #[serde(default)]
    pub select: Selector,
    /// What happens to them.
    pub effect: Effect,
}

/// Selects calls; an absent field matches every call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// The calling service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<ServiceName>,
    /// The calling instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_instance: Option<InstanceId>,
    /// The called service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee: Option<ServiceName>,
    /// The instance that was chosen to handle the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee_instance: Option<InstanceId>,
    /// Method and path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationPattern>,
    /// A header that must be present, with this value if one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderMatch>,
    /// The stable name of the call; all attempts at it match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetId>,
    /// Which of the calls that match everything else, counted per trial.
    #[serde(default)]
    pub occurrence: Occurrence,
}

/// A header to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    /// Compared without regard to case.
    pub name: String,
    /// The exact value; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Which of several matching calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occurrence {
    /// All of them.
    #[default]
    Every,
    /// Only the n-th one, from 1.
    Nth(u32),
    /// The first n.
    First(u32),
    /// All from the n-th on.
    From(u32),
}

impl Occurrence {
    /// Whether the n-th call, from 1, is selected.
    pub fn covers(self, n: u32) -> bool {
        match self {
            Self::Every => true,
            Self::Nth(wanted) => n == wanted,
            Self::First(count) => n <= count,
            Self::From(start) => n >= start,
        }
    }
}

/// What a rule does to a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// Holds the request back for a time.
    Delay {
        /// The delay of every selected call.
        #[serde(with = "units::duration")]
        by: Duration,
        /// The largest additional delay, chosen at random from the seed.
        #[serde(default, with = "units::duration")]
        jitter: Duration,
    },
    /// Answers in place of the callee, which sees nothing.
    Abort {
        /// The HTTP status.
        status: u16,
        /// The gRPC status, sent with HTTP status 200 to gRPC callers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grpc_status: Option<u16>,
    },
    /// Resets the caller's connection (HTTP/2: the stream); the callee sees nothing.
    Drop,
    /// Sends the request twice, one after the other; the caller gets the first response once both are there.
    Duplicate,
    /// Lets the callee handle the request, then resets the caller's connection instead of answering.
    LostAnswer,
    /// Cuts the response body after some bytes and, where the framing allows, ends it as if it were complete.
    Truncate {
        /// Bytes that pass.
        after: u64,
    },
    /// Limits the bandwidth of the response.
    Throttle {
        /// Bytes per second.
        bytes_per_second: u64,
    },
    /// Restarts the called instance once its response is complete, before the caller gets it.
    RestartAfter,
    /// Gives no response: the callee sees nothing, and the caller's connection (HTTP/2: the stream) is reset
    /// unless the caller gives up first.
    Timeout {
        /// Time until the reset.
        #[serde(with = "units::duration")]
        after: Duration,
    },
    /// Holds the request until an unrelated call to the same callee was answered. Works only with
    /// [`Wiring::targets`](crate::wiring::Wiring::targets), which tell related calls.
    Reorder {
        /// The longest wait; after it the call continues, and nothing was reordered.
        #[serde(with = "units::duration")]
        within: Duration,
    },
    /// Answers with an error for the first calls of each caller instance and operation; if a target is selected,
    /// for the first attempts at it.
    ErrorFirst {
        /// The number of errors.
        count: u32,
        /// The HTTP status.
        status: u16,
        /// The gRPC status, sent with HTTP status 200 to gRPC callers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grpc_status: Option<u16>,
    },
    /// Changes nothing but records the rule in the span, to see which calls a selector matches.
    Mark,
}
