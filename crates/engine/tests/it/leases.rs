//! Slots and their owners: a cancelled trial is gone before the next one begins.

use std::time::Duration;

use faultscope_engine::debug::{DebugOptions, Strategy, Verdict};
use faultscope_model::event::Event;
use faultscope_model::{DeltaSet, SlotId, TrialId};
use faultscope_platform::memory::Condition;
use faultscope_store::Store;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, fails, fault, instances};
use crate::shop::{Case, causes, config};

/// Two searches cancel trials and want their slots in the same move. Clearing takes a third of a trial here, and
/// the platform refuses whatever comes before it is over.
#[tokio::test(start_paused = true)]
async fn a_cancelled_trial_never_spoils_the_next_one() {
    let (mut n_cancelled, mut n_invalid) = (0, 0);
    for strategy in [Strategy::DdminPar, Strategy::Bayes] {
        for seed in 1..=5 {
            let pair = Condition::All(vec![instances("c", 2), config("e", "memory")]);
            let mut case = Case::new(vec![fault(pair, fails("broken"))]);
            (case.seed, case.slots, case.clear, case.spread) = (seed, 4, Duration::from_secs(5), 0.7);
            let report = case.debug(DebugOptions { strategy, ..DebugOptions::default() }).await;
            assert_eq!(report.verdict, Verdict::Reduced, "{strategy:?}, seed {seed}");
            assert_eq!(causes(&report), [["instance c", "config e.memory"]], "{strategy:?}, seed {seed}");
            let campaign = Store::open(case.state()).unwrap().campaigns().unwrap().remove(0);
            for logged in campaign.events::<Event>(0).unwrap().events {
                n_cancelled += usize::from(matches!(logged.event, Event::TrialCancelled { .. }));
                n_invalid += usize::from(matches!(logged.event, Event::TrialInvalid { .. }));
            }
        }
    }
    assert!(n_cancelled > 20, "only {n_cancelled} trials were cancelled, which tries nothing");
    assert_eq!(n_invalid, 0, "of {n_cancelled} cancelled trials");
}

#[tokio::test(start_paused = true)]
async fn a_slot_has_one_owner() {
    let bed = Bed::new(Vec::new(), |_| {}).await;
    let first = bed.session.lease(SlotId(0)).await.unwrap();
    let second = bed.session.lease(SlotId(0));
    tokio::pin!(second);
    assert!(futures_util::poll!(&mut second).is_pending(), "the first owner still has it");
    drop(first);
    assert_eq!(second.await.unwrap().id(), SlotId(0));
    assert!(bed.session.lease(SlotId(9)).await.is_err(), "there is no such slot");
}

#[tokio::test(start_paused = true)]
async fn cancelling_before_the_slot_is_free_costs_nothing() {
    let bed = Bed::new(Vec::new(), |_| {}).await;
    let request = bed.request(DeltaSet::new());
    let (one, other) = (CancellationToken::new(), CancellationToken::new());
    let both = async {
        let trial = |number, cancel| {
            let (session, request) = (&bed.session, &request);
            async move {
                let lease = session.lease(SlotId(0)).await?;
                session.run_trial(&lease, TrialId::chosen(number), request, cancel).await
            }
        };
        tokio::join!(trial(1, &one), trial(2, &other))
    };
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        other.cancel();
        one.cancel();
    };
    let ((first, second), ()) = tokio::join!(both, later);
    assert!(first.is_ok() && second.is_ok());
    let kinds = bed.logged();
    let place = |kind: &str| kinds.iter().position(|k| k == kind).unwrap();
    let last_start = kinds.iter().rposition(|kind| kind == "trial_started").unwrap();
    assert!(place("trial_cancelled") < last_start, "the second began when the first was gone: {kinds:?}");
}
