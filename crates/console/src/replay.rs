//! The report of a replay as one file: recorded and replayed answers side by side.

use std::time::Duration;

use faultscope_engine::replay::{
    CallsSideBySide, ReplayReport, ReplayVerdict, RequestReport, RequestVerdict, TimedCall, Usage, UsagePoint,
};
use faultscope_model::units::{ByteSize, count, nouns, show_duration};
use maud::{Markup, html};

use crate::frame;

/// The most requests that are drawn; a page with more opens slowly.
const MAX_DRAWN: usize = 500;
/// Pixels of a waterfall: two of them and their labels fit side by side on a usual screen.
const WATERFALL_WIDTH: f64 = 220.0;
/// Deeper calls are not moved further to the right, where no room is left.
const MAX_INDENT: usize = 10;

/// The whole report as a self-contained page.
pub fn replay_report(report: &ReplayReport) -> String {
    let differ = report.count(|verdict| *verdict == RequestVerdict::Differs);
    let headline = match report.verdict {
        ReplayVerdict::Reproduced => "All answers as recorded".to_owned(),
        ReplayVerdict::Differs => format!("{} answered otherwise", count(differ, "request")),
        ReplayVerdict::MockMissed => {
            format!("{} had no recorded answer", count(report.mocks.missed, "mocked call"))
        }
        ReplayVerdict::NotComparable => "Not all answers could be compared".to_owned(),
    };
    let body = html! {
        p.soft { "Faultscope " (env!("CARGO_PKG_VERSION")) " · replay " (report.campaign) }
        h1 { (headline) }
        div.facts {
            div { b { (report.requests.len()) } (nouns(&report.requests.len(), "request")) }
            div { b { (differ) } "answered otherwise" }
            div { b { (report.runs.len()) } (nouns(&report.runs.len(), "replay")) }
            div { b { (report.compared) } "fields compared" }
            div { b { (report.noise) } "of them noise" }
        }
        @for request in report.requests.iter().filter(|request| request.verdict != RequestVerdict::Reproduced).take(MAX_DRAWN) {
            (request_part(request))
        }
        @if !report.exits.is_empty() {
            h2 { "Ended during the replay" }
            ul { @for exit in &report.exits { li { b { (exit.instance) } " " (exit.reason) } } }
        }
        @if differ == 0 && let Some(request) = report.requests.first() {
            @if let Some(calls) = &request.calls { h2 { (request.operation) } (waterfalls(calls)) }
        }
        (times(report))
        (resources(report))
        @if !report.noisy.is_empty() {
            h2 { "Noise" }
            p { "These differ from one replay to the next, so they say nothing." }
            table {
                tr { th { "Request" } th { "Places" } }
                @for noisy in &report.noisy { tr { td { (noisy.operation) } td { code { (noisy.places.join(", ")) } } } }
            }
        }
        @if !report.left_out.is_empty() {
            h2 { "Not sent again" }
            ul { @for call in report.left_out.iter().take(MAX_DRAWN) { li { (call.operation) " " (call.reason) } } }
        }
        p.soft { "Requests were sent late by " (micros(report.lag.p50_us)) " (median), " (micros(report.lag.p99_us)) " (99 %)." }
    };
    frame::page(&headline, &body)
}

fn request_part(request: &RequestReport) -> Markup {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    html! {
        h2 { (request.operation) }
        p.soft { "Trace " (request.trace) }
        @match &request.verdict {
            RequestVerdict::NotComparable(reason) => p { "Not comparable: " (reason) "." },
            RequestVerdict::NotSent => p { "Not sent." },
            RequestVerdict::Differs | RequestVerdict::Reproduced => {
                table {
                    tr { th { "Place" } th { "Recorded" } th { "Replayed" } }
                    @for difference in &request.differences {
                        tr {
                            td { code { (difference.place) } }
                            td.good { code { (side(&difference.recorded)) } }
                            td.bad { code { (side(&difference.replayed)) } }
                        }
                    }
                }
                @if request.more > 0 { p.soft { "And " (count(request.more, "more difference")) "." } }
            },
        }
        @if let Some(calls) = &request.calls { (waterfalls(calls)) }
    }
}

/// The calls of both sides by time, on one scale.
fn waterfalls(calls: &CallsSideBySide) -> Markup {
    let end = |call: &TimedCall| call.after_us + call.duration_us;
    let longest = calls.recorded.iter().chain(&calls.replayed).map(end).max().unwrap_or(1).max(1);
    html! {
        div.pair {
            (waterfall("Recorded", &calls.recorded, longest))
            (waterfall("Replayed", &calls.replayed, longest))
        }
    }
}

