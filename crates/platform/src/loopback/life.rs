//! One start of an instance: its listeners, its tasks, its end.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use faultscope_model::metrics::{Metric, Sample, Values};
use faultscope_model::outcome::StartEnding;
use faultscope_model::plan::InstancePlan;
use regex::Regex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::client::Ways;
use super::handlers::{Data, Ending, Handlers, Instance, Serve, Start};
use super::{NAME, bad_plan};
use crate::log::Log;
use crate::readiness::{Reach, Waited, over_too_soon, wait_until_ready};
use crate::{PlatformError, PlatformErrorKind, PlatformEvent, now_us};

/// The memory usage of an instance that has allocated nothing.
const EMPTY: u64 = 1 << 20;

/// One start of an instance.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) plan: InstancePlan,
    pub(super) ways: Arc<Ways>,
    pub(super) log: Arc<Log>,
    pub(super) memory: Data,
    pub(super) durable: Data,
    /// Its real addresses, by declared port.
    addresses: OnceLock<BTreeMap<u16, SocketAddr>>,
    started: Instant,
    pub(super) started_us: u64,
    /// The number of earlier lives, and how many lives ended because memory ran out.
    restarts: u32,
    kills: AtomicU64,
    /// Microseconds of CPU time of its tasks.
    worked_us: AtomicU64,
    allocated: AtomicU64,
    ready_after: OnceLock<Duration>,
    is_paused: watch::Sender<bool>,
    ended: watch::Sender<Option<Ending>>,
    tasks: TaskTracker,
    events: broadcast::Sender<PlatformEvent>,
}

impl Life {
    /// Starts an instance; a restart passes on the durable data and the log of the life before.
    pub(super) fn start(
        handlers: &Handlers,
        plan: InstancePlan,
        ways: &Arc<Ways>,
        events: &broadcast::Sender<PlatformEvent>,
        durable: Data,
        before: Option<&Self>,
    ) -> Result<Arc<Self>, PlatformError> {
        let unknown = || {
            let program = plan.words().into_iter().next().unwrap_or_default();
            bad_plan(format!("start {}", plan.id), format!("there is no handler `{program}`"))
        };
        let serve = Handlers::find(&handlers.services, &plan).cloned().ok_or_else(unknown)?;
        let hook = Handlers::find(&handlers.starts, &plan).cloned();
        let life = Arc::new(Self {
            plan,
            ways: Arc::clone(ways),
            log: before.map_or_else(Log::new, |life| Arc::clone(&life.log)),
            memory: Data::default(),
            durable,
            addresses: OnceLock::new(),
            started: Instant::now(),
            started_us: now_us(),
            restarts: before.map_or(0, |life| life.restarts + 1),
            kills: AtomicU64::new(before.map_or(0, |life| life.kills.load(Ordering::Relaxed))),
            worked_us: AtomicU64::new(0),
            allocated: AtomicU64::new(EMPTY),
            ready_after: OnceLock::new(),
            is_paused: watch::Sender::new(false),
            ended: watch::Sender::new(None),
            tasks: TaskTracker::new(),
            events: events.clone(),
        });
        life.spawn(Arc::clone(&life).run(serve, hook));
        Ok(life)
    }

    async fn run(self: Arc<Self>, serve: Serve, hook: Option<Start>) {
        let instance = Instance { life: Arc::clone(&self) };
        if let Some(hook) = hook
            && let Err(ending) = hook(instance.clone()).await
        {
            return self.end(ending);
        }
        let listeners = match self.listen().await {
            Ok(listeners) => listeners,
            Err(error) => {
                self.log.push(format!("cannot listen: {error}\n").as_bytes());
                return self.end(Ending::Exit(1));
            }
        };
        loop {
            let stream = poll_fn(|cx| {
                for listener in &listeners {
                    if let Poll::Ready(Ok((stream, _))) = listener.poll_accept(cx) {
                        return Poll::Ready(stream);
                    }
                }
                Poll::Pending
            });
            self.spawn(serve(instance.clone(), stream.await));
        }
    }

    async fn listen(&self) -> io::Result<Vec<TcpListener>> {
        let (mut listeners, mut addresses) = (Vec::new(), BTreeMap::new());
        for declared in &self.plan.ports {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.insert(declared.port, listener.local_addr()?);
            listeners.push(listener);
        }
        let _ = self.addresses.set(addresses);
        Ok(listeners)
    }

