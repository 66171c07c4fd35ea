//! Processes that a bench measures from outside: an upstream, and a mesh that records to a real store.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use faultscope_mesh::{Dialer, Hooks, Mesh, MeshOptions, Recorder, Restarter};
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec, RecordLevel, Wiring};
use faultscope_model::{InstanceId, NodeId, Protocol, RestartError, ServiceName, SlotId, Span, TrialId};
use faultscope_store::{CampaignMeta, SpanSink, Store, new_campaign_id};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;

use crate::error::CommandError;
use crate::exit::Exit;

/// What to be.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Part {
    /// Answers every request with a few bytes, or with 1 KiB under `/kibibyte`.
    Upstream,
    /// The store behind HTTP, as `serve` has it.
    Serve {
        /// Where its store lies.
        state: PathBuf,
    },
    /// A mesh in front of an upstream.
    Mesh {
        /// The upstream.
        upstream: SocketAddr,
        /// How much it records.
        record: RecordLevel,
        /// Where its store lies.
        state: PathBuf,
    },
}

/// Serves until stdin ends; prints its address first.
pub(super) async fn run(part: &str) -> Result<Exit, CommandError> {
    let part: Part = serde_json::from_str(part).map_err(|e| CommandError::usage("not a part").because(e))?;
    match part {
        Part::Upstream => {
            upstream().await.map_err(|e| CommandError::internal("the upstream broke").because(e))?
        }
        Part::Serve { state } => super::spans::serve(&state).await?,
        Part::Mesh { upstream, record, state } => mesh(upstream, record, &state).await?,
    }
    Ok(Exit::Done)
}

/// What a mesh handed to its store, said when it ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) recorded: u64,
    pub(super) dropped: u64,
}

#[expect(clippy::print_stdout, reason = "read by the bench that started this process")]
pub(super) fn say(line: &str) {
    println!("{line}");
}

pub(super) async fn until_stdin_ends() {
    let mut stdin = tokio::io::stdin();
    let mut byte = [0];
    while matches!(stdin.read(&mut byte).await, Ok(1..)) {}
}

async fn upstream() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(&listener.local_addr()?.to_string());
    let accept = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let large = request.uri().path() == "/kibibyte";
                    // The body must be read for the connection to be used again.
                    let _ = request.into_body().collect().await;
                    let body =
                        if large { Bytes::from_static(&[b'y'; 1024]) } else { Bytes::from_static(b"hello") };
                    Ok::<_, Infallible>(Response::new(Full::new(body)))
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    };
    tokio::select! {
        () = accept => {}
        () = until_stdin_ends() => {}
    }
    Ok(())
}

struct Sink(SpanSink);

impl Recorder for Sink {
    fn record(&self, span: Span) {
        self.0.record(TrialId(1), SlotId(0), span);
    }
}

/// The bench gives addresses, so nobody is asked to dial or restart.
struct Nobody;

impl Dialer for Nobody {
    fn dial(&self, _: &InstanceId, _: u16) -> BoxFuture<'static, std::io::Result<std::net::TcpStream>> {
        Box::pin(async { Err(std::io::ErrorKind::Unsupported.into()) })
    }
}

impl Restarter for Nobody {
    fn restart(&self, _: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        Box::pin(async { Err(RestartError::Platform { message: "nothing to restart".into() }) })
    }
}

async fn mesh(
    upstream: SocketAddr,
    record: RecordLevel,
    state: &std::path::Path,
) -> Result<(), CommandError> {
    let internal = |what: &'static str| move |e: std::io::Error| CommandError::internal(what).because(e);
    let name =
        |text: &str| text.parse::<ServiceName>().map_err(|e| CommandError::internal("a name").because(e));
    let (client, service) = (name("client")?, name("upstream")?);
    let store = Store::open(state)?;
    let campaign = store.campaign(CampaignMeta {
        id: new_campaign_id(u64::from(upstream.port())),
        kind: "bench".into(),
        application: "bench".into(),
        started_us: 0,
        command_line: Vec::new(),
        seed: 1,
    })?;
    let mesh =
        Mesh::start(MeshOptions::default()).map_err(|e| CommandError::internal("the mesh").because(e))?;
    let hooks = Hooks {
        dialer: Arc::new(Nobody),
        recorder: Arc::new(Sink(campaign.sink())),
        restarter: Arc::new(Nobody),
    };
    let slot = mesh.open(SlotId(0), hooks);
    let caller = InstanceId::new(client, 1);
    let endpoint = Endpoint {
        instance: InstanceId::new(service.clone(), 1),
        node: NodeId(0),
        addresses: BTreeMap::from([(80, upstream)]),
    };
    slot.configure(Wiring {
        slot: SlotId(0),
        seed: 1,
        campaign: 0,
        callers: vec![Caller { instance: caller.clone(), node: NodeId(0), address: None }],
        endpoints: BTreeMap::from([(service.clone(), vec![endpoint])]),
        balance: BTreeMap::new(),
        links: Vec::new(),
        rules: Vec::new(),
        targets: false,
        gates: Vec::new(),
        record,
        externals: Vec::new(),
    });
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(internal("cannot listen"))?;
    socket.set_nonblocking(true).map_err(internal("cannot listen"))?;
    let address = socket.local_addr().map_err(internal("cannot listen"))?;
    slot.listen(
        ListenerSpec { callee: service, port: 80, protocol: Protocol::Http, caller: Some(caller) },
        socket,
    );
    say(&address.to_string());
    until_stdin_ends().await;
    campaign.flush().await?;
    say(&serde_json::to_string(&Kept { recorded: campaign.sink().recorded(), dropped: campaign.dropped() })
        .unwrap_or_default());
    drop(mesh);
    Ok(())
}
