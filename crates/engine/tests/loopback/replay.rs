//! Recorded requests that are sent again: what is noise, what differs, which values follow from earlier answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use faultscope_analysis::compare::FieldRules;
use faultscope_engine::replay::{
    Original, ReplayDone, ReplayOptions, ReplayVerdict, RequestVerdict, replay, write_test,
};
use faultscope_engine::views::{Archive, FoundRecording, Subject, find_run_to_replay, find_traces_to_replay};
use faultscope_engine::{EngineError, Pace};
use faultscope_model::secrets::SecretNames;
use faultscope_model::{Application, CampaignKind};
use faultscope_platform::loopback::{Call, Loopback, Reply};
use http::Method;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, close};

const FILE: &str = "name: desk
services:
  desk: { command: [desk], ports: [80], env: { PRICE: \"7\" } }
tests:
  - name: order
    steps:
      - { post: \"http://desk/orders\", json: { what: tea }, expect: { status: 201 }, save: { id: id } }
      - { get: \"http://desk/orders/${id}\", expect: { status: 200 } }
";

/// A desk that gives every order an id nobody can foresee, and knows only the orders of its own instance.
fn desk() -> Bed {
    desk_with(FILE)
}

fn desk_with(file: &str) -> Bed {
    // Starts far from zero, so that no id stands in another value by chance.
    let ids = Arc::new(AtomicU64::new(0x5eed_0000_0001));
    let answer = move |call: Call| {
        let ids = Arc::clone(&ids);
        async move { serve(&call, &ids) }
    };
    Bed::new(file, Loopback::new().service("desk", answer))
}

fn serve(call: &Call, ids: &AtomicU64) -> Reply {
    if call.request.method() == Method::POST {
        let id = format!("order-{:x}", ids.fetch_add(0x1_0007, Ordering::Relaxed));
        call.instance.memory().set(&id, call.instance.env("PRICE").unwrap_or_default());
        return (201, format!(r#"{{"id":"{id}","state":"new"}}"#)).into();
    }
    let id = call.path().rsplit('/').next().unwrap_or_default();
    match call.instance.memory().get(id) {
        Some(price) => format!(r#"{{"id":"{id}","price":{price}}}"#).into(),
        None => (404, r#"{"error":"no such order"}"#).into(),
    }
}

fn options() -> ReplayOptions {
    ReplayOptions {
        pace: Pace::AsFastAsPossible,
        within: Duration::from_secs(10),
        times: 2,
        rules: FieldRules::new(Vec::new()),
        hook: None,
        mocked: Default::default(),
        start: None,
    }
}

/// Replays what a run recorded, perhaps with another application.
async fn replay_run(
    bed: &Bed,
    found: &FoundRecording,
    application: Application,
    options: &ReplayOptions,
    stop: &CancellationToken,
) -> Result<Option<ReplayDone>, EngineError> {
    let session = bed.open_for(application, CampaignKind::Replay, None).await;
    let given = (found.run.treatment.clone(), found.run.circumstance.clone());
    let original = Original { run: &found.run, reader: &found.reader, calls: &found.calls };
    let done = replay(&session, &found.recording, &original, given, options, stop).await;
    close(session).await;
    done
}

async fn recorded(bed: &Bed) -> FoundRecording {
    let tested = bed.test(&[]).await;
    assert_eq!(tested.outcome(), "pass");
    let archive = Archive::open(&bed.folder.path().join(".faultscope"), Subject::Run).unwrap();
    let found = find_run_to_replay(&archive, "last", &bed.application()).unwrap();
    assert_eq!(found.recording.requests.len(), 2, "{:?}", found.recording);
    found
}

/// As if the price had been 8 when it was recorded.
async fn recorded_with_another_price(bed: &Bed) -> FoundRecording {
    let mut found = recorded(bed).await;
    let answer = &mut found.recording.requests[1].answer;
    let changed = String::from_utf8(answer.body.clone()).unwrap().replace("\"price\":7", "\"price\":8");
    answer.body = changed.into_bytes();
    found
}

#[tokio::test]
async fn ids_of_answers_are_mapped_and_otherwise_noise() {
    let bed = desk();
    let found = recorded(&bed).await;
    let never = CancellationToken::new();
    let done = replay_run(&bed, &found, bed.application(), &options(), &never).await.unwrap().unwrap();
    let report = &done.report;
    // The second request asked for the order that this replay made, not for the recorded one.
    assert_eq!(done.answers[0][1].status, Some(200));
    assert_ne!(done.answers[0][0].body, found.recording.requests[0].answer.body);
    assert_eq!(report.verdict, ReplayVerdict::Reproduced, "{report:#?}");
    let noisy: Vec<_> = report.noisy.iter().map(|noisy| noisy.places.join(" ")).collect();
    assert_eq!(noisy, ["$.id", "$.id"]);
    assert_eq!((report.runs.len(), report.requests.len()), (2, 2));
}

#[tokio::test]
async fn a_changed_field_is_a_difference_and_only_that() {
    let bed = desk();
    let found = recorded_with_another_price(&bed).await;
    let never = CancellationToken::new();
    let done = replay_run(&bed, &found, bed.application(), &options(), &never).await.unwrap().unwrap();
    assert_eq!(done.report.verdict, ReplayVerdict::Differs);
    let verdicts: Vec<_> = done.report.requests.iter().map(|request| request.verdict).collect();
    assert_eq!(verdicts, [RequestVerdict::Reproduced, RequestVerdict::Differs]);
    let [difference] = &done.report.requests[1].differences[..] else { panic!("{:#?}", done.report) };
    assert_eq!(difference.place.to_string(), "$.price");
    assert_eq!((difference.recorded.as_deref(), difference.replayed.as_deref()), (Some("8"), Some("7")));
}

#[tokio::test]
async fn rules_say_what_may_differ() {
    let bed = desk();
    let found = recorded_with_another_price(&bed).await;
    let never = CancellationToken::new();
    for (rule, verdict) in [
        ("$.price +- 20%", ReplayVerdict::Reproduced),
        ("$.price +- 1%", ReplayVerdict::Differs),
        ("$.price", ReplayVerdict::Reproduced),
        ("$.price ~ ^[0-9]$", ReplayVerdict::Reproduced),
    ] {
        let options = ReplayOptions { rules: FieldRules::new(vec![rule.parse().unwrap()]), ..options() };
        let done = replay_run(&bed, &found, bed.application(), &options, &never).await.unwrap().unwrap();
        assert_eq!(done.report.verdict, verdict, "with `{rule}`");
    }
}

#[tokio::test]
async fn one_replay_alone_does_not_tell_noise() {
    let bed = desk();
    let found = recorded(&bed).await;
    let once = ReplayOptions { times: 1, ..options() };
    let never = CancellationToken::new();
    let done = replay_run(&bed, &found, bed.application(), &once, &never).await.unwrap().unwrap();
    assert_eq!((done.report.verdict, done.report.noise), (ReplayVerdict::Differs, 0));
}

#[tokio::test]
async fn a_trace_is_found_with_its_run() {
    let bed = desk();
    let whole = recorded(&bed).await;
    let archive = Archive::open(&bed.folder.path().join(".faultscope"), Subject::Trace).unwrap();
    let first = whole.recording.requests[0].trace.to_string();
    let found = find_traces_to_replay(&archive, &[first], &bed.application()).unwrap();
    assert_eq!(found.run.id, whole.run.id);
    assert!(found.recording.requests.iter().any(|request| request.method == "POST"));
    assert!(find_traces_to_replay(&archive, &["ffff".to_owned()], &bed.application()).is_err());
}

#[tokio::test]
async fn a_service_that_hangs_is_an_answer_too() {
    let bed = desk();
    let found = recorded(&bed).await;
    let hanging = Bed::new(
        FILE,
        Loopback::new().service("desk", |_: Call| async { std::future::pending::<Reply>().await }),
    );
    let hasty = ReplayOptions { within: Duration::from_millis(50), times: 1, ..options() };
    let never = CancellationToken::new();
    let done = replay_run(&hanging, &found, bed.application(), &hasty, &never).await.unwrap().unwrap();
    assert_eq!(done.report.verdict, ReplayVerdict::Differs);
    let places: Vec<_> = done.report.requests[0].differences.iter().map(|d| d.place.to_string()).collect();
    assert!(places.contains(&"status".to_owned()), "{places:?}");
}

#[tokio::test]
async fn a_stopped_replay_ends_and_says_nothing() {
    let bed = desk();
    let found = recorded(&bed).await;
    let stop = CancellationToken::new();
    stop.cancel();
    let done = replay_run(&bed, &found, bed.application(), &options(), &stop).await.unwrap();
    assert!(done.is_none());
}

#[tokio::test]
async fn a_replay_becomes_a_test_that_passes() {
    let bed = desk();
    let found = recorded(&bed).await;
    let never = CancellationToken::new();
    let done = replay_run(&bed, &found, bed.application(), &options(), &never).await.unwrap().unwrap();
    let names = SecretNames::new(&bed.application().record.secrets);
    let test = write_test("replayed", &found.recording, &done.answers, &names);
    let services = FILE.split("tests:").next().unwrap();
    let tested = desk_with(&format!("{services}{test}")).test(&[]).await;
    assert_eq!(tested.results(), [("replayed", "")], "{test}");
}

const BOTH: &str = "name: both
services:
  desk: { command: [desk], ports: [80] }
  slow: { command: [slow], ports: [80] }
  fast: { command: [fast], ports: [80] }
tests: [ { name: both, http: { get: \"http://desk/both\" } } ]
";

/// A desk that asks `slow`, then `fast`, and is answered by `fast` first: each step waits for the one before.
fn overtaking() -> Loopback {
    let (arrived, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (slow_arrived, fast_answered) = (Arc::clone(&arrived), Arc::clone(&answered));
    let desk = move |call: Call| {
        let (arrived, answered) = (Arc::clone(&arrived), Arc::clone(&answered));
        async move {
            let fast = async {
                arrived.notified().await;
                let answer = call.client().get("http://fast/b").await;
                answered.notify_one();
                answer
            };
            let slow = async { call.client().get("http://slow/a").await };
            tokio::try_join!(slow, fast)?;
            std::io::Result::Ok("done".to_owned())
        }
    };
    let slow = move |_: Call| {
        let (arrived, answered) = (Arc::clone(&slow_arrived), Arc::clone(&fast_answered));
        async move {
            arrived.notify_one();
            answered.notified().await;
            "a".to_owned()
        }
    };
    Loopback::new()
        .service("desk", desk)
        .service("slow", slow)
        .service("fast", async |_: Call| "b".to_owned())
}

/// The same desk without any agreement about who is first.
fn racing() -> Loopback {
    let desk = async |call: Call| {
        let ask = async |url: &str| call.client().get(url).await;
        tokio::try_join!(ask("http://slow/a"), ask("http://fast/b"))?;
        std::io::Result::Ok("done".to_owned())
    };
    let echo = async |call: Call| call.path()[1..].to_owned();
    Loopback::new().service("desk", desk).service("slow", echo).service("fast", echo)
}

#[tokio::test]
async fn the_recorded_order_of_concurrent_calls_is_imposed() {
    let bed = Bed::new(BOTH, overtaking());
    assert_eq!(bed.test(&[]).await.outcome(), "pass");
    let archive = Archive::open(&bed.folder.path().join(".faultscope"), Subject::Run).unwrap();
    let mut found = find_run_to_replay(&archive, "last", &bed.application()).unwrap();
    let orders: Vec<_> = found.orders.orders.iter().map(ToString::to_string).collect();
    assert_eq!(orders, ["desk GET /both: fast GET /b, slow GET /a"]);
    found.run.circumstance.impose(found.orders.orders.clone());
    let never = CancellationToken::new();
    let race = Bed::new(BOTH, racing());
    let done = replay_run(&race, &found, race.application(), &options(), &never).await.unwrap().unwrap();
    assert_eq!(done.report.verdict, ReplayVerdict::Reproduced);
    assert!(done.report.failed_gates.is_empty(), "{:?}", done.report.failed_gates);
    let calls = done.report.requests[0].calls.as_ref().unwrap();
    let end = |callee: &str| {
        let call = calls.replayed.iter().find(|call| call.callee.starts_with(callee)).unwrap();
        call.after_us + call.duration_us
    };
    assert!(end("fast") <= end("slow"), "{calls:#?}");
    assert_eq!((calls.recorded.len(), calls.replayed.len()), (3, 3));
}
