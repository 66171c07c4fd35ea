//! Shows the result of a replay.

use std::fmt::Write as _;
use std::time::Duration;

use faultscope_engine::replay::{ReplayReport, ReplayVerdict, RequestReport, RequestVerdict, Usage};
use faultscope_engine::views::{FolderOption, plain};
use faultscope_model::units::{ByteSize, count, show_duration};

use super::table::Table;
use crate::printer::Printer;

/// The most requests and differences that the terminal shows; `--json` and `--html` have all.
const MAX_REQUESTS: usize = 20;
const MAX_DIFFERENCES: usize = 10;

pub(crate) fn show(report: &ReplayReport, at: &FolderOption, printer: &Printer) {
    let other: Vec<&RequestReport> =
        report.requests.iter().filter(|request| request.verdict != RequestVerdict::Reproduced).collect();
    for request in other.iter().take(MAX_REQUESTS) {
        show_request(request, printer);
    }
    if other.len() > MAX_REQUESTS {
        printer.line(format!(
            "… and {} like these; `--json` has all",
            count(other.len() - MAX_REQUESTS, "request")
        ));
    }
    let mut table = Table::new(&["request", "times", "recorded", "replayed"]);
    for (operation, times, recorded, replayed) in report.latencies().into_iter().take(MAX_REQUESTS) {
        table.row([plain(&operation), times.to_string(), micros(recorded), micros(replayed)]);
    }
    printer.line(table);
    show_resources(report, printer);
    for order in &report.orders {
        printer.line(printer.dim(&format!("imposed order of answers: {}", plain(&order.to_string()))));
    }
    for outcome in &report.failed_gates {
        printer.line(format!("an order could not be imposed: {}", plain(&outcome.to_string())));
    }
    for exit in &report.exits {
        let ended = format!("{} ended during the replay: {}", exit.instance, exit.reason);
        printer.line(printer.bad(&plain(&ended)));
    }
    for noisy in &report.noisy {
        let places: Vec<String> = noisy.places.iter().map(|place| plain(place)).collect();
        printer.line(printer.dim(&format!("noise in {}: {}", plain(&noisy.operation), places.join(", "))));
    }
    let lag = &report.lag;
    let waited = match lag.waited {
        0 => String::new(),
        n => format!("; {} waited for earlier answers", count(n, "request")),
    };
    printer.line(printer.dim(&format!(
        "sent late by {} (median), {} (99 %), at most {}{waited}",
        micros(lag.p50_us),
        micros(lag.p99_us),
        micros(lag.max_us)
    )));
    printer.line(verdict_line(report, printer));
    if let Some(run) = report.runs.first() {
        printer.line(printer.dim(&format!("see the calls with `faultscope runs show {run}{at}`")));
    }
}

fn show_request(request: &RequestReport, printer: &Printer) {
    let operation = plain(&request.operation);
    match &request.verdict {
        RequestVerdict::NotComparable(reason) => {
            printer.line(format!("{operation}: not comparable, {reason}"));
        }
        RequestVerdict::NotSent => printer.line(format!("{operation}: not sent")),
        RequestVerdict::Differs | RequestVerdict::Reproduced => {
            printer.line(format!("{} (trace {})", printer.strong(&operation), request.trace));
            for difference in request.differences.iter().take(MAX_DIFFERENCES) {
                let side = |value: &Option<String>| {
                    value.as_deref().map_or_else(|| "nothing".to_owned(), |v| plain(v).to_string())
                };
                printer.line(format!(
                    "  {}: {} was recorded, {} came",
                    plain(&difference.place.to_string()),
                    printer.good(&side(&difference.recorded)),
                    printer.bad(&side(&difference.replayed))
                ));
            }
            let more = request.differences.len().saturating_sub(MAX_DIFFERENCES) + request.more;
            if more > 0 {
                printer.line(format!("  and {}", count(more, "more difference")));
            }
        }
    }
}

fn show_resources(report: &ReplayReport, printer: &Printer) {
    if report.resources.iter().all(|row| row.recorded.is_none() || row.replayed.is_none()) {
        return;
    }
    let mut table = Table::new(&["service", "CPU per request", "replayed", "memory", "replayed"]);
    for row in &report.resources {
        let cpu = |usage: &Option<Usage>| {
            usage.map_or_else(|| "-".to_owned(), |usage| format!("{:.1} ms", usage.cpu_ms))
        };
        let memory = |usage: &Option<Usage>| {
            usage.map_or_else(|| "-".to_owned(), |usage| ByteSize(usage.memory_bytes as u64).to_string())
        };
        table.row([
            row.service.clone(),
            cpu(&row.recorded),
            cpu(&row.replayed),
            memory(&row.recorded),
            memory(&row.replayed),
        ]);
    }
    printer.line(table);
}

