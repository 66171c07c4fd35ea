//! A reported trace as a waterfall: each span under its parent, with a bar for when and how long, the
//! critical path marked, errors named.

use std::collections::BTreeMap;
use std::time::Duration;

use faultscope_model::trace::{ReportedSpan, SpanKind};
use faultscope_model::units::{count, show_duration};
use faultscope_store::interop::mesh::is_mesh;
use faultscope_store::interop::trace::{Tree, corrections, critical_path, failed};
use faultscope_store::interop::zipkin_trace_id;

use super::usage;
use crate::commands::beside::Beside;
use crate::printer::Printer;

/// Characters of the time bar.
const BAR: u64 = 32;
/// Characters of a span's name with its branches.
const WIDEST: usize = 80;
/// Deeper trees are not indented further.
const MOST_DEPTH: usize = 40;

/// Draws a trace; clocks of hosts are compared and corrected unless raw times are wanted. What is wanted of the
/// instances and was known when their spans began stands behind them.
pub(crate) fn waterfall(spans: Vec<ReportedSpan>, raw: bool, beside: &Beside<'_>, printer: &Printer) {
    let tree = Tree::new(spans);
    let shifts = if raw { vec![0; tree.spans.len()] } else { corrections(&tree) };
    let time = |index: usize| -> Option<(u64, u64)> {
        let span = tree.spans.get(index)?;
        let start = span.start_us?.saturating_add_signed(shifts.get(index).copied().unwrap_or_default());
        Some((start, start.saturating_add(span.duration_us.unwrap_or_default())))
    };
    let times = (0..tree.spans.len()).filter_map(time);
    let (start, end) = times.fold((u64::MAX, 0), |(a, b), (from, to)| (a.min(from), b.max(to)));
    let start = start.min(end);
    // How much of the whole each span held up.
    let mut held: BTreeMap<usize, u64> = BTreeMap::new();
    for step in critical_path(&tree, &shifts) {
        *held.entry(step.span).or_default() += step.end_us - step.start_us;
    }
    let n_failed = tree.spans.iter().filter(|span| failed(span)).count();
    let id = tree.spans.first().map_or_else(String::new, |span| zipkin_trace_id(span.trace));
    let errors = if n_failed == 0 { String::new() } else { format!(", {n_failed} with errors") };
    let took = show_duration(Duration::from_micros(end - start));
    let heading = format!("trace {id}: {} in {took}{errors}", count(tree.spans.len(), "span"));
    printer.line(printer.strong(&heading));
    let lines = lines(&tree);
    let widest = lines.iter().map(|(text, _)| text.chars().count()).max().unwrap_or_default();
    for (text, index) in lines {
        let Some(span) = index.and_then(|index| tree.spans.get(index)) else {
            printer.line(format!("    {}", printer.dim(&text)));
            continue;
        };
        let index = index.unwrap_or_default();
        let mark = if held.contains_key(&index) { "*" } else { " " };
        let took = span.duration_us.map(|us| show_duration(Duration::from_micros(us))).unwrap_or_default();
        let bar = time(index).map_or_else(
            || " ".repeat(BAR as usize),
            |(from, to)| bar(from - start, to - start, (end - start).max(1)),
        );
        let shifted = shifts.get(index).is_some_and(|shift| *shift != 0);
        let clock = if shifted { " (clock corrected)" } else { "" };
        let line = format!("  {mark} {text:<widest$}  {took:>8}  {bar} {}{clock}", status(span, printer));
        let known = beside.of_span(span);
        let known = known.map(|known| format!("  {}", printer.dim(&usage::joined(&known))));
        printer.line(format!("{}{}", line.trim_end(), known.unwrap_or_default()));
    }
    slowest(&tree, &held, end - start, printer);
}

