//! The embedded back end: ordinary processes, isolated by namespaces or at least by ports.
//!
//! One agent process for each slot holds the slot's namespaces and starts everything in them; see
//! `docs/design/0002-process-isolation.md`. This module must not know what a mesh does with listeners.

mod addresses;
mod agent;
mod agent_protocol;
mod apply;
mod cgroup;
mod copy;
mod data;
mod disk;
mod environment;
mod exec;
mod farm;
mod files;
mod home;
pub mod launch;
mod life;
mod link;
pub mod open_files;
mod ports;
mod readable;
mod reap;
mod slot;
mod snapshot;
mod specs;
mod stage;
mod tree;
mod usage;

#[cfg(feature = "docker")]
pub(crate) mod parts {
    //! What the docker back end shares with this one.
    pub(crate) use super::agent_protocol::{ListenAt, MAX_FDS, Request};
    pub(crate) use super::apply::drain;
    pub(crate) use super::copy::copy_layer;
    pub(crate) use super::files::{copy_tree, remove_tree};
    pub(crate) use super::link::Link;
    pub(crate) use super::ports::name_own;
    pub(crate) use super::readable::watched;
    pub(crate) use super::reap::{claim, is_dead, reap, remove_slot_folder, this_owner};
}

pub use files::remove_tree;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::log::InstanceLog;
use faultscope_model::metrics::Sample;
use faultscope_model::plan::Plan;
use faultscope_model::{InstanceId, SlotId};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use self::cgroup::Limiter;
use self::launch::Probed;
use self::life::{Life, Origin};
use self::slot::Slot;
use crate::{
    Action, Capabilities, Deployment, Execution, Exit, Isolation, MeshPlace, Platform, PlatformError,
    PlatformErrorKind, PlatformEvent, Reaped, Reservation, SlotSpec, Snapshot,
};

pub(crate) const NAME: &str = "process";

/// The requested isolation of instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WantedIsolation {
    /// Namespaces where the kernel allows them, else ports.
    #[default]
    Auto,
    /// Namespaces, or an error.
    Netns,
    /// Ports.
    Ports,
}

/// Options of the back end.
#[derive(Debug, Clone)]
pub struct ProcessOptions {
    /// The requested isolation of instances.
    pub isolation: WantedIsolation,
    /// The executable whose `main` begins with [`launch::launch_main`].
    pub program: PathBuf,
    /// The tool's folder, in which leftovers of a dead tool are found.
    pub state: Option<PathBuf>,
}

/// The embedded back end.
#[derive(Debug)]
pub struct ProcessPlatform {
    shared: Arc<Shared>,
    isolated: bool,
    slots: Mutex<BTreeMap<SlotId, Arc<Slot>>>,
    states: Mutex<BTreeSet<PathBuf>>,
}

/// State that all slots share.
#[derive(Debug)]
pub(crate) struct Shared {
    limiter: Limiter,
    /// Whether namespaces need a user namespace around them.
    user: bool,
    env: BTreeMap<String, String>,
    /// The most bytes that a trial may have on disk.
    disk: u64,
    notes: Mutex<Vec<String>>,
}

impl Shared {
    /// Adds a note for people, once.
    pub(crate) fn note(&self, note: &str) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if !notes.iter().any(|n| n == note) {
            notes.push(note.to_owned());
        }
    }
}

impl ProcessPlatform {
    /// Determines by trying what is possible here; takes a few milliseconds.
    pub fn new(options: ProcessOptions) -> Result<Self, PlatformError> {
        let (limiter, mut notes) = Limiter::find();
        let probed = match options.isolation {
            WantedIsolation::Ports => {
                Probed { refused: Some("`isolation: ports` was requested".into()), user: false }
            }
            WantedIsolation::Auto | WantedIsolation::Netns => probe(&options.program),
        };
        if let Some(reason) = &probed.refused {
            if options.isolation == WantedIsolation::Netns {
                let error = PlatformError::new(PlatformErrorKind::Unavailable, NAME, "isolate instances");
                return Err(error.because(format!("namespaces are refused: {reason}")));
            }
            notes.push(format!("instances are isolated by ports only: {reason}"));
        }
        let mut env = environment::inherited_environment();
        if probed.refused.is_none() {
            // Temporary folders are empty, so that those of the user's session are not there.
            env.retain(|name, _| !matches!(name.as_str(), "TMPDIR" | "TMP" | "TEMP"));
        }
        Ok(Self {
            isolated: probed.refused.is_none(),
            shared: Arc::new(Shared {
                limiter,
                user: probed.user,
                env,
                disk: disk::limit()?,
                notes: Mutex::new(notes),
            }),
            slots: Mutex::default(),
            states: Mutex::new(options.state.into_iter().collect()),
        })
    }

    fn slot(&self, slot: SlotId) -> Result<Arc<Slot>, PlatformError> {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.get(&slot).cloned().ok_or_else(|| bad_plan(format!("find {slot}"), "it is not open"))
    }

    fn life(&self, slot: SlotId, instance: &InstanceId) -> Result<(Arc<Slot>, Arc<Life>), PlatformError> {
        let slot = self.slot(slot)?;
        let life = slot
            .stage()
            .life(instance)
            .ok_or_else(|| bad_plan(format!("find {instance}"), "no such instance"))?;
        Ok((slot, life))
    }
}