fn verdict_line(report: &ReplayReport, printer: &Printer) -> String {
    let word = match report.verdict {
        ReplayVerdict::Reproduced => printer.good("reproduced"),
        ReplayVerdict::Differs => printer.bad("differs"),
        ReplayVerdict::NotComparable => printer.strong("not comparable"),
        ReplayVerdict::MockMissed => printer.bad("not answered from the recording"),
    };
    format!("{word}: {}", describe_verdict(report))
}

fn describe_verdict(report: &ReplayReport) -> String {
    let all = report.requests.len();
    let same = report.count(|verdict| *verdict == RequestVerdict::Reproduced);
    let differ = report.count(|verdict| *verdict == RequestVerdict::Differs);
    let unknown = all - same - differ;
    let mut facts = vec![format!("{same} of {} answered as recorded", count(all, "request"))];
    if differ > 0 {
        facts.push(format!("{differ} otherwise"));
    }
    if unknown > 0 {
        facts.push(format!("{unknown} not comparable"));
    }
    if !report.left_out.is_empty() {
        facts.push(format!("{} not sent again", count(report.left_out.len(), "call")));
    }
    if report.runs.len() < 2 {
        facts.push("noise is not known from one replay".to_owned());
    } else {
        facts.push(format!("{} of {} are noise", report.noise, count(report.compared, "field")));
    }
    facts.join(", ")
}

fn micros(us: u64) -> String {
    show_duration(Duration::from_micros(us))
}

/// The report as Markdown.
pub(crate) fn markdown(report: &ReplayReport) -> String {
    let mut out = format!("# Replay {}\n\n{}\n", report.campaign, describe_verdict(report));
    let other = report.requests.iter().filter(|request| request.verdict != RequestVerdict::Reproduced);
    for request in other {
        let _ = writeln!(out, "\n## {}\n\nTrace {}\n", cell(&request.operation), request.trace);
        match &request.verdict {
            RequestVerdict::NotComparable(reason) => {
                let _ = writeln!(out, "Not comparable: {reason}.");
            }
            RequestVerdict::NotSent => out.push_str("Not sent.\n"),
            RequestVerdict::Differs | RequestVerdict::Reproduced => {
                out.push_str("| place | recorded | replayed |\n|---|---|---|\n");
                for difference in &request.differences {
                    let side = |value: &Option<String>| cell(value.as_deref().unwrap_or("nothing"));
                    let (recorded, replayed) = (side(&difference.recorded), side(&difference.replayed));
                    let place = cell(&difference.place.to_string());
                    let _ = writeln!(out, "| {place} | {recorded} | {replayed} |");
                }
                if request.more > 0 {
                    let _ = writeln!(out, "\nAnd {}.", count(request.more, "more difference"));
                }
            }
        }
    }
    out.push_str("\n## Durations (median)\n\n| request | times | recorded | replayed |\n|---|---|---|---|\n");
    for (operation, times, recorded, replayed) in report.latencies() {
        let _ =
            writeln!(out, "| {} | {times} | {} | {} |", cell(&operation), micros(recorded), micros(replayed));
    }
    if !report.noisy.is_empty() {
        out.push_str("\n## Noise\n\nThese differ from one replay to the next.\n\n");
        for noisy in &report.noisy {
            let _ = writeln!(out, "- {}: {}", cell(&noisy.operation), cell(&noisy.places.join(", ")));
        }
    }
    if !report.left_out.is_empty() {
        out.push_str("\n## Not sent again\n\n");
        for call in &report.left_out {
            let _ = writeln!(out, "- {} {}", cell(&call.operation), call.reason);
        }
    }
    for exit in &report.exits {
        let _ =
            writeln!(out, "\n{} ended during the replay: {}", exit.instance, cell(&exit.reason.to_string()));
    }
    out
}

/// A text of a service inside a table: on one line, and not taken for the end of the cell or for a tag.
fn cell(text: &str) -> String {
    plain(text).replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
