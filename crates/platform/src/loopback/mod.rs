//! Services as closures behind real sockets, for tests of everything between deploying and judging.
//!
//! Each instance is a task with real listeners on the loopback interface, and calls others through the
//! listeners that [`Platform::reserve`] gave to the mesh, as a process of the `ports` isolation does. So the
//! mesh is real, the deployments are real, and a trial takes milliseconds. There is no isolation: handlers
//! share the test's process and must not touch what other tests use.
//!
//! The handler of an instance is found by the first word of its command, else by the service's name. Test commands are
//! found by their first word among the programs.
//!
//! ```
//! use faultscope_model::application::{Application, Expansion};
//! use faultscope_model::{Circumstance, SlotId};
//! use faultscope_platform::loopback::{Call, Loopback, Test};
//! use faultscope_platform::{Execution, Platform};
//! use tokio_util::sync::CancellationToken;
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let platform = Loopback::new()
//!     .service("greeter", |call: Call| async move {
//!         let times = call.instance.memory().add("times", 1);
//!         let name = call.instance.env("NAME").unwrap_or("nobody");
//!         format!("hello {name}, {times}")
//!     })
//!     .program("greet", |test: Test| async move {
//!         // With a mesh on the listeners that `reserve` gave: test.client().get("http://greeter:8080/")
//!         test.print(format!("asked with {:?}", test.args()));
//!         Ok::<(), String>(())
//!     });
//!
//! let file = "name: example\nservices:\n  greeter: { command: [greeter], ports: [8080], env: { NAME: you } }\n";
//! let application = Application::read_alone(file, "faultscope.yaml")?;
//! let (slot, never) = (SlotId(0), CancellationToken::new());
//! let expansion = Expansion { program: String::new(), slot };
//! let plan = application.plan(&Circumstance::default(), &expansion)?;
//!
//! platform.open_slot(&Loopback::slot_spec(slot)).await?;
//! platform.reserve(slot, &plan).await?;
//! let deployment = platform.apply(slot, &plan, &never).await?;
//! assert_eq!(deployment.created, 1);
//!
//! let exit = platform.exec(slot, &Loopback::execution(&["greet", "twice"]), &never).await?;
//! assert_eq!((exit.code, exit.stdout.as_str()), (Some(0), "asked with [\"twice\"]\n"));
//! platform.close_slot(slot).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Faults are scripted where they occur: [`Loopback::on_start`] lets an instance fail, wait or run out of memory
//! before it listens, [`Instance::exit`] and [`Instance::allocate`] end it from within, [`Loopback::end`] from
//! outside; [`Loopback::on_clear`] lets clearing a slot take its time, [`Loopback::lose_agent`] spoils a trial.

mod client;
mod handlers;
mod http;
mod life;
mod slot;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::log::InstanceLog;
use faultscope_model::metrics::Sample;
use faultscope_model::plan::Plan;
use faultscope_model::units::ByteSize;
use faultscope_model::{InstanceId, SlotId};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub use self::client::Client;
pub use self::handlers::{Call, Data, Ending, ExitCode, Instance, Reply, Test};
use self::handlers::{Handlers, boxed};
use self::life::Life;
use self::slot::Slot;
use crate::types::LimitsBy;
use crate::{
    Action, Capabilities, DataForm, DataSize, Deployment, Execution, Exit, InstanceSnapshot, Isolation,
    MeshPlace, Place, Platform, PlatformError, PlatformErrorKind, PlatformEvent, Reaped, Reservation, Rights,
    SlotSpec, Snapshot,
};

const NAME: &str = "loopback";

/// A back end whose services are closures.
#[derive(Default)]
pub struct Loopback {
    handlers: Handlers,
    slots: Mutex<BTreeMap<SlotId, Arc<Slot>>>,
}

impl fmt::Debug for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loopback").finish_non_exhaustive()
    }
}

impl Loopback {
    /// A back end without services.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a service that answers HTTP/1.1 and HTTP/2 requests on all its ports.
    pub fn service<Answer, Answering>(
        self,
        name: &str,
        handler: impl Fn(Call) -> Answering + Send + Sync + 'static,
    ) -> Self
    where
        Answer: Into<Reply>,
        Answering: Future<Output = Answer> + Send + 'static,
    {
        let handler = Arc::new(move |call| {
            let answering = handler(call);
            boxed(async move { answering.await.into() })
        });
        self.tcp_service(name, move |instance, stream| http::serve(instance, stream, handler.clone()))
    }

