//! Replays in which recorded answers stand for services that are not deployed, and for hosts outside.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use faultscope_analysis::compare::FieldRules;
use faultscope_engine::Pace;
use faultscope_engine::replay::{Original, ReplayDone, ReplayOptions, ReplayVerdict, mock_services, replay};
use faultscope_engine::views::{Archive, FoundRecording, Subject, find_run_to_replay};
use faultscope_model::recording::{Answer, MissReason, RecordedCall, Recording};
use faultscope_model::span::Wire;
use faultscope_model::{CampaignKind, Circumstance, ServiceName, SpanId, TraceId};
use faultscope_platform::loopback::{Call, Loopback, Reply};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close, text};
use crate::greeter::greeter;

const HELLO: &str = "tests: [{ name: hello, http: { get: \"http://front:8080/hello\" } }]\n";

fn names(mocked: &[&str]) -> BTreeSet<ServiceName> {
    mocked.iter().map(|name| name.parse().unwrap()).collect()
}

/// The last run of a bed, as a replay without some services finds it.
pub(crate) fn last_recording(bed: &Bed, mocked: &[&str]) -> FoundRecording {
    let mut deployed = bed.application();
    deployed.services.retain(|name, _| !mocked.contains(&name.as_str()));
    let archive = Archive::open(&bed.folder.path().join(".faultscope"), Subject::Run).unwrap();
    find_run_to_replay(&archive, "last", &deployed).unwrap()
}

/// Sends a recording again, in place of whose other services it answers.
pub(crate) async fn replay_mocked(
    bed: &Bed,
    found: FoundRecording,
    mocked: &[&str],
    times: u32,
) -> ReplayDone {
    let FoundRecording { recording, run, reader, .. } = found;
    let (mut application, mut circumstance) = (bed.application(), Circumstance::default());
    mock_services(&mut application, &mut circumstance, &recording, &names(mocked));
    let session = bed.open_for(application, CampaignKind::Replay, None).await;
    let options = ReplayOptions {
        hook: None,
        start: None,
        pace: Pace::AsFastAsPossible,
        within: Duration::from_secs(10),
        times,
        rules: FieldRules::default(),
        mocked: names(mocked),
    };
    let original = Original { run: &run, reader: &reader, calls: &[] };
    let given = (run.treatment.clone(), circumstance);
    let never = CancellationToken::new();
    let done = replay(&session, &recording, &original, given, &options, &never).await.unwrap();
    close(session).await;
    done.expect("nobody stopped it")
}

#[tokio::test]
async fn a_service_that_is_not_started_answers_as_recorded() {
    let bed = greeter(HELLO);
    bed.test(&[]).await;
    let done = replay_mocked(&bed, last_recording(&bed, &["back"]), &["back"], 2).await;
    assert_eq!(done.report.verdict, ReplayVerdict::Reproduced, "{:?}", done.report);
    let back = &done.report.mocks.services[&"back".parse::<ServiceName>().unwrap()];
    assert_eq!((back.answered, back.without_trace, back.missed, back.unused), (2, 0, 0, 0));
    let campaign = &bed.store().campaigns().unwrap()[0];
    let runs = faultscope_engine::stored::runs(&campaign.reader().unwrap()).unwrap();
    assert!(runs.iter().all(|run| run.cost.created == 1), "only `front` was started");
}

#[tokio::test]
async fn a_call_without_a_recorded_answer_is_loud() {
    let bed = greeter(HELLO);
    bed.test(&[]).await;
    let mut found = last_recording(&bed, &["back"]);
    // Another request, for which `front` calls something that was never recorded.
    found.recording.requests[0].path = "/heap".into();
    let done = replay_mocked(&bed, found, &["back"], 2).await;
    assert_eq!(done.report.verdict, ReplayVerdict::MockMissed);
    let [miss] = &done.report.mocks.misses[..] else { panic!("{:?}", done.report.mocks) };
    assert_eq!((miss.operation.as_str(), miss.reason), ("GET /heap", MissReason::OtherOperation));
    assert_eq!(miss.nearest.as_ref().map(|nearest| nearest.operation.as_str()), Some("GET /word"));
    assert_eq!((miss.trace, done.report.mocks.missed), (Some(done.report.requests[0].trace), 2));
    let body = String::from_utf8_lossy(&done.answers[0][0].body).into_owned();
    assert!(body.starts_with("back says 501: faultscope: no recorded answer to GET /heap of back"), "{body}");
}

