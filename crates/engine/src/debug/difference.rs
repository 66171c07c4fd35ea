//! Evidence for a cause: the first call in which the failing run differs from the nearest passing one.

use faultscope_model::{DeltaSet, Outcome, Run, Space, Span, SpanId};

use super::report::{DebugReport, Difference, TreeCall};
use crate::error::EngineError;
use crate::session::Session;

/// Compares the smallest failing run with the passing run that differs from it in the fewest deltas.
pub(super) async fn first_difference(
    session: &Session,
    space: &Space,
    runs: &[&Run],
    report: &DebugReport,
) -> Result<Option<Difference>, EngineError> {
    let Some(witness) = report.causes.first().and_then(|cause| cause.run.clone()) else { return Ok(None) };
    let Some(failing) = runs.iter().find(|run| run.id == witness) else { return Ok(None) };
    let nearest = nearest_passing(failing, runs);
    let Some(passing) = nearest.first() else { return Ok(None) };
    // A second passing run shows which differences are chance.
    let again = match nearest.get(1) {
        Some(run) => Some(session.spans_of(run.trial).await?),
        None => None,
    };
    let (bad, good) = (session.spans_of(failing.trial).await?, session.spans_of(passing.trial).await?);
    let (bad_spans, good_spans) = (bad, good);
    let (bad, good) = (story(&bad_spans), story(&good_spans));
    let again = again.as_deref().map(story);
    let steady = again.and_then(|again| first_steady(&bad, &good, &again));
    let at = steady.or_else(|| first(&bad, &good));
    let missing = failing.deltas.difference(&passing.deltas);
    let call = |list: &[Told], other: &[Told], at: usize| Some(list.get(at)?.show(other.get(at)));
    let tree = |spans: &[Span], list: &[Told], at: usize| {
        // Where one of the two has no such call any more, the trace of the other says which one to show.
        let root = list.get(at).or_else(|| list.last()).map_or(0, |told| told.root);
        tree(spans, root, list.get(at).map(|told| told.span))
    };
    Ok(at.map(|at| Difference {
        failing: failing.id.clone(),
        passing: passing.id.clone(),
        without: missing.iter().filter_map(|d| space.deltas.get(d)).map(|d| d.name.clone()).collect(),
        failing_call: call(&bad, &good, at),
        passing_call: call(&good, &bad, at),
        failing_tree: tree(&bad_spans, &bad, at),
        passing_tree: tree(&good_spans, &good, at),
    }))
}

/// Passing runs, those first that differ from a failing one in the fewest deltas. One that has all of its deltas
/// passed by chance or with another input, and tells nothing about them.
pub fn nearest_passing<'a>(failing: &Run, runs: &[&'a Run]) -> Vec<&'a Run> {
    let distance =
        |set: &DeltaSet| set.difference(&failing.deltas).len() + failing.deltas.difference(set).len();
    let tells = |run: &Run| run.outcome == Outcome::Pass && !failing.deltas.is_subset(&run.deltas);
    let mut nearest: Vec<_> = runs.iter().copied().filter(|run| tells(run)).collect();
    nearest.sort_by_key(|run| distance(&run.deltas));
    nearest
}

/// The first call whose answer differs, byte for byte, while two passing runs agree on it. Behind the first call
/// that is there only once there is nothing to compare.
fn first_steady(bad: &[Told], good: &[Told], again: &[Told]) -> Option<usize> {
    let same_calls = bad.iter().zip(good).take_while(|(bad, good)| bad.what == good.what).count();
    (0..same_calls).find(|&i| {
        let steady = again.get(i).is_some_and(|a| a.what == good[i].what && a.exact == good[i].exact);
        steady && bad[i].exact != good[i].exact
    })
}

