//! The order in which callers really make the calls of a series.

use faultscope_model::series::CallName;
use faultscope_model::{Run, Space, Span};

use crate::error::EngineError;
use crate::session::Session;

/// Takes the order in which callers make their calls from the spans of the simplest circumstance.
pub(super) async fn learn_orders(
    session: &Session,
    mut space: Space,
    simplest: &Run,
) -> Result<Space, EngineError> {
    if space.series.iter().all(|series| series.order_known) {
        return Ok(space);
    }
    let spans = session.spans_of(simplest.trial).await?;
    for index in 0..space.series.len() {
        let seen = request_order(&space, index, &spans);
        if !seen.is_empty() {
            space = space.with_request_order(index, &seen);
        }
    }
    Ok(space)
}

/// The calls of a series in the order of their start, in the first handling that makes all of them.
fn request_order(space: &Space, index: usize, spans: &[Span]) -> Vec<CallName> {
    let series = &space.series[index];
    let is_handling = |s: &&Span| s.callee == series.from && series.handling.matches(&s.method, &s.path);
    for handling in spans.iter().filter(is_handling) {
        let mut made: Vec<&Span> = spans.iter().filter(|s| s.parent == Some(handling.id)).collect();
        made.sort_by_key(|s| s.start_us);
        let mut seen: Vec<CallName> = Vec::new();
        for span in made {
            // The n-th such call of the handling is the one with ordinal n.
            let matching = |call: &&CallName| {
                call.callee == span.callee
                    && call.operation.matches(&span.method, &span.path)
                    && !seen.contains(call)
            };
            if let Some(call) = series.calls.iter().filter(matching).min_by_key(|call| call.ordinal) {
                seen.push(call.clone());
            }
        }
        if seen.len() == series.calls.len() {
            return seen;
        }
    }
    Vec::new()
}