#[tokio::test]
async fn what_was_never_recorded_is_missed_as_well() {
    let bed = greeter(HELLO);
    bed.test(&[]).await;
    let mut found = last_recording(&bed, &["back"]);
    found.recording.outgoing.clear();
    let done = replay_mocked(&bed, found, &["back"], 1).await;
    assert_eq!(done.report.mocks.misses[0].reason, MissReason::NothingRecorded);
}

const SHOP: &str = "name: shop
services: { shop: { command: [shop], ports: [80] } }
tests: [{ name: buy, http: { get: \"http://shop/buy\" } }]
";

/// Asks a host outside as often as its path says, and says what it heard.
async fn shop(call: Call) -> io::Result<Reply> {
    let mut heard = Vec::new();
    for _ in 0..call.path().trim_start_matches("/buy").len() {
        let answer = call.client().get("http://pay.example/charge").await?;
        heard.push(format!("{} {}", answer.status().as_u16(), text(&answer)));
    }
    Ok(heard.join(", ").into())
}

fn charge(trace: TraceId, start_us: u64, answer: &str) -> RecordedCall {
    RecordedCall {
        trace,
        span: SpanId(start_us),
        callee: "pay.example".parse().unwrap(),
        port: 80,
        wire: Wire::Http1,
        method: "GET".into(),
        path: "/charge".into(),
        body: Vec::new(),
        start_us,
        duration_us: 1,
        answer: Some(Answer {
            status: Some(201),
            body: answer.into(),
            bytes: answer.len() as u64,
            ..Answer::default()
        }),
    }
}

/// A shop with one request of each path, in a trace of its own number, and what a third party answered in each.
async fn shop_with(paths: &[&str], charges: &[(u128, &str)]) -> (Bed, FoundRecording) {
    let bed = Bed::new(SHOP, Loopback::new().service("shop", shop));
    bed.test(&[]).await;
    let mut found = last_recording(&bed, &[]);
    let first = found.recording.requests.remove(0);
    let request = |(index, path): (usize, &&str)| {
        let (trace, span) = (TraceId(index as u128 + 1), SpanId(index as u64 + 1));
        faultscope_model::recording::RecordedRequest {
            trace,
            span,
            path: (*path).to_owned(),
            ..first.clone()
        }
    };
    let requests = paths.iter().enumerate().map(request).collect();
    let outgoing = charges.iter().enumerate();
    let outgoing =
        outgoing.map(|(at, (trace, answer))| charge(TraceId(*trace), at as u64 + 1, answer)).collect();
    found.recording = Recording { requests, outgoing, ..Recording::default() };
    (bed, found)
}

fn bodies(done: &ReplayDone) -> Vec<String> {
    done.answers[0].iter().map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).collect()
}

#[tokio::test]
async fn a_third_party_gives_the_nth_answer_to_the_nth_call() {
    let (bed, found) = shop_with(&["/buy!!"], &[(1, "first"), (1, "second")]).await;
    let done = replay_mocked(&bed, found, &[], 1).await;
    assert_eq!(bodies(&done), ["201 first, 201 second"]);
    assert_eq!(done.report.mocks.missed, 0);
    let (bed, found) = shop_with(&["/buy!!!"], &[(1, "first"), (1, "second")]).await;
    let done = replay_mocked(&bed, found, &[], 1).await;
    assert!(bodies(&done)[0].starts_with("201 first, 201 second, 501 "), "{:?}", bodies(&done));
    assert_eq!(done.report.mocks.misses[0].reason, MissReason::AllGiven { recorded: 2 });
}

#[tokio::test]
async fn requests_at_the_same_time_get_the_answers_of_their_own_traces() {
    // All are sent at once, and their calls were recorded in another order.
    let paths = ["/buy!"; 8];
    let charges: Vec<(u128, String)> = (1..=8).rev().map(|trace| (trace, format!("for {trace}"))).collect();
    let charges: Vec<(u128, &str)> =
        charges.iter().map(|(trace, answer)| (*trace, answer.as_str())).collect();
    let (bed, found) = shop_with(&paths, &charges).await;
    let done = replay_mocked(&bed, found, &[], 1).await;
    let expected: Vec<String> = (1..=8).map(|trace| format!("201 for {trace}")).collect();
    assert_eq!(bodies(&done), expected);
}
