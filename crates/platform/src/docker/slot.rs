//! A slot: an internal network, a sidecar in it, and the containers of one trial at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bollard::models::Mount;
use faultscope_model::InstanceId;
use faultscope_model::plan::{Plan, Reset};
use futures_util::StreamExt;
use futures_util::future::{join_all, try_join_all};
use tokio::net::TcpStream;
use tokio::sync::{OwnedRwLockReadGuard, broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::addresses::{Addresses, Subnet};
use super::engine::{Engine, SLOT, fault};
use super::life::Life;
use super::sidecar::Sidecar;
use super::snapshot::Restore;
use super::{DockerOptions, bad_plan, image, trouble, unsupported};
use crate::process::parts::{claim, remove_slot_folder};
use crate::{PlatformError, PlatformEvent, SlotSpec};

/// Events buffered for a slow receiver.
const MAX_EVENTS: usize = 1024;
/// How long the engine may take to notice that an instance has ended.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// How long a process may take to end after its connections were closed.
const FALLING: Duration = Duration::from_millis(10);

/// A slot with its network, sidecar and containers.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) spec: SlotSpec,
    pub(super) options: DockerOptions,
    pub(super) engine: Engine,
    pub(super) folder: PathBuf,
    pub(super) network: String,
    pub(super) subnet: Subnet,
    pub(super) events: broadcast::Sender<PlatformEvent>,
    sidecar: Mutex<Arc<Sidecar>>,
    addresses: Mutex<Addresses>,
    lives: Mutex<BTreeMap<InstanceId, Arc<Life>>>,
    /// Containers in which memory ran out.
    exhausted: watch::Sender<BTreeSet<String>>,
    /// Cancelled when everything of the trial must end.
    era: Mutex<CancellationToken>,
    /// Held while a container is created, so that clearing the slot does not miss it.
    making: Arc<tokio::sync::RwLock<()>>,
    keys: AtomicU64,
    /// Instances that `reserve` stopped; the next `apply` reports them.
    pub(super) destroyed: AtomicUsize,
    /// Serializes changes of what runs.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// What the next deployment starts from, instead of fresh data.
    restore: Mutex<Option<Arc<Restore>>>,
    /// The default image for tests: one of the plan's own.
    pub(super) test_image: Mutex<Option<String>>,
}

impl Slot {
    /// Creates the slot's network and starts its sidecar.
    pub(super) async fn open(
        spec: &SlotSpec,
        engine: &Engine,
        options: &DockerOptions,
    ) -> Result<Arc<Self>, PlatformError> {
        let action = format!("open {}", spec.id);
        if spec.setup.is_some() {
            return Err(unsupported(action, "`setup:` cannot be run in containers yet"));
        }
        let mut spec = spec.clone();
        let there = |path: &PathBuf| path.canonicalize();
        spec.application = there(&spec.application).map_err(|e| bad_plan(action.as_str(), e))?;
        fs::create_dir_all(&spec.state).map_err(|e| trouble(action.as_str(), e))?;
        spec.state = there(&spec.state).map_err(|e| trouble(action.as_str(), e))?;
        let folder = spec.state.join("slots").join(&spec.label);
        claim(&folder).map_err(|e| trouble(action.as_str(), e))?;
        image::ensure(engine).await?;
        let network = format!("faultscope-{}", spec.label);
        let subnet = make_network(engine, &spec.label, &network).await?;
        let sidecar = Sidecar::start(engine, &spec, &folder, &network, subnet.sidecar()).await;
        let sidecar = match sidecar {
            Ok(sidecar) => sidecar,
            Err(error) => {
                let _ = engine.remove_network(&network).await;
                let _ = remove_slot_folder(&folder);
                return Err(error);
            }
        };
        let slot = Arc::new(Self {
            options: options.clone(),
            engine: engine.clone(),
            folder,
            network,
            subnet,
            events: broadcast::Sender::new(MAX_EVENTS),
            sidecar: Mutex::new(Arc::new(sidecar)),
            addresses: Mutex::new(Addresses::new(subnet)),
            lives: Mutex::default(),
            exhausted: watch::Sender::default(),
            era: Mutex::default(),
            making: Arc::default(),
            keys: AtomicU64::new(1),
            destroyed: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::new(()),
            restore: Mutex::default(),
            test_image: Mutex::default(),
            spec,
        });
        tokio::spawn(watch_memory(Arc::downgrade(&slot), slot.engine.clone()));
        Ok(slot)
    }

    /// The current sidecar.
    pub(super) fn sidecar(&self) -> Arc<Sidecar> {
        Arc::clone(&lock(&self.sidecar))
    }

