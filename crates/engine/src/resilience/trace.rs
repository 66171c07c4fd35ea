//! The calls or messages of a failing run, with what was done to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use faultscope_model::perturbation::{Event, Perturbation};
use faultscope_model::{Run, Span, SpanId};
use regex::Regex;

use super::report::TraceStep;

/// The most steps of a trace that are shown.
const MAX_STEPS: usize = 400;

/// How deep a trace is followed: damaged data may go in a circle.
const MAX_DEPTH: usize = 64;

/// What happened in a run: its calls, or the messages of its process where it made none.
pub(super) fn trace_of(run: &Run, spans: &[Span], messages: &[Event]) -> Vec<TraceStep> {
    let asked = run.treatment.perturbations();
    let mut steps = calls(spans, asked);
    if steps.is_empty() {
        steps = sent(messages, asked);
    }
    steps.truncate(MAX_STEPS);
    steps
}

fn calls(spans: &[Span], asked: &[Perturbation]) -> Vec<TraceStep> {
    let known: BTreeMap<SpanId, &Span> = spans.iter().map(|span| (span.id, span)).collect();
    let mut below: BTreeMap<Option<SpanId>, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        below.entry(span.parent.filter(|parent| known.contains_key(parent))).or_default().push(span);
    }
    below.values_mut().for_each(|list| list.sort_by_key(|span| (span.start_us, span.id)));
    let start = spans.iter().map(|span| span.start_us).min().unwrap_or_default();
    let mut steps = Vec::new();
    let roots = below.get(&None).cloned().unwrap_or_default();
    let mut waiting: Vec<(&Span, usize)> = roots.into_iter().rev().map(|span| (span, 0)).collect();
    while let Some((span, depth)) = waiting.pop() {
        // Rules are numbered as the perturbations they stand for.
        let mark = |rule: &u32| asked.get((*rule as usize).checked_sub(1)?).map(|p| p.kind.word().to_owned());
        steps.push(TraceStep {
            depth,
            receiver: span
                .callee_instance
                .as_ref()
                .map_or_else(|| span.callee.to_string(), ToString::to_string),
            operation: span.operation(),
            ending: span.describe_ending(),
            start_us: span.start_us.saturating_sub(start),
            took_us: span.duration_us,
            marks: span.rules.iter().filter_map(mark).collect(),
        });
        if depth < MAX_DEPTH {
            let children = below.get(&Some(span.id)).into_iter().flatten();
            waiting.extend(children.rev().map(|child| (*child, depth + 1)));
        }
    }
    steps
}

fn sent(events: &[Event], asked: &[Perturbation]) -> Vec<TraceStep> {
    let mut depths: HashMap<u64, usize> = HashMap::new();
    let mut by_send: HashMap<u64, usize> = HashMap::new();
    let mut steps: Vec<TraceStep> = Vec::new();
    for event in events {
        match event {
            Event::Send { to, message, send, turn, target, .. } => {
                let depth = turn.and_then(|turn| depths.get(&turn)).map_or(0, |depth| depth + 1);
                let is_target = |p: &&Perturbation| target.as_ref() == Some(&p.target);
                let marks = asked.iter().filter(is_target).map(|p| p.kind.word().to_owned()).collect();
                by_send.insert(*send, depth);
                steps.push(TraceStep {
                    depth,
                    receiver: to.clone(),
                    operation: message.clone(),
                    ending: String::new(),
                    start_us: 0,
                    took_us: 0,
                    marks,
                });
            }
            Event::Turn { send, turn, .. } => {
                depths.insert(*turn, by_send.get(send).copied().unwrap_or_default());
            }
            _ => {}
        }
    }
    // Long traces are cut around what matters.
    if steps.len() > MAX_STEPS {
        let first = steps.iter().position(|step| !step.marks.is_empty()).unwrap_or_default();
        let from = first.saturating_sub(MAX_STEPS / 4).min(steps.len() - MAX_STEPS);
        steps.drain(..from);
    }
    steps
}

/// The place in the code that a message names: `src/stock.rs:17:5`, `File "stock.py", line 17`.
pub(super) fn location_in(text: &str) -> Option<String> {
    static PLACES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        [r#"File "([^"]+)", line (\d+)"#, r"([\w./-]+\.(?:rs|py|js|ts|go|java|scala|kt|rb|cs)):(\d+)"]
            .iter()
            .map(|pattern| Regex::new(pattern).expect("a constant pattern"))
            .collect()
    });
    // The last place of a stack in Python is the innermost one; a panic in Rust names just one.
    let found = PLACES.iter().find_map(|place| place.captures_iter(text).last())?;
    Some(format!("{}:{}", found.get(1)?.as_str(), found.get(2)?.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_messages() {
        let rust = "thread 'x' panicked at actors/samples/src/lib.rs:17:5:\nassertion failed";
        assert_eq!(location_in(rust).as_deref(), Some("actors/samples/src/lib.rs:17"));
        let python = "File \"a.py\", line 1\nFile \"b.py\", line 22, in pay";
        assert_eq!(location_in(python).as_deref(), Some("b.py:22"));
        assert_eq!(location_in("status 503 != 200"), None);
    }
}
