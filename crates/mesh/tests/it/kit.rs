//! Builders for a small world: a mesh, callers' listeners, callees that behave as told.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use faultscope_mesh::{Hooks, Mesh, MeshSlot, Mocks};
use faultscope_model::rule::{Effect, Rule, Selector};
use faultscope_model::series::Gate;
use faultscope_model::span::Span;
use faultscope_model::wiring::{
    Balance, Caller, Endpoint, ExternalHost, LevelRule, Link, ListenerSpec, RecordLevel, Wiring,
};
use faultscope_model::{InstanceId, NodeId, Protocol, ServiceName, SlotId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::fakes::{FakePlatform, Spans};

pub(crate) const PORT: u16 = 80;
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for something that must come, in real time even when the clock is paused.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    let late = Arc::new(Notify::new());
    let alarm = Arc::clone(&late);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if stopped.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            alarm.notify_one();
            // A runtime that is stuck does not hear the alarm.
            if stopped.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                std::process::abort();
            }
        }
    });
    let done = tokio::select! {
        done = what => done,
        () = late.notified() => panic!("waited in vain"),
    };
    drop(stop);
    done
}

pub(crate) struct World {
    pub(crate) mesh: Mesh,
    pub(crate) slot: MeshSlot,
    pub(crate) spans: Arc<Spans>,
    pub(crate) wiring: Wiring,
    pub(crate) platform: Arc<FakePlatform>,
    addresses: BTreeMap<(String, String), SocketAddr>,
}

pub(crate) struct Builder {
    wiring: Wiring,
    protocols: BTreeMap<String, Protocol>,
    known: Option<Known>,
    mocks: Option<Arc<dyn Mocks>>,
}

pub(crate) fn world() -> Builder {
    let wiring = Wiring {
        slot: SlotId(0),
        seed: 1,
        campaign: 0,
        callers: Vec::new(),
        endpoints: BTreeMap::new(),
        balance: BTreeMap::new(),
        links: Vec::new(),
        rules: Vec::new(),
        targets: false,
        gates: Vec::new(),
        record: RecordLevel::default(),
        externals: Vec::new(),
        callers_by_context: false,
        record_rules: Vec::new(),
    };
    Builder { wiring, protocols: BTreeMap::new(), known: None, mocks: None }.caller("web-1", 0)
}

pub(crate) fn service(name: &str) -> ServiceName {
    name.parse().unwrap()
}

impl Builder {
    pub(crate) fn caller(mut self, name: &str, node: u16) -> Self {
        self.wiring.callers.push(Caller {
            instance: name.parse().unwrap(),
            node: NodeId(node),
            address: None,
        });
        self
    }

    /// A service with one instance at each address, on nodes 0, 1, 2 ...
    pub(crate) fn service(mut self, name: &str, addresses: &[SocketAddr]) -> Self {
        let endpoint = |(place, address): (usize, &SocketAddr)| Endpoint {
            instance: InstanceId::new(service(name), place as u32 + 1),
            node: NodeId(place as u16),
            addresses: BTreeMap::from([(PORT, *address)]),
        };
        self.wiring.endpoints.insert(service(name), addresses.iter().enumerate().map(endpoint).collect());
        self
    }

    pub(crate) fn protocol(mut self, name: &str, protocol: Protocol) -> Self {
        self.protocols.insert(name.to_owned(), protocol);
        self
    }

    pub(crate) fn rule(self, effect: Effect) -> Self {
        self.rule_for(Selector::default(), effect)
    }

    pub(crate) fn rule_for(mut self, select: Selector, effect: Effect) -> Self {
        let id = self.wiring.rules.len() as u32 + 1;
        self.wiring.rules.push(Rule { id, select, effect });
        self
    }

    /// Gives names to calls.
    pub(crate) fn targets(mut self) -> Self {
        self.wiring.targets = true;
        self
    }

    pub(crate) fn gate(mut self, from: &str, handling: &str, order: &[&str], wait: Duration) -> Self {
        let order = order.iter().map(|call| call.parse().unwrap()).collect();
        let handling = handling.parse().unwrap();
        let id = self.wiring.gates.len() as u32 + 1;
        self.wiring.gates.push(Gate { id, from: service(from), handling, order, wait });
        self
    }

