//! Containers of a Docker engine on this machine; images and Compose files stay as they are.
//!
//! Each slot is an internal network with one sidecar container, which holds the addresses that stand for
//! services and hands sockets of its network to the tool, whose mesh carries the calls; see
//! `docs/design/0004-docker-sidecars.md`. No type of the engine's client leaves this module.

mod addresses;
mod apply;
mod engine;
mod exec;
mod image;
mod life;
mod mounts;
mod project;
mod sidecar;
mod slot;
mod snapshot;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::ContainerNetworkStats;
use faultscope_model::log::InstanceLog;
use faultscope_model::metrics::{Metric, Sample, Values};
use faultscope_model::plan::Plan;
use faultscope_model::{InstanceId, SlotId};
use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use self::engine::{Engine, OWNER, fault};
use self::life::{Life, Origin};
use self::slot::Slot;
use crate::process::parts::{is_dead, reap};
use crate::{
    Action, Capabilities, Deployment, Execution, Exit, Isolation, LimitsBy, MeshPlace, Platform,
    PlatformError, PlatformErrorKind, PlatformEvent, Reaped, Reservation, SlotSpec, Snapshot, now_us,
};

const NAME: &str = "docker";

/// Options of the back end.
#[derive(Debug, Clone, Default)]
pub struct DockerOptions {
    /// The engine's address as in `DOCKER_HOST`, which is used if this is not set.
    pub host: Option<String>,
    /// The image in which commands of tests run; that of the first service if not set.
    pub test_image: Option<String>,
    /// The tool's folder, in which leftovers of a dead tool are found.
    pub state: Option<PathBuf>,
}

/// Containers of a Docker engine.
#[derive(Debug)]
pub struct DockerPlatform {
    engine: Engine,
    options: DockerOptions,
    slots: Mutex<BTreeMap<SlotId, Arc<Slot>>>,
    states: Mutex<BTreeSet<PathBuf>>,
}

impl DockerPlatform {
    /// Connects to the engine.
    pub async fn connect(options: DockerOptions) -> Result<Self, PlatformError> {
        Ok(Self {
            engine: Engine::connect(options.host.as_deref()).await?,
            slots: Mutex::default(),
            states: Mutex::new(options.state.iter().cloned().collect()),
            options,
        })
    }

    fn slot(&self, slot: SlotId) -> Result<Arc<Slot>, PlatformError> {
        let found = lock(&self.slots).get(&slot).cloned();
        found.ok_or_else(|| bad_plan(format!("find {slot}"), "it is not open"))
    }

    fn life(&self, slot: SlotId, instance: &InstanceId) -> Result<(Arc<Slot>, Arc<Life>), PlatformError> {
        let slot = self.slot(slot)?;
        let life = slot.life(instance);
        let life = life.ok_or_else(|| bad_plan(format!("find {instance}"), "no such instance"))?;
        Ok((slot, life))
    }
}

