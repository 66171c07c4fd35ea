//! A proxy that runs beside its caller, away from the tool.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use faultscope_model::{InstanceId, SlotId};
use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;

use super::remote::{Line, RemoteSteering};
use super::{Frames, MAX_WAITING, SidecarListener, ToSidecar, ToTool, VERSION, write_frames};
use crate::hooks::{Dialer, Hooks};
use crate::mesh::{Mesh, MeshError};
use crate::scene::Scene;
use crate::slot::MeshSlot;

/// How a sidecar finds its tool.
#[derive(Debug, Clone)]
pub struct SidecarOptions {
    /// Where the tool listens.
    pub control: ControlAddress,
    /// The instance that this sidecar stands beside.
    pub instance: InstanceId,
    /// What the tool expects to hear; empty where the socket itself is private.
    pub token: String,
}

/// Where a tool listens for sidecars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// Runs a sidecar until its tool is gone.
pub async fn sidecar(options: SidecarOptions) -> Result<(), MeshError> {
    match &options.control {
        ControlAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(MeshError::Control)?;
            run(stream, &options).await
        }
        ControlAddress::Tcp(address) => {
            let stream = TcpStream::connect(address).await.map_err(MeshError::Control)?;
            run(stream, &options).await
        }
    }
}

async fn run(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    options: &SidecarOptions,
) -> Result<(), MeshError> {
    let (reader, writer) = tokio::io::split(stream);
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let line = Arc::new(Line::new(sender));
    line.report(ToTool::Hello {
        version: VERSION,
        instance: options.instance.clone(),
        token: options.token.clone(),
    });
    let mesh = Mesh::start_here()?;
    let hooks = Hooks { dialer: Arc::new(NoDialer), recorder: line.clone(), restarter: line.clone() };
    let slot = mesh.open(SlotId(0), hooks);
    let obeying = obey(Frames::new(reader), &slot, &line);
    let ended = tokio::select! {
        written = write_frames(writer, receiver) => written,
        obeyed = obeying => obeyed,
        () = report_flow(&slot, &line) => Ok(()),
    };
    slot.close_listeners();
    slot.reset_connections().await;
    ended.map_err(MeshError::Control)
}

/// Does what the tool says until it is gone.
async fn obey<R: AsyncRead + Unpin>(
    mut frames: Frames<R>,
    slot: &MeshSlot,
    line: &Arc<Line>,
) -> io::Result<()> {
    let mut known = Vec::new();
    while let Some(frame) = frames.next().await? {
        match line.accept_answer(frame) {
            Some(ToSidecar::Wire { trial, wiring, listeners }) => {
                let has_gates = !wiring.gates.is_empty();
                line.begin(trial);
                let has_targets = wiring.targets;
                let steering = RemoteSteering { line: Arc::clone(line), trial, has_gates, has_targets };
                slot.set_scene(Scene::steered(*wiring, Arc::new(steering)));
                match listen(slot, listeners, &mut known) {
                    Ok(bound) => line.report(ToTool::Listening { bound }),
                    Err(error) => line.report(ToTool::Failed { reason: error.to_string() }),
                }
            }
            Some(ToSidecar::Endpoints { endpoints, outages }) => {
                slot.set_endpoints(endpoints);
                slot.set_outages(outages);
            }
            Some(ToSidecar::Reset) => slot.reset_connections().await,
            _ => {}
        }
    }
    Ok(())
}

/// Binds what is not bound yet: a listener stays over trials, as callers may hold connections to it.
fn listen(
    slot: &MeshSlot,
    listeners: Vec<SidecarListener>,
    known: &mut Vec<(SidecarListener, SocketAddr)>,
) -> io::Result<Vec<SocketAddr>> {
    let (mut bound, mut fresh) = (Vec::new(), Vec::new());
    for listener in listeners {
        if let Some((_, address)) = known.iter().find(|(earlier, _)| *earlier == listener) {
            bound.push(*address);
            continue;
        }
        let socket = TcpListener::bind(listener.bind)?;
        let address = socket.local_addr()?;
        bound.push(address);
        fresh.push((listener.spec.clone(), socket));
        known.push((listener, address));
    }
    slot.listen_all(fresh);
    Ok(bound)
}

/// Keeps the tool informed about the calls in flight.
async fn report_flow(slot: &MeshSlot, line: &Line) {
    let mut reported = 0;
    loop {
        let calls = slot.flow_changed(reported).await;
        line.report(ToTool::InFlight { calls });
        reported = calls;
    }
}

/// Sidecars reach instances by address only.
struct NoDialer;

impl Dialer for NoDialer {
    fn dial(
        &self,
        _instance: &InstanceId,
        _port: u16,
    ) -> BoxFuture<'static, io::Result<std::net::TcpStream>> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}
