//! A slot's mesh: its listeners, its scene, its connections.

#[path = "slot_remote.rs"]
mod remote;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use faultscope_model::span::Wire;
use faultscope_model::wiring::{Endpoint, ListenerSpec, OutageMode, Wiring};
use faultscope_model::{CallError, InstanceId, Protocol, ServiceName, SlotId};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::admit::{Head, admit, admit_note};
use crate::call_count::ArmedOutage;
use crate::clock::Clock;
use crate::hooks::Hooks;
use crate::mesh::Workers;
use crate::mocks::Mocks;
use crate::outage;
use crate::reports::MeshReports;
use crate::scene::{Route, Scene};
use crate::serve::{self, Door};
use crate::stream::{Plain, Stream};
use crate::tls::Authority;
use crate::watch::Watch;

pub(crate) use remote::RemoteFlow;

/// The mesh of one slot; clones are the same one.
#[derive(Debug, Clone)]
pub struct MeshSlot {
    slot: Arc<Slot>,
    workers: Arc<Workers>,
}

/// What all connections of a slot share.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) hooks: Hooks,
    pub(crate) clock: Arc<Clock>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) flow: Flow,
    generation: AtomicU64,
    scene: Mutex<Arc<Scene>>,
    listeners: Mutex<BTreeMap<ListenerKey, Vec<Listener>>>,
    connections: Mutex<HashMap<u64, Connection>>,
    /// Held while a socket is made to listen or to refuse.
    doors: Mutex<()>,
    /// Callers whose connections an outage ended and who have not connected again.
    cut: Mutex<BTreeSet<(InstanceId, ServiceName)>>,
    /// Notified when a connection is gone.
    left: Notify,
    connected: AtomicU64,
    changes: watch::Sender<()>,
    watch: Mutex<Option<Arc<Watch>>>,
    lost: AtomicU64,
    is_exhausted: AtomicBool,
}

/// A socket that is served by a task of its own.
#[derive(Debug)]
struct Listener {
    protocol: Protocol,
    task: AbortHandle,
    door: watch::Receiver<Door>,
}

/// A connection that is served.
#[derive(Debug)]
struct Connection {
    task: AbortHandle,
    caller: InstanceId,
    callee: ServiceName,
}

/// The last part tells apart several places where the same caller looks for the same port.
type ListenerKey = (ServiceName, u16, Option<InstanceId>, Option<IpAddr>);

/// Counts the calls in flight and tells when there are none.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    calls: AtomicUsize,
    quiet: Notify,
    /// Notified of each change, once somebody waits for it.
    watched: OnceLock<Notify>,
}

/// Where a connection came in, with the way that it takes at present.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) slot: Arc<Slot>,
    pub(crate) spec: Arc<ListenerSpec>,
    peer: Option<IpAddr>,
    generation: u64,
    route: Arc<Route>,
}

/// The bytes that an in-process connection holds in each direction.
const PIPE: usize = 64 * 1024;

// === impl MeshSlot ===

impl MeshSlot {
    pub(crate) fn new(id: SlotId, hooks: Hooks, workers: Arc<Workers>) -> Self {
        let slot = Slot {
            hooks,
            clock: Arc::clone(&workers.clock),
            authority: Arc::clone(&workers.authority),
            flow: Flow::default(),
            generation: AtomicU64::new(1),
            scene: Mutex::new(Arc::new(Scene::new(empty_wiring(id)))),
            listeners: Mutex::default(),
            connections: Mutex::default(),
            doors: Mutex::default(),
            cut: Mutex::default(),
            left: Notify::new(),
            connected: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            watch: Mutex::default(),
            lost: AtomicU64::new(0),
            is_exhausted: AtomicBool::new(false),
        };
        Self { slot: Arc::new(slot), workers }
    }

    /// Replaces the wiring for all calls from now on; counters, gates and turns begin anew.
    pub fn configure(&self, wiring: Wiring) {
        self.configure_mocked(wiring, None);
    }

