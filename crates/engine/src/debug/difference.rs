//! Evidence for a cause: the call that made the test fail, and the first call in which the failing run differs from
//! the nearest passing one. What differs between runs of one circumstance is chance, and no evidence.

use faultscope_model::outcome::Ending;
use faultscope_model::{Outcome, Run, ServiceName, Span, SpanId};

use super::noise::{self, Alignment};
use super::printed;
use super::report::Difference;
use super::story::{StoryCall, build_tree, list_calls, roots};
use crate::error::EngineError;
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
    let (bad, good) = (list_calls(&bad_spans), list_calls(&good_spans));
    let bad_again = stories(session, &failing_again).await?;
    let good_again = stories(session, &passing_again).await?;
    let at = first_difference((&bad, &bad_again), (&good, &good_again));
    let without = missing_in(passing, failing);
    let tree =
        |spans: &[Span], (own, at): (&[StoryCall], Option<usize>), other: (&[StoryCall], Option<usize>)| {
            let entry = at.and_then(|at| own.get(at));
            // Where one of the two has no such call, the call from outside that it is missing in is shown.
            let root = entry.map(|entry| entry.root).or_else(|| find_same_root(own, (other.0, other.1?)));
            build_tree(spans, root.unwrap_or_default(), entry.map(|entry| entry.span))
        };
    let failed_call = failed_call(failing, &bad_spans, &bad);
    let differing = at.and_then(|(in_bad, _)| bad.get(in_bad?));
    let calls: Vec<SpanId> = [differing, failed_call].into_iter().flatten().map(|entry| entry.span).collect();
    let compared = printed::Compared {
        failing,
        failing_again: &failing_again,
        passing: &[&[*passing], &passing_again[..]].concat(),
    };
    let printed = compared.find_lines(session, &bad_spans, &calls).await?;
    let other = at.and_then(|(_, in_good)| good.get(in_good?));
    let failed_call = failed_call.map(|entry| {
        // The same call reads the same in both lines, so that it is shown once.
        let is_differing = differing.is_some_and(|differing| differing.span == entry.span);
        entry.show(other.filter(|_| is_differing))
    });
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
    Ok(Some(Difference {
        failing: failing.id.clone(),
        passing: passing.id.clone(),
        without,
        failed_call,
        failing_call: differing.map(|entry| entry.show(other)),
        passing_call: other.map(|entry| entry.show(differing)),
        printed,
        failing_tree: tree(&bad_spans, (&bad, in_bad), (&good, in_good)),
        passing_tree: tree(&good_spans, (&good, in_good), (&bad, in_bad)),
    }))
}

/// The call from outside that corresponds to the one which another run's call at a place belongs to; the last one if
/// none does.
fn find_same_root(own: &[StoryCall], (other, at): (&[StoryCall], usize)) -> Option<usize> {
    let keys =
        |story: &[StoryCall]| -> Vec<String> { story.iter().map(|entry| entry.call.clone()).collect() };
    let places = noise::align(&keys(other), &keys(own));
    let root = other.get(at)?.root;
    // The call from outside stands behind those that were made in it, and says most about which one it is.
    let same = (0..other.len()).rev().filter(|at| other[*at].root == root).find_map(|at| places.place(at));
    same.and_then(|at| own.get(at)).or_else(|| own.last()).map(|entry| entry.root)
}

async fn stories(session: &Session, runs: &[&Run]) -> Result<Vec<Vec<StoryCall>>, EngineError> {
    let mut stories = Vec::new();
    for run in runs.iter().take(MAX_EQUAL) {
        stories.push(list_calls(&session.spans_of(run.trial).await?));
    }
    Ok(stories)
}

/// The call from outside that made the test fail: that of the failing step, or the last one that went wrong where a
/// command looks at the answers.
fn failed_call<'t>(run: &Run, spans: &[Span], story: &'t [StoryCall]) -> Option<&'t StoryCall> {
    let Outcome::Fail { signature } = &run.outcome else { return None };
    let is_test = |span: &&Span| span.caller.service.as_str() == ServiceName::TEST;
    let outside: Vec<&Span> = roots(spans).into_iter().filter(is_test).collect();
    let span = match signature.ending {
        Ending::Step(_) => {
            let results = run.evidence.tests.iter().filter(|result| result.test == signature.test);
            let failure = results.filter_map(|result| result.failure.as_ref()).next()?;
            failure.find_call(outside.iter().copied())
        }
        _ => outside.iter().rev().find(|span| is_bad(span)).copied(),
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

#[cfg(test)]
mod tests {
    use faultscope_model::grpc::{Descriptors, frame_message};
    use faultscope_model::span::Payload;

    use super::super::story::tests::call;
    use super::*;

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
    fn the_tree_of_a_missing_call_is_the_one_it_is_missing_in() {
        let good = [
            entry(0, "add", "OK", ""),
            entry(1, "quote", "OK", ""),
            entry(1, "order", "OK", ""),
            entry(2, "list", "OK", ""),
        ];
        let bad =
            [entry(0, "add", "OK", ""), entry(1, "dial", "refused", ""), entry(1, "order", "INTERNAL", "")];
        assert_eq!(find_same_root(&good, (&bad, 1)), Some(1), "not the last one, which only this run has");
        assert_eq!(find_same_root(&bad, (&good, 1)), Some(1));
        assert_eq!(find_same_root(&bad, (&good, 3)), Some(1), "nothing corresponds to it");
        assert_eq!(find_same_root(&[], (&good, 3)), None);
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
    fn answers_of_grpc_are_compared_by_field() {
        let body = |id: &str, sum: u8| {
            let mut call = call(1, None, "a", 0, 100, 200);
            call.grpc_status = Some(0);
            // Field 1 is a text, field 2 a number; no descriptor says so.
            let message = [&[0x0a, id.len() as u8][..], id.as_bytes(), &[0x10, sum]].concat();
            let payload = Payload { response_body: frame_message(&message), ..Payload::default() };
            call.payload = Some(Box::new(payload));
            call.decode_bodies(&Descriptors::default());
            list_calls(&[call])
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
