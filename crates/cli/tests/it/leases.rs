//! Slots of real processes: a cancelled trial is gone before the next one begins there.

use std::sync::Arc;

use faultscope_engine::{Session, SessionOptions, Tests, TrialEnd, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::{Application, CampaignKind, Outcome, SlotId, Treatment, TrialId};
use faultscope_platform::process::{ProcessOptions, ProcessPlatform, WantedIsolation};
use faultscope_testkit::cells;
use tokio::sync::broadcast::Receiver;
use tokio_util::sync::CancellationToken;

use crate::tool_with;

/// How often each of two slots is taken from a running trial.
const ROUNDS: u32 = 50;

/// Waits until a trial has come so far, and how far that is differs from round to round.
async fn wait_for_stage(trial: TrialId, round: u32, events: &mut Receiver<Arc<Event>>) {
    loop {
        let event = events.recv().await.expect("the campaign is running");
        let is_reached = match (&*event, round % 4) {
            (Event::TrialStarted { trial: of, .. }, 0)
            | (Event::InstanceReady { trial: of, .. }, 1)
            | (Event::TrialDeployed { trial: of, .. }, 2)
            | (Event::TestStarted { trial: of, .. }, 3) => *of == trial,
            _ => false,
        };
        if is_reached {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_are_taken_from_cancelled_trials_a_hundred_times() {
    let tool =
        tool_with(&cells().replace("failing:\n", "  - { name: hang, run: [sleep, \"600\"] }\nfailing:\n"));
    let application = Application::read_alone(&tool.read("faultscope.yaml"), "faultscope.yaml").unwrap();
    let options = ProcessOptions {
        isolation: WantedIsolation::Auto,
        program: tool.program().to_owned(),
        state: Some(tool.folder().join(".faultscope")),
    };
    let platform = Arc::new(ProcessPlatform::new(options).unwrap());
    let mut options = SessionOptions::new(CampaignKind::Test, tool.folder(), tool.program().to_owned());
    (options.slots, options.retries) = (2, 0);
    // What is to be cancelled never ends by itself; what comes last does.
    let (ends, hangs): (Vec<_>, Vec<_>) =
        application.tests.iter().cloned().partition(|test| test.name != "hang");
    let request = |tests| TrialRequest {
        treatment: Treatment::Nothing,
        circumstance: application.simplest.clone(),
        drive: Tests::new(tests),
        wanted: None,
    };
    let (ends, hangs) = (request(ends), request(hangs));
    let session = Arc::new(Session::open(application.clone(), platform, options).await.unwrap());
    let start = |slot: SlotId, trial: TrialId, is_last: bool, cancel: &CancellationToken| {
        let request = if is_last { ends.clone() } else { hangs.clone() };
        let (session, cancel) = (session.clone(), cancel.clone());
        tokio::spawn(async move {
            let lease = session.lease(slot).await?;
            session.run_trial(&lease, trial, &request, &cancel).await
        })
    };
    let slots = [SlotId(0), SlotId(1)].map(|slot| {
        let start = &start;
        let mut events = session.events().subscribe();
        async move {
            let number = |round: u32| TrialId::chosen(1000 * u32::from(slot.0) + round + 1);
            let mut cancel = CancellationToken::new();
            let mut running = start(slot, number(0), false, &cancel);
            for round in 0..ROUNDS {
                wait_for_stage(number(round), round, &mut events).await;
                // As a search does it: the next trial wants the slot in the moment in which this one is cancelled.
                cancel.cancel();
                cancel = CancellationToken::new();
                let next = start(slot, number(round + 1), round + 1 == ROUNDS, &cancel);
                let ended = std::mem::replace(&mut running, next).await.unwrap().unwrap();
                assert!(matches!(ended, TrialEnd::Cancelled), "round {round}: {ended:?}");
            }
            let TrialEnd::Finished(last) = running.await.unwrap().unwrap() else { panic!("cancelled") };
            assert_eq!((last.run.outcome, last.run.retries), (Outcome::Pass, 0), "on {slot}");
        }
    });
    futures_util::future::join_all(slots).await;
    Arc::into_inner(session).unwrap().close("over").await.unwrap();
}