    /// Registers a service that handles raw connections.
    pub fn tcp_service<Serving>(
        mut self,
        name: &str,
        handler: impl Fn(Instance, TcpStream) -> Serving + Send + Sync + 'static,
    ) -> Self
    where
        Serving: Future<Output = ()> + Send + 'static,
    {
        let serve = move |instance, stream| boxed(handler(instance, stream));
        self.handlers.services.insert(name.to_owned(), Arc::new(serve));
        self
    }

    /// Registers what instances of a service do before they listen, also after a restart. A future that never
    /// completes means never ready; one that sleeps delays readiness; an error ends the instance.
    pub fn on_start<Starting>(
        mut self,
        name: &str,
        hook: impl Fn(Instance) -> Starting + Send + Sync + 'static,
    ) -> Self
    where
        Starting: Future<Output = Result<(), Ending>> + Send + 'static,
    {
        self.handlers.starts.insert(name.to_owned(), Arc::new(move |instance| boxed(hook(instance))));
        self
    }

    /// Registers a test command. A panic is a failure, as in any Rust test.
    pub fn program<Ended, Running>(
        mut self,
        name: &str,
        program: impl Fn(Test) -> Running + Send + Sync + 'static,
    ) -> Self
    where
        Ended: Into<ExitCode>,
        Running: Future<Output = Ended> + Send + 'static,
    {
        let run = move |test| {
            let running = program(test);
            boxed(async move { running.await.into() })
        };
        self.handlers.programs.insert(name.to_owned(), Arc::new(run));
        self
    }

