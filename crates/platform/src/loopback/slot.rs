//! A slot of the loopback platform: what runs in it, under an agent that can vanish.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use faultscope_model::plan::{InstancePlan, Plan};
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec};
use faultscope_model::{InstanceId, NodeId, SlotId};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Ways};
use super::handlers::{Clear, Data, ExitCode, Handlers, Output, Program, Test};
use super::life::Life;
use super::{NAME, bad_plan, lock, trouble};
use crate::log::capture;
use crate::starting::{check_order, start_in_order};
use crate::{
    Deployed, Deployment, Execution, Exit, Place, PlatformError, PlatformErrorKind, PlatformEvent,
    Reservation, ReservedListener,
};

/// Events buffered for a slow receiver.
const MAX_EVENTS: usize = 1024;

/// A slot and its agent.
pub(super) struct Slot {
    id: SlotId,
    pub(super) events: broadcast::Sender<PlatformEvent>,
    lives: Mutex<BTreeMap<InstanceId, Arc<Life>>>,
    ways: Arc<Ways>,
    /// What the next deployment starts from, instead of fresh data.
    restore: Mutex<Option<BTreeMap<InstanceId, Data>>>,
    agent: Mutex<Arc<Agent>>,
    /// Instances that `reserve` stopped; the next `apply` reports them.
    destroyed: Mutex<usize>,
    clearing: tokio::sync::Mutex<()>,
}

/// Everything in the slot belongs to an agent, until the slot is cleared.
#[derive(Default)]
struct Agent {
    gone: CancellationToken,
    uses: Mutex<Uses>,
}

#[derive(Default)]
struct Uses {
    is_changed: bool,
    n_executing: usize,
}

/// How a caller uses the slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Change,
    Execute,
}

/// A use that ends when this is dropped.
struct InUse {
    agent: Arc<Agent>,
    how: Use,
}

