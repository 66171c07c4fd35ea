//! What instances printed, alone or between the calls of the same time.

use std::time::Duration;

use faultscope_engine::views::{LogExcerpt, RunLogs, TimedLine, plain};
use faultscope_model::Span;
use faultscope_model::units::{count, show_duration};

use super::tree;
use crate::printer::Printer;

/// What was printed around failing calls.
pub(crate) fn excerpts(excerpts: &[LogExcerpt], spans: &[Span], started_us: u64, printer: &Printer) {
    for LogExcerpt { span, lines } in excerpts {
        let Some(call) = spans.iter().find(|call| call.id == *span) else { continue };
        let heading = format!("printed around {}", tree::call_line(call));
        printer.line(format!("\n{}", printer.strong(&plain(&heading))));
        lines.iter().for_each(|line| printer.line(log_line(line, started_us)));
    }
}

/// Everything that was printed, between the calls.
pub(crate) fn timeline(logs: &RunLogs, spans: &[Span], started_us: u64, printer: &Printer) {
    printer.line(format!("\n{}", printer.strong("logs and calls")));
    if logs.are_lost {
        printer
            .line("  the logs of this run were not kept: those of its campaign take all the room there is");
    }
    for log in logs.instances.iter().filter(|log| log.dropped > 0) {
        printer.line(format!(
            "  {}: {} before these were not kept",
            log.instance,
            count(log.dropped, "line")
        ));
    }
    let lines = logs.timeline();
    let calls = spans.iter().map(|call| (call.start_us, format!("-> {}", plain(&tree::call_line(call)))));
    let lines = lines.iter().map(|line| (line.at_us, format!("{} | {}", line.instance, plain(&line.text))));
    // A call stands before what was printed in the same moment.
    let mut rows: Vec<(u64, String)> = calls.chain(lines).collect();
    rows.sort_by_key(|(at_us, _)| *at_us);
    rows.iter().for_each(|(at_us, text)| printer.line(format!("  {:>8}  {text}", since(*at_us, started_us))));
}

fn log_line(line: &TimedLine, started_us: u64) -> String {
    format!("  {:>8}  {} | {}", since(line.at_us, started_us), line.instance, plain(&line.text))
}

fn since(at_us: u64, started_us: u64) -> String {
    show_duration(Duration::from_micros(at_us.saturating_sub(started_us)))
}
