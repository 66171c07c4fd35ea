//! A session: one platform, one mesh, one store folder, n slots, for one campaign.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use faultscope_mesh::{Hooks, Mesh, MeshOptions, MeshSlot};
use faultscope_model::application::Expansion;
use faultscope_model::event::Event;
use faultscope_model::record::Sampling;
use faultscope_model::units::ByteSize;
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{Application, CampaignId, Protocol, RunId, SlotId, Tracing, TrialId};
use faultscope_platform::{MeshPlace, Platform, PlatformErrorKind, SlotSpec};
use faultscope_store::secrets::SecretOptions;
use faultscope_store::{Campaign, CampaignMeta, CampaignOptions, Store, StoreErrorKind, new_campaign_id};
use tokio::sync::OnceCell;

use crate::collector::SlotCollector;
use crate::error::EngineError;
use crate::events::EventBus;
use crate::perturbing::Seen;
use crate::sampler::Sampler;
use crate::wire::{PlatformDialer, PlatformRestarter, SlotRecorder};

/// What a session needs to know.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// `test`, `up`, `debug` ...
    pub purpose: String,
    /// The folder of the application file.
    pub root: PathBuf,
    /// The tool's own folder, `.faultscope`.
    pub state: PathBuf,
    /// The tool's own program.
    pub program: PathBuf,
    /// What was typed, for the record.
    pub command_line: Vec<String>,
    /// How many slots.
    pub slots: u16,
    /// Decides every random choice.
    pub seed: u64,
    /// How much the mesh records; as the application says when none.
    pub record: Option<RecordLevel>,
    /// How often instances are measured while they run; as the application says when none.
    pub metrics: Option<Sampling>,
    /// Threads of the mesh.
    pub mesh_workers: usize,
    /// How long a whole trial may take.
    pub trial_within: Duration,
    /// How often a spoiled trial is tried again.
    pub retries: u32,
    /// After how many trials a known circumstance is repeated; 0 for never.
    pub sentinel_every: u32,
    /// Go on with this campaign instead of a new one.
    pub resume: Option<CampaignId>,
}

impl SessionOptions {
    /// The usual options for a purpose, an application folder and the tool's own program.
    pub fn new(purpose: &str, root: PathBuf, program: PathBuf) -> Self {
        Self {
            purpose: purpose.to_owned(),
            state: root.join(".faultscope"),
            root,
            program,
            command_line: Vec::new(),
            slots: 1,
            seed: 1,
            record: None,
            metrics: None,
            mesh_workers: 1,
            trial_within: Duration::from_secs(600),
            retries: 3,
            sentinel_every: 0,
            resume: None,
        }
    }
}

/// One campaign's hold on platform, mesh and store. [`Session::close`] ends everything it started.
pub struct Session {
    pub(crate) application: Arc<Application>,
    pub(crate) options: SessionOptions,
    pub(crate) platform: Arc<dyn Platform>,
    pub(crate) slots: BTreeMap<SlotId, SlotState>,
    pub(crate) campaign: Arc<Campaign>,
    pub(crate) events: EventBus,
    mesh: Option<Mesh>,
    sentinels: AtomicU32,
    again: AtomicU32,
    /// What perturbed trials showed, until whoever asked for them takes it.
    seen: Mutex<BTreeMap<TrialId, Seen>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("campaign", &self.campaign.id()).finish_non_exhaustive()
    }
}

pub(crate) struct SlotState {
    pub(crate) id: SlotId,
    pub(crate) mesh: Option<MeshSlot>,
    pub(crate) recorder: Arc<SlotRecorder>,
    /// Where instances report spans of their own; none when they are not asked to.
    pub(crate) collector: Option<SlotCollector>,
    pub(crate) expansion: Expansion,
    spec: SlotSpec,
    /// What measures the instances of the deployment that is up, when one is kept up.
    pub(crate) sampler: Mutex<Option<Sampler>>,
    opened: OnceCell<()>,
}