impl Slot {
    pub(super) fn new(id: SlotId) -> Self {
        Self {
            id,
            events: broadcast::Sender::new(MAX_EVENTS),
            lives: Mutex::default(),
            ways: Arc::default(),
            restore: Mutex::default(),
            agent: Mutex::default(),
            destroyed: Mutex::default(),
            clearing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn life(&self, instance: &InstanceId) -> Option<Arc<Life>> {
        lock(&self.lives).get(instance).cloned()
    }

    pub(super) fn lives(&self) -> Vec<Arc<Life>> {
        lock(&self.lives).values().cloned().collect()
    }

    pub(super) fn set_restore(&self, data: BTreeMap<InstanceId, Data>) {
        *lock(&self.restore) = Some(data);
    }

    pub(super) fn has_agent(&self) -> bool {
        !lock(&self.agent).gone.is_cancelled()
    }

    /// Ends everything as the death of an agent does: without events.
    pub(super) fn lose_agent(&self) {
        lock(&self.agent).gone.cancel();
        for life in self.lives() {
            life.kill();
        }
    }

    /// Ends everything; a new agent takes over when all is gone. Concurrent users of the slot get an error.
    pub(super) async fn clear(&self, hook: Option<&Clear>) {
        let _turn = self.clearing.lock().await;
        self.lose_agent();
        join_all(self.lives().iter().map(|life| life.stop())).await;
        if let Some(hook) = hook {
            hook(self.id).await;
        }
        lock(&self.lives).clear();
        lock(&self.ways).clear();
        *lock(&self.destroyed) = 0;
        *lock(&self.restore) = None;
        *lock(&self.agent) = Arc::default();
    }

    /// Stops what the plan does not keep and opens a listener for each pair of caller and callee.
    pub(super) async fn reserve(&self, plan: &Plan) -> Result<Reservation, PlatformError> {
        let _using = self.begin("open listeners", Use::Change)?;
        let destroyed = self.end_others(plan).await;
        *lock(&self.destroyed) += destroyed;
        let listeners = self.listen(plan).map_err(|e| {
            PlatformError::new(PlatformErrorKind::Infrastructure, NAME, "open listeners").because(e)
        })?;
        let caller = |instance: InstanceId, node| Caller { instance, node, address: None };
        let callers = plan.instances.iter().map(|i| caller(i.id.clone(), i.node));
        let endpoint =
            |i: &InstancePlan| Endpoint { instance: i.id.clone(), node: i.node, addresses: BTreeMap::new() };
        Ok(Reservation {
            listeners,
            callers: callers.chain([caller(InstanceId::test(), NodeId::default())]).collect(),
            endpoints: plan.instances.iter().map(endpoint).collect(),
            kept: lock(&self.lives).keys().cloned().collect(),
            watch: None,
        })
    }

    fn listen(&self, plan: &Plan) -> std::io::Result<Vec<ReservedListener>> {
        let (mut listeners, mut ways) = (Vec::new(), BTreeMap::new());
        for spec in plan.listeners(true) {
            let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            for (caller, host, port) in names(plan, &spec) {
                ways.insert((caller, host, port), address);
            }
            listeners.push(ReservedListener { spec, socket });
        }
        *lock(&self.ways) = ways;
        Ok(listeners)
    }

    /// Applies the plan.
    pub(super) async fn apply(
        &self,
        handlers: &Handlers,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<Deployment, PlatformError> {
        check_order(plan, NAME)?;
        let using = self.begin("apply the plan", Use::Change)?;
        let destroyed = self.end_others(plan).await + std::mem::take(&mut *lock(&self.destroyed));
        let kept: BTreeSet<InstanceId> = lock(&self.lives).keys().cloned().collect();
        let create: Vec<&InstancePlan> = plan.instances.iter().filter(|i| !kept.contains(&i.id)).collect();
        let restored = Mutex::new(lock(&self.restore).take().unwrap_or_default());
        let starting = start_in_order(&create, |instance| async {
            let durable = lock(&restored).remove(&instance.id).unwrap_or_default();
            self.start(handlers, instance, durable, None).await
        });
        tokio::select! {
            biased;
            () = using.agent.gone.cancelled() => return Err(agent_gone("apply the plan")),
            () = cancel.cancelled() => return Err(cancelled("apply the plan")),
            started = starting => started?,
        }
        let deployed = |i: &InstancePlan| Deployed {
            id: i.id.clone(),
            node: i.node,
            ready_after: self.life(&i.id).and_then(|life| life.ready_after()).unwrap_or_default(),
        };
        let instances = plan.instances.iter().map(deployed).collect();
        Ok(Deployment { instances, created: create.len(), destroyed, kept: kept.len() })
    }

    /// Kills an instance and starts it again with its durable data.
    pub(super) async fn restart(&self, handlers: &Handlers, life: &Life) -> Result<(), PlatformError> {
        life.stop().await;
        self.start(handlers, life.plan.clone(), life.durable.copy(), Some(life)).await
    }

    async fn start(
        &self,
        handlers: &Handlers,
        plan: InstancePlan,
        durable: Data,
        before: Option<&Life>,
    ) -> Result<(), PlatformError> {
        let life = Life::start(handlers, plan, &self.ways, &self.events, durable, before)?;
        lock(&self.lives).insert(life.plan.id.clone(), Arc::clone(&life));
        life.ready(handlers).await
    }

    /// Runs a test's command.
    pub(super) async fn exec(
        &self,
        handlers: &Handlers,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let action = || format!("run {}", run.command.first().map_or("nothing", String::as_str));
        let caller = match &run.place {
            Place::Test => InstanceId::test(),
            Place::Instance(instance) => {
                let runs = self.life(instance).is_some_and(|life| !life.is_over());
                runs.then(|| instance.clone())
                    .ok_or_else(|| bad_plan(action(), format!("{instance} does not run")))?
            }
        };
        let client = Client::new(caller, Arc::clone(&self.ways));
        let (program, test, output) = test(handlers, &run.command, &run.env, client)?;
        let using = self.begin(&action(), Use::Execute)?;
        let started = Instant::now();
        let running = AssertUnwindSafe(async move { program(test).await }).catch_unwind();
        let ended = tokio::select! {
            biased;
            () = using.agent.gone.cancelled() => return Err(agent_gone(action())),
            () = cancel.cancelled() => return Err(cancelled(action())),
            ended = tokio::time::timeout(run.within, running) => ended,
        };
        let (code, complaint) = match ended {
            Err(_) => (None, None),
            Ok(Ok(ExitCode { code, complaint })) => (Some(code), complaint),
            // As a Rust program that panicked.
            Ok(Err(panic)) => (Some(101), Some(panic_message(&*panic))),
        };
        if let Some(complaint) = complaint {
            lock(&output.stderr).push_str(&format!("{complaint}\n"));
        }
        let (stdout, stderr) =
            (std::mem::take(&mut *lock(&output.stdout)), std::mem::take(&mut *lock(&output.stderr)));
        Ok(Exit {
            code,
            signal: code.is_none().then_some(9),
            timed_out: code.is_none(),
            stdout: capture(stdout.as_bytes(), run.output_limit).await,
            stderr: capture(stderr.as_bytes(), run.output_limit).await,
            took: started.elapsed(),
        })
    }

    /// Stops what the plan does not keep and returns how many living instances that were.
    async fn end_others(&self, plan: &Plan) -> usize {
        let lives = self.lives();
        let running: Vec<_> =
            lives.iter().filter(|life| life.ready_after().is_some()).map(|life| life.plan.clone()).collect();
        // What runs has other data than the snapshot, so that nothing of it is kept.
        let is_restored = lock(&self.restore).is_some();
        let kept = if is_restored { Default::default() } else { plan.actions_from(&running).keep };
        let ended: Vec<_> = lives.into_iter().filter(|life| !kept.contains(&life.plan.id)).collect();
        let destroyed = ended.iter().filter(|life| !life.is_over()).count();
        join_all(ended.iter().map(|life| life.stop())).await;
        lock(&self.lives).retain(|id, _| kept.contains(id));
        destroyed
    }

    /// Uses the slot, unless its agent is gone or another trial is still using it: if two trials drove one
    /// application, the result would belong to neither.
    fn begin(&self, action: &str, how: Use) -> Result<InUse, PlatformError> {
        let agent = Arc::clone(&lock(&self.agent));
        if agent.gone.is_cancelled() {
            return Err(agent_gone(action));
        }
        {
            let mut uses = lock(&agent.uses);
            if uses.is_changed || (how == Use::Change && uses.n_executing > 0) {
                return Err(trouble(action, "another trial still uses the slot"));
            }
            match how {
                Use::Change => uses.is_changed = true,
                Use::Execute => uses.n_executing += 1,
            }
        }
        Ok(InUse { agent, how })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.lose_agent();
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut uses = lock(&self.agent.uses);
        match self.how {
            Use::Change => uses.is_changed = false,
            Use::Execute => uses.n_executing -= 1,
        }
    }
}

/// A registered program, with its arguments and output.
pub(super) fn test(
    handlers: &Handlers,
    command: &[String],
    env: &BTreeMap<String, String>,
    client: Client,
) -> Result<(Program, Test, Arc<Output>), PlatformError> {
    let (name, args) =
        command.split_first().ok_or_else(|| bad_plan("run nothing", "the command is empty"))?;
    let program = handlers.programs.get(name);
    let program = program
        .ok_or_else(|| bad_plan(format!("run {name}"), "no test program is registered under this name"))?;
    let output = Arc::new(Output::default());
    let test = Test { args: args.to_vec(), env: env.clone(), client, output: Arc::clone(&output) };
    Ok((Arc::clone(program), test, output))
}

/// The hosts and ports by which a caller may address a listener.
fn names(plan: &Plan, spec: &ListenerSpec) -> Vec<(InstanceId, String, u16)> {
    let Some(caller) = &spec.caller else { return Vec::new() };
    let external = plan.externals.iter().find(|e| e.service == spec.callee).map(|e| e.host.clone());
    let own = external.unwrap_or_else(|| spec.callee.to_string());
    let aliases = plan.aliases.iter().filter(|(_, service)| **service == spec.callee);
    let mut names: Vec<_> =
        aliases.map(|(alias, _)| (alias.clone(), spec.port)).chain([(own, spec.port)]).collect();
    if *caller == InstanceId::test() {
        let is_meant =
            |meant: &(faultscope_model::ServiceName, u16)| meant.0 == spec.callee && meant.1 == spec.port;
        let local = plan.localhost().into_iter().filter(|(_, meant)| is_meant(meant));
        names.extend(local.map(|(port, _)| ("localhost".to_owned(), port)));
    }
    names.into_iter().map(|(host, port)| (caller.clone(), host, port)).collect()
}

fn agent_gone(action: impl Into<String>) -> PlatformError {
    trouble(action, "the slot's agent is gone")
}

fn cancelled(action: impl Into<String>) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Cancelled, NAME, action)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
