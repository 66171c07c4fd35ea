//! Evidence for a cause: the call that made the test fail, and the first call in which the failing run differs from
//! the nearest passing one. What differs between runs of one circumstance is chance, and no evidence.

use faultscope_model::application::{TestBody, test_named};
use faultscope_model::outcome::Ending;
use faultscope_model::{Outcome, Run, ServiceName, Span, SpanId};

use super::noise::{self, Alignment};
use super::printed;
use super::report::{Difference, TreeCall};
use crate::error::EngineError;
use crate::html::readable_text;
use crate::session::Session;

/// Runs of one circumstance that are compared to see what chance changes; three tell most of it.
const MAX_EQUAL: usize = 3;

/// Compares a failing run with the passing run that differs from it in the fewest deltas.
pub(super) async fn find_difference(
    session: &Session,
    runs: &[&Run],
    failing: &Run,
) -> Result<Option<Difference>, EngineError> {
    let nearest = nearest_passing(failing, runs);
    let Some(passing) = nearest.first() else { return Ok(None) };
    let equal = |run: &&Run| run.treatment == failing.treatment && run.id != failing.id;
    let failed = |run: &&Run| matches!(run.outcome, Outcome::Fail { .. });
    let failing_again: Vec<&Run> = runs.iter().copied().filter(equal).filter(failed).collect();
    let mut passing_again: Vec<&Run> =
        nearest.iter().skip(1).copied().filter(|run| run.treatment == passing.treatment).collect();
    if passing_again.is_empty() {
        // The next passing run has other deltas, but what it does not agree on is not needed to pass.
        passing_again.extend(nearest.get(1));
    }
    let (bad_spans, good_spans) =
        (session.spans_of(failing.trial).await?, session.spans_of(passing.trial).await?);
    let (bad, good) = (story(&bad_spans), story(&good_spans));
    let bad_again = stories(session, &failing_again).await?;
    let good_again = stories(session, &passing_again).await?;
    let at = first_difference((&bad, &bad_again), (&good, &good_again));
    let without = missing_in(passing, failing);
    let tree = |spans: &[Span], list: &[StoryCall], at: Option<usize>| {
        // Where one of the two has no such call, the last one says which trace to show.
        let entry = at.and_then(|at| list.get(at));
        let root = entry.or_else(|| list.last()).map_or(0, |entry| entry.root);
        tree(spans, root, entry.map(|entry| entry.span))
    };
    let failed_call = failed_call(session, failing, &bad_spans, &bad);
    let differing = at.and_then(|(in_bad, _)| bad.get(in_bad?));
    let calls: Vec<SpanId> = [differing, failed_call].into_iter().flatten().map(|entry| entry.span).collect();
    let compared = printed::Compared {
        failing,
        failing_again: &failing_again,
        passing: &[&[*passing], &passing_again[..]].concat(),
    };
    let printed = compared.find_lines(session, &bad_spans, &calls).await?;
    let failed_call = failed_call.map(|entry| entry.show(None));
    let Some((in_bad, in_good)) = at else {
        return Ok(failed_call.map(|failed_call| Difference {
            failing: failing.id.clone(),
            passing: passing.id.clone(),
            without,
            failed_call: Some(failed_call),
            failing_call: None,
            passing_call: None,
            printed,
            failing_tree: Vec::new(),
            passing_tree: Vec::new(),
        }));
    };
    let (one, other) = (in_bad.and_then(|at| bad.get(at)), in_good.and_then(|at| good.get(at)));
    Ok(Some(Difference {
        failing: failing.id.clone(),
        passing: passing.id.clone(),
        without,
        failed_call,
        failing_call: one.map(|entry| entry.show(other)),
        passing_call: other.map(|entry| entry.show(one)),
        printed,
        failing_tree: tree(&bad_spans, &bad, in_bad),
        passing_tree: tree(&good_spans, &good, in_good),
    }))
}

async fn stories(session: &Session, runs: &[&Run]) -> Result<Vec<Vec<StoryCall>>, EngineError> {
    let mut stories = Vec::new();
    for run in runs.iter().take(MAX_EQUAL) {
        stories.push(story(&session.spans_of(run.trial).await?));
    }
    Ok(stories)
}

