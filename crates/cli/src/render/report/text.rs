//! The result of a debug campaign on the terminal.

use faultscope_engine::debug::{DebugReport, Document, NamedDelta, RoundCounts};
use faultscope_engine::views::{CauseView, DebugView, FolderOption, SmallestSet};
use faultscope_model::units::{count, show_duration};
use faultscope_search::Proof;

use crate::printer::Printer;
use crate::render::table::Table;
use crate::render::time;

/// The most deltas that are shown of an unfinished answer.
const MAX_SHOWN: usize = 12;

/// A stored campaign: failure, causes, evidence, rounds; `at` is the option with which `runs` finds it.
pub(crate) fn show(document: &Document, at: &FolderOption, printer: &Printer) {
    let report = &document.report;
    printer.line(format!(
        "debug campaign {} of {}, {}: {}",
        report.campaign,
        report.application,
        time::ago(document.started_us),
        report.summary()
    ));
    failure(report, printer);
    found(report, at, printer);
    rounds(&document.course.rounds, printer);
    printer.line(printer.dim(&format!("took {}", show_duration(report.took))));
}

/// The failure, and how often it occurs.
pub(crate) fn failure(report: &DebugReport, printer: &Printer) {
    if let Some(signature) = &report.signature {
        printer.line(format!("failure: {signature}"));
    }
    if let Some(flaky) = report.calibration.filter(|known| known.rate < 1.0) {
        printer.line(format!(
            "It is flaky: {} of {} of the same circumstance failed (the search assumes at least {:.0} %)",
            flaky.failed,
            count(flaky.tried, "run"),
            100.0 * flaky.rate,
        ));
    }
}

/// Causes with commands to reproduce them, and the evidence.
pub(crate) fn found(report: &DebugReport, at: &FolderOption, printer: &Printer) {
    let view = DebugView::new(report, at);
    if report.causes.len() > 1 {
        printer.line(format!("{} causes; any of them alone {}:", report.causes.len(), report.effect(1)));
    }
    for shown in &view.causes {
        let cause = shown.cause;
        show_cause(shown, report, printer);
        cause.otherwise.iter().for_each(|otherwise| printer.line(otherwise.describe()));
        if let Some(hint) = cause.hint() {
            printer.line(hint);
        }
        if let (Some(run), Some(command)) = (&cause.run, &shown.show_run) {
            printer.line(format!("Failing run: {run} (`{command}`)"));
        }
        if let Some(command) = &cause.reproduce {
            printer.line(format!("Reproduce with `{command}`"));
        }
    }
    crate::render::deeper::deeper(report, at, printer);
    if report.none_left {
        printer.line(format!("No cause is left: with all other deltas together {}", report.passing()));
    }
    if let Some(rest) = &report.rest {
        printer.line(rest.describe());
    }
    if let Some(command) = &view.show_rest {
        printer.line(format!("Look at it with `{command}`"));
    }
    if let Some(smallest) = view.smallest {
        show_smallest(smallest, report, printer);
    }
    evidence(report, printer);
}

fn evidence(report: &DebugReport, printer: &Printer) {
    if let Some(difference) = &report.difference {
        let (failing, passing) = difference.calls();
        let what = if difference.is_found() { "the first call that differs" } else { "no call differs" };
        printer.line(printer.strong(&format!(
            "Evidence: {what} from run {} (without {}):",
            difference.passing,
            difference.without.join(", ")
        )));
        if difference.is_found() {
            printer.line(format!("  failing  {failing}"));
            printer.line(format!("  passing  {passing}"));
        }
        if let Some(failed) = difference.further_call() {
            printer.line(format!("  then     {failed}"));
        }
        for (number, line) in difference.printed.shown().iter().enumerate() {
            let label = if number == 0 { "printed" } else { "" };
            printer.line(format!("  {label:<8} {line}"));
        }
    }
    if let Some(start) = &report.start {
        let lines = if start.last_lines.is_empty() { "it printed nothing" } else { "its last lines:" };
        let said = format!("Evidence: {} {}, {lines}", start.instance, start.reason);
        printer.line(printer.strong(&said));
        start.last_lines.iter().for_each(|line| printer.line(format!("  | {line}")));
        if let Some(passing) = &start.passing {
            printer
                .line(format!("Everything comes up in run {passing} (without {})", start.without.join(", ")));
        }
    }
}

fn show_deltas(deltas: &[NamedDelta], printer: &Printer) {
    for delta in deltas {
        printer.line(format!("  {:<14} {}: {} -> {}", delta.dimension, delta.name, delta.from, delta.to));
    }
}

/// The best answer so far and what is proven about it.
fn show_smallest(smallest: SmallestSet<'_>, report: &DebugReport, printer: &Printer) {
    let SmallestSet { deltas, proof, unproven } = smallest;
    let all = count(report.deltas, "delta");
    printer.line(printer.strong(&format!("Smallest failing set so far: {} of {all}", deltas.len())));
    show_deltas(&deltas[..deltas.len().min(MAX_SHOWN)], printer);
    if deltas.len() > MAX_SHOWN {
        printer.line(format!("  and {} more", deltas.len() - MAX_SHOWN));
    }
    let proven = match proof {
        Proof::Given => "all deltas together fail".to_owned(),
        _ => {
            let are = if unproven == 1 { "is" } else { "are" };
            let smaller = count(unproven, "smaller one");
            format!("a trial of exactly this set failed; {smaller} {are} yet to be tried")
        }
    };
    printer.line(format!("Proven: {proven}"));
}

fn show_cause(shown: &CauseView<'_>, report: &DebugReport, printer: &Printer) {
    let cause = shown.cause;
    let together = match (cause.deltas.len(), cause.hint()) {
        (..=1, _) => "",
        (_, None) => ", together",
        (_, Some(_)) => ", together for exactly this failure",
    };
    let all = count(report.deltas, "delta");
    let (title, note) = (cause.title(), cause.confirmation.title_note());
    printer.line(printer.strong(&format!("{title}{note}: {} of {all}{together}", cause.deltas.len())));
    show_deltas(&cause.deltas, printer);
    if shown.implied > 0 {
        let more = count(shown.implied, "pair");
        printer.line(format!("  (the failing trial also had {more} of calls that these imply)"));
    }
    if let Some(tied) = cause.describe_tied() {
        printer.line(format!("  ({tied})"));
    }
    if let Some(belief) = shown.belief {
        // Rounded down: what is not proven is never 100 %.
        printer.line(format!("  {:.1} % certain", (1000.0 * belief).floor() / 10.0));
    }
    printer.line(format!("  {}", cause.confirmation.describe()));
}

/// Table 4 of the paper, and its Figure 4 with a line for each round.
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

/// `1/2(18) fail  2/2(18) cancelled`, as many as fit into a line.
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
