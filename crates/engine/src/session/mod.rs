//! A session: one platform, one mesh, one store folder and n slots for one campaign.

mod events;
mod numbers;
mod options;
mod slot;
mod slow_start;
mod start_limits;
mod template;

pub use events::EventBus;
pub(crate) use numbers::Numbers;
pub use options::SessionOptions;
pub use slot::Lease;
pub(crate) use slot::Slot;
pub(crate) use slow_start::SlowStart;
pub(crate) use start_limits::StartLimits;
pub(crate) use template::files_digest;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use faultscope_mesh::{Hooks, Mesh, MeshOptions};
use faultscope_model::application::Expansion;
use faultscope_model::event::Event;
use faultscope_model::units::ByteSize;
use faultscope_model::{
    Application, CampaignId, CampaignKind, Protocol, RunId, SlotId, Tracing, TrialId, TrialRole,
};
use faultscope_platform::{MeshPlace, Platform, SlotSpec};
use faultscope_store::secrets::SecretOptions;
use faultscope_store::{Campaign, CampaignMeta, CampaignOptions, Store, StoreErrorKind, new_campaign_id};
use tokio::sync::OnceCell;

use crate::error::EngineError;
use crate::reflection::AskedServices;
use crate::trial::{PlatformDialer, PlatformRestarter, SlotCollector, SlotRecorder};

/// The most bytes of log for each instance.
const LOG_LIMIT: ByteSize = ByteSize(1 << 20);

/// The platform, mesh and store of one campaign. [`Session::close`] ends everything it started.
pub struct Session {
    pub(crate) application: Arc<Application>,
    pub(crate) options: SessionOptions,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) campaign: Arc<Campaign>,
    pub(crate) events: EventBus,
    slots: BTreeMap<SlotId, Arc<Slot>>,
    numbers: Mutex<Numbers>,
    mesh: Option<Mesh>,
    pub(crate) start_limits: StartLimits,
    pub(crate) slow_start: SlowStart,
    pub(crate) asked: AskedServices,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("campaign", &self.campaign.id()).finish_non_exhaustive()
    }
}

impl Session {
    /// Opens the store and the mesh; slots are opened when they are first used.
    pub async fn open(
        application: Application,
        platform: Arc<dyn Platform>,
        options: SessionOptions,
    ) -> Result<Self, EngineError> {
        let campaign = Arc::new(open_campaign(&application, &options)?);
        campaign.describe_messages(application.descriptors.clone())?;
        let mesh = match platform.capabilities().mesh {
            MeshPlace::Local => Some(Mesh::start(MeshOptions { workers: options.mesh_workers })?),
            MeshPlace::Sidecar | MeshPlace::Nowhere => None,
        };
        let events = EventBus::new(campaign.clone());
        let template = template::template_name(&application, &options.root);
        let parts = Parts { application: &application, platform: &platform, options: &options, template };
        let slot = |number| Arc::new(parts.slot(SlotId(number), &campaign, mesh.as_ref()));
        let slots = (0..options.slots.max(1)).map(|number| (SlotId(number), slot(number))).collect();
        events.emit(match &options.resume {
            Some(_) => Event::CampaignResumed { slots: options.slots },
            None => Event::CampaignStarted {
                campaign: campaign.id().clone(),
                purpose: options.purpose,
                slots: options.slots,
                seed: options.seed,
            },
        });
        let (application, numbers) = (Arc::new(application), Mutex::default());
        let (start_limits, asked) = (StartLimits::default(), AskedServices::default());
        Ok(Self {
            application,
            options,
            platform,
            campaign,
            events,
            slots,
            numbers,
            mesh,
            start_limits,
            slow_start: SlowStart::default(),
            asked,
        })
    }

    /// The id of the campaign, also the name of its folder.
    pub fn id(&self) -> &CampaignId {
        self.campaign.id()
    }

    /// The application.
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// The event stream.
    pub fn events(&self) -> &EventBus {
        &self.events
    }

    /// The campaign in the store.
    pub fn campaign(&self) -> &Campaign {
        &self.campaign
    }