/// The first call that is there only once, or ended otherwise. An answer of another content before it, in
/// the same call from outside, comes nearer to the cause; where all calls agree, the first other answer is it.
fn first(bad: &[Told], good: &[Told]) -> Option<usize> {
    let otherwise =
        (0..bad.len().max(good.len())).find(|&i| bad.get(i).map(|c| &c.what) != good.get(i).map(|c| &c.what));
    let told = |at: usize| bad.get(at).or(good.get(at));
    let (from, to) = match otherwise {
        None => (0, bad.len()),
        Some(at) => {
            let root = told(at).map_or(0, |told| told.root);
            let from = bad.iter().position(|told| told.root == root).unwrap_or(at);
            (from.min(at), at)
        }
    };
    (from..to).find(|&i| bad[i].answer != good[i].answer).or(otherwise)
}

/// Where to begin with an answer, so that what differs from another one is seen.
fn shown_from(answer: &str, other: &str) -> usize {
    let same = answer.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let differs = same < answer.chars().count().max(other.chars().count());
    if differs && same > SHOWN_ANSWER - BEFORE { same - BEFORE } else { 0 }
}

#[derive(Debug)]
struct Told {
    /// What must agree: who called whom for what, and how it ended.
    what: String,
    /// The beginning of the answer without ids and times.
    answer: String,
    /// The beginning of the answer as it is.
    exact: String,
    shown: String,
    /// Which of the calls from outside it belongs to, in the order of time.
    root: usize,
    span: SpanId,
}

impl Told {
    /// For people: the call and its answer, from where it differs from that of another run.
    fn show(&self, other: Option<&Self>) -> String {
        let from = other.map_or(0, |other| shown_from(&self.exact, &other.exact));
        let answer: String = self.exact.chars().skip(from).collect();
        let cut = if from > 0 { "…" } else { "" };
        format!("{} {cut}{}", self.shown, one_line(&answer, SHOWN_ANSWER)).trim_end().to_owned()
    }
}

/// Characters of an answer that are compared.
const ANSWER: usize = 512;
/// Characters of an answer that are kept as they are.
const EXACT: usize = 8192;
/// Characters of an answer that are shown.
const SHOWN_ANSWER: usize = 120;
/// Characters of an operation and of an ending that are shown.
const SHOWN_CALL: usize = 160;
/// Characters before the first that differs.
const BEFORE: usize = 40;
/// Calls of a tree that are kept.
const TREE_CALLS: usize = 80;
/// Deeper than any real chain: damaged data must not end in a circle.
const MOST_DEPTH: usize = 64;

fn roots(spans: &[Span]) -> Vec<&Span> {
    let mut roots: Vec<&Span> = spans.iter().filter(|s| s.parent.is_none()).collect();
    roots.sort_by_key(|s| (s.start_us, s.id));
    roots
}

/// A call from outside and everything it led to, callers before callees; one of them marked.
fn tree(spans: &[Span], root: usize, marked: Option<SpanId>) -> Vec<TreeCall> {
    fn add(span: &Span, spans: &[Span], depth: usize, marked: Option<SpanId>, tree: &mut Vec<TreeCall>) {
        if depth > MOST_DEPTH || tree.len() >= TREE_CALLS {
            return;
        }
        let callee =
            span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
        tree.push(TreeCall {
            depth,
            callee,
            operation: one_line(&span.operation(), SHOWN_CALL),
            ending: one_line(&ending(span), SHOWN_CALL),
            differs: marked == Some(span.id),
        });
        for child in in_order(spans.iter().filter(|s| s.parent == Some(span.id)).collect()) {
            add(child, spans, depth + 1, marked, tree);
        }
    }
    let mut calls = Vec::new();
    if let Some(root) = roots(spans).get(root) {
        add(root, spans, 0, marked, &mut calls);
    }
    calls
}

fn ending(span: &Span) -> String {
    match (&span.error, span.status) {
        (Some(error), _) => error.to_string(),
        (None, Some(status)) => status.to_string(),
        (None, None) => "ended".into(),
    }
}

