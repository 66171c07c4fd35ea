//! Where the answers of a perturbed run begin to differ from the usual ones.

use std::collections::{BTreeSet, HashMap};

use faultscope_model::Span;
use faultscope_model::perturbation::TargetId;
use faultscope_model::run::CallSeen;

use super::calls::calls_of;

/// Who first gave other answers than without perturbations: of the calls that did, those in whose handling no
/// other one did. The step that fails in the end only shows what they said.
pub(super) fn diverged(spans: &[Span], usual: &HashMap<TargetId, String>) -> Vec<String> {
    let calls = calls_of(spans);
    let differs = |call: &&CallSeen| usual.get(&call.target).is_some_and(|answer| *answer != call.answer);
    let different: Vec<&CallSeen> = calls.iter().filter(differs).collect();
    let causes: BTreeSet<TargetId> = different.iter().filter_map(|call| call.target.cause()).collect();
    let mut names: Vec<String> = Vec::new();
    for call in different.iter().filter(|call| !causes.contains(&call.target)) {
        let callee = spans.iter().find(|span| span.target.as_ref() == Some(&call.target));
        let name = callee.map(|span| span.callee.to_string()).unwrap_or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use faultscope_model::SpanId;

    use super::*;
    use crate::sample;

    fn span(number: u64, target: &TargetId, callee: &str, status: u16) -> Span {
        let (id, target) = (SpanId(number), Some(target.clone()));
        let (callee, status) = (callee.parse().unwrap(), Some(status));
        Span { id, callee, start_us: number, status, target, ..sample::span() }
    }

    #[test]
    fn the_deepest_other_answer_is_blamed() {
        let shop = TargetId::root().call("shop", "GET", "/", 1);
        let stock = shop.call("stock", "GET", "/", 1);
        let ledger = shop.call("ledger", "GET", "/", 1);
        let all = |status: u16| {
            [
                span(1, &shop, "shop", status),
                span(2, &stock, "stock", status),
                span(3, &ledger, "ledger", 200),
            ]
        };
        let usual = calls_of(&all(200)).into_iter().map(|call| (call.target, call.answer)).collect();
        assert_eq!(diverged(&all(200), &usual), [""; 0]);
        assert_eq!(diverged(&all(404), &usual), ["stock"]);
        // What comes only now, and what differs anyway, says nothing.
        assert_eq!(diverged(&all(404), &HashMap::new()), [""; 0]);
    }
}
