//! The calls behind an answer, by time: in the recording and in a replay.

use std::collections::BTreeMap;

use faultscope_model::{InstanceId, Span, SpanId};
use serde::{Deserialize, Serialize};

/// Calls of one request that are shown.
const MAX_CALLS: usize = 100;
/// Deeper than any real chain: damaged data must not end in a circle.
const MAX_DEPTH: usize = 64;

/// The calls that one request led to, on both sides.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CallsSideBySide {
    /// As recorded, callers before callees.
    pub recorded: Vec<TimedCall>,
    /// In the first replay.
    pub replayed: Vec<TimedCall>,
}

/// A call with its place in time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimedCall {
    /// The number of calls around it.
    pub depth: usize,
    /// The instance that was called, or the service where none was chosen.
    pub callee: String,
    /// Method and path.
    pub operation: String,
    /// How it ended.
    pub ending: String,
    /// Whether it failed.
    pub failed: bool,
    /// Microseconds after the start of the request.
    pub after_us: u64,
    /// Microseconds until it had ended.
    pub duration_us: u64,
}

/// The calls of a run, ready to be looked up by the request that they belong to.
#[derive(Debug)]
pub(super) struct CallIndex<'a> {
    children: BTreeMap<SpanId, Vec<&'a Span>>,
    by_id: BTreeMap<SpanId, &'a Span>,
    roots: BTreeMap<&'a InstanceId, &'a Span>,
}

impl<'a> CallIndex<'a> {
    pub(super) fn new(calls: &'a [Span]) -> Self {
        let mut children: BTreeMap<SpanId, Vec<&Span>> = BTreeMap::new();
        for call in calls {
            if let Some(parent) = call.parent {
                children.entry(parent).or_default().push(call);
            }
        }
        for list in children.values_mut() {
            list.sort_by_key(|call| (call.start_us, call.id));
        }
        // A request of a replay may name a parent of its own, for services that continue traces.
        let roots = calls.iter().filter(|call| call.caller.is_test()).map(|call| (&call.caller, call));
        let by_id = calls.iter().map(|call| (call.id, call)).collect();
        Self { children, by_id, roots: roots.collect() }
    }

    /// The calls below a recorded request.
    pub(super) fn below(&self, id: SpanId, show: &impl Fn(&str) -> String) -> Vec<TimedCall> {
        self.by_id.get(&id).map(|root| self.list(root, show)).unwrap_or_default()
    }

    /// The calls below the request of a caller.
    pub(super) fn made_by(&self, caller: &InstanceId, show: &impl Fn(&str) -> String) -> Vec<TimedCall> {
        self.roots.get(caller).map(|root| self.list(root, show)).unwrap_or_default()
    }

    fn list(&self, root: &Span, show: &impl Fn(&str) -> String) -> Vec<TimedCall> {
        let mut listed = Vec::new();
        // The next call is at the end, so children are pushed from the last to the first.
        let mut open = vec![(root, 0)];
        while let Some((call, depth)) = open.pop() {
            if listed.len() >= MAX_CALLS {
                break;
            }
            let callee = call.callee_instance.as_ref().map(ToString::to_string);
            listed.push(TimedCall {
                depth,
                callee: callee.unwrap_or_else(|| call.callee.to_string()),
                operation: show(&call.operation()),
                ending: show(&call.describe_failure()),
                failed: call.failed(),
                after_us: call.start_us.saturating_sub(root.start_us),
                duration_us: call.duration_us,
            });
            if depth < MAX_DEPTH {
                let children = self.children.get(&call.id).map_or(&[][..], Vec::as_slice);
                open.extend(children.iter().rev().map(|child| (*child, depth + 1)));
            }
        }
        listed
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::ServiceName;

    use super::*;

    fn call(id: u64, parent: Option<u64>, callee: &str, start_us: u64) -> Span {
        let caller = if parent.is_some() { "front-1" } else { "test-2" };
        let parent = parent.map(|parent| format!("{parent:x}"));
        let json = serde_json::json!({
            "trace": "1", "id": format!("{id:x}"), "parent": parent, "caller": caller, "callee": callee,
            "port": 80, "wire": "http1", "method": "GET", "path": "/", "start_us": start_us, "duration_us": 5,
            "request_bytes": 0, "response_bytes": 0, "status": 200,
        });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn calls_are_listed_below_their_callers_by_time() {
        let calls =
            [call(3, Some(1), "late", 140), call(2, Some(1), "early", 110), call(1, None, "front", 100)];
        let index = CallIndex::new(&calls);
        let show = |text: &str| text.to_owned();
        let listed = index.below(SpanId(1), &show);
        let lines: Vec<_> =
            listed.iter().map(|call| format!("{} {} {}", call.depth, call.callee, call.after_us)).collect();
        assert_eq!(lines, ["0 front 0", "1 early 10", "1 late 40"]);
        assert_eq!(index.made_by(&InstanceId::new(ServiceName::test(), 2), &show), listed);
        assert!(index.made_by(&InstanceId::test(), &show).is_empty());
    }

    #[test]
    fn a_circle_ends() {
        let calls = [call(1, Some(2), "a", 1), call(2, Some(1), "b", 2)];
        assert_eq!(CallIndex::new(&calls).below(SpanId(1), &ToString::to_string).len(), MAX_DEPTH + 1);
    }
}
