//! Processes that a benchmark measures from outside: an upstream, a mesh that records to a real store, a server.
//!
//! They are this same program, started with the hidden command `bench-part`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use faultscope_mesh::{Dialer, Hooks, Mesh, MeshOptions, Recorder, Restarter};
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec, RecordLevel, Wiring};
use faultscope_model::{
    CampaignKind, InstanceId, NodeId, Protocol, RestartError, ServiceName, SlotId, Span, TrialId,
};
use faultscope_store::{CampaignMeta, SpanSink, Store, new_campaign_id};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::args::BenchPartArgs;
use crate::bench::Host;
use crate::error::BenchError;

/// The role of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// Answers every request with a few bytes, or with 1 KiB under `/kibibyte`.
    Upstream,
    /// The store over HTTP, as in `serve`.
    Serve {
        /// The folder of its store.
        state: PathBuf,
    },
    /// A mesh in front of an upstream.
    Mesh {
        /// The upstream.
        upstream: SocketAddr,
        /// How much it records.
        record: RecordLevel,
        /// The folder of its store.
        state: PathBuf,
    },
}

/// Serves until stdin is closed; prints its address first.
pub async fn run_part(args: &BenchPartArgs) -> Result<(), BenchError> {
    let part: Part =
        serde_json::from_str(&args.part).map_err(|e| BenchError::usage("not a part").because(e))?;
    match part {
        Part::Upstream => upstream().await.map_err(|e| BenchError::internal("the upstream broke").because(e)),
        Part::Serve { state } => crate::spans::serve(&state).await,
        Part::Mesh { upstream, record, state } => mesh(upstream, record, &state).await,
    }
}

/// A measured process.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// Its output; none for a peer, which does not report what it kept.
    pub(crate) output: Option<Lines<BufReader<ChildStdout>>>,
}

/// Starts a part and waits for its address.
pub(crate) async fn start_part(part: &Part, host: &Host<'_>) -> Result<Running, BenchError> {
    let text = serde_json::to_string(part).map_err(|e| BenchError::internal("a part").because(e))?;
    let failed = |e: std::io::Error| BenchError::environment("a part of the bench cannot start").because(e);
    let mut child = Command::new(&host.program)
        .args(["bench-part", &text])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let stdout = child.stdout.take().ok_or_else(|| BenchError::internal("a part has no output"))?;
    let mut output = BufReader::new(stdout).lines();
    let line = output.next_line().await.map_err(failed)?.unwrap_or_default();
    let address = line.parse().map_err(|_| BenchError::internal(format!("a part said `{line}`")))?;
    Ok(Running { child, address, output: Some(output) })
}

/// Stops a process and returns what it reports to have kept.
pub(crate) async fn stop(mut running: Running) -> Option<Kept> {
    drop(running.child.stdin.take());
    let mut kept = None;
    if let Some(output) = &mut running.output
        && let Ok(Ok(Some(line))) = tokio::time::timeout(Duration::from_secs(10), output.next_line()).await
    {
        kept = serde_json::from_str(&line).ok();
    } else if running.output.is_none() {
        let _ = running.child.start_kill();
    }
    if tokio::time::timeout(Duration::from_secs(5), running.child.wait()).await.is_err() {
        let _ = running.child.kill().await;
    }
    kept
}

/// A temporary folder.
pub(crate) fn scratch_folder() -> Result<tempfile::TempDir, BenchError> {
    tempfile::tempdir().map_err(|e| BenchError::environment("there is no temporary folder").because(e))
}

/// What a mesh passed to its store, printed when it ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) recorded: u64,
    pub(crate) dropped: u64,
}

#[expect(clippy::print_stdout, reason = "read by the yardstick that started this process")]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}

pub(crate) async fn until_stdin_ends() {
    let mut stdin = tokio::io::stdin();
    let mut byte = [0];
    while matches!(stdin.read(&mut byte).await, Ok(1..)) {}
}

async fn upstream() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    print_line(&listener.local_addr()?.to_string());
    let accept = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let _ = stream.set_nodelay(true);
            tokio::spawn(async move {
                let service = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let large = request.uri().path() == "/kibibyte";
                    // The body must be read for the connection to be reused.
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
        self.0.record(TrialId::chosen(1), SlotId(0), span);
    }
}

/// Addresses are fixed, so nothing is dialled or restarted.
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

async fn mesh(upstream: SocketAddr, record: RecordLevel, state: &std::path::Path) -> Result<(), BenchError> {
    let internal = |what: &'static str| move |e: std::io::Error| BenchError::internal(what).because(e);
    let name =
        |text: &str| text.parse::<ServiceName>().map_err(|e| BenchError::internal("a name").because(e));
    let (client, service) = (name("client")?, name("upstream")?);
    let store = Store::open(state)?;
    let campaign = store.campaign(CampaignMeta {
        id: new_campaign_id(u64::from(upstream.port())),
        kind: CampaignKind::Bench,
        application: "bench".into(),
        started_us: 0,
        command_line: Vec::new(),
        seed: 1,
    })?;
    let mesh =
        Mesh::start(MeshOptions::default()).map_err(|e| BenchError::internal("the mesh").because(e))?;
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
        callers_by_context: false,
        record_rules: Vec::new(),
    });
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(internal("cannot listen"))?;
    socket.set_nonblocking(true).map_err(internal("cannot listen"))?;
    let address = socket.local_addr().map_err(internal("cannot listen"))?;
    slot.listen(
        ListenerSpec { callee: service, port: 80, protocol: Protocol::Http, caller: Some(caller) },
        socket,
    );
    print_line(&address.to_string());
    until_stdin_ends().await;
    campaign.flush().await?;
    print_line(
        &serde_json::to_string(&Kept { recorded: campaign.sink().recorded(), dropped: campaign.dropped() })
            .unwrap_or_default(),
    );
    drop(mesh);
    Ok(())
}