/// The calls of a run as a story that can be compared, without ids and times: each call after those that
/// were made in it. Calls that overlap in time are told in the order of their names, since theirs is chance.
fn story(spans: &[Span]) -> Vec<Told> {
    let mut told = Vec::new();
    for (number, root) in roots(spans).into_iter().enumerate() {
        tell(root, spans, (number, 0), &mut told);
    }
    told
}

fn tell(span: &Span, spans: &[Span], (root, depth): (usize, usize), told: &mut Vec<Told>) {
    if depth > MOST_DEPTH {
        return;
    }
    let children = spans.iter().filter(|s| s.parent == Some(span.id)).collect();
    for child in in_order(children) {
        tell(child, spans, (root, depth + 1), told);
    }
    let ending = ending(span);
    let operation = faultscope_model::outcome::normalise(&span.operation());
    let what = format!("{} {} {operation} {ending}", span.caller.service, span.callee);
    let instance = span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
    let body = span
        .payload
        .as_ref()
        .map(|p| String::from_utf8_lossy(&p.response_body).into_owned())
        .unwrap_or_default();
    let answer = faultscope_model::outcome::normalise(&body.chars().take(ANSWER).collect::<String>());
    let shown = format!(
        "{} -> {instance} {}: {}",
        span.caller,
        one_line(&operation, SHOWN_CALL),
        one_line(&ending, SHOWN_CALL),
    );
    let exact = body.chars().take(EXACT).collect();
    told.push(Told { what, answer, exact, shown, root, span: span.id });
}

/// Whatever a service sends as part of one line: what ends a line or moves a cursor is escaped.
fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut letters = text.chars();
    for letter in letters.by_ref().take(most) {
        match letter {
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}') => {
                line.extend(c.escape_default());
            }
            c => line.push(c),
        }
    }
    if letters.next().is_some() {
        line.push_str("...");
    }
    line
}

/// Sorts the calls of one handling by time, and those that overlap by name.
fn in_order(mut calls: Vec<&Span>) -> Vec<&Span> {
    calls.sort_by_key(|s| (s.start_us, s.id));
    let mut start = 0;
    while start < calls.len() {
        let mut busy_until = calls[start].start_us + calls[start].duration_us;
        let mut end = start + 1;
        while end < calls.len() && calls[end].start_us < busy_until {
            busy_until = busy_until.max(calls[end].start_us + calls[end].duration_us);
            end += 1;
        }
        calls[start..end].sort_by_cached_key(|s| (s.callee.clone(), s.operation(), s.start_us));
        start = end;
    }
    calls
}

#[cfg(test)]
mod tests {
    use faultscope_model::span::Parentage;

    use super::*;
    use crate::sample;

    fn call(
        id: u64,
        parent: Option<u64>,
        callee: &str,
        start_us: u64,
        duration_us: u64,
        status: u16,
    ) -> Span {
        let (id, parent, parentage) = (SpanId(id), parent.map(SpanId), Parentage::Propagated);
        let (callee, status) = (callee.parse().unwrap(), Some(status));
        Span { id, parent, parentage, callee, start_us, duration_us, status, ..sample::span() }
    }

    fn names(spans: &[Span]) -> Vec<String> {
        story(spans).into_iter().map(|told| told.what).collect()
    }

