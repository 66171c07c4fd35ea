//! A slot: one agent at a time, its plan, its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use faultscope_model::InstanceId;
use faultscope_model::mount::MountSource;
use faultscope_model::plan::{InstancePlan, Limits, Plan};
use futures_util::future::join_all;
use tokio::sync::broadcast;

use super::agent::AgentProcess;
use super::agent_protocol::{PlaceSpec, Request};
use super::cgroup::Group;
use super::data::Layers;
use super::home::Home;
use super::life::Life;
use super::snapshot::Restore;
use super::specs::AUTHORITY;
use super::stage::Stage;
use super::{Shared, disk, files, open_files, reap, trouble};
use crate::{PlatformError, PlatformEvent, SlotSpec};

/// Events buffered for a slow receiver.
const MAX_EVENTS: usize = 1024;
/// How often to check whether memory ran out in an instance that goes on.
const MEMORY_TICK: Duration = Duration::from_millis(250);
/// How often, and how many times, to check whether the main process was the victim.
const VICTIM_TICK: Duration = Duration::from_millis(50);
const VICTIM_LOOKS: usize = 10;

/// A group can stay busy for a moment after its last process has ended.
pub(crate) const GROUP_TRIES: usize = 100;
pub(crate) const GROUP_PAUSE: Duration = Duration::from_millis(10);