/// The call from outside that made the test fail: that of the failing step, or the last one that went wrong where a
/// command looks at the answers.
fn failed_call<'t>(
    session: &Session,
    run: &Run,
    spans: &[Span],
    story: &'t [StoryCall],
) -> Option<&'t StoryCall> {
    let Outcome::Fail { signature } = &run.outcome else { return None };
    let is_test = |span: &&Span| span.caller.service.as_str() == ServiceName::TEST;
    let outside: Vec<&Span> = roots(spans).into_iter().filter(is_test).collect();
    let span = match signature.ending {
        Ending::Step(number) => {
            let test = test_named(&session.application().tests, &signature.test)?;
            let TestBody::Steps(steps) = &test.body else { return None };
            let step = steps.iter().find(|step| step.number == number)?;
            let is_step = |span: &&&Span| span.method == step.method && step.url.ends_with(&span.path);
            // A variable in the URL hides its path; the test ended with its last call then.
            outside.iter().rev().find(is_step).or_else(|| outside.iter().rev().find(|span| is_bad(span)))
        }
        _ => outside.iter().rev().find(|span| is_bad(span)),
    }?;
    story.iter().find(|entry| entry.span == span.id)
}

fn is_bad(span: &Span) -> bool {
    span.error.is_some()
        || span.status.is_some_and(|status| status >= 400)
        || span.grpc_status.is_some_and(|code| code != 0)
}

/// Passing runs, those first that differ from a failing one in the fewest deltas. One that has all of its deltas
/// passed by chance or with another input, and tells nothing about them.
pub fn nearest_passing<'a>(failing: &Run, runs: &[&'a Run]) -> Vec<&'a Run> {
    let wanted = failing.treatment.deltas();
    let passing = runs.iter().copied().filter(|run| run.outcome == Outcome::Pass);
    let tells = |run: &'a Run| {
        let deltas = run.treatment.deltas();
        let is_less = !wanted.is_subset(&deltas);
        is_less.then(|| (wanted.symmetric_difference(&deltas).count(), run))
    };
    let mut nearest: Vec<(usize, &Run)> = passing.filter_map(tells).collect();
    nearest.sort_by_key(|(distance, _)| *distance);
    nearest.into_iter().map(|(_, run)| run).collect()
}

/// The deltas that a passing run lacks of those of a failing one.
pub(super) fn missing_in(passing: &Run, failing: &Run) -> Vec<String> {
    let has = passing.treatment.deltas();
    failing.treatment.deltas().difference(&has).map(ToString::to_string).collect()
}