    /// The assigned addresses.
    pub(super) fn addresses(&self) -> MutexGuard<'_, Addresses> {
        lock(&self.addresses)
    }

    /// All instances; dead ones stay until they are replaced.
    pub(super) fn lives(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Arc<Life>>> {
        lock(&self.lives)
    }

    /// One instance.
    pub(super) fn life(&self, instance: &InstanceId) -> Option<Arc<Life>> {
        self.lives().get(instance).cloned()
    }

    /// Sets what the next deployment starts from; returns what it would have started from.
    pub(super) fn set_restore(&self, restore: Option<Arc<Restore>>) -> Option<Arc<Restore>> {
        std::mem::replace(&mut *lock(&self.restore), restore)
    }

    /// Cancelled when everything of the trial must end.
    pub(super) fn era(&self) -> CancellationToken {
        lock(&self.era).clone()
    }

    /// To be held while a container is created.
    pub(super) async fn making(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.making).read_owned().await
    }

    /// A number that is unique in this slot.
    pub(super) fn next_key(&self) -> u64 {
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    /// The log file of an instance.
    pub(super) fn log_file(&self, instance: &InstanceId) -> PathBuf {
        self.folder.join("logs").join(format!("{instance}.log"))
    }

    /// The hosts file of tests.
    pub(super) fn hosts_file(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    /// Mounts for the tool's executable: itself, its libraries, the application's files.
    pub(super) fn own_mounts(&self, except: &[PathBuf]) -> Vec<Mount> {
        let mut mounts = image::mounts(&self.spec.program, &self.spec.program);
        mounts.extend(self.application_mounts(except));
        mounts
    }

    /// Mounts the content of the application's folder read-only, except the tool's folder and the given paths. The
    /// folder itself belongs to the container, so that it is writable and fresh.
    pub(super) fn application_mounts(&self, except: &[PathBuf]) -> Vec<Mount> {
        let entries = fs::read_dir(&self.spec.application).into_iter().flatten().flatten();
        let is_wanted = |path: &PathBuf| {
            let starts =
                |other: &PathBuf| other.strip_prefix(".").unwrap_or(other).iter().next() == path.file_name();
            !self.spec.state.starts_with(path) && !except.iter().any(starts)
        };
        entries
            .map(|entry| entry.path())
            .filter(is_wanted)
            .map(|path| image::bind(&path, &path, true))
            .collect()
    }

    /// Resolves when memory has run out in a container.
    pub(super) async fn out_of_memory(&self, container: &str) {
        let mut exhausted = self.exhausted.subscribe();
        // The sender lives as long as the slot, so waiting cannot fail.
        let _ = exhausted.wait_for(|all| all.contains(container)).await;
    }

    /// Connects to a port of an instance.
    pub(super) async fn dial(&self, instance: &InstanceId, port: u16) -> io::Result<TcpStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let life =
            self.life(instance).filter(|life| !life.is_over() && !life.is_dying()).ok_or_else(refused)?;
        let address = self.addresses().place(&instance.to_string());
        let address = address.ok_or_else(refused)?;
        let sidecar = self.sidecar();
        tokio::select! {
            connected = sidecar.connect(address, port) => connected,
            // Nobody answers for the address of a removed container, so connecting would only time out.
            () = life.over() => Err(refused()),
        }
    }

    /// Returns when everything that has happened to instances was reported as an event.
    pub(super) async fn settle(&self) {
        // A connection breaks slightly before its process counts as ended.
        tokio::time::sleep(FALLING).await;
        let lives: Vec<_> = self.lives().values().filter(|life| !life.is_over()).cloned().collect();
        let settle = async |life: Arc<Life>| {
            if life.is_dying() {
                let _ = tokio::time::timeout(LAST_BREATH, life.over()).await;
            }
            self.settle_memory(&life).await;
        };
        join_all(lives.into_iter().map(settle)).await;
    }

    /// Reports that memory ran out in an instance that goes on. If its main process was killed, its exit reports
    /// that instead.
    async fn settle_memory(&self, life: &Life) {
        let is_exhausted = self.exhausted.borrow().contains(&life.container);
        if !is_exhausted || tokio::time::timeout(LAST_BREATH, life.over()).await.is_ok() {
            return;
        }
        let is_news = self.exhausted.send_if_modified(|all| all.remove(&life.container));
        if is_news {
            let instance = life.plan.id.clone();
            let _ = self.events.send(PlatformEvent::OutOfMemory { instance });
        }
    }

    /// Stops what the plan does not keep and returns how many living instances that were.
    pub(super) async fn end_others(&self, plan: &Plan) -> Result<usize, PlatformError> {
        let lives: Vec<Arc<Life>> = self.lives().values().cloned().collect();
        let running: Vec<_> =
            lives.iter().filter(|life| life.ready_after().is_some()).map(|life| life.plan.clone()).collect();
        // What runs has other data than the snapshot, so that nothing of it is kept.
        let is_restored = lock(&self.restore).is_some();
        let kept = if is_restored { Default::default() } else { plan.actions_from(&running).keep };
        let ended: Vec<_> = lives.into_iter().filter(|life| !kept.contains(&life.plan.id)).collect();
        let destroyed = ended.iter().filter(|life| !life.is_over()).count();
        let end = |life: &Arc<Life>| {
            // An instance that is always replaced gains nothing from a graceful stop.
            let patience = match life.plan.reset {
                Reset::Restart => Duration::ZERO,
                Reset::Keep => life.plan.stop_within,
            };
            let life = Arc::clone(life);
            async move {
                life.stop(self, patience).await?;
                life.forget(self).await;
                Ok::<_, PlatformError>(())
            }
        };
        try_join_all(ended.iter().map(end)).await?;
        for life in ended {
            self.lives().remove(&life.plan.id);
        }
        Ok(destroyed)
    }

    /// Ends everything of the trial at once; a lost sidecar is replaced.
    pub(super) async fn clear(&self) -> Result<(), PlatformError> {
        let action = format!("clear {}", self.spec.id);
        self.empty().await?;
        let sidecar = self.sidecar();
        if sidecar.answers().await.is_err() {
            let removed = self.engine.remove(&sidecar.container).await;
            removed.map_err(|e| fault(action, e))?;
            let address = self.subnet.sidecar();
            let (spec, folder) = (&self.spec, &self.folder);
            let next = Sidecar::start(&self.engine, spec, folder, &self.network, address).await?;
            *lock(&self.sidecar) = Arc::new(next);
        }
        *lock(&self.era) = CancellationToken::new();
        Ok(())
    }

    /// Ends everything and removes the slot's network and folder.
    pub(super) async fn close(&self) -> Result<(), PlatformError> {
        let action = format!("close {}", self.spec.id);
        self.empty().await?;
        let removed = async {
            self.engine.remove(&self.sidecar().container).await?;
            self.engine.remove_network(&self.network).await
        };
        removed.await.map_err(|e| fault(action.as_str(), e))?;
        let folder = self.folder.clone();
        let removed = tokio::task::spawn_blocking(move || remove_slot_folder(&folder)).await;
        let removed = removed.map_err(io::Error::other).and_then(|r| r);
        removed.map_err(|e| trouble(action, e))
    }

    async fn empty(&self) -> Result<(), PlatformError> {
        let action = || format!("clear {}", self.spec.id);
        self.era().cancel();
        self.lives().values().for_each(|life| life.mark_requested());
        self.remove_containers().await.map_err(|e| fault(action(), e))?;
        let _turn = self.turn.lock().await;
        // Again, for containers that were being created.
        let _nothing_else = self.making.write().await;
        self.remove_containers().await.map_err(|e| fault(action(), e))?;
        let volumes = self.engine.volumes(&self.label()).await;
        let volumes = volumes.map_err(|e| fault(action(), e))?;
        let removed = join_all(volumes.iter().map(|v| self.engine.remove_volume(&v.name))).await;
        if let Some(error) = removed.into_iter().find_map(Result::err) {
            return Err(fault(action(), error));
        }
        self.lives().clear();
        self.set_restore(None);
        self.exhausted.send_replace(BTreeSet::new());
        self.destroyed.store(0, Ordering::Release);
        Ok(())
    }

    async fn remove_containers(&self) -> Result<(), bollard::errors::Error> {
        let sidecar = self.sidecar();
        let all = self.engine.containers(&self.label()).await?;
        let others = all.iter().filter(|c| c.name != sidecar.container);
        try_join_all(others.map(|c| self.engine.remove(&c.name))).await?;
        Ok(())
    }

    fn label(&self) -> String {
        format!("{SLOT}={}", self.spec.label)
    }
}