    /// Spawns a task that is paused and ended with the instance.
    pub(super) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let life = Arc::clone(self);
        self.tasks.spawn(async move {
            let (mut ended, mut paused) = (life.ended.subscribe(), life.is_paused.subscribe());
            let mut work = pin!(work);
            loop {
                let working = poll_fn(|cx| {
                    let began = Instant::now();
                    let poll = work.as_mut().poll(cx);
                    life.worked_us.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                    poll
                });
                tokio::select! {
                    biased;
                    _ = ended.wait_for(Option::is_some) => return,
                    _ = paused.wait_for(|paused| *paused) => {}
                    () = working => return,
                }
                tokio::select! {
                    _ = ended.wait_for(Option::is_some) => return,
                    _ = paused.wait_for(|paused| !paused) => {}
                }
            }
        });
    }

    /// Returns when the instance is ready, or an error with the reason why it will not be.
    pub(super) async fn ready(&self, handlers: &Handlers) -> Result<(), PlatformError> {
        let left = (self.started + self.plan.ready.within).saturating_duration_since(Instant::now());
        let mut ended = self.ended.subscribe();
        let reach = Reached { life: self, handlers };
        let (ending, reason) = tokio::select! {
            biased;
            Ok(ending) = ended.wait_for(Option::is_some) => self.too_soon(*ending),
            waited = wait_until_ready(&self.plan.ready, left, &reach) => match waited {
                Ok(Waited::Ready) => {
                    let _ = self.ready_after.set(self.started.elapsed());
                    let _ = self.events.send(PlatformEvent::Ready { instance: self.plan.id.clone() });
                    return Ok(());
                }
                Ok(Waited::Late(late)) => (StartEnding::Late, late),
                Err(error) => return Err(bad_plan(format!("wait for {}", self.plan.id), error)),
            },
        };
        let (instance, last_lines) = (self.plan.id.clone(), self.log.last_lines());
        let action = format!("get {instance} ready");
        let kind = PlatformErrorKind::NotReady { instance, ending, reason, last_lines };
        Err(PlatformError::new(kind, NAME, action))
    }

    pub(super) fn ready_after(&self) -> Option<Duration> {
        self.ready_after.get().copied().filter(|_| !self.is_over())
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.borrow().is_some()
    }

    /// Ends it as if by itself, with an event.
    pub(super) fn end(&self, ending: Ending) {
        if !self.set_ended(ending) {
            return;
        }
        let out_of_memory = ending == Ending::OutOfMemory;
        self.kills.fetch_add(out_of_memory.into(), Ordering::Relaxed);
        let (code, signal) = ending.code_and_signal();
        let instance = self.plan.id.clone();
        let _ = self.events.send(PlatformEvent::Exited { instance, code, signal, out_of_memory });
    }

    /// Ends it on request, without an event.
    pub(super) fn kill(&self) {
        self.set_ended(Ending::Signal(9));
    }

    /// As [`Self::kill`]; returns when all its tasks and sockets are gone.
    pub(super) async fn stop(&self) {
        self.kill();
        self.tasks.wait().await;
    }

    fn set_ended(&self, ending: Ending) -> bool {
        self.tasks.close();
        self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            *ended = ended.or(Some(ending));
            is_first
        })
    }

    /// Pauses or resumes it.
    pub(super) fn pause(&self, pause: bool) {
        self.is_paused.send_replace(pause);
    }

    /// Adds to the used memory; returns whether it is within the limit.
    pub(super) fn allocate(&self, bytes: u64) -> bool {
        let all = self.allocated.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.plan.limits.memory.is_none_or(|limit| all <= limit.0)
    }

    /// Connects to one of its ports.
    pub(super) async fn dial(&self, port: u16) -> io::Result<TcpStream> {
        let address = self.addresses.get().and_then(|addresses| addresses.get(&port));
        let address = address.filter(|_| !self.is_over()).ok_or(io::ErrorKind::ConnectionRefused)?;
        TcpStream::connect(address).await
    }

    /// Its current resource usage.
    pub(super) fn measure(&self) -> Sample {
        let memory =
            self.allocated.load(Ordering::Relaxed) as usize + self.memory.size() + self.durable.size();
        let values = Values::default()
            .with(Metric::CpuSeconds, Some(self.worked_us.load(Ordering::Relaxed) as f64 / 1e6))
            .with(Metric::CpuLimit, self.plan.limits.cpu)
            .with(Metric::MemoryWorkingSet, Some(memory as f64))
            .with(Metric::MemoryResident, Some(memory as f64))
            .with(Metric::MemoryLimit, self.plan.limits.memory.map(|limit| limit.0 as f64))
            .with(Metric::Processes, Some(1.0))
            .with(Metric::Threads, Some(self.tasks.len() as f64))
            .with(Metric::StartTime, Some(self.started_us as f64 / 1e6))
            .with(Metric::Restarts, Some(self.restarts.into()))
            .with(Metric::OutOfMemoryKills, Some(self.kills.load(Ordering::Relaxed) as f64));
        Sample { instance: self.plan.id.clone(), at_us: now_us(), values }
    }

    fn too_soon(&self, ending: Option<Ending>) -> (StartEnding, String) {
        let (code, signal) = ending.map(Ending::code_and_signal).unwrap_or_default();
        over_too_soon(&self.plan, ending == Some(Ending::OutOfMemory), code, signal)
    }
}

impl Ending {
    fn code_and_signal(self) -> (Option<i32>, Option<i32>) {
        match self {
            Self::Exit(code) => (Some(code), None),
            Self::Signal(signal) => (None, Some(signal)),
            Self::OutOfMemory => (None, Some(9)),
        }
    }
}

struct Reached<'a> {
    life: &'a Life,
    handlers: &'a Handlers,
}

#[async_trait]
impl Reach for Reached<'_> {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.life.dial(port).await
    }

    async fn run(&self, command: &[String]) -> io::Result<bool> {
        let client = super::Client::new(self.life.plan.id.clone(), Arc::clone(&self.life.ways));
        let (program, test, _) = super::slot::test(self.handlers, command, &self.life.plan.env, client)
            .map_err(io::Error::other)?;
        Ok(program(test).await.code == 0)
    }

    async fn printed(&self, pattern: &str) -> io::Result<()> {
        let pattern = Regex::new(pattern).map_err(io::Error::other)?;
        self.life.log.expect(pattern).await.map_err(io::Error::other)
    }
}
