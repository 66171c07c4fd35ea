//! Boundaries of numbers, and the smallest input, as text.

use faultscope_engine::debug::DebugReport;

use crate::printer::Printer;
use crate::shell::FolderOption;

pub(crate) fn deeper(report: &DebugReport, at: &FolderOption, printer: &Printer) {
    if !report.boundaries.is_empty() {
        printer.line(printer.strong("Where it starts:"));
        for boundary in &report.boundaries {
            printer.line(format!("  {}", boundary.describe()));
        }
    }
    let Some(input) = &report.input else { return };
    printer.line(printer.strong(&input.describe()));
    for line in input.shown().lines() {
        printer.line(format!("  | {line}"));
    }
    if let Some(kept) = &input.kept {
        let command = format!("faultscope report {} --input {kept}{at}", report.campaign);
        printer.line(format!("All of it: `{command}`"));
    }
}