/// Takes the first free network.
async fn make_network(engine: &Engine, label: &str, name: &str) -> Result<Subnet, PlatformError> {
    let action = "make the slot's network";
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    for subnet in Subnet::candidates(label, &routes) {
        let made = engine.make_network(name, label, subnet).await;
        if made.map_err(|e| fault(action, e))? {
            return Ok(subnet);
        }
    }
    Err(trouble(action, "every address range is taken"))
}

/// Records when memory runs out, and reports it if the instance goes on.
async fn watch_memory(slot: Weak<Slot>, engine: Engine) {
    let Some(label) = slot.upgrade().map(|slot| slot.spec.label.clone()) else {
        return;
    };
    let mut exhausted = std::pin::pin!(engine.out_of_memory(&label));
    loop {
        let container = tokio::select! {
            container = exhausted.next() => container,
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                if slot.strong_count() == 0 {
                    return;
                }
                continue;
            }
        };
        let (Some(container), Some(slot)) = (container, slot.upgrade()) else {
            return;
        };
        slot.exhausted.send_modify(|all| {
            all.insert(container.clone());
        });
        let life = slot.lives().values().find(|l| l.container == container).cloned();
        let Some(life) = life else { continue };
        tokio::spawn(async move { slot.settle_memory(&life).await });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
