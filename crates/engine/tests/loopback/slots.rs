//! Slots: cancelled trials, agents that vanish, sentinels, several at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use faultscope_engine::testing::run_trials;
use faultscope_engine::{EngineError, Session, Tests, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::{Run, SlotId};
use faultscope_platform::loopback::{Call, Loopback, Test};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, calls, close, request, run, wait_for};

const SERVICE: &str = "name: slots\nservices: { back: { command: [back], ports: [80] } }\n";

fn back() -> Loopback {
    Loopback::new().service("back", |call: Call| async move { call.path().to_owned() })
}

/// One of the application's tests alone.
fn only(session: &Session, name: &str) -> TrialRequest {
    let tests = session.application().tests.iter().filter(|test| test.name == name);
    TrialRequest { drive: Tests::new(tests.cloned().collect()), ..request(session, &[]) }
}

fn n_invalid(bed: &Bed) -> usize {
    bed.events().iter().filter(|event| matches!(event, Event::TrialInvalid { .. })).count()
}

#[tokio::test]
async fn a_trial_is_cancelled_at_any_stage_and_its_slot_used_again() {
    let platform = back().program("hang", |test: Test| async move {
        // A call that is under way is cut off with everything else.
        let _ = test.client().get("http://back/x").await;
        std::future::pending::<i32>().await
    });
    let file = format!(
        "{SERVICE}tests: [ {{ name: hang, run: [hang] }}, {{ name: fine, http: {{ get: \"http://back/y\" }} }} ]\n"
    );
    let bed = Bed::new(&file, platform).with(|options| options.retries = 0);
    let session = bed.open().await;
    let stages: [fn(&Event) -> bool; 4] = [
        |event| matches!(event, Event::TrialStarted { .. }),
        |event| matches!(event, Event::InstanceReady { .. }),
        |event| matches!(event, Event::TrialDeployed { .. }),
        |event| matches!(event, Event::TestStarted { .. }),
    ];
    for stage in stages {
        let stop = CancellationToken::new();
        let mut events = session.events().subscribe();
        let cancelling = async {
            wait_for(&mut events, stage).await;
            stop.cancel();
        };
        let (done, ()) = tokio::join!(run(&session, vec![only(&session, "hang")], &stop), cancelling);
        assert!(done.stopped && done.runs.is_empty(), "{done:?}");
        let next =
            run(&session, vec![only(&session, "fine")], &CancellationToken::new()).await.runs.remove(0);
        assert_eq!((next.outcome.word(), next.retries, next.cost.kept), ("pass", 0, 0));
        assert_eq!(calls(&session.spans_of(next.trial).await.unwrap()), ["test-1 -> back-1 GET /y 200 root"]);
    }
    close(session).await;
    let cancelled = bed.events().iter().filter(|event| matches!(event, Event::TrialCancelled { .. })).count();
    assert_eq!((cancelled, n_invalid(&bed)), (4, 0));
}