/// The places of the first call that differs. Where equal runs show what chance changes, that is left out. Otherwise the
/// first call counts that is there only once or ended otherwise, or an answer of another content before it in the same
/// call from outside: it comes nearer to the cause.
fn first_difference(
    (bad, bad_again): (&[StoryCall], &[Vec<StoryCall>]),
    (good, good_again): (&[StoryCall], &[Vec<StoryCall>]),
) -> Option<(Option<usize>, Option<usize>)> {
    let keys =
        |story: &[StoryCall]| -> Vec<String> { story.iter().map(|entry| entry.call.clone()).collect() };
    let pairs = noise::align(&keys(bad), &keys(good)).merge();
    if bad_again.is_empty() && good_again.is_empty() {
        let differs = |&(one, other): &(Option<usize>, Option<usize>)| match (one, other) {
            (Some(one), Some(other)) => bad[one].ending != good[other].ending,
            _ => true,
        };
        let otherwise = pairs.iter().position(differs);
        let until = otherwise.unwrap_or(pairs.len());
        let root_of = |&(one, other): &(Option<usize>, Option<usize>)| {
            one.map(|at| bad[at].root).or(other.map(|at| good[at].root))
        };
        let root = otherwise.and_then(|at| root_of(&pairs[at]));
        let answers = pairs[..until].iter().find(|pair| {
            let (Some(one), Some(other)) = **pair else { return false };
            (root.is_none() || root == Some(bad[one].root)) && bad[one].answer != good[other].answer
        });
        return answers.or(otherwise.map(|at| &pairs[at])).copied();
    }
    let others = |own: &[StoryCall], again: &[Vec<StoryCall>]| -> Vec<Alignment> {
        again.iter().map(|other| noise::align(&keys(own), &keys(other))).collect()
    };
    let (bad_places, good_places) = (others(bad, bad_again), others(good, good_again));
    let (bad_in_good, good_in_bad) = (others(bad, good_again), others(good, bad_again));
    let never =
        |at: usize, places: &[Alignment]| places.iter().all(|alignment| alignment.place(at).is_none());
    let like =
        |at: usize, places: &[Alignment], again: &'_ [Vec<StoryCall>]| -> Vec<Option<(String, String)>> {
            let pick = |(alignment, story): (&Alignment, &Vec<StoryCall>)| {
                let entry = &story[alignment.place(at)?];
                Some((entry.ending.clone(), entry.exact.clone()))
            };
            places.iter().zip(again).map(pick).collect()
        };
    pairs.into_iter().find(|&(one, other)| {
        let bads = one.map(|at| like(at, &bad_places, bad_again));
        let goods = other.map(|at| like(at, &good_places, good_again));
        match (one, other) {
            (Some(one), Some(other)) => {
                let (bads, goods) = (bads.unwrap_or_default(), goods.unwrap_or_default());
                let steady = |ending: &str, again: &[Option<(String, String)>]| {
                    again.iter().all(|seen| seen.as_ref().is_some_and(|(seen, _)| seen == ending))
                };
                let (one, other) = (&bad[one], &good[other]);
                if one.ending != other.ending {
                    return steady(&one.ending, &bads) && steady(&other.ending, &goods);
                }
                let exact = |again: &[Option<(String, String)>]| -> Vec<String> {
                    again.iter().flatten().map(|(_, exact)| exact.clone()).collect()
                };
                noise::differs((&one.exact, &exact(&bads)), (&other.exact, &exact(&goods)))
            }
            // A call that only one side has must be in all runs of that side, and in none of the other.
            (Some(one), None) => {
                bads.is_some_and(|again| again.iter().all(Option::is_some)) && never(one, &bad_in_good)
            }
            (None, Some(other)) => {
                goods.is_some_and(|again| again.iter().all(Option::is_some)) && never(other, &good_in_bad)
            }
            (None, None) => false,
        }
    })
}

/// Where to begin with an answer, so that what differs from another one is seen.
fn shown_from(answer: &str, other: &str) -> usize {
    let same = answer.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let differs = same < answer.chars().count().max(other.chars().count());
    if differs && same > SHOWN_ANSWER - BEFORE { same - BEFORE } else { 0 }
}

#[derive(Debug)]
struct StoryCall {
    /// Who called whom for what.
    call: String,
    ending: String,
    /// The beginning of the answer without ids and times.
    answer: String,
    /// The beginning of the answer as it is.
    exact: String,
    shown: String,
    /// What stands between the call and its answer.
    gap: &'static str,
    /// Which of the calls from outside it belongs to, in the order of time.
    root: usize,
    span: SpanId,
}

