//! Shows what a replay answered from its recording, and what it could not answer.

use faultscope_engine::replay::MockReport;
use faultscope_engine::views::plain;
use faultscope_model::recording::MockMiss;
use faultscope_model::units::count;

use super::table::Table;
use crate::printer::Printer;

/// The most misses that the terminal shows; `--json` has more.
const MAX_MISSES: usize = 20;

pub(crate) fn show(report: &MockReport, printer: &Printer) {
    for miss in report.misses.iter().take(MAX_MISSES) {
        printer.line(describe(miss, printer));
    }
    if report.misses.len() > MAX_MISSES {
        let more = count(report.misses.len() - MAX_MISSES, "call");
        printer.line(format!("… and {more} without a recorded answer; `--json` has all"));
    }
    if report.services.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["mocked", "answered", "by order", "without trace", "not asked for", "missed"]);
    for (service, mocked) in &report.services {
        table.row([
            service.to_string(),
            mocked.answered.to_string(),
            mocked.other_request.to_string(),
            mocked.without_trace.to_string(),
            mocked.unused.to_string(),
            mocked.missed.to_string(),
        ]);
    }
    printer.line(table);
}

fn describe(miss: &MockMiss, printer: &Printer) -> String {
    let mut text = format!(
        "{} {} {}: {}",
        printer.bad("no recorded answer:"),
        miss.callee,
        plain(&miss.operation),
        miss.reason
    );
    if let Some(nearest) = &miss.nearest {
        text.push_str(&format!("; nearest is {} in trace {}", plain(&nearest.operation), nearest.trace));
    }
    if let Some(trace) = miss.trace {
        text.push_str(&format!(" (made in trace {trace})"));
    }
    text
}