    /// Registers what must complete before a slot counts as clear, after everything in it has ended.
    pub fn on_clear<Clearing>(mut self, hook: impl Fn(SlotId) -> Clearing + Send + Sync + 'static) -> Self
    where
        Clearing: Future<Output = ()> + Send + 'static,
    {
        self.handlers.clear = Some(Arc::new(move |slot| boxed(hook(slot))));
        self
    }

    /// Ends an instance now, as if by itself.
    pub fn end(&self, slot: SlotId, instance: &InstanceId, ending: Ending) -> Result<(), PlatformError> {
        self.life(slot, instance)?.end(ending);
        Ok(())
    }

    /// Makes the slot's agent vanish with everything that it ran, which spoils the trial.
    pub fn lose_agent(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.slot(slot)?.lose_agent();
        Ok(())
    }

    /// A spec for opening a slot; this back end only uses the number.
    pub fn slot_spec(id: SlotId) -> SlotSpec {
        SlotSpec {
            id,
            label: format!("{NAME}-{id}"),
            application: PathBuf::new(),
            state: PathBuf::new(),
            setup: None,
            template: String::new(),
            program: PathBuf::new(),
            log_limit: ByteSize(0),
            authority: None,
            control: None,
            home: None,
            shared: Vec::new(),
        }
    }

    /// A test command with a limit of one minute.
    pub fn execution(command: &[&str]) -> Execution {
        Execution {
            command: command.iter().map(ToString::to_string).collect(),
            env: BTreeMap::new(),
            directory: String::new(),
            within: Duration::from_secs(60),
            output_limit: 64 << 10,
            place: Place::Test,
            rights: Rights::Service,
        }
    }

    fn slot(&self, id: SlotId) -> Result<Arc<Slot>, PlatformError> {
        lock(&self.slots).get(&id).cloned().ok_or_else(|| bad_plan(format!("find {id}"), "it is not open"))
    }

    fn life(&self, slot: SlotId, instance: &InstanceId) -> Result<Arc<Life>, PlatformError> {
        let missing = || bad_plan(format!("find {instance}"), "no such instance");
        self.slot(slot)?.life(instance).ok_or_else(missing)
    }
}

#[async_trait]
impl Platform for Loopback {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Ports,
            limits: LimitsBy::Simulated,
            mesh: MeshPlace::Local,
            snapshots: true,
            pause: true,
            most_slots: None,
            notes: vec!["services are closures of this process".into()],
        }
    }

    async fn open_slot(&self, spec: &SlotSpec) -> Result<(), PlatformError> {
        let action = || format!("open {}", spec.id);
        if spec.setup.is_some() {
            return Err(PlatformError::new(PlatformErrorKind::Unsupported, NAME, "run `setup`"));
        }
        match lock(&self.slots).insert(spec.id, Arc::new(Slot::new(spec.id))) {
            None => Ok(()),
            Some(_) => Err(bad_plan(action(), "it is open already")),
        }
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
        self.slot(slot)?.apply(&self.handlers, plan, cancel).await
    }

    async fn dial(&self, slot: SlotId, instance: &InstanceId, port: u16) -> std::io::Result<TcpStream> {
        self.life(slot, instance).map_err(std::io::Error::other)?.dial(port).await
    }

    fn events(&self, slot: SlotId) -> broadcast::Receiver<PlatformEvent> {
        match self.slot(slot) {
            Ok(slot) => slot.events.subscribe(),
            // A slot that is not open never has events.
            Err(_) => broadcast::Sender::new(1).subscribe(),
        }
    }

    async fn act(&self, slot: SlotId, instance: &InstanceId, action: Action) -> Result<(), PlatformError> {
        let life = self.life(slot, instance)?;
        match action {
            Action::Kill => life.stop().await,
            Action::Restart => self.slot(slot)?.restart(&self.handlers, &life).await?,
            Action::Pause | Action::Resume if life.is_over() => {
                return Err(bad_plan(format!("{action:?} {instance}").to_lowercase(), "it does not run"));
            }
            Action::Pause => life.pause(true),
            Action::Resume => life.pause(false),
        }
        Ok(())
    }

    async fn exec(
        &self,
        slot: SlotId,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        self.slot(slot)?.exec(&self.handlers, run, cancel).await
    }

    async fn metrics(&self, slot: SlotId) -> Result<Vec<Sample>, PlatformError> {
        Ok(self
            .slot(slot)?
            .lives()
            .iter()
            .filter(|life| !life.is_over())
            .map(|life| life.measure())
            .collect())
    }

    async fn log(&self, slot: SlotId, instance: &InstanceId) -> Result<InstanceLog, PlatformError> {
        Ok(self.life(slot, instance)?.log.of_instance(instance))
    }

    async fn snapshot(&self, slot: SlotId, into: &Path) -> Result<Snapshot, PlatformError> {
        let mut instances = Vec::new();
        // Closures need not stand still: a copy of their values is taken under a lock.
        for life in self.slot(slot)?.lives() {
            let values = life.durable.values();
            let bytes = values.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() as u64;
            let data = DataSize { files: values.len() as u64, bytes, left_out: 0 };
            let text = serde_json::to_vec(&values).map_err(|e| bad_plan("take a snapshot", e))?;
            std::fs::write(values_file(into, &life.plan.id), text)
                .map_err(|e| bad_plan("take a snapshot", e))?;
            instances.push(InstanceSnapshot {
                id: life.plan.id.clone(),
                ran: !life.is_over(),
                started_us: life.started_us,
                at_us: crate::now_us(),
                pause: Duration::ZERO,
                data,
                image: None,
            });
        }
        Ok(Snapshot { platform: NAME.into(), form: DataForm::Values, instances, shared: Vec::new() })
    }

    async fn restore(&self, slot: SlotId, from: &Path, snapshot: &Snapshot) -> Result<(), PlatformError> {
        snapshot.check(NAME, DataForm::Values)?;
        let slot = self.slot(slot)?;
        let mut restored = BTreeMap::new();
        for InstanceSnapshot { id, .. } in &snapshot.instances {
            let gone = |e: std::io::Error| bad_plan(format!("restore {id}"), e);
            let text = std::fs::read(values_file(from, id)).map_err(gone)?;
            let values = serde_json::from_slice(&text).map_err(|e| bad_plan(format!("restore {id}"), e))?;
            restored.insert(id.clone(), Data::from_values(values));
        }
        slot.set_restore(restored);
        Ok(())
    }

    async fn intact(&self, slot: SlotId) -> Result<(), PlatformError> {
        match self.slot(slot)?.has_agent() {
            true => Ok(()),
            false => Err(trouble(format!("continue in {slot}"), "its agent is gone")),
        }
    }

    async fn clear_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.slot(slot)?.clear(self.handlers.clear.as_ref()).await;
        Ok(())
    }

    async fn close_slot(&self, slot: SlotId) -> Result<(), PlatformError> {
        self.clear_slot(slot).await?;
        lock(&self.slots).remove(&slot);
        Ok(())
    }

    async fn reap_orphans(&self) -> Result<Reaped, PlatformError> {
        Ok(Reaped::default())
    }
}

fn values_file(folder: &Path, instance: &InstanceId) -> PathBuf {
    folder.join(format!("{instance}.json"))
}

fn trouble(action: impl Into<String>, why: &'static str) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Infrastructure, NAME, action).because(why)
}

fn bad_plan(
    action: impl Into<String>,
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> PlatformError {
    PlatformError::new(PlatformErrorKind::BadPlan, NAME, action).because(why)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
