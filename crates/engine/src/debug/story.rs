//! The calls of a run as a list or tree that people can read and that another run can be compared with.

use faultscope_model::terminal::is_printable;
use faultscope_model::{Span, SpanId};

use super::report::TreeCall;
use crate::html::readable_text;

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
const MAX_DEPTH: usize = 64;

/// Where to begin with an answer, so that what differs from another one is seen.
fn shown_from(answer: &str, other: &str) -> usize {
    let same = answer.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let differs = same < answer.chars().count().max(other.chars().count());
    if differs && same > SHOWN_ANSWER - BEFORE { same - BEFORE } else { 0 }
}

#[derive(Debug)]
pub(super) struct StoryCall {
    /// Who called whom for what.
    pub(super) call: String,
    pub(super) ending: String,
    /// The beginning of the answer without ids and times.
    pub(super) answer: String,
    /// The beginning of the answer as it is.
    pub(super) exact: String,
    pub(super) shown: String,
    /// What stands between the call and its answer.
    pub(super) gap: &'static str,
    /// Which of the calls from outside it belongs to, in the order of time.
    pub(super) root: usize,
    pub(super) span: SpanId,
}

impl StoryCall {
    /// For people: the call and its answer, from where it differs from that of another run.
    pub(super) fn show(&self, other: Option<&Self>) -> String {
        // Compared as they are, shown by what a reader would see of them.
        let answer = readable_text(&self.exact);
        let from = other.map_or(0, |other| shown_from(&answer, &readable_text(&other.exact)));
        let answer: String = answer.chars().skip(from).collect();
        let cut = if from > 0 { "…" } else { "" };
        format!("{}{}{cut}{}", self.shown, self.gap, one_line(&answer, SHOWN_ANSWER)).trim_end().to_owned()
    }
}

pub(super) fn roots(spans: &[Span]) -> Vec<&Span> {
    let mut roots: Vec<&Span> = spans.iter().filter(|s| s.parent.is_none()).collect();
    roots.sort_by_key(|s| (s.start_us, s.id));
    roots
}