impl Session {
    /// Opens the store and the mesh; slots are opened when they are first used.
    pub async fn open(
        application: Application,
        platform: Arc<dyn Platform>,
        options: SessionOptions,
    ) -> Result<Self, EngineError> {
        let store = Store::open(&options.state)?;
        let started_us = now_us();
        let secrets = SecretOptions { rules: application.record.secrets.clone(), key: None };
        let kept = CampaignOptions { secrets, ..CampaignOptions::default() };
        let campaign = Arc::new(match &options.resume {
            Some(id) => store.resume(id, kept)?,
            None => {
                let meta = CampaignMeta {
                    id: unused_id(&store, started_us),
                    kind: options.purpose.clone(),
                    application: application.name.clone(),
                    started_us,
                    command_line: options.command_line.clone(),
                    seed: options.seed,
                };
                store.campaign_with(meta, kept)?
            }
        });
        let mesh = match platform.capabilities().mesh {
            MeshPlace::Local => Some(Mesh::start(MeshOptions { workers: options.mesh_workers })?),
            MeshPlace::Sidecar | MeshPlace::Nowhere => None,
        };
        let events = EventBus::new(campaign.clone());
        // Services are told of the authority only where the mesh ends TLS for one of them.
        let ends_tls =
            application.services.values().flat_map(|s| &s.ports).any(|p| p.protocol == Protocol::Https);
        let authority = mesh.as_ref().filter(|_| ends_tls).map(Mesh::authority_pem);
        let mut slots = BTreeMap::new();
        for number in 0..options.slots.max(1) {
            let id = SlotId(number);
            let recorder = Arc::new(SlotRecorder::new(campaign.sink(), id));
            let hooks = |recorder: Arc<SlotRecorder>| Hooks {
                dialer: Arc::new(PlatformDialer { platform: platform.clone(), slot: id }),
                recorder,
                restarter: Arc::new(PlatformRestarter {
                    platform: platform.clone(),
                    slot: id,
                    runtime: tokio::runtime::Handle::current(),
                }),
            };
            let spec = SlotSpec {
                id,
                label: format!("{}-{number}", campaign.id()),
                application: options.root.clone(),
                state: options.state.clone(),
                setup: application.setup.clone(),
                template: template_name(&application, &options),
                program: options.program.clone(),
                log_limit: ByteSize(1 << 20),
                authority: authority.clone(),
                control: None,
            };
            let expansion = Expansion { program: options.program.to_string_lossy().into_owned(), slot: id };
            let mesh = mesh.as_ref().map(|mesh| mesh.open(id, hooks(recorder.clone())));
            let is_asked = mesh.is_some() && application.record.tracing == Tracing::On;
            let is_measured = options.metrics.unwrap_or(application.record.metrics).every.is_some();
            let samples = is_measured.then(|| campaign.samples().clone());
            let collector = is_asked.then(|| SlotCollector::new(campaign.sink(), samples, id));
            let (sampler, opened) = (Mutex::default(), OnceCell::new());
            slots.insert(id, SlotState { id, mesh, recorder, collector, expansion, spec, sampler, opened });
        }
        events.emit(match &options.resume {
            Some(_) => Event::CampaignResumed { slots: options.slots },
            None => Event::CampaignStarted {
                campaign: campaign.id().clone(),
                purpose: options.purpose.clone(),
                slots: options.slots,
                seed: options.seed,
            },
        });
        let application = Arc::new(application);
        let sentinels = AtomicU32::new(0);
        let (again, seen) = (AtomicU32::new(0), Mutex::default());
        Ok(Self { application, options, platform, slots, campaign, events, mesh, sentinels, again, seen })
    }

    /// The campaign's id, the name of its folder.
    pub fn id(&self) -> &CampaignId {
        self.campaign.id()
    }

    /// The application.
    pub fn application(&self) -> &Application {
        &self.application
    }

    /// Where events come from.
    pub fn events(&self) -> &EventBus {
        &self.events
    }

    /// The campaign's place in the store.
    pub fn campaign(&self) -> &Campaign {
        &self.campaign
    }

    /// The platform.
    pub fn platform(&self) -> &Arc<dyn Platform> {
        &self.platform
    }

    /// The mesh of a slot, where the mesh runs in this process.
    pub fn mesh(&self, slot: SlotId) -> Option<&MeshSlot> {
        self.slots.get(&slot)?.mesh.as_ref()
    }