    /// The same, with answers in the place of services that are not there.
    pub fn configure_mocked(&self, wiring: Wiring, mocks: Option<Arc<dyn Mocks>>) {
        self.set_scene(Scene::new(wiring).with_mocks(mocks));
    }

    /// Replaces the endpoints only.
    pub fn set_endpoints(&self, endpoints: BTreeMap<ServiceName, Vec<Endpoint>>) {
        self.slot.set_scene(|scene| scene.with_endpoints(endpoints));
    }

    /// Makes these services, and no others, be away for their callers from now on: connections end, and new ones are
    /// not served. The test can still call them. Only in trials that name calls.
    pub fn set_outages(&self, outages: BTreeMap<ServiceName, OutageMode>) {
        self.slot.set_scene(|scene| scene.with_outages(outages));
    }

    /// Makes one more service be away.
    pub fn begin_outage(&self, service: &ServiceName, mode: OutageMode) {
        self.slot.begin_outage(service, mode);
    }

    /// Brings a service back.
    pub fn end_outage(&self, service: &ServiceName) {
        self.slot.set_scene(|scene| {
            let mut outages = scene.outages.clone();
            outages.remove(service);
            scene.with_outages(outages)
        });
    }

    /// What callers of a service meet, if it is away.
    pub fn outage(&self, service: &ServiceName) -> Option<OutageMode> {
        self.slot.scene().outages.get(service).copied()
    }

    /// Returns when a service is away.
    pub async fn until_away(&self, service: &ServiceName) {
        outage::Watch::new(Arc::clone(&self.slot), service.clone()).until_away().await;
    }

    /// Counts calls to services from now on, and begins outages with some of them. Only in trials that name calls.
    pub fn begin_counting(&self, armed: Vec<ArmedOutage>) {
        self.slot.scene().trial.steering.begin_counting(armed);
    }

    /// Stops counting, and returns the calls to each service that other services made.
    pub fn stop_counting(&self) -> BTreeMap<ServiceName, u32> {
        self.slot.scene().trial.steering.stop_counting()
    }

    /// Callers whose connections ended with an outage, each with its callee, and who have not connected again. Those
    /// that connect only when they have a request, as clients of HTTP do, are not among them.
    pub fn lost_connections(&self) -> BTreeSet<(InstanceId, ServiceName)> {
        lock(&self.slot.cut).clone()
    }

    /// Callers and callees of this trial so far, without what tests call.
    pub fn called(&self) -> BTreeSet<(ServiceName, ServiceName)> {
        self.slot.scene().trial.called()
    }

    /// Serves a listener, in place of an earlier one for the same callee, port, caller and address.
    pub fn listen(&self, spec: ListenerSpec, socket: TcpListener) {
        self.listen_all([(spec, socket)]);
    }

    /// Serves listeners, in place of all earlier ones for the same ports and callers. A port may be met by
    /// several of them: a service's own, and the one that is published for it. Where the wiring has no instance of the
    /// callee, connections are refused, as by a host on which nothing listens.
    pub fn listen_all(&self, listeners: impl IntoIterator<Item = (ListenerSpec, TcpListener)>) {
        let mut fresh: BTreeMap<ListenerKey, Vec<Listener>> = BTreeMap::new();
        for (spec, socket) in listeners {
            let address = socket.local_addr().ok().map(|address| address.ip());
            let key = (spec.callee.clone(), spec.port, spec.caller.clone(), address);
            let protocol = spec.protocol;
            // At once: whoever calls next must find it so. An earlier trial may have left the socket otherwise.
            let first = serve::set_door(&self.slot, &spec, &socket);
            let (sender, door) = watch::channel(first);
            let task =
                self.workers.spawn(serve::accept(Arc::clone(&self.slot), Arc::new(spec), socket, sender));
            fresh.entry(key).or_default().push(Listener { protocol, task, door });
        }
        let mut all = lock(&self.slot.listeners);
        for (key, listeners) in fresh {
            for earlier in all.insert(key, listeners).into_iter().flatten() {
                earlier.task.abort();
            }
        }
    }

