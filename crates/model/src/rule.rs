//! Rules: what the mesh does to chosen calls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceId, ServiceName};
use crate::operation::OperationPattern;
use crate::perturbation::TargetId;
use crate::units;

/// Something done to the calls it selects. Rules are asked in their order; all that match take effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// Its number; spans and reports name it.
    pub id: u32,
    /// Which calls.
    #[serde(default)]
    pub select: Selector,
    /// What is done to them.
    pub effect: Effect,
}

/// Chooses calls; an absent field matches every call.
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
    /// The chosen instance of the called service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callee_instance: Option<InstanceId>,
    /// Method and path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationPattern>,
    /// A header that must be there, with this value when one is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HeaderMatch>,
    /// The call that is known by this name in every run; all attempts at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetId>,
    /// Which of the calls that match everything else, counted over the slot's trial.
    #[serde(default)]
    pub occurrence: Occurrence,
}

/// A header to look for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    /// Its name, in any case.
    pub name: String,
    /// Its exact value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Which of several calls that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occurrence {
    /// All of them.
    #[default]
    Every,
    /// Only the n-th, from 1.
    Nth(u32),
    /// The first n.
    First(u32),
    /// All from the n-th on.
    From(u32),
}

impl Occurrence {
    /// Whether the n-th call (from 1) is meant.
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
        /// How long.
        #[serde(with = "units::duration")]
        by: Duration,
        /// Up to so much longer, at random from the seed.
        #[serde(default, with = "units::duration")]
        jitter: Duration,
    },
    /// Answers in the callee's place; the callee sees nothing. For gRPC a gRPC status may be given.
    Abort {
        /// The HTTP status.
        status: u16,
        /// The gRPC status, sent with HTTP 200 to gRPC callers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grpc_status: Option<u16>,
    },
    /// Resets the caller's connection (HTTP/2: the stream); the callee sees nothing.
    Drop,
    /// Sends the request twice, one after the other; the caller gets the first answer when both are there.
    Duplicate,
    /// Lets the callee do its work, then resets the caller's connection instead of answering.
    LostAnswer,
    /// Cuts the answer's body after so many bytes and ends it as if it were whole where the framing allows.
    Truncate {
        /// Bytes that still pass.
        after: u64,
    },
    /// Limits the answer's speed.
    Throttle {
        /// Bytes for each second.
        bytes_per_second: u64,
    },
    /// Restarts the callee's instance once its answer is complete, before the caller gets it.
    RestartAfter,
    /// Gives no answer: the callee sees nothing, and the caller's connection (HTTP/2: the stream) is reset
    /// when the caller has not given up by then.
    Timeout {
        /// After how long.
        #[serde(with = "units::duration")]
        after: Duration,
    },
    /// Holds the request until a call to the same callee that has nothing to do with it was answered. Needs
    /// targets.
    Reorder {
        /// How long it waits for one; then the call goes on, and nothing was reordered.
        #[serde(with = "units::duration")]
        within: Duration,
    },
    /// Answers with an error for the first k calls of each caller instance and operation; where a target is
    /// selected, for the first k attempts at it.
    ErrorFirst {
        /// How many.
        count: u32,
        /// The HTTP status.
        status: u16,
    },
    /// Breaks nothing: marks the call in its span, to see whether a selector finds its calls.
    Mark,
}
