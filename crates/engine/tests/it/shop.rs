//! A shop of six services and sixteen deltas that fails in known ways on the simulated platform.

use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::debug::{self, DebugOptions, DebugReport};
use faultscope_engine::{EngineError, Session, SessionOptions};
use faultscope_model::{Application, CampaignKind};
use faultscope_platform::memory::{Condition, Cost, Fault, MemoryPlatform, Simulation};
use faultscope_store::Store;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const FILE: &str = r#"
name: shop
services:
  a: { command: [a] }
  b: { command: [b] }
  c: { command: [c] }
  d: { command: [d] }
  e: { command: [e] }
  f: { command: [f] }
tests:
  - { name: pay, run: [pay] }
failing:
  instances: { a: 2, b: 2, c: 2, d: 2, e: 2, f: 2 }
  config:
    a: { memory: 64MiB, env.X: "1" }
    b: { memory: 64MiB, env.X: "1" }
    c: { memory: 64MiB, env.X: "1" }
    d: { memory: 64MiB, env.X: "1" }
    e: { memory: 64MiB, env.X: "1" }
"#;

pub(crate) fn config(service: &str, item: &str) -> Condition {
    Condition::Config { service: service.parse().unwrap(), item: item.into(), equals: None }
}

/// An application that fails in known ways, in a folder that outlives its campaigns.
pub(crate) struct Case {
    pub(crate) folder: TempDir,
    pub(crate) file: String,
    faults: Vec<Fault>,
    pub(crate) seed: u64,
    pub(crate) slots: u16,
    pub(crate) sentinel_every: u32,
    /// How long a cancelled trial takes to be cleared away.
    pub(crate) clear: Duration,
    /// How much trials differ in what they take: the standard deviation of the logarithm.
    pub(crate) spread: f64,
}

impl Case {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        let folder = TempDir::new().unwrap();
        Self {
            folder,
            file: FILE.into(),
            faults,
            seed: 1,
            slots: 1,
            sentinel_every: 0,
            clear: Duration::ZERO,
            spread: 0.0,
        }
    }

    pub(crate) fn state(&self) -> std::path::PathBuf {
        self.folder.path().join(".faultscope")
    }

    pub(crate) async fn debug(&self, options: DebugOptions) -> DebugReport {
        self.try_debug(&options, false, &CancellationToken::new()).await.unwrap()
    }

    pub(crate) async fn resume(&self, options: DebugOptions) -> DebugReport {
        self.try_debug(&options, true, &CancellationToken::new()).await.unwrap()
    }

    pub(crate) async fn try_debug(
        &self,
        options: &DebugOptions,
        resume: bool,
        stop: &CancellationToken,
    ) -> Result<DebugReport, EngineError> {
        let simulation = Simulation {
            seed: self.seed,
            apply: Cost { spread: self.spread, ..Cost::fixed(Duration::from_secs(10)) },
            exec: Cost::fixed(Duration::from_secs(5)),
            clear: self.clear,
            faults: self.faults.clone(),
        };
        let mut own =
            SessionOptions::new(CampaignKind::Debug, self.folder.path().to_owned(), "faultscope".into());
        own.slots = self.slots;
        own.seed = self.seed;
        own.sentinel_every = self.sentinel_every;
        let application = Application::read_alone(&self.file, "shop.yaml").unwrap();
        if resume {
            let store = Store::open(self.state()).unwrap();
            own.resume = Some(debug::unfinished(&store, &application, None)?);
        }
        let platform = Arc::new(MemoryPlatform::new(simulation));
        let session = Arc::new(Session::open(application, platform, own).await?);
        let report = debug::debug(&session, options, stop).await;
        if let Ok(report) = &report {
            session.campaign().put_report(report).unwrap();
        }
        Arc::into_inner(session).unwrap().close("over").await.unwrap();
        report
    }
}

pub(crate) fn causes(report: &DebugReport) -> Vec<Vec<&str>> {
    let mut causes: Vec<Vec<&str>> =
        report.causes.iter().map(|c| c.deltas.iter().map(|d| d.name.as_str()).collect()).collect();
    causes.sort();
    causes
}