/// Each node of the tree with its branches drawn, and which span it is.
fn lines(tree: &Tree) -> Vec<(String, Option<usize>)> {
    let mut lines = Vec::new();
    let mut stack: Vec<(usize, String, &str, usize)> =
        tree.root.map(|r| (r, String::new(), "", 0)).into_iter().collect();
    while let Some((at, prefix, branch, depth)) = stack.pop() {
        let Some(node) = tree.nodes.get(at) else { continue };
        let label = tree.span(at).map_or_else(|| "(the root was not reported)".to_owned(), label);
        lines.push((cut(format!("{prefix}{branch}{label}")), node.span));
        let below = match branch {
            "├─ " => format!("{prefix}│  "),
            "└─ " => format!("{prefix}   "),
            _ => prefix,
        };
        let below = if depth > MOST_DEPTH { String::new() } else { below };
        let last = node.children.len().saturating_sub(1);
        // The stack gives the last one first, so they go on in reverse.
        for (index, child) in node.children.iter().enumerate().rev() {
            let branch = if index == last { "└─ " } else { "├─ " };
            stack.push((*child, below.clone(), branch, depth + 1));
        }
    }
    lines
}

/// A span in a few words.
pub(crate) fn label(span: &ReportedSpan) -> String {
    if is_mesh(span) {
        return seen(span);
    }
    let service = span.local.service.as_deref().unwrap_or("?");
    let name = if span.name.is_empty() { "?" } else { &span.name };
    let other = match (span.kind, span.remote.service.as_deref()) {
        (Some(SpanKind::Client | SpanKind::Producer), Some(remote)) => format!(" -> {remote}"),
        _ => String::new(),
    };
    plain(&format!("{service} {name}{other}"))
}

/// A call as the mesh saw it: to whom, and what was asked.
fn seen(span: &ReportedSpan) -> String {
    let side = |key: &str, service: Option<&str>| span.tag(key).or(service).unwrap_or("?").to_owned();
    let caller = side("faultscope.caller", span.local.service.as_deref());
    let callee = side("faultscope.callee", span.remote.service.as_deref());
    let asked = match (span.tag("http.method"), span.tag("http.path")) {
        (Some(method), Some(path)) => format!("{method} {}", path.split('?').next().unwrap_or_default()),
        _ => span.name.clone(),
    };
    plain(&format!("{caller} ─▶ {callee} {asked}"))
}

/// Text from outside without what would move a terminal's cursor or change its colours.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn cut(text: String) -> String {
    if text.chars().count() <= WIDEST {
        return text;
    }
    let mut short: String = text.chars().take(WIDEST - 1).collect();
    short.push('…');
    short
}

fn bar(from: u64, to: u64, whole: u64) -> String {
    let place = |us: u64| (u128::from(us) * u128::from(BAR) / u128::from(whole)).min(BAR.into()) as usize;
    let width = BAR as usize;
    let from = place(from).min(width - 1);
    let to = place(to).max(from + 1);
    format!("{}{}{}", " ".repeat(from), "▬".repeat(to - from), " ".repeat(width - to))
}

fn status(span: &ReportedSpan, printer: &Printer) -> String {
    let codes = ["http.status_code", "http.response.status_code", "grpc.status_code", "rpc.status_code"];
    let code = codes.iter().find_map(|key| span.tag(key)).unwrap_or_default();
    if !failed(span) {
        return plain(code);
    }
    let reason = span.tag("error").filter(|text| !text.is_empty() && *text != "true").unwrap_or("error");
    let reason: String = reason.chars().take(60).collect();
    printer.bad(plain(&format!("{code} {reason}")).trim_start())
}

/// The spans that most of the time was spent in.
fn slowest(tree: &Tree, held: &BTreeMap<usize, u64>, whole: u64, printer: &Printer) {
    let mut held: Vec<_> = held.iter().collect();
    held.sort_by_key(|(_, us)| std::cmp::Reverse(**us));
    let most = held.iter().take(3).filter_map(|(index, us)| {
        let span = tree.spans.get(**index)?;
        let share = **us as f64 * 100.0 / whole.max(1) as f64;
        Some(format!("{} {} ({share:.0} %)", label(span), show_duration(Duration::from_micros(**us))))
    });
    let most: Vec<_> = most.collect();
    if !most.is_empty() {
        printer.line(format!("\n  * critical path, mostly: {}", most.join(", ")));
    }
}