    pub(crate) fn link(mut self, latency: Duration, jitter: Duration, loss: f64) -> Self {
        self.wiring.links.push(Link { from: None, to: None, latency, jitter, loss });
        self
    }

    pub(crate) fn balance(mut self, name: &str, balance: Balance) -> Self {
        self.wiring.balance.insert(service(name), balance);
        self
    }

    pub(crate) fn record(mut self, record: RecordLevel) -> Self {
        self.wiring.record = record;
        self
    }

    /// Records this much of the calls to a service, or of one operation of it.
    pub(crate) fn record_of(mut self, name: &str, operation: Option<&str>, level: RecordLevel) -> Self {
        let operation = operation.map(|operation| operation.parse().unwrap());
        self.wiring.record_rules.push(LevelRule { service: service(name), operation, level });
        self
    }

    pub(crate) fn external(mut self, name: &str, host: &str, allow: bool) -> Self {
        let external =
            ExternalHost { host: host.to_owned(), service: service(name), allow, ports: vec![PORT] };
        self.wiring.externals.push(external);
        self
    }

    /// Answers in the place of services.
    pub(crate) fn mocks(mut self, mocks: Arc<dyn Mocks>) -> Self {
        self.mocks = Some(mocks);
        self
    }

    /// Finds callers by the context of their calls.
    pub(crate) fn callers_by_context(mut self) -> Self {
        self.wiring.callers_by_context = true;
        self
    }

    /// Tells callees where they find one another, once the world is there.
    pub(crate) fn known_to(mut self, known: &Known) -> Self {
        self.known = Some(known.clone());
        self
    }

    /// Listens for each caller's way to each callee.
    pub(crate) fn start(self) -> World {
        let mesh = Mesh::start_here().unwrap();
        let spans = Arc::new(Spans::default());
        let platform = Arc::new(FakePlatform::default());
        let hooks = Hooks { dialer: platform.clone(), recorder: spans.clone(), restarter: platform.clone() };
        let slot = mesh.open(SlotId(0), hooks);
        slot.configure_mocked(self.wiring.clone(), self.mocks);
        let externals = self.wiring.externals.iter().map(|external| external.service.clone());
        let callees: Vec<_> = self.wiring.endpoints.keys().cloned().chain(externals).collect();
        let mut addresses = BTreeMap::new();
        for caller in &self.wiring.callers {
            for callee in &callees {
                let socket = StdListener::bind("127.0.0.1:0").unwrap();
                addresses
                    .insert((caller.instance.to_string(), callee.to_string()), socket.local_addr().unwrap());
                let protocol = self.protocols.get(callee.as_str()).copied().unwrap_or(Protocol::Http);
                let caller = Some(caller.instance.clone());
                slot.listen(ListenerSpec { callee: callee.clone(), port: PORT, protocol, caller }, socket);
            }
        }
        if let Some(known) = self.known {
            known.0.set(addresses.clone()).unwrap();
        }
        World { mesh, slot, spans, wiring: self.wiring, platform, addresses }
    }
}

impl World {
    pub(crate) fn address(&self, caller: &str, callee: &str) -> SocketAddr {
        self.addresses[&(caller.to_owned(), callee.to_owned())]
    }

    /// A raw connection of `web-1`.
    pub(crate) async fn connect(&self, callee: &str) -> Raw<TcpStream> {
        Raw::new(TcpStream::connect(self.address("web-1", callee)).await.unwrap())
    }

    /// One request of `web-1` on a connection of its own.
    pub(crate) async fn get(&self, callee: &str, path: &str) -> Answered {
        let mut raw = self.connect(callee).await;
        raw.get(path).await
    }

    /// Waits for the spans, in the order of their ends.
    pub(crate) async fn spans(&self, count: usize) -> Vec<Span> {
        soon(self.spans.wait(count)).await
    }
}

/// Where callees find one another.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<OnceLock<BTreeMap<(String, String), SocketAddr>>>);

impl Known {
    /// Tells the ways by hand, where they are not those of the world's own listeners.
    pub(crate) fn tell(&self, addresses: BTreeMap<(String, String), SocketAddr>) {
        self.0.set(addresses).unwrap();
    }

