//! The mesh as a bare proxy, to measure it:
//! `proxy --listen 127.0.0.1:9001 --upstream 127.0.0.1:9000 --record timing|headers|bodies`.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use faultscope_mesh::{Dialer, Hooks, Mesh, MeshOptions, Recorder, Restarter};
use faultscope_model::span::Span;
use faultscope_model::wiring::{Endpoint, ListenerSpec, RecordLevel, Wiring};
use faultscope_model::{InstanceId, NodeId, Protocol, RestartError, SlotId};
use futures_util::future::BoxFuture;

/// Counts spans.
#[derive(Default)]
struct Count(AtomicU64);

impl Recorder for Count {
    fn record(&self, span: Span) {
        self.0.fetch_add(1, Ordering::Relaxed);
        drop(span);
    }
}

/// A platform that can do nothing.
struct Nothing;

impl Dialer for Nothing {
    fn dial(&self, _instance: &InstanceId, _port: u16) -> BoxFuture<'static, io::Result<TcpStream>> {
        Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) })
    }
}

impl Restarter for Nothing {
    fn restart(&self, _instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        let message = "nothing can be restarted here".to_owned();
        Box::pin(async { Err(RestartError::Platform { message }) })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let option = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let listen = option("--listen").unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let upstream = option("--upstream").unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let record = match option("--record").as_deref() {
        Some("headers") => RecordLevel::Headers,
        Some("bodies") => RecordLevel::Bodies { most: 1024 },
        _ => RecordLevel::Timing,
    };
    let mesh = Mesh::start(MeshOptions::default())?;
    let count = Arc::new(Count::default());
    let hooks = Hooks { dialer: Arc::new(Nothing), recorder: count.clone(), restarter: Arc::new(Nothing) };
    let slot = mesh.open(SlotId(0), hooks);
    let instance: InstanceId = "upstream-1".parse()?;
    let addresses = BTreeMap::from([(80, upstream.parse()?)]);
    let endpoint = Endpoint { instance: instance.clone(), node: NodeId(0), addresses };
    slot.configure(Wiring {
        slot: SlotId(0),
        seed: 1,
        campaign: 0,
        callers: Vec::new(),
        endpoints: BTreeMap::from([(instance.service.clone(), vec![endpoint])]),
        balance: BTreeMap::new(),
        links: Vec::new(),
        rules: Vec::new(),
        targets: false,
        gates: Vec::new(),
        record,
        externals: Vec::new(),
        callers_by_context: false,
        record_rules: Vec::new(),
    });
    let protocol = Protocol::Http;
    let spec = ListenerSpec { callee: instance.service, port: 80, protocol, caller: Some("web-1".parse()?) };
    slot.listen(spec, TcpListener::bind(listen)?);
    loop {
        std::thread::park();
    }
}
