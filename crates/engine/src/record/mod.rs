//! Records a system that the tool did not start: a proxy in front of each of its services, and a campaign with one run.
//!
//! The mesh carries the calls as it does for applications of its own. It opens connections to the targets that were
//! named and to nothing else: redirects go back to the caller, and names are resolved by the system.

mod counts;
mod files;

pub use counts::{RecordCounts, ServiceCounts};
pub use files::import_calls;

use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use faultscope_mesh::{Dialer, Hooks, Mesh, MeshOptions, MeshSlot, Restarter};
use faultscope_model::digest::Digest;
use faultscope_model::event::Event;
use faultscope_model::record::OutcomeSampling;
use faultscope_model::run::{Cost, Evidence};
use faultscope_model::wiring::{Endpoint, LevelRule, ListenerSpec, RecordLevel, Wiring};
use faultscope_model::{
    CampaignId, CampaignKind, Circumstance, InstanceId, NodeId, Outcome, Protocol, RestartError, Run, RunId,
    ServiceName, SlotId, Treatment, TrialId, TrialRole,
};
use faultscope_store::secrets::SecretOptions;
use faultscope_store::{Campaign, CampaignMeta, CampaignOptions, RunRecord, Store};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::error::EngineError;
use crate::session::{EventBus, now_us, run_id, unused_id};
use crate::trial::SlotRecorder;
use counts::CountingRecorder;

/// The caller in spans of calls that come from outside of the recorded services.
pub const OUTSIDE: &str = "user";

/// How long calls may go on after the listeners are closed: an answer that is under way is worth more than a quick end.
const QUIET_WITHIN: Duration = Duration::from_secs(2);

const SLOT: SlotId = SlotId(0);

/// A service to record.
#[derive(Debug)]
pub struct RecordedService {
    /// Its name in the recording.
    pub name: ServiceName,
    /// The host to which its calls go on.
    pub host: String,
    /// The port on that host.
    pub port: u16,
    /// Where its callers connect; already listening.
    pub socket: TcpListener,
}

/// How a system is recorded.
#[derive(Debug)]
pub struct RecordOptions {
    /// The tool's folder, `.faultscope`.
    pub state: PathBuf,
    /// The name of the application in the store.
    pub application: String,
    /// The command line, for the record.
    pub command_line: Vec<String>,
    /// The source of span ids.
    pub seed: u64,
    /// How much of each call is kept.
    pub level: RecordLevel,
    /// How much of some calls; the first that fits counts.
    pub rules: Vec<LevelRule>,
    /// Of which traces headers and bodies are kept; of all if none is given.
    pub sample: Option<OutcomeSampling>,
    /// Which values are secret.
    pub secrets: SecretOptions,
}

/// A recording that goes on.
#[derive(Debug)]
pub struct LiveRecording {
    campaign: Arc<Campaign>,
    events: EventBus,
    mesh: Mesh,
    slot: MeshSlot,
    recorder: Arc<CountingRecorder>,
    run: Run,
    began: Instant,
}

impl LiveRecording {
    /// Begins to record. From here on there is a run, so that a recording that is killed can be read as well.
    pub async fn start(services: Vec<RecordedService>, options: RecordOptions) -> Result<Self, EngineError> {
        let trial = TrialId::new(TrialRole::Search, 1);
        let started_us = now_us();
        let campaign = Arc::new(open_campaign(&options, started_us)?);
        let events = EventBus::new(campaign.clone());
        events.emit(Event::CampaignStarted {
            campaign: campaign.id().clone(),
            purpose: CampaignKind::Record,
            slots: 1,
            seed: options.seed,
        });
        let inner = SlotRecorder::new(campaign.sink(), SLOT);
        inner.begin(trial);
        inner.sample(options.sample);
        let recorder = Arc::new(CountingRecorder::new(inner, options.level));
        let mesh = Mesh::start(MeshOptions::default())?;
        let targets = services.iter().map(|service| (service.name.clone(), service.host.clone())).collect();
        let hooks = Hooks {
            dialer: Arc::new(TargetDialer { targets }),
            recorder: recorder.clone(),
            restarter: Arc::new(NobodyRestarts),
        };
        let slot = mesh.open(SLOT, hooks);
        slot.configure(wiring(&services, &options, campaign.id()));
        let outside = OUTSIDE.parse::<ServiceName>().ok().map(|service| InstanceId::new(service, 1));
        slot.listen_all(services.into_iter().map(|service| {
            let spec = ListenerSpec {
                callee: service.name,
                port: service.port,
                // Not detected by time: a pool opens connections long before it uses them.
                protocol: Protocol::Http,
                caller: outside.clone(),
            };
            (spec, service.socket)
        }));
        let run = begun_run(run_id(campaign.id(), trial)?, trial, started_us, options.seed);
        let recording = Self { campaign, events, mesh, slot, recorder, run, began: Instant::now() };
        put_run(&recording.campaign, &recording.run).await?;
        Ok(recording)
    }

