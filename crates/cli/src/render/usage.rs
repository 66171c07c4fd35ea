//! Renders resource usage and metrics.

use std::time::Duration;

use faultscope_engine::views::{SpanMetrics, UseSource};
use faultscope_model::metrics::{Metric, Moment, SeriesValue, Summary};
use faultscope_model::units::{ByteSize, count, show_duration};

use super::spark::number;
use super::waterfall::plain;
use crate::printer::Printer;

/// The most series of one name next to a span.
const MAX_SHOWN: usize = 3;

/// One line per instance.
pub(crate) fn summaries(summaries: &[Summary], printer: &Printer) {
    let Some(most) = summaries.iter().map(|summary| summary.samples).max() else { return };
    let heading =
        format!("use of {}, up to {} of each", count(summaries.len(), "instance"), count(most, "sample"));
    printer.line(format!("\n{}", printer.strong(&heading)));
    let widest = summaries.iter().map(|s| s.instance.to_string().chars().count()).max().unwrap_or_default();
    for summary in summaries {
        printer.line(format!("  {:<widest$}  {}", summary.instance.to_string(), line(summary, printer)));
    }
}

fn line(summary: &Summary, printer: &Printer) -> String {
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
    let mut parts = vec![format!("cpu {:>7}", or_unknown(summary.cpu_seconds.map(seconds)))];
    let memory = or_unknown(summary.memory_peak.map(bytes));
    parts.push(match summary.memory_limit {
        None => format!("memory {memory:>8}"),
        Some(limit) => {
            let share = summary.memory_peak.map_or(0.0, |peak| peak * 100.0 / limit.max(1.0));
            let text = format!("memory {memory:>8} ({share:.0} % of {})", bytes(limit));
            if share >= 90.0 { printer.bad(&text) } else { text }
        }
    });
    if let (Some(received), Some(sent)) = (summary.network_received, summary.network_sent) {
        parts.push(format!("in {:>8}  out {:>8}", bytes(received), bytes(sent)));
    }
    parts.extend(summary.threads_peak.map(|threads| format!("threads {threads:>3}")));
    let count = |value: Option<f64>, what: &str| {
        value.filter(|n| *n > 0.0).map(|n| printer.bad(&format!("{n} {what}")))
    };
    parts.extend(count(summary.restarts, "restarts"));
    parts.extend(count(summary.oom_kills, "times out of memory"));
    parts.join("  ")
}

/// The metrics of a span's instance, short enough for the end of a line.
pub(crate) fn beside(known: &SpanMetrics) -> String {
    let told = if known.source == Some(UseSource::Reported) { "exported " } else { "" };
    let used = known.used.as_ref().map(|used| moment(used, told));
    let names: Vec<_> = known.series.chunk_by(|a, b| a.name == b.name).map(series).collect();
    used.into_iter().chain(names).collect::<Vec<_>>().join(" ")
}

fn moment(moment: &Moment, told: &str) -> String {
    let cpu = moment.cpu_cores.map(|cores| format!("{cores:.2} cores"));
    let memory = moment.values.get(Metric::MemoryWorkingSet).or(moment.values.get(Metric::MemoryResident));
    let threads = moment.values.get(Metric::Threads).map(|threads| format!("{threads} threads"));
    let parts: Vec<_> = [cpu, memory.map(bytes), threads].into_iter().flatten().collect();
    let parts = if parts.is_empty() { "nothing of it known".to_owned() } else { parts.join(", ") };
    format!("[{parts}, {told}{} before]", age(moment.age_us))
}

/// The series of one name.
fn series(values: &[SeriesValue]) -> String {
    let Some(name) = values.first().map(|value| plain(&value.name)) else { return String::new() };
    let one = |(value, apart): (&SeriesValue, String)| {
        let apart = if apart.is_empty() { apart } else { format!("{} ", plain(&apart)) };
        format!("{apart}{}", figures(value))
    };
    let apart = SeriesValue::distinguishing_labels(values);
    let shown: Vec<_> = values.iter().zip(apart).take(MAX_SHOWN).map(one).collect();
    let more = match values.len().saturating_sub(MAX_SHOWN) {
        0 => String::new(),
        n => format!(", {n} more"),
    };
    let oldest = values.iter().map(|value| value.age_us).max().unwrap_or_default();
    format!("[{name} {}{more}, {} before]", shown.join(", "), age(oldest))
}

/// The most informative of mean, rate and value.
fn figures(series: &SeriesValue) -> String {
    let speed = |per_second: f64, unit: &str| match unit {
        "s" => format!("{}/s", number(per_second)),
        _ => format!("{}/s", value(&series.name, unit, per_second)),
    };
    match series {
        SeriesValue { mean: Some(mean), per_second, unit, .. } => {
            let speed = per_second.map(|n| format!(" at {}", speed(n, ""))).unwrap_or_default();
            format!("{} mean{speed}", value(&series.name, unit, *mean))
        }
        SeriesValue { per_second: Some(per_second), unit, .. } => speed(*per_second, unit),
        SeriesValue { value: Some(last), unit, .. } => value(&series.name, unit, *last),
        _ => "?".to_owned(),
    }
}

fn age(us: u64) -> String {
    show_duration(Duration::from_micros(us))
}

/// A value in its unit.
pub(crate) fn value(name: &str, unit: &str, value: f64) -> String {
    match unit {
        "By" => bytes(value),
        "s" if name == Metric::StartTime.name() => super::time::ago((value * 1e6) as u64),
        "s" => seconds(value),
        "ms" | "us" | "ns" | "%" => format!("{}{unit}", number(value)),
        _ => number(value),
    }
}

/// Seconds as a duration.
pub(crate) fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "?".to_owned(), show_duration)
}

/// Bytes with a unit, short.
pub(crate) fn bytes(bytes: f64) -> String {
    // Saturates at zero and the maximum, which is good enough for display.
    ByteSize(bytes as u64).to_string()
}
