//! A slot's mesh: its listeners, its scene, its connections.

#[path = "slot_remote.rs"]
mod remote;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use faultscope_model::wiring::{Endpoint, ListenerSpec, OutageMode, Wiring};
use faultscope_model::{InstanceId, Protocol, ServiceName, SlotId};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::hooks::Hooks;
use crate::mesh::Workers;
use crate::reports::MeshReports;
use crate::scene::{Route, Scene};
use crate::serve;
use crate::stream::{Plain, Stream};
use crate::tls::Authority;

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
    listeners: Mutex<BTreeMap<ListenerKey, Vec<(Protocol, AbortHandle)>>>,
    connections: Mutex<HashMap<u64, AbortHandle>>,
    /// Tells that a connection is gone.
    left: Notify,
    connected: AtomicU64,
    changes: watch::Sender<()>,
    lost: AtomicU64,
}

/// The last part tells apart several places where the same caller looks for the same port.
type ListenerKey = (ServiceName, u16, Option<InstanceId>, Option<IpAddr>);

/// Counts the calls in flight and tells when there are none.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    calls: AtomicUsize,
    quiet: Notify,
    /// Told of each change, once somebody wants to know.
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
            left: Notify::new(),
            connected: AtomicU64::new(0),
            changes: watch::Sender::new(()),
            lost: AtomicU64::new(0),
        };
        Self { slot: Arc::new(slot), workers }
    }

    /// Replaces the wiring for all calls from now on; counters, gates and turns begin anew.
    pub fn configure(&self, wiring: Wiring) {
        self.set_scene(Scene::new(wiring));
    }

    /// Replaces the endpoints only.
    pub fn set_endpoints(&self, endpoints: BTreeMap<ServiceName, Vec<Endpoint>>) {
        self.slot.set_scene(|scene| scene.with_endpoints(endpoints));
    }

    /// Has these services, and no others, be away for their callers from now on: connections end, and new ones are
    /// not served. Only in trials that name calls.
    pub fn set_outages(&self, outages: BTreeMap<ServiceName, OutageMode>) {
        self.slot.set_scene(|scene| scene.with_outages(outages));
    }

    /// Who was called so far in this trial, and by whom; by what else than a test.
    pub fn called(&self) -> BTreeSet<(ServiceName, ServiceName)> {
        self.slot.scene().trial.called()
    }

    /// Serves a listener, in place of an earlier one for the same callee, port, caller and address.
    pub fn listen(&self, spec: ListenerSpec, socket: TcpListener) {
        self.listen_all([(spec, socket)]);
    }

    /// Serves listeners, in place of all earlier ones for the same ports and callers. A port may be met by
    /// several of them: a service's own, and the one that is published for it.
    pub fn listen_all(&self, listeners: impl IntoIterator<Item = (ListenerSpec, TcpListener)>) {
        let mut fresh: BTreeMap<ListenerKey, Vec<(Protocol, AbortHandle)>> = BTreeMap::new();
        for (spec, socket) in listeners {
            let address = socket.local_addr().ok().map(|address| address.ip());
            let key = (spec.callee.clone(), spec.port, spec.caller.clone(), address);
            let protocol = spec.protocol;
            let task = self.workers.spawn(serve::accept(Arc::clone(&self.slot), Arc::new(spec), socket));
            fresh.entry(key).or_default().push((protocol, task));
        }
        let mut all = lock(&self.slot.listeners);
        for (key, listeners) in fresh {
            for (_, earlier) in all.insert(key, listeners).into_iter().flatten() {
                earlier.abort();
            }
        }
    }

    /// Stops listening; connections go on.
    pub fn close_listeners(&self) {
        let listeners = std::mem::take(&mut *lock(&self.slot.listeners));
        for (_, listener) in listeners.into_values().flatten() {
            listener.abort();
        }
    }

    /// Connects as the test, within this process, to a port of a service.
    pub fn connect(&self, callee: &ServiceName, port: u16) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let known = |key: &ListenerKey| key.0 == *callee && key.1 == port;
        let protocol = lock(&self.slot.listeners)
            .iter()
            .filter(|(key, _)| known(key))
            .find_map(|(_, l)| Some(l.first()?.0));
        let spec = ListenerSpec {
            callee: callee.clone(),
            port,
            protocol: protocol.unwrap_or_default(),
            caller: Some(InstanceId::test()),
        };
        let origin = Origin::new(Arc::clone(&self.slot), Arc::new(spec), None);
        let stream = Stream::Plain(Plain::from(ours));
        self.slot.keep(|work| self.workers.spawn(work), serve::connection(origin, stream));
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

    /// Drops all proxied connections at once; returns when what was seen of them is recorded.
    pub async fn reset_connections(&self) {
        let dropped: Vec<u64> = {
            let connections = lock(&self.slot.connections);
            connections.values().for_each(AbortHandle::abort);
            connections.keys().copied().collect()
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

    /// Runs the work of one connection, such that it can be dropped from outside.
    pub(crate) fn keep<F>(self: &Arc<Self>, spawn: impl FnOnce(Kept<F>) -> AbortHandle, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = self.connected.fetch_add(1, Ordering::Relaxed);
        let mut connections = lock(&self.connections);
        let leave = Leave { slot: Arc::clone(self), number };
        let handle = spawn(Box::pin(async move {
            let _leave = leave;
            work.await;
        }));
        // The lock is held, so the work cannot have left before it is entered.
        connections.insert(number, handle);
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
        self.tell();
    }

    pub(crate) fn leave(&self) {
        self.leave_many(1);
    }

    fn leave_many(&self, count: usize) {
        if self.calls.fetch_sub(count, Ordering::AcqRel) == count {
            self.quiet.notify_waiters();
        }
        self.tell();
    }

    fn tell(&self) {
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
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
