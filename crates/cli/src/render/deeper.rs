//! Boundaries of numbers, and the smallest input, as text.

use faultscope_engine::debug::{DebugReport, InputEnding, InputReport};

use crate::printer::Printer;

/// Lines of an input that are shown.
const MOST_LINES: usize = 20;

pub(crate) fn deeper(report: &DebugReport, printer: &Printer) {
    if !report.boundaries.is_empty() {
        printer.line(printer.strong("Where it starts:"));
        for boundary in &report.boundaries {
            printer.line(format!("  {}", boundary.tell()));
        }
    }
    if let Some(input) = &report.input {
        show_input(input, printer);
    }
}

fn show_input(input: &InputReport, printer: &Printer) {
    let how = match &input.ending {
        InputEnding::Refused { reason } => {
            printer
                .line(format!("The input of `{}` ({}) cannot be reduced: {reason}", input.test, input.from));
            return;
        }
        InputEnding::Minimal => "Minimal input",
        InputEnding::MinimalDespiteUnresolved => "Minimal input (some smaller ones could not be judged)",
        InputEnding::Stopped => "Smallest input so far",
    };
    printer.line(printer.strong(&format!(
        "{how}: {} of {} bytes of {}, {} trials",
        input.bytes, input.bytes_before, input.from, input.trials
    )));
    for line in input.text.lines().take(MOST_LINES) {
        printer.line(format!("  | {}", line.chars().take(200).collect::<String>()));
    }
    if input.text.lines().count() > MOST_LINES || input.text.len() < input.bytes {
        printer.line("  | ...");
    }
    if let Some(file) = &input.file {
        printer.line(format!("It is in {}", file.display()));
    }
}
