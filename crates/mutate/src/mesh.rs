//! Which operators the mesh can imitate without touching a source.

use std::time::Duration;

use faultscope_model::ServiceName;
use faultscope_model::rule::{Effect, Rule, Selector};
use serde::Serialize;

use crate::operator::Operator;

/// A rule of the mesh with the same symptom as an operator, and where the two differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshEquivalent {
    /// For calls to the service.
    pub rule: Rule,
    /// What the mesh does otherwise.
    pub difference: &'static str,
}

/// How long a caller is left without an answer before its connection is reset; callers give up long before.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Bytes that pass of a truncated response: enough for a status line of JSON, too few for a whole object.
const TRUNCATED_AFTER: u64 = 16;

/// The rule that has the same symptom, if there is one.
pub fn mesh_equivalent(operator: Operator, service: Option<&ServiceName>) -> Option<MeshEquivalent> {
    let (effect, difference) = match operator {
        Operator::ConsistentDelay => (
            Effect::Delay { by: Duration::from_millis(200), jitter: Duration::ZERO },
            "the request waits, not the response, and the service is idle meanwhile",
        ),
        Operator::RandomDelay => (
            Effect::Delay { by: Duration::ZERO, jitter: Duration::from_secs(1) },
            "the delay comes from the seed, so it can be repeated",
        ),
        Operator::Abort => {
            (Effect::Abort { status: 500, grpc_status: None }, "the service does not see the request")
        }
        Operator::Timeout => (Effect::Timeout { after: FOR_EVER }, "the service does not see the request"),
        Operator::IncompleteResponse => (
            Effect::Truncate { after: TRUNCATED_AFTER },
            "the body ends early, whatever it is; a field that is left out keeps it readable",
        ),
        Operator::OutOfOrder => (
            Effect::Reorder { within: Duration::from_secs(2) },
            "calls that the service makes at the same time change places; it still waits for them",
        ),
        _ => return None,
    };
    let select = Selector { callee: service.cloned(), ..Selector::default() };
    Some(MeshEquivalent { rule: Rule { id: 1, select, effect }, difference })
}
