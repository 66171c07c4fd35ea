//! A simulated application with known faults, for tests and for studies of scale: nothing runs, time passes
//! on the runtime's clock, and with a paused clock nothing waits.

mod simulation;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::log::InstanceLog;
use faultscope_model::metrics::{Metric, Sample, Values};
use faultscope_model::outcome::StartEnding;
use faultscope_model::plan::{InstancePlan, Plan};
use faultscope_model::wiring::{Caller, Endpoint};
use faultscope_model::{InstanceId, NodeId, ServiceName, SlotId};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use simulation::{Condition, Cost, Effect, Fault, Simulation};

use self::simulation::Chance;
use crate::{
    Action, Capabilities, Deployed, Deployment, Execution, Exit, Isolation, LimitsBy, MeshPlace, Platform,
    PlatformError, PlatformErrorKind, PlatformEvent, Reaped, Reservation, SlotSpec, Snapshot, now_us,
};

const NAME: &str = "memory";
/// The resource usage of a simulated instance: cores, and bytes of memory.
const CORES: f64 = 0.25;
const MEMORY: u64 = 32 << 20;
/// How long a simulated instance takes to start again.
const RESTART: Duration = Duration::from_millis(100);

/// The simulated back end.
#[derive(Debug)]
pub struct MemoryPlatform {
    simulation: Simulation,
    slots: Mutex<BTreeMap<SlotId, Slot>>,
    /// A moment on the runtime's clock, and the wall-clock time then.
    epoch: (Instant, u64),
    /// How often each circumstance was deployed, so that repetitions differ and yet are reproducible.
    met: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Slot {
    events: broadcast::Sender<PlatformEvent>,
    running: Vec<InstancePlan>,
    /// The start of each instance, and its restarts.
    started: BTreeMap<InstanceId, (Instant, u32)>,
    plan: Option<Plan>,
    destroyed: usize,
    passed: Duration,
    chance: Chance,
    /// The slot is being cleared; using it meanwhile is an error.
    clearing: bool,
}

impl MemoryPlatform {
    /// A back end that runs a simulation.
    pub fn new(simulation: Simulation) -> Self {
        Self { simulation, slots: Mutex::default(), epoch: (Instant::now(), now_us()), met: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<SlotId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: SlotId, action: impl FnOnce(&mut Slot) -> T) -> Result<T, PlatformError> {
        let mut slots = self.slots();
        let missing = || error(PlatformErrorKind::BadPlan, format!("find {id}")).because("it is not open");
        slots.get_mut(&id).map(action).ok_or_else(missing)
    }

    /// As [`Self::with`], for callers that put something into the slot: clearing would remove it.
    fn use_slot<T>(&self, id: SlotId, action: impl FnOnce(&mut Slot) -> T) -> Result<T, PlatformError> {
        self.with(id, |slot| (!slot.clearing).then(|| action(slot)))?.ok_or_else(|| {
            error(PlatformErrorKind::Infrastructure, format!("use {id}")).because("it is being cleared")
        })
    }

    /// Microseconds since 1970 at a moment of the runtime's clock.
    fn wall_us(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch.0).as_micros();
        self.epoch.1.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn measure(&self, plan: &InstancePlan, (started, restarts): (Instant, u32)) -> Sample {
        let now = Instant::now();
        let memory = plan.limits.memory.map_or(MEMORY, |limit| MEMORY.min(limit.0 / 2));
        let values = Values::default()
            .with(Metric::CpuSeconds, Some((now - started).as_secs_f64() * CORES))
            .with(Metric::CpuLimit, plan.limits.cpu)
            .with(Metric::MemoryWorkingSet, Some(memory as f64))
            .with(Metric::MemoryResident, Some(memory as f64))
            .with(Metric::MemoryLimit, plan.limits.memory.map(|limit| limit.0 as f64))
            .with(Metric::Processes, Some(1.0))
            .with(Metric::Threads, Some(1.0))
            .with(Metric::StartTime, Some(self.wall_us(started) as f64 / 1e6))
            .with(Metric::Restarts, Some(restarts.into()))
            .with(Metric::OutOfMemoryKills, Some(0.0));
        Sample { instance: plan.id.clone(), at_us: self.wall_us(now), values }
    }

    async fn pass(
        &self,
        id: SlotId,
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let cancelled = tokio::select! {
            biased;
            () = cancel.cancelled() => true,
            () = tokio::time::sleep(time) => false,
        };
        if cancelled {
            return Err(error(PlatformErrorKind::Cancelled, "go on"));
        }
        self.with(id, |slot| slot.passed += time)
    }

    /// The first fault that applies now.
    fn fault(&self, plan: &Plan, chance: &mut Chance, wanted: impl Fn(&Effect) -> bool) -> Option<Effect> {
        let mut applies = |fault: &&Fault| {
            // Drawn for every fault, so that one fault's chance does not depend on another's condition.
            let drawn = chance.uniform() < fault.probability;
            drawn && wanted(&fault.effect) && fault.when.holds(&plan.circumstance)
        };
        self.simulation.faults.iter().find(|fault| applies(fault)).map(|fault| fault.effect.clone())
    }
}

#[async_trait]
impl Platform for MemoryPlatform {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Simulated,
            limits: LimitsBy::Simulated,
            mesh: MeshPlace::Nowhere,
            snapshots: false,
            pause: false,
            most_slots: None,
            notes: vec!["nothing runs: the application is simulated".into()],
        }
    }