#[async_trait]
impl Platform for ProcessPlatform {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: if self.isolated { Isolation::Netns } else { Isolation::Ports },
            limits: self.shared.limiter.by(),
            mesh: MeshPlace::Local,
            snapshots: true,
            // Without a freezer processes are stopped one by one.
            pause: true,
            most_slots: None,
            notes: self.shared.notes.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    async fn open_slot(&self, spec: &SlotSpec) -> Result<(), PlatformError> {
        if self.slot(spec.id).is_ok() {
            return Err(bad_plan(format!("open {}", spec.id), "it is open already"));
        }
        let slot = Slot::open(spec, &self.shared, self.isolated).await?;
        self.states.lock().unwrap_or_else(PoisonError::into_inner).insert(slot.spec.state.clone());
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.id, slot);
        Ok(())
    }

    async fn reserve(&self, slot: SlotId, plan: &Plan) -> Result<Reservation, PlatformError> {
        self.slot(slot)?.reserve(plan).await
    }

    async fn apply(
        &self,
        slot: SlotId,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<Deployment, PlatformError> {
        self.slot(slot)?.apply(plan, cancel).await
    }

    async fn dial(&self, slot: SlotId, instance: &InstanceId, port: u16) -> std::io::Result<TcpStream> {
        let slot = self.slot(slot).map_err(std::io::Error::other)?;
        slot.stage().dial(instance, port).await
    }

    fn events(&self, slot: SlotId) -> broadcast::Receiver<PlatformEvent> {
        match self.slot(slot) {
            Ok(slot) => slot.events.subscribe(),
            // A slot that is not open never has events.
            Err(_) => broadcast::Sender::new(1).subscribe(),
        }
    }

    async fn act(&self, slot: SlotId, instance: &InstanceId, action: Action) -> Result<(), PlatformError> {
        let (slot, life) = self.life(slot, instance)?;
        let doing = || format!("{action:?} {instance}").to_lowercase();
        match action {
            Action::Kill => life.stop(Duration::ZERO).await,
            Action::Restart => {
                let _turn = slot.turn.lock().await;
                life.stop(Duration::ZERO).await;
                let stage = slot.stage();
                let next = Life::start(&slot, &stage, life.plan.clone(), Origin::Restart(&life)).await?;
                next.ready(&slot, &stage).await?;
            }
            Action::Pause | Action::Resume if life.is_over() => {
                return Err(bad_plan(doing(), "it does not run"));
            }
            Action::Pause => life.pause(&slot.spec.label).await.map_err(|e| trouble(doing(), e))?,
            Action::Resume => life.resume().await.map_err(|e| trouble(doing(), e))?,
        }
        Ok(())
    }

    async fn exec(
        &self,
        slot: SlotId,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        self.slot(slot)?.exec(run, cancel).await
    }

    fn exchange_folder(&self, slot: SlotId) -> Result<PathBuf, PlatformError> {
        let folder = self.slot(slot)?.exchange_folder();
        std::fs::create_dir_all(&folder).map_err(|e| trouble("make a folder for a test's files", e))?;
        Ok(folder)
    }

    async fn metrics(&self, slot: SlotId) -> Result<Vec<Sample>, PlatformError> {
        let slot = self.slot(slot)?;
        let lives: Vec<_> = slot.stage().lives().values().filter(|l| !l.is_over()).cloned().collect();
        let label = slot.spec.label.clone();
        // Reads half a dozen small files for each instance.
        let measuring = tokio::task::spawn_blocking(move || usage::measure(&lives, &label));
        measuring.await.map_err(|e| trouble("measure instances", e))
    }

    async fn log(&self, slot: SlotId, instance: &InstanceId) -> Result<InstanceLog, PlatformError> {
        Ok(self.life(slot, instance)?.1.log.of_instance(instance))
    }

    async fn snapshot(&self, slot: SlotId, into: &Path) -> Result<Snapshot, PlatformError> {
        // A task of its own: whoever waits for it may give up, and everything must go on nevertheless.
        let taking = tokio::spawn(self.slot(slot)?.snapshot(into.to_owned()));
        taking.await.map_err(|e| trouble("take a snapshot", e))?
    }

    async fn restore(&self, slot: SlotId, from: &Path, snapshot: &Snapshot) -> Result<(), PlatformError> {
        self.slot(slot)?.restore(from, snapshot)
    }

    async fn attach(
        &self,
        slot: SlotId,
        run: &Execution,
        terminal: OwnedFd,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        self.slot(slot)?.attach(run, terminal, cancel).await
    }

    async fn intact(&self, slot: SlotId) -> Result<(), PlatformError> {
        if self.slot(slot)?.stage().agent.is_alive().await {
            return Ok(());
        }
        Err(trouble(format!("continue in {slot}"), "its agent is gone"))
    }

    async fn clear_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.slot(slot)?.clear().await
    }

    async fn close_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        let closing = self.slot(slot)?;
        closing.close().await?;
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
        Ok(())
    }

    async fn reap_orphans(&self) -> Result<Reaped, PlatformError> {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bases: Vec<PathBuf> = self.shared.limiter.bases().map(PathBuf::from).collect();
        let reaping = tokio::task::spawn_blocking(move || reap::reap(&bases, &states));
        reaping.await.map_err(|e| trouble("remove what a killed faultscope left behind", e))
    }
}

/// An error of the machine.
pub(crate) fn trouble(
    action: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Infrastructure, NAME, action).because(source)
}

/// Something in the plan that cannot be done.
pub(crate) fn bad_plan(
    action: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> PlatformError {
    PlatformError::new(PlatformErrorKind::BadPlan, NAME, action).because(source)
}

fn probe(program: &std::path::Path) -> Probed {
    let output =
        Command::new(program).args(["launch", "probe"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let refused = |reason: String| Probed { refused: Some(reason), user: false };
    match output {
        Ok(output) => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| refused(format!("`{} launch probe` printed no result", program.display()))),
        Err(error) => refused(format!("{} cannot be started: {error}", program.display())),
    }
}
