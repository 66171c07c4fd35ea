//! The calls of a run by time, with what they carried and what services printed meanwhile.

use std::time::Duration;

use faultscope_engine::views::{RunLogs, plain, readable_text};
use faultscope_model::Span;
use faultscope_model::units::{count, show_duration};

use super::tree;
use crate::printer::Printer;

/// Characters of a body that are shown: an object of some ten fields. `--json` has all that was recorded.
const BODY_WIDTH: usize = 400;

/// Whether the bodies of calls are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bodies {
    Shown,
    LeftOut,
}

/// A call or a line of a service, and what stands below it.
struct Row {
    at_us: u64,
    text: String,
    below: Vec<String>,
}

/// All calls with their bodies.
pub(crate) fn calls(spans: &[Span], started_us: u64, printer: &Printer) {
    printer.line(format!("\n{}", printer.strong("calls and bodies")));
    draw(rows_of_calls(spans, Bodies::Shown, ""), started_us, printer);
}

/// Everything that was printed, between the calls.
pub(crate) fn logs_and_calls(
    logs: &RunLogs,
    spans: &[Span],
    bodies: Bodies,
    started_us: u64,
    printer: &Printer,
) {
    printer.line(format!("\n{}", printer.strong("logs and calls")));
    if logs.are_lost {
        printer
            .line("  the logs of this run were not kept: those of its campaign take all the room there is");
    }
    for log in logs.instances.iter().filter(|log| log.dropped > 0) {
        let dropped = count(log.dropped, "line");
        printer.line(format!("  {}: {dropped} before these were not kept", log.instance));
    }
    // A call stands before what was printed in the same moment.
    let mut rows = rows_of_calls(spans, bodies, "-> ");
    rows.extend(logs.timeline().iter().map(|line| Row {
        at_us: line.at_us,
        text: format!("{} | {}", line.instance, plain(&line.text)),
        below: Vec::new(),
    }));
    draw(rows, started_us, printer);
}

fn rows_of_calls(spans: &[Span], bodies: Bodies, mark: &str) -> Vec<Row> {
    let row = |call: &Span| Row {
        at_us: call.start_us,
        text: format!("{mark}{}", plain(&tree::call_line(call))),
        below: if bodies == Bodies::Shown { show_bodies(call) } else { Vec::new() },
    };
    spans.iter().map(row).collect()
}

fn draw(mut rows: Vec<Row>, started_us: u64, printer: &Printer) {
    rows.sort_by_key(|row| row.at_us);
    for Row { at_us, text, below } in rows {
        printer.line(format!("  {:>8}  {text}", since(at_us, started_us)));
        below.iter().for_each(|line| printer.line(printer.dim(&format!("  {:>8}  {line}", ""))));
    }
}

/// The recorded request and answer of a call, a line each.
fn show_bodies(call: &Span) -> Vec<String> {
    let request = call.request_text().map(|text| (">", text, call.request_bytes));
    let response = call.response_text().map(|text| ("<", text, call.response_bytes));
    let recorded = [request, response].into_iter().flatten().filter(|(_, text, _)| !text.is_empty());
    recorded.map(|(mark, text, bytes)| format!("{mark} {}", show_body(&text, bytes))).collect()
}

/// A body in one line, or its size if it is no text.
fn show_body(text: &str, bytes: u64) -> String {
    // Where recording ends, a letter may be cut in two.
    let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    let is_cut = whole.len() < text.len();
    let text = whole;
    if text.contains(|c: char| c == char::REPLACEMENT_CHARACTER || (c.is_control() && !c.is_whitespace())) {
        return format!("({})", count(bytes, "byte"));
    }
    let line = readable_text(text).split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = line.chars().take(BODY_WIDTH).collect();
    if is_cut || shown.len() < line.len() {
        shown.push('…');
    }
    plain(&shown)
}

/// The time from the start of a run.
pub(super) fn since(at_us: u64, started_us: u64) -> String {
    show_duration(Duration::from_micros(at_us.saturating_sub(started_us)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_in_one_line() {
        for (body, expected) in [
            ("{\n  \"left\": 9\n}\n", "{ \"left\": 9 }"),
            ("<!DOCTYPE html><html><body><h1>Oops</h1></body></html>", "Oops"),
            ("\u{0}\u{1}", "(7 bytes)"),
            ("\u{fffd}PNG", "(7 bytes)"),
            ("cut in a letter\u{fffd}", "cut in a letter…"),
        ] {
            assert_eq!(show_body(body, 7), expected, "{body}");
        }
        let long = "a".repeat(BODY_WIDTH + 1);
        assert_eq!(show_body(&long, 401), format!("{}…", &long[1..]));
    }
}