/// A slot with its agent and folder.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) spec: SlotSpec,
    pub(crate) folder: PathBuf,
    /// Whether it has its own namespaces.
    pub(crate) isolated: bool,
    pub(crate) events: broadcast::Sender<PlatformEvent>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) home: Option<Home>,
    stage: Mutex<Arc<Stage>>,
    layers: Mutex<Layers>,
    /// What the next deployment starts from, instead of fresh data.
    restore: Mutex<Option<Arc<Restore>>>,
    keys: AtomicU64,
    /// Open files that the plans of this slot were found to need.
    files_counted: AtomicU64,
    /// Instances that `reserve` stopped; the next `apply` reports them.
    pub(crate) destroyed: AtomicUsize,
    /// Serializes changes of what runs.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl Slot {
    /// Creates the slot's folder, starts its agent and prepares the template.
    pub(crate) async fn open(
        spec: &SlotSpec,
        shared: &Arc<Shared>,
        isolated: bool,
    ) -> Result<Arc<Self>, PlatformError> {
        let action = || format!("open {}", spec.id);
        let mut spec = spec.clone();
        spec.application = spec.application.canonicalize().map_err(|e| {
            super::bad_plan(action(), format!("the application's folder {}: {e}", spec.application.display()))
        })?;
        fs::create_dir_all(&spec.state).map_err(|e| trouble(action(), e))?;
        spec.state = spec.state.canonicalize().map_err(|e| trouble(action(), e))?;
        let folder = spec.state.join("slots").join(&spec.label);
        reap::claim(&folder).map_err(|e| trouble(action(), e))?;
        if let Some(authority) = &spec.authority {
            fs::write(folder.join(AUTHORITY), authority).map_err(|e| trouble(action(), e))?;
        }
        let groups = shared.limiter.agent_groups(&spec.label).map_err(|e| trouble(action(), e))?;
        let agent = AgentProcess::start(&spec.program, &spec.label, isolated, &groups)
            .await
            .map_err(|e| trouble(action(), e))?;
        let slot = Arc::new(Self {
            folder,
            isolated,
            events: broadcast::Sender::new(MAX_EVENTS),
            shared: Arc::clone(shared),
            home: spec
                .home
                .as_ref()
                .filter(|_| isolated)
                .and_then(|home| Home::find(home, &spec.application)),
            stage: Mutex::new(Arc::new(Stage::new(agent))),
            layers: Mutex::new(Layers::Copies { template: None }),
            restore: Mutex::default(),
            keys: AtomicU64::new(1),
            files_counted: AtomicU64::new(0),
            destroyed: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::new(()),
            spec,
        });
        let stage = slot.stage();
        let prepared = async {
            slot.set_layers(slot.find_layers(&stage).await);
            slot.furnish(&stage).await
        };
        if let Err(error) = prepared.await {
            let _ = slot.close().await;
            return Err(error);
        }
        tokio::spawn(watch_memory(Arc::downgrade(&slot)));
        tokio::spawn(disk::watch(Arc::downgrade(&slot)));
        Ok(slot)
    }

    /// The current agent and what it holds.
    pub(crate) fn stage(&self) -> Arc<Stage> {
        Arc::clone(&lock(&self.stage))
    }

    /// How instances see the application folder.
    pub(crate) fn layers(&self) -> Layers {
        lock(&self.layers).clone()
    }

    /// Changes how later instances see the application folder.
    pub(crate) fn set_layers(&self, layers: Layers) {
        *lock(&self.layers) = layers;
    }

    /// A number that is unique in this slot.
    pub(crate) fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// The folder of all instance folders.
    pub(crate) fn lives_folder(&self) -> PathBuf {
        self.folder.join("lives")
    }

    /// Where tests find files of the tool, and leave theirs for it.
    pub(crate) fn exchange_folder(&self) -> PathBuf {
        self.folder.join("exchange")
    }

    /// Where volumes lie that instances of a trial share.
    pub(crate) fn volumes_folder(&self) -> PathBuf {
        self.folder.join("volumes")
    }

    /// The log file of an instance.
    pub(crate) fn log_file(&self, instance: &InstanceId) -> PathBuf {
        self.folder.join("logs").join(format!("{instance}.log"))
    }

    /// Sets what the next deployment starts from; returns what it would have started from.
    pub(crate) fn set_restore(&self, restore: Option<Arc<Restore>>) -> Option<Arc<Restore>> {
        std::mem::replace(&mut *lock(&self.restore), restore)
    }

    /// What the next deployment starts from.
    pub(crate) fn pending_restore(&self) -> Option<Arc<Restore>> {
        lock(&self.restore).clone()
    }

    /// The control group of one start of an instance.
    pub(crate) fn group(&self, name: &str, limits: &Limits) -> io::Result<Option<Group>> {
        self.shared.limiter.group(&self.spec.label, name, limits)
    }

    /// Refuses a plan for which this user may not open enough files.
    pub(crate) fn check_open_files(&self, plan: &Plan) -> Result<(), PlatformError> {
        let counted = self.files_counted.load(Ordering::Acquire);
        self.files_counted.store(open_files::check(plan, self.isolated, counted)?, Ordering::Release);
        Ok(())
    }

    /// Creates the network of a place, unless it exists.
    pub(crate) async fn ensure_place(&self, stage: &Stage, instance: &InstanceId) -> io::Result<()> {
        if !self.isolated {
            return Ok(());
        }
        let name = instance.to_string();
        let (address, is_new) = stage.addresses().place(&name);
        if is_new {
            stage
                .agent
                .link
                .request(Request::Places { places: vec![PlaceSpec { name, address }] }, &[])
                .await?;
        }
        Ok(())
    }

    /// Stops what the plan does not keep and returns how many living instances that were.
    pub(crate) async fn end_others(&self, stage: &Stage, plan: &Plan) -> usize {
        let lives: Vec<Arc<Life>> = stage.lives().values().cloned().collect();
        let running: Vec<_> =
            lives.iter().filter(|l| l.ready_after().is_some()).map(|l| l.plan.clone()).collect();
        // What runs has other data than the snapshot, so that nothing of it is kept.
        let is_restored = self.pending_restore().is_some();
        let kept = if is_restored {
            BTreeSet::new()
        } else {
            plan.actions_from(&running).keep.into_iter().collect()
        };
        let ended: Vec<_> = lives.into_iter().filter(|life| !kept.contains(&life.plan.id)).collect();
        let destroyed = ended.iter().filter(|life| !life.is_over()).count();
        join_all(ended.iter().map(|life| life.stop(life.plan.stop_within))).await;
        for life in ended {
            stage.lives().remove(&life.plan.id);
            self.discard(life.own.clone());
        }
        let lives: Vec<Arc<Life>> = stage.lives().values().cloned().collect();
        self.empty_volumes(lives.iter().map(|life| &life.plan));
        destroyed
    }

    /// Empties the volumes that none of these instances uses: the next trial finds them fresh.
    fn empty_volumes<'a>(&self, kept: impl Iterator<Item = &'a InstancePlan>) {
        let used: BTreeSet<&str> = kept
            .flat_map(|plan| &plan.mounts)
            .filter_map(|mount| match &mount.source {
                MountSource::Volume(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        for entry in fs::read_dir(self.volumes_folder()).into_iter().flatten().flatten() {
            if used.contains(&*entry.file_name().to_string_lossy()) {
                continue;
            }
            // Out of the way at once, deleted when there is time.
            let gone = self.folder.join(format!("volume.{}", self.next_key()));
            if fs::rename(entry.path(), &gone).is_ok() {
                self.discard(gone);
            }
        }
    }

    /// Ends everything at once; a new agent takes over.
    pub(crate) async fn clear(self: &Arc<Self>) -> Result<(), PlatformError> {
        let action = || format!("clear {}", self.spec.id);
        let old = self.end_stage().await.map_err(|e| trouble(action(), e))?;
        let _turn = self.turn.lock().await;
        self.destroyed.store(0, Ordering::Release);
        self.set_restore(None);
        for life in old.lives().values() {
            self.discard(life.own.clone());
        }
        self.empty_volumes(std::iter::empty());
        let (program, label) = (&self.spec.program, &self.spec.label);
        let groups = self.shared.limiter.agent_groups(label).map_err(|e| trouble(action(), e))?;
        let agent = AgentProcess::start(program, label, self.isolated, &groups).await;
        let stage = Arc::new(Stage::new(agent.map_err(|e| trouble(action(), e))?));
        *lock(&self.stage) = Arc::clone(&stage);
        self.furnish(&stage).await
    }

    /// Ends everything and removes the slot's folder.
    pub(crate) async fn close(&self) -> Result<(), PlatformError> {
        let action = || format!("close {}", self.spec.id);
        self.end_stage().await.map_err(|e| trouble(action(), e))?;
        for _ in 0..GROUP_TRIES {
            if self.shared.limiter.remove_slot(&self.spec.label) {
                break;
            }
            tokio::time::sleep(GROUP_PAUSE).await;
        }
        let (folder, label) = (self.folder.clone(), self.spec.label.clone());
        let template = self.spec.state.join("templates");
        let removed = tokio::task::spawn_blocking(move || {
            remove_joints(&template, &label);
            reap::remove_slot_folder(&folder)
        });
        removed.await.map_err(io::Error::other).and_then(|r| r).map_err(|e| trouble(action(), e))
    }

    async fn end_stage(&self) -> io::Result<Arc<Stage>> {
        let stage = self.stage();
        // Frozen processes do not die.
        for life in stage.lives().values() {
            if let Some(group) = &life.group {
                group.freeze(false);
            }
        }
        stage.agent.end().await?;
        let lives: Vec<_> = stage.lives().values().cloned().collect();
        join_all(lives.iter().map(|life| life.stop(Duration::ZERO))).await;
        Ok(stage)
    }
}

/// Removes the work folders that this slot created beside the templates it used.
fn remove_joints(templates: &std::path::Path, label: &str) {
    let prefix = format!("work.{label}.");
    for template in fs::read_dir(templates).into_iter().flatten().flatten() {
        for entry in fs::read_dir(template.path()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = files::remove_tree(&entry.path());
            }
        }
    }
}

/// Reports when memory ran out in an instance that goes on.
async fn watch_memory(slot: std::sync::Weak<Slot>) {
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    loop {
        tokio::time::sleep(MEMORY_TICK).await;
        let Some(slot) = slot.upgrade() else { return };
        let lives: Vec<_> = slot.stage().lives().values().cloned().collect();
        for life in lives.iter().filter(|life| life.plan.limits.memory.is_some() && !life.is_over()) {
            let kills = life.out_of_memory_kills();
            let before = seen.insert(life.tree.key, kills).unwrap_or_default();
            if kills > before {
                // If its main process was killed, its exit reports that, on a busy machine a while later.
                for _ in 0..VICTIM_LOOKS {
                    if life.is_over() {
                        break;
                    }
                    tokio::time::sleep(VICTIM_TICK).await;
                }
                if !life.is_over() {
                    let _ = slot.events.send(PlatformEvent::OutOfMemory { instance: life.plan.id.clone() });
                }
            }
        }
        seen.retain(|key, _| lives.iter().any(|life| life.tree.key == *key));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