    /// Records connections that no listener takes, which a socket tells of by their first packets; in place of an
    /// earlier one.
    pub fn watch(&self, socket: UdpSocket, hosts: BTreeMap<IpAddr, ServiceName>) {
        let watch = match Watch::new(socket, hosts) {
            Ok(watch) => Arc::new(watch),
            Err(error) => return tracing::warn!(%error, "cannot watch for connections that nobody takes"),
        };
        let (slot, watched) = (Arc::downgrade(&self.slot), Arc::clone(&watch));
        let task = self.workers.spawn(async move { watched.run(slot).await });
        watch.set_task(task);
        *lock(&self.slot.watch) = Some(watch);
    }

    /// Stops listening; connections go on.
    pub fn close_listeners(&self) {
        *lock(&self.slot.watch) = None;
        let listeners = std::mem::take(&mut *lock(&self.slot.listeners));
        for listener in listeners.into_values().flatten() {
            listener.task.abort();
        }
    }

    /// Connects as the test, within this process, to a port of a service. A service without instances refuses.
    pub fn connect(&self, callee: &ServiceName, port: u16) -> io::Result<DuplexStream> {
        self.connect_as(InstanceId::test(), callee, port)
    }

    /// The same for a caller of another number, so that its calls can be told from those of others.
    pub fn connect_as(
        &self,
        caller: InstanceId,
        callee: &ServiceName,
        port: u16,
    ) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let known = |key: &ListenerKey| key.0 == *callee && key.1 == port;
        let protocol = lock(&self.slot.listeners)
            .iter()
            .filter(|(key, _)| known(key))
            .find_map(|(_, listeners)| Some(listeners.first()?.protocol));
        let spec = ListenerSpec {
            callee: callee.clone(),
            port,
            protocol: protocol.unwrap_or_default(),
            caller: Some(caller),
        };
        let mut origin = Origin::new(Arc::clone(&self.slot), Arc::new(spec), None);
        if self.slot.scene().is_down(callee) {
            let head = Head::of_connection(Wire::Tcp, Instant::now());
            admit(&self.slot, origin.route(), &head).finish(Some(CallError::NoInstance));
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let stream = Stream::Plain(Plain::from(ours));
        let ends = origin.ends();
        self.slot.keep(ends, |work| self.workers.spawn(work), serve::connection(origin, stream));
        Ok(theirs)
    }

    /// From now on calls of this trial are neither named nor touched by rules.
    pub fn calm(&self) {
        self.slot.scene().trial.steering.calm();
    }