    /// The platform.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.platform
    }

    /// The command that the session belongs to.
    pub fn purpose(&self) -> CampaignKind {
        self.options.purpose
    }

    /// The slots, in order.
    pub(crate) fn slot_ids(&self) -> impl ExactSizeIterator<Item = SlotId> + '_ {
        self.slots.keys().copied()
    }

    /// The next trial of a role.
    pub(crate) fn next_trial(&self, role: TrialRole) -> TrialId {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).next(role)
    }

    /// Continues numbering after trials from before an interruption.
    pub(crate) fn number_after(&self, numbers: Numbers) {
        *self.numbers.lock().unwrap_or_else(PoisonError::into_inner) = numbers;
    }

    /// The id of a trial's run: the short name of the campaign and the name of the trial.
    pub(crate) fn run_id(&self, trial: TrialId) -> Result<RunId, EngineError> {
        run_id(self.campaign.id(), trial)
    }

    /// Ends everything, writes the last events and closes the store.
    pub async fn close(self, summary: &str) -> Result<(), EngineError> {
        let mut first_error = None;
        for slot in self.slots.values() {
            if let Err(error) = slot.close(&*self.platform).await {
                first_error.get_or_insert(error);
            }
        }
        drop(self.mesh);
        self.events.emit(Event::CampaignFinished { summary: summary.to_owned() });
        self.campaign.flush().await?;
        first_error.map_or(Ok(()), Err)
    }
}

fn open_campaign(application: &Application, options: &SessionOptions) -> Result<Campaign, EngineError> {
    let store = Store::open(&options.state)?;
    let started_us = now_us();
    let record = &application.record;
    let secrets = SecretOptions { rules: record.secrets.clone(), plain: record.plain, key: None };
    let kept = CampaignOptions { secrets, ..CampaignOptions::default() };
    if let Some(id) = &options.resume {
        return Ok(store.resume(id, kept)?);
    }
    let meta = CampaignMeta {
        id: unused_id(&store, started_us),
        kind: options.purpose,
        application: application.name.clone(),
        started_us,
        command_line: options.command_line.clone(),
        seed: options.seed,
    };
    Ok(store.campaign_with(meta, kept)?)
}

/// What the slots of a session need.
struct Parts<'a> {
    application: &'a Application,
    platform: &'a Arc<dyn Platform>,
    options: &'a SessionOptions,
    template: String,
}

impl Parts<'_> {
    fn slot(&self, id: SlotId, campaign: &Campaign, mesh: Option<&Mesh>) -> Slot {
        let Self { application, platform, options, template } = self;
        let recorder = Arc::new(SlotRecorder::new(campaign.sink(), id));
        let hooks = || Hooks {
            dialer: Arc::new(PlatformDialer { platform: Arc::clone(platform), slot: id }),
            recorder: recorder.clone(),
            restarter: Arc::new(PlatformRestarter {
                platform: Arc::clone(platform),
                slot: id,
                runtime: tokio::runtime::Handle::current(),
            }),
        };
        // Services get the certificate of the authority only if the mesh terminates TLS for one of them.
        let ends_tls =
            application.services.values().flat_map(|s| &s.ports).any(|p| p.protocol == Protocol::Https);
        let spec = SlotSpec {
            id,
            label: format!("{}-{}", campaign.id(), id.0),
            application: options.root.clone(),
            state: options.state.clone(),
            setup: application.setup.clone(),
            template: template.clone(),
            program: options.program.clone(),
            log_limit: LOG_LIMIT,
            authority: mesh.filter(|_| ends_tls).map(Mesh::authority_pem),
            control: None,
            home: options.home.clone(),
            shared: application.shared.iter().filter_map(|path| options.find_shared(path)).collect(),
        };
        let mesh = mesh.map(|mesh| mesh.open(id, hooks()));
        let collects_spans = mesh.is_some() && application.record.tracing == Tracing::On;
        let measures = options.metrics.unwrap_or(application.record.metrics).every.is_some();
        let samples = measures.then(|| campaign.samples().clone());
        Slot {
            id,
            mesh,
            collector: collects_spans.then(|| SlotCollector::new(campaign.sink(), samples, id)),
            recorder,
            expansion: Expansion { program: options.program.to_string_lossy().into_owned(), slot: id },
            spec,
            opened: OnceCell::new(),
            owner: Arc::default(),
        }
    }
}

/// The id of a run: the short name of its campaign and the name of its trial.
pub(crate) fn run_id(campaign: &CampaignId, trial: TrialId) -> Result<RunId, EngineError> {
    let short = campaign.as_str().split('-').next().unwrap_or_default();
    format!("{short}.{}", trial.name()).parse().map_err(|e| EngineError::Internal(format!("{e}")))
}

/// An id whose short name no stored campaign has, since runs are named by it.
pub(crate) fn unused_id(store: &Store, started_us: u64) -> CampaignId {
    let short = |id: &CampaignId| format!("{}-", id.as_str().split('-').next().unwrap_or_default());
    let taken = |id: &CampaignId| !matches!(store.find_campaign(&short(id)), Err(e) if e.kind == StoreErrorKind::NotFound);
    // Four digits run out when thousands are stored; then a longer name is used.
    (0..64)
        .map(|_| new_campaign_id(started_us))
        .find(|id| !taken(id))
        .unwrap_or_else(|| new_campaign_id(started_us))
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