    async fn open_slot(&self, spec: &SlotSpec) -> Result<(), PlatformError> {
        let slot = Slot {
            events: broadcast::Sender::new(1024),
            running: Vec::new(),
            started: BTreeMap::new(),
            plan: None,
            destroyed: 0,
            passed: Duration::ZERO,
            chance: Chance::new(self.simulation.seed, ""),
            clearing: false,
        };
        match self.slots().insert(spec.id, slot) {
            None => Ok(()),
            Some(_) => {
                Err(error(PlatformErrorKind::BadPlan, format!("open {}", spec.id))
                    .because("it is open already"))
            }
        }
    }

    async fn reserve(&self, slot: SlotId, plan: &Plan) -> Result<Reservation, PlatformError> {
        self.use_slot(slot, |slot| {
            let actions = plan.actions_from(&slot.running);
            slot.destroyed += actions.destroy.len();
            slot.running.retain(|i| actions.keep.contains(&i.id));
            slot.passed = Duration::ZERO;
        })?;
        let caller = |instance: InstanceId, node| Caller { instance, node, address: None };
        let callers = plan.instances.iter().map(|i| caller(i.id.clone(), i.node));
        let callers = callers.chain([caller(InstanceId::test(), NodeId::default())]).collect();
        let endpoint =
            |i: &InstancePlan| Endpoint { instance: i.id.clone(), node: i.node, addresses: BTreeMap::new() };
        Ok(Reservation {
            listeners: Vec::new(),
            callers,
            endpoints: plan.instances.iter().map(endpoint).collect(),
            kept: BTreeSet::new(),
            watch: None,
        })
    }

    async fn apply(
        &self,
        id: SlotId,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<Deployment, PlatformError> {
        let about = serde_json::to_string(&plan.circumstance).unwrap_or_default();
        let times = {
            let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            let times = met.entry(about.clone()).or_default();
            *times += 1;
            *times
        };
        let mut chance = Chance::new(self.simulation.seed, &format!("{times} {about}"));
        let (actions, destroyed) = self.use_slot(id, |slot| {
            let actions = plan.actions_from(&slot.running);
            let destroyed = std::mem::take(&mut slot.destroyed) + actions.destroy.len();
            slot.running.retain(|i| actions.keep.contains(&i.id));
            (actions, destroyed)
        })?;
        let took = self.simulation.apply.sample(actions.create.len(), &mut chance);
        self.pass(id, took, cancel).await?;
        let fault = self.fault(plan, &mut chance, is_start);
        let within = |service: &ServiceName| {
            plan.instances.iter().find(|i| i.id.service == *service).map_or(took, |i| i.ready.within)
        };
        let not_ready = match fault {
            Some(Effect::SlowStart { service, takes }) => {
                let within = within(&service);
                self.pass(id, takes.min(within), cancel).await?;
                (takes > within).then_some((service, StartEnding::Late, Vec::new()))
            }
            Some(Effect::NotReady { service, ending, last_lines }) => {
                if ending == StartEnding::Late {
                    self.pass(id, within(&service), cancel).await?;
                }
                Some((service, ending, last_lines))
            }
            _ => None,
        };
        if let Some((service, ending, last_lines)) = not_ready {
            let instance = InstanceId::new(service, 1);
            let action = format!("get {instance} ready");
            let reason = ending.to_string();
            return Err(error(PlatformErrorKind::NotReady { instance, ending, reason, last_lines }, action));
        }
        self.with(id, |slot| {
            slot.started.retain(|id, _| actions.keep.contains(id));
            for instance in &actions.create {
                slot.started.insert(instance.id.clone(), (Instant::now(), 0));
                let _ = slot.events.send(PlatformEvent::Ready { instance: instance.id.clone() });
            }
            slot.running.clone_from(&plan.instances);
            slot.plan = Some(plan.clone());
            slot.chance = chance;
        })?;
        let deployed = |i: &InstancePlan| Deployed { id: i.id.clone(), node: i.node, ready_after: took };
        Ok(Deployment {
            instances: plan.instances.iter().map(deployed).collect(),
            created: actions.create.len(),
            destroyed,
            kept: actions.keep.len(),
        })
    }

    async fn dial(&self, _: SlotId, instance: &InstanceId, port: u16) -> std::io::Result<TcpStream> {
        let reason = format!("{instance} is simulated and does not listen on {port}");
        Err(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, reason))
    }

