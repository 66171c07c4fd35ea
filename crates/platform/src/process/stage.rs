//! What exists as long as one agent: networks, sockets, instances.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream as StdStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_model::InstanceId;
use faultscope_model::wiring::ListenerSpec;
use tokio::net::{TcpSocket, TcpStream};

use super::addresses::Addresses;
use super::agent::AgentProcess;
use super::agent_protocol::Request;
use super::life::Life;
use super::ports::Layout;

/// Sockets fetched at once. A place that is called often gets twice as many each time, so that most calls need no
/// round trip to the agent; the many that are hardly called hold few descriptors.
const FIRST_SOCKETS: usize = 2;
const MAX_SOCKETS: usize = 16;

/// One agent and everything it holds.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) agent: Arc<AgentProcess>,
    addresses: Mutex<Addresses>,
    lives: Mutex<BTreeMap<InstanceId, Arc<Life>>>,
    sockets: Mutex<HashMap<String, SpareSockets>>,
    /// The assigned ports, where there are no networks.
    layout: Mutex<Option<Arc<Layout>>>,
    /// Where there are no networks: the listeners of instances that the next plan may keep. Such an instance has their
    /// ports in its environment, so that they must stay as long as it does.
    listeners: Mutex<Vec<(ListenerSpec, TcpListener)>>,
}

/// Unconnected sockets of a place.
#[derive(Debug, Default)]
struct SpareSockets {
    unused: Vec<OwnedFd>,
    fetched_last: usize,
}

impl SpareSockets {
    /// How many to fetch next.
    fn next_batch(&mut self) -> usize {
        self.fetched_last = (2 * self.fetched_last).clamp(FIRST_SOCKETS, MAX_SOCKETS);
        self.fetched_last
    }
}

impl Stage {
    /// An empty stage.
    pub(crate) fn new(agent: AgentProcess) -> Self {
        Self {
            agent: Arc::new(agent),
            addresses: Mutex::default(),
            lives: Mutex::default(),
            sockets: Mutex::default(),
            layout: Mutex::default(),
            listeners: Mutex::default(),
        }
    }

    /// The assigned addresses.
    pub(crate) fn addresses(&self) -> MutexGuard<'_, Addresses> {
        lock(&self.addresses)
    }

    /// All instances; dead ones stay until they are replaced.
    pub(crate) fn lives(&self) -> MutexGuard<'_, BTreeMap<InstanceId, Arc<Life>>> {
        lock(&self.lives)
    }

    /// One instance.
    pub(crate) fn life(&self, instance: &InstanceId) -> Option<Arc<Life>> {
        self.lives().get(instance).cloned()
    }

    /// The ports of the last reserved plan.
    pub(crate) fn layout(&self) -> Option<Arc<Layout>> {
        lock(&self.layout).clone()
    }

    /// Sets the ports of a plan.
    pub(crate) fn set_layout(&self, layout: Layout) {
        *lock(&self.layout) = Some(Arc::new(layout));
    }

    /// The listeners of instances that still run, by what they are for.
    pub(crate) fn listeners_of_lives(&self) -> Vec<(ListenerSpec, TcpListener)> {
        let mut listeners = std::mem::take(&mut *lock(&self.listeners));
        let lives = self.lives();
        listeners.retain(|(spec, _)| spec.caller.as_ref().is_some_and(|caller| lives.contains_key(caller)));
        listeners
    }

    /// Holds the listeners of instances that the next plan may keep.
    pub(crate) fn hold_listeners(&self, listeners: Vec<(ListenerSpec, TcpListener)>) {
        *lock(&self.listeners) = listeners;
    }

    /// Connects to a port of an instance.
    pub(crate) async fn dial(&self, instance: &InstanceId, port: u16) -> io::Result<TcpStream> {
        if let Some(layout) = self.layout() {
            let port = layout.actual(instance, port);
            return TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        }
        let place = instance.to_string();
        let first = self.connect(&place, IpAddr::V4(Ipv4Addr::LOCALHOST), port).await;
        let Err(error) = first else { return first };
        if error.kind() != io::ErrorKind::ConnectionRefused {
            return Err(error);
        }
        // It may listen on the address of its host name.
        let own = self.addresses().of_place(&place);
        match own {
            Some(address) => self.connect(&place, IpAddr::V4(address), port).await.map_err(|_| error),
            None => Err(error),
        }
    }

    async fn connect(&self, place: &str, address: IpAddr, port: u16) -> io::Result<TcpStream> {
        let socket = self.socket(place).await?;
        TcpSocket::from_std_stream(StdStream::from(socket)).connect(SocketAddr::new(address, port)).await
    }

    async fn socket(&self, place: &str) -> io::Result<OwnedFd> {
        let count = {
            let mut sockets = lock(&self.sockets);
            let spare = sockets.entry(place.to_owned()).or_default();
            match spare.unused.pop() {
                Some(socket) => return Ok(socket),
                None => spare.next_batch(),
            }
        };
        let request = Request::Sockets { place: place.to_owned(), count };
        let mut sockets = self.agent.link.request(request, &[]).await?;
        let socket = sockets.pop().ok_or_else(|| io::Error::other("the agent sent no socket"))?;
        lock(&self.sockets).entry(place.to_owned()).or_default().unused.append(&mut sockets);
        Ok(socket)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
