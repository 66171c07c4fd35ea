//! Single trials: judged, stored, tried again, cancelled.

use std::time::Duration;

use faultscope_engine::{EngineError, TrialEnd, TrialRequest, stored};
use faultscope_model::metrics::History;
use faultscope_model::outcome::StartEnding;
use faultscope_model::record::Sampling;
use faultscope_model::{DeltaSet, Outcome, Run, TrialId};
use faultscope_platform::memory::{Condition, Effect, Fault};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, fails, fault, instances};

async fn one(bed: &Bed, deltas: DeltaSet) -> Run {
    bed.one(&bed.request(deltas)).await
}

#[tokio::test(start_paused = true)]
async fn a_passing_trial_is_stored_with_its_cost() {
    let bed = Bed::new(Vec::new(), |_| {}).await;
    let run = one(&bed, DeltaSet::new()).await;
    assert_eq!(run.outcome, Outcome::Pass);
    assert_eq!(run.cost.total, Duration::from_secs(15));
    assert_eq!(run.cost.created, 2);
    let read = stored::runs(&bed.session.campaign().reader().unwrap()).unwrap();
    assert_eq!(read, [run]);
    assert_eq!(
        bed.logged(),
        [
            "campaign_started",
            "trial_started",
            "instance_ready",
            "instance_ready",
            "trial_deployed",
            "test_started",
            "test_finished",
            "trial_finished"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_has_its_signature() {
    let bed = Bed::new(vec![fault(instances("order", 2), fails("balance 3 != 4"))], |_| {}).await;
    let run = one(&bed, bed.space.full()).await;
    let Outcome::Fail { signature } = run.outcome else { panic!("{:?}", run.outcome) };
    assert_eq!(signature.to_string(), "pay: exit code 1: balance 3 != 4");
}

#[tokio::test(start_paused = true)]
async fn another_failure_than_the_wanted_one_is_unresolved() {
    let bed = Bed::new(vec![fault(Condition::Always, fails("something else"))], |_| {}).await;
    let mut request = bed.request(DeltaSet::new());
    request.wanted = Some(faultscope_model::outcome::Signature {
        test: "pay".into(),
        ending: faultscope_model::outcome::Ending::Code(1),
        message: "balance 3 != 4".into(),
    });
    assert_eq!(bed.one(&request).await.outcome.word(), "unresolved");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_does_not_start_makes_it_unresolved() {
    let ending = StartEnding::OutOfMemory;
    let effect = Effect::NotReady { service: "stock".parse().unwrap(), ending, last_lines: Vec::new() };
    let bed = Bed::new(vec![fault(instances("stock", 2), effect)], |_| {}).await;
    let run = one(&bed, bed.space.full()).await;
    let Outcome::Unresolved { reason } = &run.outcome else { panic!("{:?}", run.outcome) };
    assert_eq!(reason.to_string(), "stock-1 did not become ready: killed: out of memory");
    assert_eq!(run.evidence.exits.len(), 1);
    assert!(run.evidence.tests.is_empty());
    // The same is a failure for those who look for it.
    let wanted = run.evidence.start_failure();
    assert_eq!(wanted.as_ref().unwrap().to_string(), "service stock does not come up: killed: out of memory");
    let request = TrialRequest { wanted, ..bed.request(bed.space.full()) };
    assert_eq!(bed.one(&request).await.outcome.word(), "fail");
}

#[tokio::test(start_paused = true)]
async fn a_spoiled_trial_is_repeated_and_is_not_evidence() {
    let spoiled = Fault { when: Condition::Always, probability: 0.9, effect: Effect::Invalid };
    let bed = Bed::new(vec![spoiled], |options| options.retries = 200).await;
    let run = one(&bed, DeltaSet::new()).await;
    assert_eq!(run.outcome, Outcome::Pass);
    assert!(run.retries > 0, "the seed must spoil the first try");
    let invalid = bed.logged().iter().filter(|kind| *kind == "trial_invalid").count();
    assert_eq!(invalid as u32, run.retries);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_always_spoiled_stops_the_campaign() {
    let bed = Bed::new(vec![fault(Condition::Always, Effect::Invalid)], |options| options.retries = 2).await;
    let end = bed.try_one(&bed.request(DeltaSet::new()), &CancellationToken::new()).await;
    assert!(matches!(end, Err(EngineError::Invalid { tries: 3, .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_takes_too_long_is_invalid() {
    let bed = Bed::new(Vec::new(), |options| {
        options.trial_within = Duration::from_secs(3);
        options.retries = 1;
    })
    .await;
    let end = bed.try_one(&bed.request(DeltaSet::new()), &CancellationToken::new()).await;
    assert!(matches!(end, Err(EngineError::Invalid { .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_trial_ends_at_once() {
    let bed = Bed::new(Vec::new(), |_| {}).await;
    let cancel = CancellationToken::new();
    let started = tokio::time::Instant::now();
    let request = bed.request(DeltaSet::new());
    let trial = bed.try_one(&request, &cancel);
    let later = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(trial, later);
    assert!(matches!(end.unwrap(), TrialEnd::Cancelled));
    assert_eq!(started.elapsed(), Duration::from_secs(4));
    assert_eq!(bed.logged().last().unwrap(), "trial_cancelled");
    // The slot can be used again.
    assert_eq!(one(&bed, DeltaSet::new()).await.outcome, Outcome::Pass);
}

#[tokio::test(start_paused = true)]
async fn instances_are_measured_from_the_first_to_the_last_moment() {
    let bed = Bed::new(Vec::new(), |_| {}).await;
    one(&bed, DeltaSet::new()).await;
    let reader = bed.session.campaign().reader().unwrap();
    let history = History::new(reader.samples_of(Some(TrialId::chosen(1))).unwrap());
    let summaries = history.summaries();
    let names: Vec<_> = summaries.iter().map(|s| s.instance.to_string()).collect();
    assert_eq!(names, ["order-1", "stock-1"]);
    // The test takes five seconds, and a simulated instance a quarter of a core.
    for summary in &summaries {
        assert!((6..=7).contains(&summary.samples), "{summary:?}");
        assert!(summary.cpu_seconds.is_some_and(|cpu| (1.2..1.3).contains(&cpu)), "{summary:?}");
        assert_eq!(summary.network_sent, None, "nobody knows of a network here");
    }
    assert!(reader.samples_of(Some(TrialId::chosen(2))).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_measured_when_nobody_wants_it() {
    let bed = Bed::new(Vec::new(), |options| options.metrics = Some(Sampling { every: None })).await;
    one(&bed, DeltaSet::new()).await;
    assert!(bed.session.campaign().reader().unwrap().samples_of(None).unwrap().is_empty());
    assert!(!bed.session.campaign().folder().join("metrics.sqlite").exists());
}
