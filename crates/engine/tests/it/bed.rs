//! An application of two services on the simulated platform.

use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::testing::{TrialsDone, run_trials};
use faultscope_engine::{EngineError, Session, SessionOptions, Tests, TrialEnd, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::{Application, CampaignKind, DeltaSet, Run, SlotId, Space, TrialId};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, MemoryPlatform, Simulation};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const FILE: &str = r#"
name: shop
services:
  order: { command: [order], ports: [8080] }
  stock: { command: [stock], ports: [8081] }
tests:
  - { name: pay, run: [pay] }
failing:
  nodes: 2
  instances: { order: 3, stock: 2 }
  config: { order: { memory: 64MiB } }
"#;

/// A session with everything it needs to live.
pub(crate) struct Bed {
    pub(crate) session: Arc<Session>,
    pub(crate) space: Space,
    _folder: TempDir,
}

pub(crate) fn fault(when: Condition, effect: Effect) -> Fault {
    Fault { when, probability: 1.0, effect }
}

pub(crate) fn fails(message: &str) -> Effect {
    Effect::Fail { message: message.into() }
}

pub(crate) fn instances(service: &str, at_least: u32) -> Condition {
    Condition::Instances { service: service.parse().unwrap(), at_least }
}

impl Bed {
    pub(crate) async fn new(faults: Vec<Fault>, change: impl FnOnce(&mut SessionOptions)) -> Self {
        let folder = TempDir::new().unwrap();
        let application = Application::read_alone(FILE, "shop.yaml").unwrap();
        let simulation = Simulation {
            seed: 7,
            apply: Cost::fixed(Duration::from_secs(10)),
            exec: Cost::fixed(Duration::from_secs(5)),
            clear: Duration::ZERO,
            faults,
        };
        let mut options =
            SessionOptions::new(CampaignKind::Test, folder.path().to_owned(), "faultscope".into());
        change(&mut options);
        let space = application.space().unwrap();
        let platform = Arc::new(MemoryPlatform::new(simulation));
        let session = Arc::new(Session::open(application, platform, options).await.unwrap());
        Self { session, space, _folder: folder }
    }

    pub(crate) fn request(&self, deltas: DeltaSet) -> TrialRequest {
        TrialRequest {
            circumstance: self.space.circumstance(&deltas).unwrap(),
            treatment: self.space.treatment(&deltas),
            drive: Tests::new(self.session.application().tests.clone()),
            wanted: None,
        }
    }

    /// One trial in the first slot.
    pub(crate) async fn try_one(
        &self,
        request: &TrialRequest,
        cancel: &CancellationToken,
    ) -> Result<TrialEnd, EngineError> {
        let lease = self.session.lease(SlotId(0)).await?;
        self.session.run_trial(&lease, TrialId::chosen(1), request, cancel).await
    }

    /// What one trial in the first slot showed.
    pub(crate) async fn one(&self, request: &TrialRequest) -> Run {
        let TrialEnd::Finished(trial) = self.try_one(request, &CancellationToken::new()).await.unwrap()
        else {
            panic!("nobody cancelled it")
        };
        trial.run
    }

    /// Trials of these sets on all slots.
    pub(crate) async fn all(
        &self,
        sets: Vec<DeltaSet>,
        fail_fast: bool,
        stop: &CancellationToken,
    ) -> Result<TrialsDone, EngineError> {
        let requests = sets.into_iter().map(|set| self.request(set)).collect();
        run_trials(&self.session, requests, fail_fast, stop).await
    }

    /// The kinds of events in the log, in order.
    pub(crate) fn logged(&self) -> Vec<String> {
        let store =
            faultscope_store::Store::open(self.session.campaign().folder().ancestors().nth(2).unwrap())
                .unwrap();
        let campaign = store.find_campaign(self.session.id().as_str()).unwrap();
        let events = campaign.events::<Event>(0).unwrap();
        assert_eq!(events.skipped, 0);
        events.events.into_iter().map(|e| kind(&e.event)).collect()
    }
}

fn kind(event: &Event) -> String {
    serde_json::to_value(event).unwrap()["kind"].as_str().unwrap().to_owned()
}