    fn events(&self, slot: SlotId) -> broadcast::Receiver<PlatformEvent> {
        let events = self.with(slot, |slot| slot.events.subscribe());
        events.unwrap_or_else(|_| broadcast::Sender::new(1).subscribe())
    }

    async fn act(&self, slot: SlotId, instance: &InstanceId, action: Action) -> Result<(), PlatformError> {
        let known = self.with(slot, |slot| slot.running.iter().any(|i| i.id == *instance))?;
        if !known {
            return Err(
                error(PlatformErrorKind::BadPlan, format!("find {instance}")).because("no such instance")
            );
        }
        if action == Action::Restart {
            self.pass(slot, RESTART, &CancellationToken::new()).await?;
            self.with(slot, |slot| {
                if let Some((started, restarts)) = slot.started.get_mut(instance) {
                    (*started, *restarts) = (Instant::now(), *restarts + 1);
                }
            })?;
        }
        Ok(())
    }

    async fn exec(
        &self,
        id: SlotId,
        _: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let (plan, mut chance) = self.use_slot(id, |slot| (slot.plan.clone(), slot.chance.clone()))?;
        let plan =
            plan.ok_or_else(|| error(PlatformErrorKind::BadPlan, "run a test").because("nothing runs"))?;
        let took = self.simulation.exec.sample(0, &mut chance);
        self.pass(id, took, cancel).await?;
        let fault = self.fault(&plan, &mut chance, |effect| !is_start(effect));
        self.with(id, |slot| slot.chance = chance)?;
        let (code, stdout) = match fault {
            Some(Effect::Invalid) => {
                let refused = error(PlatformErrorKind::Infrastructure, "run a test");
                return Err(refused.because("the simulation says that the machine refused"));
            }
            Some(Effect::Fail { message }) => (1, message),
            Some(Effect::NotReady { .. } | Effect::SlowStart { .. }) | None => (0, String::new()),
        };
        Ok(Exit { code: Some(code), signal: None, timed_out: false, stdout, stderr: String::new(), took })
    }

    async fn metrics(&self, slot: SlotId) -> Result<Vec<Sample>, PlatformError> {
        self.with(slot, |slot| {
            let one = |plan: &InstancePlan| Some(self.measure(plan, *slot.started.get(&plan.id)?));
            slot.running.iter().filter_map(one).collect()
        })
    }

    async fn log(&self, slot: SlotId, instance: &InstanceId) -> Result<InstanceLog, PlatformError> {
        self.with(slot, |_| InstanceLog { instance: instance.clone(), lines: Vec::new(), dropped: 0 })
    }

    async fn snapshot(&self, _: SlotId, _: &Path) -> Result<Snapshot, PlatformError> {
        Err(error(PlatformErrorKind::Unsupported, "take a snapshot of what is simulated"))
    }

    async fn restore(&self, _: SlotId, _: &Path, _: &Snapshot) -> Result<(), PlatformError> {
        Err(error(PlatformErrorKind::Unsupported, "start from a snapshot"))
    }

    async fn clear_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.with(slot, |slot| slot.clearing = true)?;
        tokio::time::sleep(self.simulation.clear).await;
        self.with(slot, |slot| {
            slot.clearing = false;
            slot.running.clear();
            slot.started.clear();
            slot.plan = None;
            slot.destroyed = 0;
        })
    }

    async fn close_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.clear_slot(slot).await?;
        self.slots().remove(&slot);
        Ok(())
    }

    async fn reap_orphans(&self) -> Result<Reaped, PlatformError> {
        Ok(Reaped::default())
    }

    fn virtual_time(&self, slot: SlotId) -> Option<Duration> {
        self.with(slot, |slot| slot.passed).ok()
    }
}

fn is_start(effect: &Effect) -> bool {
    matches!(effect, Effect::NotReady { .. } | Effect::SlowStart { .. })
}

fn error(kind: PlatformErrorKind, action: impl Into<String>) -> PlatformError {
    PlatformError::new(kind, NAME, action)
}