    pub(crate) async fn connect(&self, caller: &str, callee: &str) -> Raw<TcpStream> {
        let address = self.0.get().unwrap()[&(caller.to_owned(), callee.to_owned())];
        Raw::new(TcpStream::connect(address).await.unwrap())
    }
}

/// A callee that does with each connection as it is told.
pub(crate) async fn callee<F, Work>(mut serve: F) -> SocketAddr
where
    F: FnMut(Raw<TcpStream>) -> Work + Send + 'static,
    Work: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(Raw::new(stream)));
        }
    });
    address
}

/// A callee that answers each request with these bytes, and notes what it heard.
pub(crate) async fn answering(answer: &str) -> (SocketAddr, Heard) {
    let heard = Heard::default();
    let notes = heard.clone();
    let answer = answer.to_owned();
    let address = callee(move |mut raw| {
        let (notes, answer) = (notes.clone(), answer.clone());
        notes.0.lock().unwrap().0 += 1;
        async move {
            while let Some(request) = raw.message().await {
                notes.0.lock().unwrap().1.push(request);
                raw.send(&answer).await;
            }
        }
    })
    .await;
    (address, heard)
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// What a callee heard: connections, and requests.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<(usize, Vec<String>)>>);

impl Heard {
    pub(crate) fn connections(&self) -> usize {
        self.0.lock().unwrap().0
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }
}

/// A stream to write and read by hand.
pub(crate) struct Raw<S> {
    pub(crate) stream: S,
    pub(crate) input: Vec<u8>,
    error: Option<io::ErrorKind>,
}

/// An answer, as text.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) text: String,
    pub(crate) error: Option<io::ErrorKind>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, input: Vec::new(), error: None }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        // A peer that is gone is noticed by reading.
        let _ = self.stream.write_all(text.as_bytes()).await;
    }

    /// Reads until the bytes end with this text, and gives them.
    pub(crate) async fn read_to(&mut self, end: &str) -> String {
        soon(async {
            loop {
                if let Some(at) = self.input.windows(end.len()).position(|window| window == end.as_bytes()) {
                    let rest = self.input.split_off(at + end.len());
                    return String::from_utf8(std::mem::replace(&mut self.input, rest)).unwrap();
                }
                let count = self.stream.read_buf(&mut self.input).await.unwrap();
                assert!(count > 0, "ended before {end:?}: {:?}", String::from_utf8_lossy(&self.input));
            }
        })
        .await
    }

    /// Reads to the end; tells how it ended.
    pub(crate) async fn rest(&mut self) -> Answered {
        let error = soon(self.stream.read_to_end(&mut self.input)).await.err().map(|error| error.kind());
        let error = self.error.or(error);
        Answered { text: String::from_utf8_lossy(&std::mem::take(&mut self.input)).into_owned(), error }
    }

    /// One message with its body by length or chunks; none at the end.
    pub(crate) async fn message(&mut self) -> Option<String> {
        loop {
            if let Some(length) = whole_message(&self.input) {
                let rest = self.input.split_off(length);
                return Some(String::from_utf8_lossy(&std::mem::replace(&mut self.input, rest)).into_owned());
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(count) if count > 0 => {}
                ended => {
                    self.error = ended.err().map(|error| error.kind());
                    return None;
                }
            }
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answered {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: stock\r\n\r\n")).await
    }

    pub(crate) async fn ask(&mut self, request: &str) -> Answered {
        self.send(request).await;
        match soon(self.message()).await {
            Some(text) => Answered { text, error: None },
            None => self.rest().await,
        }
    }
}

fn whole_message(input: &[u8]) -> Option<usize> {
    let head = input.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&input[..head]).to_ascii_lowercase();
    if text.contains("transfer-encoding: chunked") {
        let end = input[head..].windows(5).position(|window| window == b"0\r\n\r\n")?;
        return Some(head + end + 5);
    }
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    (input.len() >= head + length).then_some(head + length)
}

impl Raw<TcpStream> {
    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// The value of a header in a message, in any case.
pub(crate) fn header(message: &str, name: &str) -> Option<String> {
    let wanted = format!("{name}: ").to_ascii_lowercase();
    let line = message.lines().find(|line| line.to_ascii_lowercase().starts_with(&wanted))?;
    Some(line[wanted.len()..].to_owned())
}
