//! The service map: who calls whom, how often, with what result.

use std::collections::BTreeMap;
use std::time::Duration;

use faultscope_model::units::{count, nouns, show_duration};
use faultscope_store::Edge;

use crate::printer::Printer;

/// The map as one block for each caller, callers nearest to the test or the user first, so many of them.
pub(crate) fn map(edges: &[Edge], most_callers: usize, printer: &Printer) {
    blocks(edges, |_| true, most_callers, printer);
}

/// The same with the blocks of these callers only.
pub(crate) fn map_of(edges: &[Edge], callers: &[&str], printer: &Printer) {
    blocks(edges, |caller| callers.contains(&caller), usize::MAX, printer);
}

fn blocks(edges: &[Edge], wanted: impl Fn(&str) -> bool, most_callers: usize, printer: &Printer) {
    if edges.is_empty() {
        return;
    }
    let depth = depths(edges);
    let mut callers: BTreeMap<(usize, &str), Vec<&Edge>> = BTreeMap::new();
    for edge in edges {
        let caller = edge.caller.as_str();
        callers.entry((depth.get(caller).copied().unwrap_or(usize::MAX), caller)).or_default().push(edge);
    }
    let services: std::collections::BTreeSet<_> = edges.iter().flat_map(|e| [&e.caller, &e.callee]).collect();
    let heading = format!("service map: {}, {}", count(services.len(), "service"), count(edges.len(), "way"));
    printer.line(format!("\n{}", printer.strong(&heading)));
    let widest = edges.iter().map(|e| e.callee.as_str().len()).max().unwrap_or_default();
    let all = callers.len();
    callers.retain(|(_, caller), _| wanted(caller));
    let more = all - callers.len().min(most_callers);
    for ((_, caller), mut ways) in callers.into_iter().take(most_callers) {
        ways.sort_by(|a, b| b.calls.cmp(&a.calls).then(a.callee.cmp(&b.callee)));
        printer.line(format!("  {}", printer.strong(caller)));
        let last = ways.len().saturating_sub(1);
        for (index, way) in ways.iter().enumerate() {
            let branch = if index == last { "└─▶" } else { "├─▶" };
            let errors = match way.errors {
                0 => String::new(),
                n => printer.bad(&format!("  {}", count(n, "error"))),
            };
            printer.line(format!(
                "   {branch} {:<widest$}  {:>5} {:<5}  p50 {:>7}  p99 {:>7}{errors}",
                way.callee.as_str(),
                way.calls,
                nouns(&way.calls, "call"),
                show_duration(Duration::from_micros(way.p50_us)),
                show_duration(Duration::from_micros(way.p99_us)),
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

/// How many calls each service is away from the test or the user, by the shortest way.
fn depths(edges: &[Edge]) -> BTreeMap<&str, usize> {
    let mut depth: BTreeMap<&str, usize> = BTreeMap::from([("test", 0), ("user", 0)]);
    loop {
        let mut changed = false;
        for edge in edges {
            let Some(&from) = depth.get(edge.caller.as_str()) else {
                continue;
            };
            let known = depth.entry(edge.callee.as_str()).or_insert(usize::MAX);
            if *known > from + 1 {
                *known = from + 1;
                changed = true;
            }
        }
        if !changed {
            return depth;
        }
    }
}
