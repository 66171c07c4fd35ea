//! The report of a stored campaign on the terminal.

use faultscope_engine::debug::{DebugReport, Document, RoundCounts};
use faultscope_model::units::show_duration;

use crate::printer::Printer;
use crate::render::table::Table;
use crate::render::time;

/// Cause, evidence, rounds.
pub(crate) fn show(document: &Document, printer: &Printer) {
    let report = &document.report;
    printer.line(format!(
        "debug campaign {} of {}, {}: {}",
        report.campaign,
        report.application,
        time::ago(document.started_us),
        report.summary()
    ));
    if let Some(signature) = &report.signature {
        printer.line(format!("failure: {signature}"));
    }
    found(report, printer);
    crate::render::deeper::deeper(report, printer);
    rounds(&document.course.rounds, printer);
    printer.line(printer.dim(&format!("took {}", show_duration(report.took))));
}

/// Causes with their commands, and the evidence.
pub(crate) fn found(report: &DebugReport, printer: &Printer) {
    for cause in &report.causes {
        printer.line(printer.strong(&format!("Cause: {} of {} deltas", cause.deltas.len(), report.deltas)));
        for delta in &cause.deltas {
            printer.line(format!("  {:<14} {}: {} -> {}", delta.dimension, delta.name, delta.from, delta.to));
        }
    }
    if let Some(difference) = &report.difference {
        let (failing, passing) = difference.calls();
        printer.line(printer.strong(&format!(
            "Evidence: the first call that differs from the passing run {}",
            difference.passing
        )));
        printer.line(format!("  failing  {failing}"));
        printer.line(format!("  passing  {passing}"));
    }
    for command in report.causes.iter().filter_map(|cause| cause.reproduce.as_ref()) {
        printer.line(printer.strong("Reproduce with"));
        printer.line(format!("  {command}"));
    }
}

/// The paper's Table 4, and its Figure 4 a line for each round.
fn rounds(rounds: &[RoundCounts], printer: &Printer) {
    if rounds.is_empty() {
        return;
    }
    let head: Vec<&str> = ["round"].into_iter().chain(RoundCounts::NAMES).chain(["trials"]).collect();
    let mut table = Table::new(&head);
    let mut row = |name: String, round: &RoundCounts| {
        let counts = round.counts().map(|count| count.to_string());
        table.row([name].into_iter().chain(counts).chain([tasks(round)]));
    };
    for (round, number) in rounds.iter().zip(1..) {
        row(number.to_string(), round);
    }
    row("total".into(), &RoundCounts::total(rounds));
    printer.line(table);
}

/// `1/2(18) fail  2/2(18) cancelled`, as far as a line goes.
fn tasks(round: &RoundCounts) -> String {
    const SHOWN: usize = 6;
    let one =
        |task: &faultscope_engine::debug::RoundTask| format!("{}({}) {}", task.part, task.deltas, task.end);
    let mut shown: Vec<String> = round.tasks.iter().take(SHOWN).map(one).collect();
    if round.tasks.len() > SHOWN {
        shown.push(format!("and {} more", round.tasks.len() - SHOWN));
    }
    shown.join(", ")
}