/// A call from outside and everything it led to, callers before callees; one of them marked.
pub(super) fn build_tree(spans: &[Span], root: usize, marked: Option<SpanId>) -> Vec<TreeCall> {
    fn add(span: &Span, spans: &[Span], depth: usize, marked: Option<SpanId>, tree: &mut Vec<TreeCall>) {
        if depth > MAX_DEPTH || tree.len() >= TREE_CALLS {
            return;
        }
        let callee =
            span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
        tree.push(TreeCall {
            depth,
            callee,
            operation: one_line(&span.operation(), SHOWN_CALL),
            ending: one_line(&full_ending(span), SHOWN_CALL),
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
    Some(span.describe_status()).filter(|words| !words.is_empty()).unwrap_or_else(|| "ended".into())
}

/// The same with the message of a failed gRPC call.
fn full_ending(span: &Span) -> String {
    Some(span.describe_failure()).filter(|words| !words.is_empty()).unwrap_or_else(|| "ended".into())
}

/// The calls of a run as a story that can be compared, without ids and times: each call after those that
/// were made in it. Calls that overlap in time are listed in the order of their names, since theirs is chance.
pub(super) fn list_calls(spans: &[Span]) -> Vec<StoryCall> {
    let mut calls = Vec::new();
    for (number, root) in roots(spans).into_iter().enumerate() {
        add_story(root, spans, (number, 0), &mut calls);
    }
    calls
}

fn add_story(span: &Span, spans: &[Span], (root, depth): (usize, usize), calls: &mut Vec<StoryCall>) {
    if depth > MAX_DEPTH {
        return;
    }
    let children = spans.iter().filter(|s| s.parent == Some(span.id)).collect();
    for child in in_order(children) {
        add_story(child, spans, (root, depth + 1), calls);
    }
    // Pools open and close connections when they like: one that ended well tells nothing about the failure.
    if !span.wire.carries_headers() && !span.failed() {
        return;
    }
    let ending = ending(span);
    let operation = faultscope_model::outcome::normalise(&span.operation());
    let call = format!("{} {} {operation}", span.caller.service, span.callee);
    let instance = span.callee_instance.as_ref().map_or_else(|| span.callee.to_string(), ToString::to_string);
    // What a failed call of gRPC says is in its trailers, and its body is empty.
    let message = span.grpc_message();
    let gap = if message.is_some() { ": " } else { " " };
    let body = span.response_text().unwrap_or_default();
    let body = format!("{}{body}", message.unwrap_or_default());
    let answer = faultscope_model::outcome::normalise(&body.chars().take(ANSWER).collect::<String>());
    let shown = format!(
        "{} -> {instance} {}: {}",
        span.caller,
        one_line(&operation, SHOWN_CALL),
        one_line(&ending, SHOWN_CALL),
    );
    let exact = body.chars().take(EXACT).collect();
    calls.push(StoryCall { call, ending, answer, exact, shown, gap, root, span: span.id });
}

/// Whatever a service sends as part of one line: what ends a line or moves a cursor is escaped.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut letters = text.chars();
    for letter in letters.by_ref().take(most) {
        match letter {
            c if is_printable(c) => line.push(c),
            c => line.extend(c.escape_default()),
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
pub(super) mod tests {
    use faultscope_model::CallError;
    use faultscope_model::span::{Parentage, Payload, Wire};

    use super::*;
    use crate::sample;

    /// A call of the test or within another one.
    pub(in crate::debug) fn call(
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
        list_calls(spans).into_iter().map(|entry| format!("{} {}", entry.call, entry.ending)).collect()
    }

    #[test]
    fn a_connection_counts_only_if_it_failed() {
        let connection =
            |error| Span { wire: Wire::Tcp, status: None, error, ..call(2, None, "redis", 5, 9, 0) };
        let request = call(1, None, "a", 0, 100, 200);
        assert_eq!(names(&[request.clone(), connection(None)]), ["test a GET / 200"]);
        let refused = names(&[request, connection(Some(CallError::ConnectRefused))]);
        assert_eq!(refused.len(), 2, "{refused:?}");
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
    fn answers_follow_the_calls_made_for_them() {
        let spans = [call(1, None, "a", 0, 100, 500), call(2, Some(1), "b", 10, 5, 404)];
        assert_eq!(names(&spans), ["test b GET / 404", "test a GET / 500"]);
    }

    #[test]
    fn trees_begin_with_the_caller() {
        let spans = [
            call(1, None, "a", 0, 100, 500),
            call(2, Some(1), "b", 10, 5, 404),
            call(3, None, "c", 200, 5, 200),
        ];
        let entry: Vec<_> = build_tree(&spans, 0, Some(SpanId(2)))
            .into_iter()
            .map(|c| (c.depth, c.callee, c.differs))
            .collect();
        assert_eq!(entry, [(0, "a".to_owned(), false), (1, "b".to_owned(), true)]);
        assert_eq!(build_tree(&spans, 1, None).len(), 1);
        assert!(build_tree(&spans, 7, None).is_empty());
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
        let shown = list_calls(std::slice::from_ref(&redis))[0].show(None);
        assert!(shown.contains("*2\\r\\n$3\\r\\n\\u{1b}[31mfoo"), "{shown}");
        assert!(shown.ends_with("...") && shown.chars().count() < 500, "{shown}");
        assert!(!shown.contains(char::is_control), "{shown}");
        assert!(!build_tree(&[redis], 0, None)[0].operation.contains(char::is_control));
        assert_eq!(one_line("plain text, ümlaut", 120), "plain text, ümlaut");
    }

    #[test]
    fn a_failed_grpc_call_is_no_200() {
        let mut call = call(1, None, "a", 0, 100, 200);
        call.grpc_status = Some(13);
        assert_eq!(ending(&call), "INTERNAL");
        let response_headers = vec![("grpc-message".to_owned(), "no%20stock of 7".to_owned())];
        let payload = Payload { response_headers, ..Payload::default() };
        call.payload = Some(Box::new(payload));
        assert_eq!(
            list_calls(std::slice::from_ref(&call))[0].show(None),
            "test-1 -> a GET /: INTERNAL: no stock of 7"
        );
        assert_eq!(build_tree(std::slice::from_ref(&call), 0, None)[0].ending, "INTERNAL: no stock of 7");
        call.grpc_status = Some(0);
        assert_eq!(ending(&call), "OK");
    }

    #[test]
    fn answers_are_shown_where_they_differ() {
        let long = "a".repeat(200);
        assert_eq!(shown_from(&format!("{long}x"), &format!("{long}y")), 200 - BEFORE);
        assert_eq!(shown_from("ax", "ay"), 0, "all of it fits");
        assert_eq!(shown_from(&long, &long), 0);
    }
}