fn waterfall(title: &str, calls: &[TimedCall], longest: u64) -> Markup {
    let x = |us: u64| format!("{:.1}", us as f64 * WATERFALL_WIDTH / longest as f64);
    html! {
        table {
            tr { th { (title) } th { (micros(longest)) } th { "Ended" } }
            @for call in calls {
                tr {
                    td style=(format!("padding-left:{}px", 8 + 14 * call.depth.min(MAX_INDENT))) {
                        b { (call.callee) } " " (call.operation)
                    }
                    td {
                        svg width=(WATERFALL_WIDTH) height="12" role="img" aria-label={ (micros(call.duration_us)) " from " (micros(call.after_us)) " on" } {
                            rect x=(x(call.after_us)) y="2" height="8" width=(x(call.duration_us.max(longest / 200))) fill=(if call.failed { "var(--bad)" } else { "var(--accent)" }) {}
                        }
                    }
                    td.soft { (call.ending) " " (micros(call.duration_us)) }
                }
            }
            @if calls.is_empty() { tr { td.soft colspan="3" { "no call was recorded" } } }
        }
    }
}

/// CPU or memory by time: the recorded curve and the replayed one, on one scale.
fn curves(recorded: &[UsagePoint], replayed: &[UsagePoint], value: impl Fn(&UsagePoint) -> f64) -> Markup {
    let all = || recorded.iter().chain(replayed);
    let highest = all().map(&value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let last = all().map(|point| point.after_ms).max().unwrap_or(1).max(1);
    let points = |curve: &[UsagePoint]| {
        let point = |point: &UsagePoint| {
            let (x, y) = (point.after_ms as f64 / last as f64 * 180.0, 38.0 - value(point) / highest * 36.0);
            format!("{x:.1},{y:.1}")
        };
        curve.iter().map(point).collect::<Vec<_>>().join(" ")
    };
    html! {
        svg width="180" height="40" role="img" aria-label="recorded and replayed by time" {
            polyline points=(points(recorded)) fill="none" stroke="var(--off)" stroke-width="1.5" {}
            polyline points=(points(replayed)) fill="none" stroke="var(--accent)" stroke-width="1.5" {}
        }
    }
}

/// Durations as bars, the recorded one above the replayed one.
fn times(report: &ReplayReport) -> Markup {
    let rows = report.latencies();
    let longest =
        rows.iter().map(|(_, _, recorded, replayed)| *recorded.max(replayed)).max().unwrap_or(1).max(1);
    let width = |us: u64| us as f64 * 400.0 / longest as f64;
    html! {
        h2 { "Durations" }
        table {
            tr { th { "Request" } th { "Times" } th { "Median, recorded above replayed" } th { "Recorded" } th { "Replayed" } }
            @for (operation, times, recorded, replayed) in rows.iter().take(MAX_DRAWN) {
                tr {
                    td { (operation) }
                    td { (times) }
                    td {
                        svg width="400" height="18" role="img" aria-label={ (micros(*recorded)) " recorded, " (micros(*replayed)) " replayed" } {
                            rect x="0" y="1" height="7" width=(format!("{:.1}", width(*recorded))) fill="var(--off)" {}
                            rect x="0" y="10" height="7" width=(format!("{:.1}", width(*replayed))) fill="var(--accent)" {}
                        }
                    }
                    td { (micros(*recorded)) }
                    td { (micros(*replayed)) }
                }
            }
        }
    }
}

fn resources(report: &ReplayReport) -> Markup {
    let cpu = |usage: &Option<Usage>| {
        usage.map_or_else(|| "not measured".to_owned(), |usage| format!("{:.1} ms", usage.cpu_ms))
    };
    let memory = |usage: &Option<Usage>| {
        usage.map_or_else(
            || "not measured".to_owned(),
            |usage| ByteSize(usage.memory_bytes as u64).to_string(),
        )
    };
    html! {
        @if !report.resources.is_empty() {
            h2 { "Resources" }
            p.soft { "Grey is the recording, blue the first replay." }
            table {
                tr { th { "Service" } th { "CPU per request" } th { "replayed" } th { "CPU by time" } th { "Memory" } th { "replayed" } th { "Memory by time" } }
                @for row in &report.resources {
                    tr {
                        td { (row.service) }
                        td { (cpu(&row.recorded)) }
                        td { (cpu(&row.replayed)) }
                        td { (curves(&row.recorded_curve, &row.replayed_curve, |point| point.cores)) }
                        td { (memory(&row.recorded)) }
                        td { (memory(&row.replayed)) }
                        td { (curves(&row.recorded_curve, &row.replayed_curve, |point| point.memory_bytes)) }
                    }
                }
            }
        }
    }
}

fn micros(us: u64) -> String {
    show_duration(Duration::from_micros(us))
}