    #[test]
    fn chance_order_of_overlapping_calls_is_no_difference() {
        let one = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "b", 10, 50, 200),
            call(3, Some(1), "c", 11, 50, 200),
        ];
        let other = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "c", 10, 50, 200),
            call(3, Some(1), "b", 11, 50, 200),
        ];
        assert_eq!(names(&one), names(&other));
    }

    #[test]
    fn order_of_calls_one_after_another_is_a_difference() {
        let one = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "b", 10, 5, 200),
            call(3, Some(1), "c", 20, 5, 200),
        ];
        let other = [
            call(1, None, "a", 0, 100, 200),
            call(2, Some(1), "c", 10, 5, 200),
            call(3, Some(1), "b", 20, 5, 200),
        ];
        assert_ne!(names(&one), names(&other));
    }

    #[test]
    fn answers_are_told_after_the_calls_made_for_them() {
        let spans = [call(1, None, "a", 0, 100, 500), call(2, Some(1), "b", 10, 5, 404)];
        assert_eq!(names(&spans), ["test b GET / 404", "test a GET / 500"]);
    }

    #[test]
    fn trees_are_told_from_the_caller_on() {
        let spans = [
            call(1, None, "a", 0, 100, 500),
            call(2, Some(1), "b", 10, 5, 404),
            call(3, None, "c", 200, 5, 200),
        ];
        let told: Vec<_> =
            tree(&spans, 0, Some(SpanId(2))).into_iter().map(|c| (c.depth, c.callee, c.differs)).collect();
        assert_eq!(told, [(0, "a".to_owned(), false), (1, "b".to_owned(), true)]);
        assert_eq!(tree(&spans, 1, None).len(), 1);
        assert!(tree(&spans, 7, None).is_empty());
    }

    #[test]
    fn texts_of_other_protocols_stay_on_one_line() {
        let mut redis = call(1, None, "cache", 0, 5, 200);
        redis.method = "GET".into();
        redis.path = "a\r\nb".into();
        redis.payload = Some(Box::new(faultscope_model::span::Payload {
            response_body: b"*2\r\n$3\r\n\x1b[31mfoo\r\n".repeat(40),
            ..Default::default()
        }));
        let shown = story(std::slice::from_ref(&redis))[0].show(None);
        assert!(shown.contains("*2\\r\\n$3\\r\\n\\u{1b}[31mfoo"), "{shown}");
        assert!(shown.ends_with("...") && shown.chars().count() < 500, "{shown}");
        assert!(!shown.contains(char::is_control), "{shown}");
        assert!(!tree(&[redis], 0, None)[0].operation.contains(char::is_control));
        assert_eq!(one_line("plain text, ümlaut", 120), "plain text, ümlaut");
    }

    fn told(root: usize, what: &str, answer: &str) -> Told {
        let (what, answer, exact) = (what.to_owned(), answer.to_owned(), answer.to_owned());
        Told { what, answer, exact, shown: String::new(), root, span: SpanId(1) }
    }

    #[test]
    fn what_two_passing_runs_agree_on_is_no_chance() {
        let good = [told(0, "x", "id 1"), told(0, "pay", "10"), told(1, "b", "")];
        let again = [told(0, "x", "id 7"), told(0, "pay", "10"), told(1, "b", "")];
        let bad = [told(0, "x", "id 3"), told(0, "pay", "0")];
        assert_eq!(first_steady(&bad, &good, &again), Some(1));
        assert_eq!(first_steady(&good, &good, &again), None);
        assert_eq!(first_steady(&bad, &good, &[]), None, "nothing to compare with");
    }

    #[test]
    fn answers_are_shown_where_they_differ() {
        let long = "a".repeat(200);
        assert_eq!(shown_from(&format!("{long}x"), &format!("{long}y")), 200 - BEFORE);
        assert_eq!(shown_from("ax", "ay"), 0, "all of it fits");
        assert_eq!(shown_from(&long, &long), 0);
    }

    #[test]
    fn another_answer_before_the_other_ending_comes_nearer_to_the_cause() {
        let good = [told(0, "x", "1"), told(1, "a", "locked"), told(1, "b", ""), told(1, "end 423", "")];
        let bad = [told(0, "x", "2"), told(1, "a", "free"), told(1, "b", ""), told(1, "end 200", "")];
        assert_eq!(first(&bad, &good), Some(1), "what came before in another call is chance");
        assert_eq!(first(&bad[..3], &good[..3]), Some(0), "nothing ended otherwise: the first answer");
        assert_eq!(first(&good, &good), None);
        assert_eq!(first(&good[..3], &good), Some(3), "a call that is missing");
    }
}
