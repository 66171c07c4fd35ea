//! A reported trace as a waterfall: each span below its parent, with a time bar, the
//! critical path marked and errors named.

use std::time::Duration;

use faultscope_engine::views::{SpanFacts, Waterfall, WaterfallRow};
use faultscope_model::units::{count, show_duration};

use super::branches::Branches;
use super::usage;
use crate::printer::Printer;

pub(crate) use faultscope_engine::views::plain;

/// Characters of the time bar.
const BAR: u64 = 32;
/// The widest label of a span, including its branches.
const WIDEST: usize = 80;
/// The most characters of an error.
const REASON: usize = 60;

/// Draws a trace, with the metrics of the instances behind its spans.
pub(crate) fn waterfall(trace: &Waterfall, printer: &Printer) {
    let errors = if trace.failed == 0 { String::new() } else { format!(", {} with errors", trace.failed) };
    let spans = count(trace.spans, "span");
    let heading = format!("trace {}: {spans} in {}{errors}", trace.id, took(trace.duration_us));
    printer.line(printer.strong(&heading));
    let mut branches = Branches::default();
    let label = |row: &WaterfallRow| {
        let label = row.span.as_ref().map_or("(the root was not reported)", |span| &span.label);
        cut(format!("{}{label}", branches.next(row.depth, row.is_last)))
    };
    let labels: Vec<String> = trace.rows.iter().map(label).collect();
    let widest = labels.iter().map(|text| text.chars().count()).max().unwrap_or_default();
    for (row, text) in trace.rows.iter().zip(labels) {
        match &row.span {
            None => printer.line(format!("    {}", printer.dim(&text))),
            Some(span) => {
                let text = format!("{text:<widest$}");
                printer.line(line(span, &text, trace.duration_us, printer));
            }
        }
    }
    let slowest: Vec<_> = trace
        .slowest
        .iter()
        .map(|span| format!("{} {} ({:.0} %)", span.label, took(span.held_us), span.share * 100.0))
        .collect();
    if !trace.missing_parents.is_empty() {
        let parents = count(trace.missing_parents.len(), "parent");
        printer.line(format!(
            "\n  broken trace: {parents} of its spans never arrived, so their place is a guess"
        ));
    }
    if !slowest.is_empty() {
        printer.line(format!("\n  * critical path, mostly: {}", slowest.join(", ")));
    }
}

fn line(span: &SpanFacts, label: &str, whole_us: u64, printer: &Printer) -> String {
    let mark = if span.is_critical { "*" } else { " " };
    let duration = span.duration_us.map(took).unwrap_or_default();
    let bar = match span.time_us {
        Some((from, to)) => bar(from, to, whole_us.max(1)),
        None => " ".repeat(BAR as usize),
    };
    let clock = if span.is_shifted { " (clock corrected)" } else { "" };
    let line = format!("  {mark} {label}  {duration:>8}  {bar} {}{clock}", status(span, printer));
    let known = span.known.as_ref().map(|known| format!("  {}", printer.dim(&usage::beside(known))));
    format!("{}{}", line.trim_end(), known.unwrap_or_default())
}

fn took(us: u64) -> String {
    show_duration(Duration::from_micros(us))
}

fn cut(text: String) -> String {
    if text.chars().count() <= WIDEST {
        return text;
    }
    let mut short: String = text.chars().take(WIDEST - 1).collect();
    short.push('…');
    short
}

fn bar(from: u64, to: u64, whole: u64) -> String {
    let place = |us: u64| (u128::from(us) * u128::from(BAR) / u128::from(whole)).min(BAR.into()) as usize;
    let width = BAR as usize;
    let from = place(from).min(width - 1);
    let to = place(to).max(from + 1);
    format!("{}{}{}", " ".repeat(from), "▬".repeat(to - from), " ".repeat(width - to))
}

fn status(span: &SpanFacts, printer: &Printer) -> String {
    let Some(reason) = &span.error else { return plain(&span.status) };
    // The reason of a call that the mesh saw begins with its status.
    let status = if reason.starts_with(&span.status) { "" } else { &span.status };
    let reason: String = reason.chars().take(REASON).collect();
    printer.bad(plain(&format!("{status} {reason}")).trim_start())
}