#[tokio::test]
async fn a_slot_is_clear_before_the_next_trial_begins_there() {
    let (clearing, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hooks = (clearing.clone(), go_on.clone());
    let platform = back().program("hang", |_| std::future::pending::<i32>()).on_clear(move |_| {
        let (clearing, go_on) = hooks.clone();
        async move {
            clearing.notify_one();
            go_on.notified().await;
        }
    });
    let file = format!(
        "{SERVICE}tests: [ {{ name: hang, run: [hang] }}, {{ name: fine, http: {{ get: \"http://back/y\" }} }} ]\n"
    );
    let bed = Bed::new(&file, platform);
    let session = bed.open().await;
    let stop = CancellationToken::new();
    let mut events = session.events().subscribe();
    let others = async {
        wait_for(&mut events, |event| matches!(event, Event::TestStarted { .. })).await;
        stop.cancel();
        clearing.notified().await;
        // Whoever wants the slot now waits until it is clear.
        let lease = session.lease(SlotId(0));
        tokio::pin!(lease);
        assert!(futures_util::poll!(&mut lease).is_pending());
        go_on.notify_one();
        drop(lease.await.unwrap());
    };
    let (first, ()) = tokio::join!(run(&session, vec![only(&session, "hang")], &stop), others);
    assert!(first.stopped && first.runs.is_empty());
    // Closing clears it once more.
    go_on.notify_one();
    let next = run(&session, vec![only(&session, "fine")], &CancellationToken::new()).await;
    assert_eq!(next.runs[0].outcome.word(), "pass");
    close(session).await;
}

/// A test that lets its own slot's agent vanish the first so many times, at a chosen moment.
fn losing(times: u32, at: &'static str) -> (Bed, Arc<OnceLock<Arc<Loopback>>>) {
    let own: Arc<OnceLock<Arc<Loopback>>> = Arc::default();
    let (platform, tried) = (own.clone(), Arc::new(AtomicU32::new(0)));
    let vanish = {
        let platform = platform.clone();
        move || platform.get().expect("it was told").lose_agent(SlotId(0)).unwrap()
    };
    let starting = (tried.clone(), vanish.clone());
    let loopback = back()
        .on_start("back", move |_| {
            let (tried, vanish) = starting.clone();
            async move {
                if at == "start" && tried.fetch_add(1, Ordering::Relaxed) < times {
                    vanish();
                }
                Ok(())
            }
        })
        .program("pay", move |test: Test| {
            let (tried, vanish) = (tried.clone(), vanish.clone());
            async move {
                let attempt = tried.load(Ordering::Relaxed);
                let _ = test.client().get(&format!("http://back/attempt-{attempt}")).await;
                if at != "start" && tried.fetch_add(1, Ordering::Relaxed) < times {
                    vanish();
                    if at == "test" {
                        std::future::pending::<()>().await;
                    }
                }
                // Had it been believed, this would have been a failure.
                if attempt < times && at != "start" { Err("paid twice") } else { Ok(()) }
            }
        });
    let bed = Bed::new(&format!("{SERVICE}tests: [ {{ name: pay, run: [pay] }} ]\n"), loopback);
    assert!(own.set(bed.platform.clone()).is_ok());
    (bed, own)
}

#[tokio::test]
async fn a_trial_whose_agent_vanishes_is_repeated_and_never_evidence() {
    // While it starts, in the middle of the test, and with the last word of the test.
    for at in ["start", "test", "end"] {
        let (bed, _own) = losing(1, at);
        let tested = bed.test(&[]).await;
        assert_eq!((tested.outcome(), tested.run.retries), ("pass", 1), "{at}");
        assert_eq!(n_invalid(&bed), 1, "{at}");
        assert!(
            tested.exits().is_empty(),
            "{at}: nothing of the first attempt is told: {:?}",
            tested.exits()
        );
        assert_eq!(tested.run.evidence.spans, 1, "{at}");
        // The first attempt called, too, and was measured; only what the second one did is in the run.
        let attempt = if at == "start" { 2 } else { 1 };
        assert_eq!(
            calls(&tested.spans),
            [format!("test-1 -> back-1 GET /attempt-{attempt} 200 root")],
            "{at}"
        );
        let campaign = &bed.store().campaigns().unwrap()[0];
        let reader = campaign.reader().unwrap();
        assert_eq!(reader.span_count().unwrap(), 1, "{at}");
        let first = reader.samples_of(None).unwrap().into_iter().map(|sample| sample.at_us).min();
        assert!(first.is_none_or(|at_us| at_us >= tested.run.started_us), "{at}");
    }
}

#[tokio::test]
async fn an_agent_that_always_vanishes_stops_the_campaign() {
    let (bed, _own) = losing(u32::MAX, "test");
    let bed = bed.with(|options| options.retries = 2);
    let session = bed.open().await;
    let end = run_trials(&session, vec![request(&session, &[])], false, &CancellationToken::new()).await;
    assert!(matches!(end, Err(EngineError::Invalid { tries: 3, .. })), "{end:?}");
    assert!(session.campaign().reader().unwrap().runs().unwrap().is_empty(), "nothing was shown");
    close(session).await;
}

#[tokio::test]
async fn a_trial_that_takes_too_long_is_spoiled() {
    let platform = back().program("hang", |_| std::future::pending::<i32>());
    let bed =
        Bed::new(&format!("{SERVICE}tests: [ {{ name: hang, run: [hang] }} ]\n"), platform).with(|options| {
            options.trial_within = Duration::from_millis(200);
            options.retries = 1;
        });
    let session = bed.open().await;
    let end = run_trials(&session, vec![request(&session, &[])], false, &CancellationToken::new()).await;
    assert!(matches!(end, Err(EngineError::Invalid { tries: 2, .. })), "{end:?}");
    close(session).await;
}

/// A test that passes so many times and fails from then on.
fn wearing_out(times: u32) -> Bed {
    let tried = Arc::new(AtomicU32::new(0));
    let platform = back().program("pay", move |_| {
        let attempt = tried.fetch_add(1, Ordering::Relaxed);
        async move { i32::from(attempt >= times) }
    });
    Bed::new(&format!("{SERVICE}tests: [ {{ name: pay, run: [pay] }} ]\n"), platform)
        .with(|options| options.sentinel_every = 1)
}

#[tokio::test]
async fn sentinels_repeat_what_is_known_and_notice_when_it_changes() {
    let bed = wearing_out(u32::MAX);
    let session = bed.open().await;
    let asked = || (0..3).map(|_| request(&session, &[])).collect::<Vec<_>>();
    let done = run(&session, asked(), &CancellationToken::new()).await;
    assert_eq!(done.runs.len(), 3, "sentinels are not among the runs");
    close(session).await;
    let agreed =
        bed.events().iter().filter(|e| matches!(e, Event::SentinelChecked { agrees: true, .. })).count();
    assert!(agreed >= 2, "{agreed}");

    let bed = wearing_out(1);
    let session = bed.open().await;
    let asked = (0..3).map(|_| request(&session, &[])).collect();
    let end = run_trials(&session, asked, false, &CancellationToken::new()).await;
    let Err(error) = end else { panic!("{end:?}") };
    assert_eq!(error.to_string(), "the environment changed: a repeated trial gave fail instead of pass");
    close(session).await;
}

#[tokio::test]
async fn the_first_failure_makes_the_others_needless() {
    // One slot fails at once, the other would never end.
    let platform = back().program("slot", |test: Test| async move {
        if test.args()[0] == "0" { 1 } else { std::future::pending().await }
    });
    let file = format!("{SERVICE}tests: [ {{ name: slot, run: [slot, '${{slot}}'] }} ]\n");
    let bed = Bed::new(&file, platform).with(|options| options.slots = 2);
    let session = bed.open().await;
    let asked = (0..6).map(|_| request(&session, &[])).collect();
    let done = run_trials(&session, asked, true, &CancellationToken::new()).await.unwrap();
    let outcomes: Vec<_> = done.runs.iter().map(|run: &Run| run.outcome.word()).collect();
    assert_eq!((outcomes, done.stopped), (vec!["fail"], false));
    close(session).await;
    let cancelled = bed.events().iter().filter(|event| matches!(event, Event::TrialCancelled { .. })).count();
    assert_eq!(cancelled, 1);
}