    /// The campaign that the calls are recorded to.
    pub fn id(&self) -> &CampaignId {
        self.campaign.id()
    }

    /// What was recorded so far.
    pub fn counts(&self) -> RecordCounts {
        self.recorder.counts(self.campaign.dropped())
    }

    /// Ends the recording: listeners close, calls may end, and everything is written.
    pub async fn finish(mut self) -> Result<(Run, RecordCounts), EngineError> {
        self.slot.close_listeners();
        self.slot.quiet(QUIET_WITHIN).await;
        self.slot.end_trial();
        self.recorder.end_sampling();
        self.campaign.flush().await?;
        let counts = self.counts();
        self.run.evidence = Evidence {
            spans: counts.calls,
            spans_dropped: counts.dropped,
            left_out: counts.left_out,
            ..Evidence::default()
        };
        (self.run.cost.tests, self.run.cost.total) = (self.began.elapsed(), self.began.elapsed());
        put_run(&self.campaign, &self.run).await?;
        // Connections that outlive the recording end here.
        self.slot.reset_connections().await;
        drop(self.mesh);
        self.events
            .emit(Event::CampaignFinished { summary: faultscope_model::units::count(counts.calls, "call") });
        self.campaign.flush().await?;
        Ok((self.run, counts))
    }
}

async fn put_run(campaign: &Campaign, run: &Run) -> Result<(), EngineError> {
    let json = serde_json::to_string(run).map_err(|e| EngineError::Internal(e.to_string()))?;
    let record = RunRecord {
        trial: run.trial,
        id: &run.id,
        outcome: run.outcome.word(),
        started_us: run.started_us,
        duration_us: u64::try_from(run.cost.total.as_micros()).unwrap_or(u64::MAX),
        json: &json,
    };
    Ok(campaign.put_run(record).await?)
}

fn open_campaign(options: &RecordOptions, started_us: u64) -> Result<Campaign, EngineError> {
    let store = Store::open(&options.state)?;
    let meta = CampaignMeta {
        id: unused_id(&store, started_us),
        kind: CampaignKind::Record,
        application: options.application.clone(),
        started_us,
        command_line: options.command_line.clone(),
        seed: options.seed,
    };
    let kept = CampaignOptions { secrets: options.secrets.clone(), ..CampaignOptions::default() };
    Ok(store.campaign_with(meta, kept)?)
}

/// A run of which nothing is known yet but its beginning.
fn begun_run(id: RunId, trial: TrialId, started_us: u64, seed: u64) -> Run {
    Run {
        id,
        trial,
        slot: SLOT,
        treatment: Treatment::Nothing,
        circumstance: Circumstance::default(),
        outcome: Outcome::Pass,
        evidence: Evidence::default(),
        started_us,
        cost: Cost::default(),
        seed,
        retries: 0,
        perturbed: None,
        question: None,
    }
}

/// Each service is one instance without an address, so that every connection goes through the dialer.
fn wiring(services: &[RecordedService], options: &RecordOptions, campaign: &CampaignId) -> Wiring {
    let endpoint = |name: &ServiceName| Endpoint {
        instance: InstanceId::new(name.clone(), 1),
        node: NodeId::default(),
        addresses: BTreeMap::new(),
    };
    Wiring {
        slot: SLOT,
        seed: options.seed,
        campaign: Digest::hash_bytes(campaign.as_str().as_bytes()).number(),
        callers: Vec::new(),
        endpoints: services
            .iter()
            .map(|service| (service.name.clone(), vec![endpoint(&service.name)]))
            .collect(),
        balance: BTreeMap::new(),
        links: Vec::new(),
        rules: Vec::new(),
        targets: false,
        gates: Vec::new(),
        callers_by_context: true,
        record_rules: options.rules.clone(),
        record: options.level,
        externals: Vec::new(),
    }
}

/// Connects to the hosts that the services were named with, and to no other.
struct TargetDialer {
    targets: BTreeMap<ServiceName, String>,
}

impl Dialer for TargetDialer {
    fn dial(&self, instance: &InstanceId, port: u16) -> BoxFuture<'static, io::Result<std::net::TcpStream>> {
        let host = self.targets.get(&instance.service).cloned();
        Box::pin(async move {
            let host = host.ok_or(io::ErrorKind::NotFound)?;
            // Resolved for each connection: a name may move while it is recorded.
            tokio::net::TcpStream::connect((host.as_str(), port)).await?.into_std()
        })
    }
}

/// Nothing of a recorded system is ever restarted.
struct NobodyRestarts;

impl Restarter for NobodyRestarts {
    fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        let message = format!("{instance} is not run by this tool");
        Box::pin(async move { Err(RestartError::Platform { message }) })
    }
}
