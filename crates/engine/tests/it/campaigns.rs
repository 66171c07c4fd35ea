//! Campaigns: slots at the same time, cancellation by the search, sentinels, stopping from outside.

use std::time::Duration;

use faultscope_engine::EngineError;
use faultscope_model::{DeltaSet, Outcome};
use faultscope_platform::memory::{Condition, Fault};
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, fails, fault, instances};

#[tokio::test(start_paused = true)]
async fn slots_work_at_the_same_time() {
    let bed = Bed::new(Vec::new(), |options| options.slots = 4).await;
    let started = tokio::time::Instant::now();
    let sets = vec![DeltaSet::new(); 8];
    let finished = bed.all(sets, false, &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.runs.len(), 8);
    assert!(finished.runs.iter().all(|run| run.outcome == Outcome::Pass));
    let slots: std::collections::BTreeSet<_> = finished.runs.iter().map(|run| run.slot).collect();
    assert_eq!(slots.len(), 4);
    assert_eq!(started.elapsed(), Duration::from_secs(30), "two rounds of 15 s");
}

#[tokio::test(start_paused = true)]
async fn a_failing_trial_makes_the_others_needless() {
    let bed =
        Bed::new(vec![fault(instances("order", 2), fails("broken"))], |options| options.slots = 2).await;
    let is_order = |&delta: &usize| bed.space.deltas[delta].name == "instance order";
    let order: DeltaSet = (0..bed.space.deltas.len()).filter(is_order).collect();
    let sets = vec![order, DeltaSet::new(), DeltaSet::new(), DeltaSet::new()];
    let finished = bed.all(sets, true, &CancellationToken::new()).await.unwrap();
    assert!(finished.runs.iter().any(|run| run.outcome.word() == "fail"));
    assert!(finished.runs.len() < 4, "{}", finished.runs.len());
    assert!(!finished.stopped);
}

#[tokio::test(start_paused = true)]
async fn sentinels_agree_in_a_steady_environment() {
    let bed = Bed::new(Vec::new(), |options| options.sentinel_every = 2).await;
    let sets = vec![DeltaSet::new(); 6];
    let finished = bed.all(sets, false, &CancellationToken::new()).await.unwrap();
    assert_eq!(finished.runs.len(), 6, "sentinels are not among the runs");
    let checked = bed.logged().iter().filter(|kind| *kind == "sentinel_checked").count();
    assert!(checked >= 2, "{checked}");
}

#[tokio::test(start_paused = true)]
async fn a_sentinel_that_disagrees_stops_the_campaign() {
    // Passes first, then fails at random: the environment is not what it was.
    let shaky = Fault { when: Condition::Always, probability: 0.5, effect: fails("shaky") };
    let bed = Bed::new(vec![shaky], |options| options.sentinel_every = 1).await;
    let end = bed.all(vec![DeltaSet::new(); 40], false, &CancellationToken::new()).await;
    assert!(matches!(end, Err(EngineError::Sentinel { .. })), "{end:?}");
}

#[tokio::test(start_paused = true)]
async fn stopping_from_outside_keeps_what_has_finished() {
    let bed = Bed::new(Vec::new(), |_| {}).await;
    let stop = CancellationToken::new();
    let later = async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        stop.cancel();
    };
    let (finished, ()) = tokio::join!(bed.all(vec![DeltaSet::new(); 100], false, &stop), later);
    let finished = finished.unwrap();
    assert!(finished.stopped);
    assert!((1..10).contains(&finished.runs.len()), "{}", finished.runs.len());
}