    /// Waits until no call is in flight; tells whether that came true within the time.
    pub async fn quiet(&self, within: Duration) -> bool {
        let quiet = async {
            loop {
                let mut changed = std::pin::pin!(self.slot.flow.quiet.notified());
                // Registered before the look, so that no change is missed.
                changed.as_mut().enable();
                if self.in_flight() == 0 {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(within, quiet).await.is_ok()
    }

    /// Ends the trial for the record: calls that are still open are recorded as far as they have come, and what
    /// happens from now on belongs to the trial of the next [`MeshSlot::configure`], or to none. No connection is
    /// touched.
    pub fn end_trial(&self) {
        let watch = lock(&self.slot.watch).clone();
        if let Some(watch) = watch {
            watch.record_waiting(&self.slot);
        }
        let trial = Arc::clone(&self.slot.scene().trial);
        for span in trial.open_calls.end() {
            trial.steering.finished(&span);
            self.slot.hooks.recorder.record(span);
        }
    }

    /// Drops all proxied connections at once; returns when what was seen of them is recorded.
    pub async fn reset_connections(&self) {
        self.reset(|_| true).await;
    }

    /// Drops all proxied connections but those between instances that go on, with hosts outside among the latter.
    pub async fn reset_connections_except(&self, kept: &BTreeSet<InstanceId>) {
        let scene = self.slot.scene();
        let goes_on = |callee: &ServiceName| match scene.wiring.endpoints.get(callee) {
            Some(endpoints) => endpoints.iter().all(|endpoint| kept.contains(&endpoint.instance)),
            None => true,
        };
        self.reset(|connection| !(kept.contains(&connection.caller) && goes_on(&connection.callee))).await;
    }

    async fn reset(&self, is_dropped: impl Fn(&Connection) -> bool) {
        let dropped: Vec<u64> = {
            let connections = lock(&self.slot.connections);
            let dropped = connections.iter().filter(|(_, connection)| is_dropped(connection));
            dropped
                .map(|(number, connection)| {
                    connection.task.abort();
                    *number
                })
                .collect()
        };
        loop {
            let mut left = std::pin::pin!(self.slot.left.notified());
            // Registered before the look, so that no change is missed.
            left.as_mut().enable();
            let is_left = |number: &u64| !lock(&self.slot.connections).contains_key(number);
            if dropped.iter().all(is_left) {
                return;
            }
            left.await;
        }
    }

    /// Takes what happened since the last time.
    pub fn reports(&self) -> MeshReports {
        let mut reports = self.slot.scene().trial.take_reports();
        reports.lost = self.slot.lost.swap(0, Ordering::Relaxed);
        reports.exhausted = self.slot.is_exhausted.swap(false, Ordering::Relaxed);
        reports
    }

    /// The calls in flight.
    pub fn in_flight(&self) -> usize {
        self.slot.flow.calls.load(Ordering::Acquire)
    }
}

// === impl Slot ===

impl Slot {
    pub(crate) fn scene(&self) -> Arc<Scene> {
        Arc::clone(&lock(&self.scene))
    }

    /// Wakes whenever the scene has changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    fn set_scene(&self, change: impl FnOnce(&Scene) -> Scene) {
        let mut scene = lock(&self.scene);
        *scene = Arc::new(change(&scene));
        // Within the lock: whoever sees the new number gets at least this scene.
        self.generation.fetch_add(1, Ordering::Release);
        self.changes.send_replace(());
    }

    /// Keeps others from changing what sockets do.
    pub(crate) fn change_doors(&self) -> MutexGuard<'_, ()> {
        lock(&self.doors)
    }

    /// Makes one more service be away.
    pub(crate) fn begin_outage(&self, service: &ServiceName, mode: OutageMode) {
        self.set_scene(|scene| {
            let mut outages = scene.outages.clone();
            outages.insert(service.clone(), mode);
            scene.with_outages(outages)
        });
    }

    /// Returns when no listener for callers of this service takes connections. One that cannot refuse does not hold it
    /// up, nor does one that is for the test.
    pub(crate) async fn until_refusing(&self, callee: &ServiceName) {
        let doors: Vec<watch::Receiver<Door>> = {
            let listeners = lock(&self.listeners);
            let is_for_test = |key: &ListenerKey| key.2.as_ref().is_some_and(InstanceId::is_test);
            let concerned = listeners.iter().filter(|(key, _)| key.0 == *callee && !is_for_test(key));
            concerned.flat_map(|(_, listeners)| listeners).map(|listener| listener.door.clone()).collect()
        };
        for mut door in doors {
            // One whose task has ended takes nothing either.
            let _ = door.wait_for(|door| *door != Door::Open).await;
        }
    }

    /// Notes that an outage ended a connection.
    pub(crate) fn note_cut(&self, ends: (InstanceId, ServiceName)) {
        lock(&self.cut).insert(ends);
    }

    /// Notes a new connection.
    pub(crate) fn note_connected(&self, ends: &(InstanceId, ServiceName)) {
        lock(&self.cut).remove(ends);
    }

    /// Notes an error of the machine that says that this process may open nothing more.
    pub(crate) fn note_exhaustion(&self, error: &io::Error) {
        const OUT_OF_MEMORY: i32 = 12;
        const TOO_MANY_OF_ALL: i32 = 23;
        const TOO_MANY: i32 = 24;
        const NO_BUFFERS: i32 = 105;
        if matches!(error.raw_os_error(), Some(OUT_OF_MEMORY | TOO_MANY_OF_ALL | TOO_MANY | NO_BUFFERS)) {
            self.is_exhausted.store(true, Ordering::Relaxed);
        }
    }

    /// Records a connection that no listener took, unless one did.
    pub(crate) fn record_untaken(self: &Arc<Self>, caller: IpAddr, callee: &ServiceName, port: u16) {
        let scene = self.scene();
        let is_away = scene.outages.get(callee) == Some(&OutageMode::Refuse);
        let is_declared = lock(&self.listeners).keys().any(|key| key.0 == *callee && key.1 == port);
        let error = match is_declared {
            true if scene.is_down(callee) => CallError::NoInstance,
            true if is_away => CallError::ServiceAway,
            true => return,
            false => CallError::UndeclaredPort,
        };
        // Somebody whom the wiring does not know is no part of the application.
        if !scene.wiring.callers.iter().any(|known| known.address == Some(caller)) {
            return;
        }
        let spec = ListenerSpec { callee: callee.clone(), port, protocol: Protocol::default(), caller: None };
        let mut origin = Origin::new(Arc::clone(self), Arc::new(spec), Some(caller));
        let head = Head::of_connection(Wire::Tcp, Instant::now());
        if error == CallError::ServiceAway {
            // It would have been a call, so it counts as one.
            return admit(self, origin.route(), &head).finish(Some(error));
        }
        admit_note(self, origin.route(), &head).finish(Some(error));
    }

    /// Runs the work of one connection, such that it can be dropped from outside.
    pub(crate) fn keep<F>(
        self: &Arc<Self>,
        (caller, callee): (InstanceId, ServiceName),
        spawn: impl FnOnce(Kept<F>) -> AbortHandle,
        work: F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = self.connected.fetch_add(1, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        let leave = Leave { slot: Arc::clone(self), number };
        let task = spawn(Box::pin(async move {
            let _leave = leave;
            work.await;
        }));
        // The lock is held, so the work cannot have left before it is entered.
        connections.insert(number, Connection { task, caller, callee });
    }
}

type Kept<F> = std::pin::Pin<Box<dyn Future<Output = <F as Future>::Output> + Send>>;

/// Takes a connection off the list when it ends, however it does.
struct Leave {
    slot: Arc<Slot>,
    number: u64,
}

impl Drop for Leave {
    fn drop(&mut self) {
        lock(&self.slot.connections).remove(&self.number);
        self.slot.left.notify_waiters();
    }
}

// === impl Flow ===

impl Flow {
    pub(crate) fn enter(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.notify_watcher();
    }

    pub(crate) fn leave(&self) {
        self.leave_many(1);
    }

    fn leave_many(&self, count: usize) {
        if self.calls.fetch_sub(count, Ordering::AcqRel) == count {
            self.quiet.notify_waiters();
        }
        self.notify_watcher();
    }

    fn notify_watcher(&self) {
        if let Some(watched) = self.watched.get() {
            watched.notify_one();
        }
    }
}

// === impl Origin ===

impl Origin {
    pub(crate) fn new(slot: Arc<Slot>, spec: Arc<ListenerSpec>, peer: Option<IpAddr>) -> Self {
        let generation = slot.generation.load(Ordering::Acquire);
        let route = Arc::new(slot.scene().route(&spec, peer));
        Self { slot, spec, peer, generation, route }
    }

    /// Who calls whom.
    pub(crate) fn ends(&self) -> (InstanceId, ServiceName) {
        (self.route.caller.clone(), self.route.callee.clone())
    }

    /// The way under the wiring of now.
    pub(crate) fn route(&mut self) -> &Arc<Route> {
        let generation = self.slot.generation.load(Ordering::Acquire);
        if generation != self.generation {
            *self = Self::new(Arc::clone(&self.slot), Arc::clone(&self.spec), self.peer);
        }
        &self.route
    }
}

fn empty_wiring(slot: SlotId) -> Wiring {
    Wiring {
        slot,
        seed: 0,
        campaign: 0,
        callers: Vec::new(),
        endpoints: BTreeMap::new(),
        balance: BTreeMap::new(),
        links: Vec::new(),
        rules: Vec::new(),
        targets: false,
        gates: Vec::new(),
        record: Default::default(),
        externals: Vec::new(),
        callers_by_context: false,
        record_rules: Vec::new(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