    /// The number of the next repetition of a known circumstance.
    pub(crate) fn next_sentinel(&self) -> u32 {
        self.sentinels.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of the next trial that is repeated because it failed.
    pub(crate) fn next_again(&self) -> u32 {
        self.again.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// After an interruption, goes on counting trials that were tried again where the campaign left off.
    pub(crate) fn count_again_from(&self, last: u32) {
        self.again.store(last, Ordering::Relaxed);
    }

    /// After an interruption, goes on counting repetitions where the campaign left off.
    pub(crate) fn count_sentinels_from(&self, last: u32) {
        self.sentinels.store(last, Ordering::Relaxed);
    }

    /// Leaves what a perturbed trial showed for whoever asked for it.
    pub(crate) fn leave_seen(&self, trial: TrialId, seen: Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(trial, seen);
    }

    /// Takes what a perturbed trial showed.
    pub(crate) fn take_seen(&self, trial: TrialId) -> Option<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&trial)
    }

    /// What the session is for: `test`, `debug`, `resilience` ...
    pub fn purpose(&self) -> &str {
        &self.options.purpose
    }

    /// The id under which a trial's run is stored: the campaign's first letters and the trial's name.
    pub(crate) fn run_id(&self, trial: TrialId) -> Result<RunId, EngineError> {
        let short = self.campaign.id().as_str().split('-').next().unwrap_or_default().to_owned();
        format!("{short}.{}", trial.name()).parse().map_err(|e| EngineError::Internal(format!("{e}")))
    }

    pub(crate) async fn slot(&self, id: SlotId) -> Result<&SlotState, EngineError> {
        let slot = self.slots.get(&id).ok_or_else(|| EngineError::Internal(format!("there is no {id}")))?;
        slot.opened.get_or_try_init(|| self.platform.open_slot(&slot.spec)).await?;
        Ok(slot)
    }

    /// Makes a slot usable again after its trial was spoiled: clears it, or opens it anew when it died.
    pub(crate) async fn refresh(&self, slot: &SlotState) -> Result<(), EngineError> {
        match self.clear(slot).await {
            Err(EngineError::Platform(error)) if error.kind == PlatformErrorKind::Infrastructure => {
                tracing::warn!(slot = %slot.id, %error, "the slot is opened anew");
                self.platform.close_slot(slot.id).await?;
                Ok(self.platform.open_slot(&slot.spec).await?)
            }
            other => other,
        }
    }

    /// Ends everything, writes the last events and closes the store.
    pub async fn close(self, summary: &str) -> Result<(), EngineError> {
        let mut first_error = None;
        for slot in self.slots.values().filter(|slot| slot.opened.initialized()) {
            if let Some(mesh) = &slot.mesh {
                mesh.close_listeners();
                mesh.reset_connections();
            }
            if let Some(collector) = &slot.collector {
                collector.close();
            }
            if let Err(error) = self.platform.close_slot(slot.id).await {
                first_error.get_or_insert(error);
            }
        }
        drop(self.mesh);
        self.events.emit(Event::CampaignFinished { summary: summary.to_owned() });
        self.campaign.flush().await?;
        first_error.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// An id whose first letters no stored campaign has, since runs are named by them.
fn unused_id(store: &Store, started_us: u64) -> CampaignId {
    let short = |id: &CampaignId| format!("{}-", id.as_str().split('-').next().unwrap_or_default());
    let taken = |id: &CampaignId| !matches!(store.campaign_by(&short(id)), Err(e) if e.kind == StoreErrorKind::NotFound);
    // When thousands are stored a longer name tells them apart.
    (0..64)
        .map(|_| new_campaign_id(started_us))
        .find(|id| !taken(id))
        .unwrap_or_else(|| new_campaign_id(started_us))
}

/// The same text means the same result of `setup`: its command and the files it may read.
fn template_name(application: &Application, options: &SessionOptions) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    application.setup.hash(&mut hasher);
    options.root.hash(&mut hasher);
    // A changed script must not be answered with its old result: names, sizes and times of the files
    // at the top of the folder stand for their content.
    let mut files: Vec<_> = std::fs::read_dir(&options.root)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let meta = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some((entry.file_name(), meta.len(), meta.modified().ok()))
        })
        .collect();
    files.sort();
    files.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
