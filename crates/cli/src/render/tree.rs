//! Call trees: each call under the one it was made in, with a bar for when and how long.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use faultscope_model::span::Parentage;
use faultscope_model::units::{count, show_duration};
use faultscope_model::{Span, SpanId, TraceId};

use super::usage;
use crate::commands::beside::Beside;
use crate::printer::Printer;

/// Characters of the time bar.
const BAR: usize = 24;
/// Deeper trees are cut: a cycle in damaged data must not end in an endless line.
const MOST_DEPTH: usize = 64;

/// The largest traces as trees, failing ones first; with what is wanted of the callee and was known at each call.
pub(crate) fn trees(spans: &[Span], most: usize, beside: &Beside<'_>, printer: &Printer) {
    let mut traces: BTreeMap<TraceId, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        traces.entry(span.trace).or_default().push(span);
    }
    let mut ordered: Vec<_> = traces.into_iter().collect();
    ordered.sort_by_key(|(id, spans)| {
        let failed = spans.iter().any(|s| s.failed());
        (std::cmp::Reverse((failed, spans.len())), *id)
    });
    for (id, spans) in ordered.into_iter().take(most) {
        tree(id, &spans, beside, printer);
    }
}

struct Drawing<'a> {
    children: BTreeMap<Option<SpanId>, Vec<&'a Span>>,
    start: u64,
    whole: u64,
    lines: Vec<(String, &'a Span)>,
}

fn tree(id: TraceId, spans: &[&Span], beside: &Beside<'_>, printer: &Printer) {
    let start = spans.iter().map(|s| s.start_us).min().unwrap_or_default();
    let end = spans.iter().map(|s| s.start_us + s.duration_us).max().unwrap_or_default();
    let known: BTreeSet<SpanId> = spans.iter().map(|s| s.id).collect();
    let mut children: BTreeMap<Option<SpanId>, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        // A parent that was not recorded makes the call a root of its own.
        children.entry(span.parent.filter(|p| known.contains(p))).or_default().push(span);
    }
    children.values_mut().for_each(|list| list.sort_by_key(|s| (s.start_us, s.id)));
    let mut drawing = Drawing { children, start, whole: (end - start).max(1), lines: Vec::new() };
    let roots = drawing.children.get(&None).cloned().unwrap_or_default();
    for root in roots {
        drawing.lines.push((String::new(), root));
        drawing.descend(root.id, "", 0);
    }
    let heading = format!(
        "trace {id}: {} in {}",
        count(spans.len(), "call"),
        show_duration(Duration::from_micros(end - start))
    );
    printer.line(format!("\n{}", printer.strong(&heading)));
    let label = |prefix: &str, span: &Span| format!("{prefix}{} {}", callee(span), span.operation());
    let widest =
        drawing.lines.iter().map(|(p, s)| label(p, s).chars().count()).max().unwrap_or_default().min(90);
    for (prefix, span) in &drawing.lines {
        let text: String = label(prefix, span).chars().take(90).collect();
        let status = status(span);
        let status = if span.failed() { printer.bad(&status) } else { status };
        let took = show_duration(Duration::from_micros(span.duration_us));
        let known = beside.of_call(span).map(|known| printer.dim(&usage::joined(&known))).unwrap_or_default();
        let line = format!("  {text:<widest$}  {took:>8}  {} {status}  {known}", drawing.bar(span));
        printer.line(line.trim_end());
    }
}

impl<'a> Drawing<'a> {
    fn descend(&mut self, parent: SpanId, prefix: &str, depth: usize) {
        if depth > MOST_DEPTH {
            return;
        }
        let children: Vec<&'a Span> = self.children.get(&Some(parent)).cloned().unwrap_or_default();
        let last = children.len().saturating_sub(1);
        for (index, child) in children.into_iter().enumerate() {
            let (branch, below) = if index == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            self.lines.push((format!("{prefix}{branch}"), child));
            self.descend(child.id, &format!("{prefix}{below}"), depth + 1);
        }
    }

    fn bar(&self, span: &Span) -> String {
        let place = |us: u64| usize::try_from(us * BAR as u64 / self.whole).unwrap_or(BAR).min(BAR);
        let from = place(span.start_us - self.start).min(BAR - 1);
        let to = place(span.start_us - self.start + span.duration_us).max(from + 1);
        format!("{}{}{}", " ".repeat(from), "▬".repeat(to - from), " ".repeat(BAR - to))
    }
}

fn callee(span: &Span) -> String {
    let name = span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
    match span.parentage {
        Parentage::Inferred => format!("{name}?"),
        _ => name,
    }
}

fn status(span: &Span) -> String {
    let code = span.status.map(|s| s.to_string());
    let grpc = span.grpc_status.map(|s| format!("grpc {s}"));
    let all: Vec<_> =
        code.into_iter().chain(grpc).chain(span.error.as_ref().map(ToString::to_string)).collect();
    all.join(" ")
}
