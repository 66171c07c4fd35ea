//! An application of two services on the simulated platform.

use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::campaign::Brief;
use faultscope_engine::{Session, SessionOptions, TrialRequest};
use faultscope_model::event::Event;
use faultscope_model::{Application, DeltaSet, TrialId};
use faultscope_platform::memory::{Condition, Cost, Effect, Fault, MemoryPlatform, Simulation};
use tempfile::TempDir;

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
    pub(crate) brief: Brief,
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
            faults,
        };
        let mut options = SessionOptions::new("test", folder.path().to_owned(), "faultscope".into());
        change(&mut options);
        let brief = Brief::new(application.space().unwrap(), application.tests.clone());
        let platform = Arc::new(MemoryPlatform::new(simulation));
        let session = Arc::new(Session::open(application, platform, options).await.unwrap());
        Self { session, brief, _folder: folder }
    }

    pub(crate) fn request(&self, trial: u64, deltas: DeltaSet) -> TrialRequest {
        TrialRequest {
            trial: TrialId(trial),
            circumstance: self.brief.space.circumstance(&deltas).unwrap(),
            deltas,
            tests: self.brief.tests.clone(),
            wanted: None,
            perturbing: None,
        }
    }

    /// The kinds of events in the log, in order.
    pub(crate) fn logged(&self) -> Vec<String> {
        let store =
            faultscope_store::Store::open(self.session.campaign().folder().ancestors().nth(2).unwrap())
                .unwrap();
        let campaign = store.campaign_by(self.session.id().as_str()).unwrap();
        let events = campaign.events::<Event>(0).unwrap();
        assert_eq!(events.skipped, 0);
        events.events.into_iter().map(|e| kind(&e.event)).collect()
    }
}

fn kind(event: &Event) -> String {
    serde_json::to_value(event).unwrap()["kind"].as_str().unwrap().to_owned()
}
