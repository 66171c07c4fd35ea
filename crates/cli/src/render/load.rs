//! What a load showed, as text.

use std::time::Duration;

use faultscope_model::units::{count, show_duration};
use faultscope_model::workload::{Latencies, LoadCounts, LoadReport, LoadWindow};

use super::table::Table;
use crate::printer::Printer;

pub(crate) fn show(report: &LoadReport, printer: &Printer) {
    let LoadReport { counts, rate, measured_s, ramp_s, .. } = report;
    let ramp = if *ramp_s > 0.0 { format!(" after a ramp of {ramp_s:.1}s") } else { String::new() };
    printer.line(format!("{} in {measured_s:.1}s{ramp}: {rate:.1}/s", count(counts.requests, "request")));
    let mut table = Table::new(&["request", "count", "failed", "rate/s", "mean", "p50", "p95", "p99", "max"]);
    if report.requests.len() > 1 {
        for request in &report.requests {
            table.row(row(&request.name, &request.counts, request.rate, request.latency.as_ref()));
        }
    }
    table.row(row("all", counts, *rate, report.latency.as_ref()));
    if let Some(service_time) = report.service_time.as_ref().filter(|_| waited(report)) {
        table.row(row("all, from sending", counts, *rate, Some(service_time)));
    }
    printer.line(table);
    for (failure, times) in &counts.failed {
        printer.line(printer.bad(&format!("  {}: {}", failure.words(), count(*times, "request"))));
    }
    for threshold in &report.thresholds {
        let line = match threshold.is_kept {
            true => printer.good(&format!("kept    {}", threshold.threshold)),
            false => printer.bad(&format!("BROKEN  {}", threshold.threshold)),
        };
        printer.line(line);
    }
    if report.stopped_early {
        printer.line("stopped early: the figures are of what had ended by then");
    }
    let check = &report.self_check;
    printer.line(printer.dim(&format!(
        "generator: {:.0} % of its CPU, requests late by {} (p99); seed {}",
        check.cpu_share * 100.0,
        time(check.lag_p99_us as f64),
        report.seed
    )));
    for why in &check.invalid {
        printer.line(printer.bad(&format!("INVALID: {}", why.words())));
    }
}

/// Whether requests waited for a free user, so that both times tell something.
fn waited(report: &LoadReport) -> bool {
    let mean = |times: &Option<Latencies>| times.as_ref().map_or(0.0, |times| times.mean_us);
    mean(&report.latency) > 1.01 * mean(&report.service_time)
}

/// One second, for the display of a load that goes on.
pub(crate) fn window_line(window: &LoadWindow) -> String {
    let LoadWindow { users, requests, failed, p50_us, p95_us, p99_us, .. } = window;
    let [p50, p95, p99] = [p50_us, p95_us, p99_us].map(|us| time(*us as f64));
    format!("{}  {requests}/s  {failed} failed  p50 {p50}  p95 {p95}  p99 {p99}", count(*users, "user"))
}

fn row(name: &str, counts: &LoadCounts, rate: f64, latency: Option<&Latencies>) -> Vec<String> {
    let none = || "-".to_owned();
    let at = |quantile| latency.and_then(|latency| latency.quantile(quantile)).map_or_else(none, time);
    vec![
        name.to_owned(),
        counts.requests.to_string(),
        counts.n_failed().to_string(),
        format!("{rate:.1}"),
        latency.map_or_else(none, |latency| time(latency.mean_us)),
        at(0.5),
        at(0.95),
        at(0.99),
        latency.map_or_else(none, |latency| time(latency.max_us as f64)),
    ]
}

fn time(micros: f64) -> String {
    show_duration(Duration::from_micros(micros.round() as u64))
}
