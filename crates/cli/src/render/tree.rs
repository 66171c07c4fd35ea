//! Call trees: each call below the one in whose handling it was made, with a time bar.

use std::time::Duration;

use faultscope_engine::views::{CallTree, TreeRow, plain};
use faultscope_model::Span;
use faultscope_model::span::Parentage;
use faultscope_model::units::{count, show_duration};

use super::branches::Branches;
use super::usage;
use crate::printer::Printer;

/// Characters of the time bar.
const BAR: usize = 24;

/// The widest label of a call, including its branches.
const WIDEST: usize = 90;

/// Draws trees of calls; rows refer to calls by their index in `spans`.
pub(crate) fn trees(spans: &[Span], trees: &[CallTree], printer: &Printer) {
    trees.iter().for_each(|tree| draw(spans, tree, printer));
}

fn draw(spans: &[Span], tree: &CallTree, printer: &Printer) {
    let took = show_duration(Duration::from_micros(tree.duration_us));
    let heading = format!("trace {}: {} in {took}", tree.trace, count(tree.calls, "call"));
    printer.line(format!("\n{}", printer.strong(&heading)));
    let mut branches = Branches::default();
    let label = |row: &TreeRow| {
        let call = &spans[row.call];
        let text = format!("{}{} {}", branches.next(row.depth, row.is_last), callee(call), call.operation());
        text.chars().take(WIDEST).collect::<String>()
    };
    let labels: Vec<_> = tree.rows.iter().map(label).collect();
    let widest = labels.iter().map(|text| text.chars().count()).max().unwrap_or_default();
    for (row, text) in tree.rows.iter().zip(labels) {
        let call = &spans[row.call];
        let status = status(call);
        let status = if call.failed() { printer.bad(&status) } else { status };
        let took = show_duration(Duration::from_micros(call.duration_us));
        let known = row.known.as_ref().map(|known| printer.dim(&usage::beside(known))).unwrap_or_default();
        let line = format!("  {text:<widest$}  {took:>8}  {} {status}  {known}", bar(tree, call));
        printer.line(line.trim_end());
    }
}

/// A call in a line: who called whom, what for, and the answer.
pub(crate) fn call_line(call: &Span) -> String {
    format!("{} -> {} {} {}", call.caller, callee(call), call.operation(), status(call)).trim_end().to_owned()
}

fn bar(tree: &CallTree, call: &Span) -> String {
    let whole = u128::from(tree.duration_us.max(1));
    let place = |us: u64| (u128::from(us) * BAR as u128 / whole).min(BAR as u128) as usize;
    let start = call.start_us - tree.start_us;
    let from = place(start).min(BAR - 1);
    let to = place(start.saturating_add(call.duration_us)).max(from + 1);
    format!("{}{}{}", " ".repeat(from), "▬".repeat(to - from), " ".repeat(BAR - to))
}

fn callee(span: &Span) -> String {
    let name = span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
    match span.parentage {
        Parentage::Inferred => format!("{name} (parent inferred)"),
        _ => name,
    }
}

fn status(span: &Span) -> String {
    plain(&span.describe_ending())
}
