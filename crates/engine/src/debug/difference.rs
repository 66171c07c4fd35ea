//! Evidence for a cause: the first call in which the failing run differs from the nearest passing one.

use faultscope_model::{DeltaSet, Outcome, Run, Span};

use super::report::{DebugReport, Difference};
use crate::error::EngineError;
use crate::session::Session;

/// Compares the smallest failing run with the passing run that differs from it in the fewest deltas.
pub(super) async fn first_difference(
    session: &Session,
    runs: &[&Run],
    report: &DebugReport,
) -> Result<Option<Difference>, EngineError> {
    let Some(witness) = report.causes.first().and_then(|cause| cause.run.clone()) else { return Ok(None) };
    let Some(failing) = runs.iter().find(|run| run.id == witness) else { return Ok(None) };
    let distance =
        |set: &DeltaSet| set.difference(&failing.deltas).len() + failing.deltas.difference(set).len();
    let passing =
        runs.iter().filter(|run| run.outcome == Outcome::Pass).min_by_key(|run| distance(&run.deltas));
    let Some(passing) = passing else { return Ok(None) };
    let (bad, good) = (session.spans_of(failing.trial).await?, session.spans_of(passing.trial).await?);
    let (bad, good) = (story(&bad), story(&good));
    let at =
        (0..bad.len().max(good.len())).find(|&i| bad.get(i).map(|c| &c.what) != good.get(i).map(|c| &c.what));
    let space = session.application().space().map_err(|e| EngineError::Internal(e.to_string()))?;
    let missing = failing.deltas.difference(&passing.deltas);
    let call = |list: &[Told], at: usize| list.get(at).map(|told| told.shown.clone());
    Ok(at.map(|at| Difference {
        failing: failing.id.clone(),
        passing: passing.id.clone(),
        without: missing.iter().filter_map(|d| space.deltas.get(d)).map(|d| d.name.clone()).collect(),
        failing_call: call(&bad, at),
        passing_call: call(&good, at),
    }))
}

struct Told {
    /// What must agree: who called whom for what, and how it ended.
    what: String,
    shown: String,
}

/// The calls of a run as a story that can be compared, without ids and times: each call after those that
/// were made in it. Calls that overlap in time are told in the order of their names, since theirs is chance.
fn story(spans: &[Span]) -> Vec<Told> {
    let mut roots: Vec<&Span> = spans.iter().filter(|s| s.parent.is_none()).collect();
    roots.sort_by_key(|s| (s.start_us, s.id));
    let mut told = Vec::new();
    for root in roots {
        tell(root, spans, 0, &mut told);
    }
    told
}

fn tell(span: &Span, spans: &[Span], depth: usize, told: &mut Vec<Told>) {
    // Deeper than any real chain: damaged data must not end in a circle.
    if depth > 64 {
        return;
    }
    let children = spans.iter().filter(|s| s.parent == Some(span.id)).collect();
    for child in in_order(children) {
        tell(child, spans, depth + 1, told);
    }
    let ending = match (&span.error, span.status) {
        (Some(error), _) => error.clone(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "ended".into(),
    };
    let operation = faultscope_model::outcome::normalise(&span.operation());
    let what = format!("{} {} {operation} {ending}", span.caller.service, span.callee);
    let instance = span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
    let body = span
        .payload
        .as_ref()
        .map(|p| String::from_utf8_lossy(&p.response_body).into_owned())
        .unwrap_or_default();
    let body: String = body.chars().take(120).collect();
    told.push(Told { what, shown: format!("{} -> {instance} {operation}: {ending} {body}", span.caller) });
}

/// Sorts the calls of one handling by time, and those that overlap by name.
fn in_order(mut calls: Vec<&Span>) -> Vec<&Span> {
    calls.sort_by_key(|s| (s.start_us, s.id));
    let mut start = 0;
    while start < calls.len() {
        let mut busy_until = calls[start].start_us + calls[start].duration_us;
        let mut end = start + 1;
        while end < calls.len() && calls[end].start_us < busy_until {
            busy_until = busy_until.max(calls[end].start_us + calls[end].duration_us);
            end += 1;
        }
        calls[start..end].sort_by_cached_key(|s| (s.callee.clone(), s.operation(), s.start_us));
        start = end;
    }
    calls
}

#[cfg(test)]
mod tests {
    use faultscope_model::span::{Parentage, Wire};
    use faultscope_model::{InstanceId, NodeId, SpanId, TraceId};

    use super::*;

    fn call(
        id: u64,
        parent: Option<u64>,
        callee: &str,
        start_us: u64,
        duration_us: u64,
        status: u16,
    ) -> Span {
        Span {
            trace: TraceId(1),
            id: SpanId(id),
            parent: parent.map(SpanId),
            parentage: Parentage::Propagated,
            caller: InstanceId::test(),
            caller_node: NodeId(0),
            callee: callee.parse().unwrap(),
            callee_instance: None,
            callee_node: NodeId(0),
            port: 80,
            wire: Wire::Http1,
            method: "GET".into(),
            path: "/".into(),
            start_us,
            duration_us,
            first_byte_us: None,
            request_bytes: 0,
            response_bytes: 0,
            status: Some(status),
            grpc_status: None,
            error: None,
            rules: Vec::new(),
            payload: None,
        }
    }

    fn names(spans: &[Span]) -> Vec<String> {
        story(spans).into_iter().map(|told| told.what).collect()
    }

    #[test]
    fn chance_order_of_overlapping_calls_is_no_difference() {
        let one = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "b", 10, 50, 200),
            call(3, Some(1), "c", 11, 50, 200),
        ];
        let other = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "c", 10, 50, 200),
            call(3, Some(1), "b", 11, 50, 200),
        ];
        assert_eq!(names(&one), names(&other));
    }

    #[test]
    fn order_of_calls_one_after_another_is_a_difference() {
        let one = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "b", 10, 5, 200),
            call(3, Some(1), "c", 20, 5, 200),
        ];
        let other = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "c", 10, 5, 200),
            call(3, Some(1), "b", 20, 5, 200),
        ];
        assert_ne!(names(&one), names(&other));
    }

    #[test]
    fn answers_are_told_after_the_calls_made_for_them() {
        let spans = [call(1, None, "a", 0, 100, 500), call(2, Some(1), "b", 10, 5, 404)];
        assert_eq!(names(&spans), ["test b GET / 404", "test a GET / 500"]);
    }
}
