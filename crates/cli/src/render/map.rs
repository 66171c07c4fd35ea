//! The service map: which services call each other, how often, with which result.

use std::time::Duration;

use faultscope_engine::views::ServiceMap;
use faultscope_model::units::{count, nouns, show_duration};
use faultscope_store::Edge;

use crate::printer::Printer;

/// Draws one block for each caller, those nearest to the test or the user first, at most `most_callers` of them.
pub(crate) fn map(edges: &[Edge], most_callers: usize, printer: &Printer) {
    blocks(edges, |_| true, most_callers, printer);
}

/// Draws only the blocks of these callers.
pub(crate) fn map_of(edges: &[Edge], callers: &[&str], printer: &Printer) {
    blocks(edges, |caller| callers.contains(&caller), usize::MAX, printer);
}

fn blocks(edges: &[Edge], wanted: impl Fn(&str) -> bool, most_callers: usize, printer: &Printer) {
    if edges.is_empty() {
        return;
    }
    let ServiceMap { services, edges: n_edges, mut callers } = ServiceMap::new(edges);
    let heading = format!("service map: {}, {}", count(services, "service"), count(n_edges, "edge"));
    printer.line(format!("\n{}", printer.strong(&heading)));
    let widest = edges.iter().map(|e| e.callee.as_str().len()).max().unwrap_or_default();
    let all = callers.len();
    callers.retain(|group| wanted(group.caller));
    let more = all - callers.len().min(most_callers);
    for group in callers.into_iter().take(most_callers) {
        printer.line(format!("  {}", printer.strong(group.caller)));
        let last = group.edges.len().saturating_sub(1);
        for (index, edge) in group.edges.iter().enumerate() {
            let branch = if index == last { "└─▶" } else { "├─▶" };
            let errors = match edge.errors {
                0 => String::new(),
                n => printer.bad(&format!("  {}", count(n, "error"))),
            };
            printer.line(format!(
                "   {branch} {:<widest$}  {:>5} {:<5}  p50 {:>7}  p99 {:>7}{errors}",
                edge.callee.as_str(),
                edge.calls,
                nouns(&edge.calls, "call"),
                show_duration(Duration::from_micros(edge.p50_us)),
                show_duration(Duration::from_micros(edge.p99_us)),
            ));
        }
    }
    if more > 0 {
        printer.line(format!(
            "  ... and {} that call{} others",
            count(more, "more service"),
            if more == 1 { "s" } else { "" }
        ));
    }
}
