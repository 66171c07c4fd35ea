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

/// The calls of a run as a story that can be compared: in the order in which they ended, since an answer
/// is what the caller can see, without ids and times. Concurrent calls of one handling are told in the
/// order of their names, unless a gate imposed another.
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
    let mut children: Vec<&Span> = spans.iter().filter(|s| s.parent == Some(span.id)).collect();
    children.sort_by_key(|s| (s.start_us, s.id));
    for child in children {
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