#[async_trait]
impl Platform for DockerPlatform {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Containers,
            limits: LimitsBy::Engine,
            mesh: MeshPlace::Local,
            snapshots: true,
            pause: true,
            most_slots: None,
            notes: Vec::new(),
        }
    }

    async fn open_slot(&self, spec: &SlotSpec) -> Result<(), PlatformError> {
        if self.slot(spec.id).is_ok() {
            return Err(bad_plan(format!("open {}", spec.id), "it is open already"));
        }
        let slot = Slot::open(spec, &self.engine, &self.options).await?;
        lock(&self.states).insert(slot.spec.state.clone());
        lock(&self.slots).insert(spec.id, slot);
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
        slot.dial(instance, port).await
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
        let down = || bad_plan(format!("{action:?} {instance}").to_lowercase(), "it does not run");
        match action {
            Action::Kill => life.stop(&slot, Duration::ZERO).await,
            Action::Restart => {
                let _turn = slot.turn.lock().await;
                life.stop(&slot, Duration::ZERO).await?;
                let next = Life::start(&slot, life.plan.clone(), Origin::Restart(&life)).await?;
                next.ready(&slot).await
            }
            Action::Pause | Action::Resume if life.is_over() => Err(down()),
            Action::Pause => life.pause(&slot, true).await,
            Action::Resume => life.pause(&slot, false).await,
        }
    }

    async fn exec(
        &self,
        slot: SlotId,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        self.slot(slot)?.exec(run, cancel).await
    }

    async fn metrics(&self, slot: SlotId) -> Result<Vec<Sample>, PlatformError> {
        let slot = self.slot(slot)?;
        let lives: Vec<_> = slot.lives().values().filter(|l| !l.is_over()).cloned().collect();
        let measured = join_all(lives.iter().map(|life| measure(&slot, life))).await;
        Ok(measured.into_iter().flatten().collect())
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
        self.slot(slot)?.restore(from, snapshot).await
    }

    async fn pack_snapshot(&self, from: &Path, snapshot: &Snapshot) -> Result<(), PlatformError> {
        snapshot::save_images(&self.engine, from, snapshot).await.map_err(|e| trouble("save images", e))
    }

    async fn forget_snapshot(&self, snapshot: &Snapshot) -> Result<(), PlatformError> {
        snapshot::remove_images(&self.engine, snapshot).await.map_err(|e| fault("remove images", e))
    }

    async fn intact(&self, slot: SlotId) -> Result<(), PlatformError> {
        let slot = self.slot(slot)?;
        let answered = slot.sidecar().answers().await;
        answered.map_err(|e| trouble("reach the slot's sidecar", e))?;
        slot.settle().await;
        Ok(())
    }

    async fn clear_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.slot(slot)?.clear().await
    }

    async fn close_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.slot(slot)?.close().await?;
        lock(&self.slots).remove(&slot);
        Ok(())
    }

    async fn reap_orphans(&self) -> Result<Reaped, PlatformError> {
        let action = "remove what a killed faultscope left behind";
        let states = lock(&self.states).clone();
        let reaping = tokio::task::spawn_blocking(move || reap(&[], &states));
        let mut reaped = reaping.await.map_err(|e| trouble(action, e))?;
        let removed = async {
            for container in self.engine.containers(OWNER).await? {
                if is_dead(&container.owner) {
                    self.engine.remove(&container.name).await?;
                    reaped.containers += 1;
                }
            }
            for network in self.engine.networks(OWNER).await? {
                if is_dead(&network.owner) {
                    self.engine.remove_network(&network.name).await?;
                }
            }
            for volume in self.engine.volumes(OWNER).await? {
                if is_dead(&volume.owner) {
                    self.engine.remove_volume(&volume.name).await?;
                }
            }
            Ok(())
        };
        removed.await.map_err(|e| fault(action, e))?;
        Ok(reaped)
    }
}

async fn measure(slot: &Slot, life: &Life) -> Option<Sample> {
    let at_us = now_us();
    let stats = slot.engine.stats(&life.container).await?;
    let cpu = stats.cpu_stats.and_then(|c| c.cpu_usage?.total_usage);
    let memory = stats.memory_stats.unwrap_or_default();
    let parts = memory.stats.unwrap_or_default();
    let part = |names: &[&str]| names.iter().find_map(|name| parts.get(*name)).copied();
    // The engine passes on its control groups; versions 1 and 2 name things differently.
    let idle = part(&["total_inactive_file", "inactive_file"]).unwrap_or_default();
    let mapped = part(&["total_mapped_file", "file_mapped"]).unwrap_or_default();
    let networks = stats.networks.unwrap_or_default();
    let carried = |bytes: fn(&ContainerNetworkStats) -> Option<u64>| {
        let all: Vec<u64> = networks.values().filter_map(bytes).collect();
        (!all.is_empty()).then(|| all.iter().sum::<u64>())
    };
    let limits = &life.plan.limits;
    let number = |value: Option<u64>| value.map(|value| value as f64);
    let values = Values::default()
        .with(Metric::CpuSeconds, cpu.map(|nanos| nanos as f64 / 1e9))
        .with(Metric::CpuLimit, limits.cpu)
        .with(Metric::MemoryWorkingSet, number(memory.usage.map(|bytes| bytes.saturating_sub(idle))))
        .with(Metric::MemoryResident, number(part(&["total_rss", "anon"]).map(|bytes| bytes + mapped)))
        .with(Metric::MemoryLimit, number(limits.memory.map(|bytes| bytes.0)))
        .with(Metric::NetworkReceived, number(carried(|n| n.rx_bytes)))
        .with(Metric::NetworkSent, number(carried(|n| n.tx_bytes)))
        .with(Metric::Threads, number(stats.pids_stats.and_then(|p| p.current)))
        .with(Metric::StartTime, Some(life.started_us as f64 / 1e6))
        .with(Metric::Restarts, Some(life.restarts.into()))
        .with(Metric::OutOfMemoryKills, Some(life.kills.into()));
    Some(Sample { instance: life.plan.id.clone(), at_us, values })
}

/// An error of the engine or the machine.
fn trouble(
    action: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Infrastructure, NAME, action).because(source)
}

/// Something in the plan that cannot be done.
fn bad_plan(
    action: impl Into<String>,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> PlatformError {
    PlatformError::new(PlatformErrorKind::BadPlan, NAME, action).because(source)
}

/// Something that this back end does not support.
fn unsupported(action: impl Into<String>, why: &str) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Unsupported, NAME, action).because(why)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
