//! What instances printed around failing calls.

use faultscope_engine::views::{LogExcerpt, TimedLine, plain};
use faultscope_model::Span;

use super::timeline::since;
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

fn log_line(line: &TimedLine, started_us: u64) -> String {
    format!("  {:>8}  {} | {}", since(line.at_us, started_us), line.instance, plain(&line.text))
}