impl StoryCall {
    /// For people: the call and its answer, from where it differs from that of another run.
    fn show(&self, other: Option<&Self>) -> String {
        // Compared as they are, shown by what a reader would see of them.
        let answer = readable_text(&self.exact);
        let from = other.map_or(0, |other| shown_from(&answer, &readable_text(&other.exact)));
        let answer: String = answer.chars().skip(from).collect();
        let cut = if from > 0 { "…" } else { "" };
        format!("{}{}{cut}{}", self.shown, self.gap, one_line(&answer, SHOWN_ANSWER)).trim_end().to_owned()
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
const MAX_DEPTH: usize = 64;

fn roots(spans: &[Span]) -> Vec<&Span> {
    let mut roots: Vec<&Span> = spans.iter().filter(|s| s.parent.is_none()).collect();
    roots.sort_by_key(|s| (s.start_us, s.id));
    roots
}

/// A call from outside and everything it led to, callers before callees; one of them marked.
fn tree(spans: &[Span], root: usize, marked: Option<SpanId>) -> Vec<TreeCall> {
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
fn story(spans: &[Span]) -> Vec<StoryCall> {
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
    use faultscope_model::grpc::{Descriptors, frame_message};
    use faultscope_model::span::{Parentage, Payload};

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
        story(spans).into_iter().map(|entry| format!("{} {}", entry.call, entry.ending)).collect()
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
        let entry: Vec<_> =
            tree(&spans, 0, Some(SpanId(2))).into_iter().map(|c| (c.depth, c.callee, c.differs)).collect();
        assert_eq!(entry, [(0, "a".to_owned(), false), (1, "b".to_owned(), true)]);
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

    fn entry(root: usize, call: &str, ending: &str, answer: &str) -> StoryCall {
        let (call, ending) = (call.to_owned(), ending.to_owned());
        let (answer, exact) = (answer.to_owned(), answer.to_owned());
        StoryCall { call, ending, answer, exact, shown: String::new(), gap: " ", root, span: SpanId(1) }
    }

    #[test]
    fn what_equal_runs_do_not_agree_on_is_no_evidence() {
        let good = [entry(0, "ship", "200", "track 17"), entry(0, "pay", "200", "10 of 10")];
        let again = vec![entry(0, "ship", "200", "track 99"), entry(0, "pay", "200", "10 of 10")];
        let bad = [entry(0, "ship", "200", "track 5"), entry(0, "pay", "500", "0 of 10")];
        let both = Some((Some(1), Some(1)));
        assert_eq!(first_difference((&bad, &[]), (&good, &[again])), both);
        let bad_again = vec![entry(0, "ship", "200", "track 6"), entry(0, "pay", "500", "0 of 10")];
        assert_eq!(
            first_difference((&bad, &[bad_again]), (&good, &[])),
            both,
            "the failing side shows it, too"
        );
        assert_eq!(first_difference((&good, &[]), (&good, &[])), None);
    }

    #[test]
    fn a_call_that_comes_by_chance_is_no_evidence() {
        let good = [entry(0, "poll", "200", ""), entry(0, "pay", "200", "")];
        let good_again = vec![entry(0, "pay", "200", "")];
        let bad = [entry(0, "pay", "500", "")];
        let found = first_difference((&bad, &[]), (&good, &[good_again]));
        assert_eq!(found, Some((Some(0), Some(1))), "not the poll that came once");
        let gone = first_difference((&[], &[Vec::new()]), (&bad, &[]));
        assert_eq!(gone, Some((None, Some(0))), "a call that never comes is one");
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
            story(std::slice::from_ref(&call))[0].show(None),
            "test-1 -> a GET /: INTERNAL: no stock of 7"
        );
        assert_eq!(tree(std::slice::from_ref(&call), 0, None)[0].ending, "INTERNAL: no stock of 7");
        call.grpc_status = Some(0);
        assert_eq!(ending(&call), "OK");
    }

    #[test]
    fn answers_of_grpc_are_compared_by_field() {
        let body = |id: &str, sum: u8| {
            let mut call = call(1, None, "a", 0, 100, 200);
            call.grpc_status = Some(0);
            // Field 1 is a text, field 2 a number; no descriptor says so.
            let message = [&[0x0a, id.len() as u8][..], id.as_bytes(), &[0x10, sum]].concat();
            let payload = Payload { response_body: frame_message(&message), ..Payload::default() };
            call.payload = Some(Box::new(payload));
            call.decode_bodies(&Descriptors::default());
            story(&[call])
        };
        let (good, again) = (body("a1b2", 10), body("c3d4e5", 10));
        let bad = body("e5f6", 0);
        assert_eq!(bad[0].show(None), r#"test-1 -> a GET /: OK {"1":"e5f6","2":0}"#);
        let both = Some((Some(0), Some(0)));
        assert_eq!(first_difference((&bad, &[]), (&good, &[again])), both, "the sum is no chance");
        let again = body("x", 10);
        assert_eq!(first_difference((&body("y", 10), &[]), (&good, &[again])), None, "the id is");
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
        let story = |one: &str, answer: &str, end: &str| {
            [
                entry(0, "x", "200", one),
                entry(1, "a", "200", answer),
                entry(1, "b", "200", ""),
                entry(1, "end", end, ""),
            ]
        };
        let (good, bad) = (story("1", "locked", "423"), story("2", "free", "200"));
        let first = |bad: &[StoryCall], good: &[StoryCall]| first_difference((bad, &[]), (good, &[]));
        let at = |place| Some((Some(place), Some(place)));
        assert_eq!(first(&bad, &good), at(1), "what came before in another call is chance");
        assert_eq!(first(&bad[..3], &good[..3]), at(0), "nothing ended otherwise: the first answer");
        assert_eq!(first(&good, &good), None);
        assert_eq!(first(&good[..3], &good), Some((None, Some(3))), "a call that is missing");
    }
}
