//! The tool's side of a sidecar: a container whose sockets the tool uses as its own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream as StdStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, EndpointIpamConfig, EndpointSettings, HostConfig, HostConfigLogConfig,
    NetworkingConfig,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpSocket, TcpStream};

use super::engine::{Engine, fault, labels};
use super::{image, trouble};
use crate::process::parts::{Link, ListenAt, MAX_FDS, Request, watched};
use crate::{PlatformError, SlotSpec};

/// How long a sidecar may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sockets fetched at once, so that most calls need no round trip to the sidecar.
const SOCKETS_AT_ONCE: usize = 8;
/// Paths of the tool's socket and executable in the container.
const INSIDE: &str = "/run/faultscope";
const PROGRAM: &str = "/faultscope";

/// A running sidecar.
#[derive(Debug)]
pub(super) struct Sidecar {
    pub(super) container: String,
    link: Link,
    sockets: Mutex<Vec<OwnedFd>>,
}

impl Sidecar {
    /// Starts a sidecar in a network and waits until it accepts requests.
    pub(super) async fn start(
        engine: &Engine,
        spec: &SlotSpec,
        folder: &Path,
        network: &str,
        address: Ipv4Addr,
    ) -> Result<Self, PlatformError> {
        let action = "start the slot's sidecar";
        let door = folder.join("door");
        let listening = listen(&door).map_err(|e| trouble(action, e))?;
        let mut mounts = image::mounts(&spec.program, Path::new(PROGRAM));
        mounts.push(image::bind(&door, Path::new(INSIDE), false));
        let words = |list: &[&str]| Some(list.iter().map(ToString::to_string).collect::<Vec<_>>());
        let host = HostConfig {
            mounts: Some(mounts),
            network_mode: Some(network.to_owned()),
            // Tests share its network: names that are not in their hosts file fail at once.
            dns: Some(vec![address.to_string()]),
            cap_drop: words(&["ALL"]),
            // To add addresses to its network, and to open the tool's socket whoever owns it.
            cap_add: words(&["NET_ADMIN", "NET_BIND_SERVICE", "DAC_OVERRIDE"]),
            security_opt: words(&["label=disable"]),
            readonly_rootfs: Some(true),
            pids_limit: Some(16),
            log_config: Some(no_log()),
            ..Default::default()
        };
        let body = ContainerCreateBody {
            image: Some(image::name()),
            hostname: Some("test-1".into()),
            entrypoint: words(&[PROGRAM]),
            cmd: words(&["launch", "sidecar", &format!("{INSIDE}/link")]),
            labels: Some(labels(&spec.label, None)),
            host_config: Some(host),
            networking_config: Some(endpoint(network, address)),
            ..Default::default()
        };
        let name = format!("faultscope-{}-sidecar", spec.label);
        let container = engine.create(&name, body).await.map_err(|e| fault(action, e))?;
        let coming = async {
            engine.start(&container).await.map_err(|e| fault(action, e))?;
            tokio::select! {
                accepted = accept(&listening) => accepted.map_err(|e| trouble(action, e)),
                _ = engine.ended(&container) => Err(trouble(action, "it ended at once")),
                () = tokio::time::sleep(PATIENCE) => Err(trouble(action, "it did not connect to the tool in time")),
            }
        };
        let came = coming.await;
        let _ = fs::remove_dir_all(&door);
        match came {
            Ok(socket) => Ok(Self { container, link: Link::new(socket), sockets: Mutex::default() }),
            Err(error) => {
                let _ = engine.remove(&container).await;
                Err(error)
            }
        }
    }

    /// Fails if it no longer answers.
    pub(super) async fn answers(&self) -> io::Result<()> {
        self.link.request(Request::Aliases { addresses: Vec::new() }, &[]).await.map(|_| ())
    }

    /// Adds addresses to the sidecar's network.
    pub(super) async fn add(&self, addresses: &[Ipv4Addr]) -> io::Result<()> {
        for some in addresses.chunks(500) {
            let addresses = some.to_vec();
            self.link.request(Request::Aliases { addresses }, &[]).await?;
        }
        Ok(())
    }

    /// Opens listeners in its network, in the given order.
    pub(super) async fn listen(&self, at: &[(Ipv4Addr, u16)]) -> io::Result<Vec<TcpListener>> {
        let mut opened = Vec::with_capacity(at.len());
        for some in at.chunks(MAX_FDS) {
            let place = |(address, port): &(Ipv4Addr, u16)| ListenAt {
                place: None,
                address: SocketAddr::V4(SocketAddrV4::new(*address, *port)),
            };
            let listeners = some.iter().map(place).collect();
            let sockets = self.link.request(Request::Listen { listeners }, &[]).await?;
            if sockets.len() != some.len() {
                return Err(io::Error::other("listeners were lost on the way"));
            }
            opened.extend(sockets.into_iter().map(TcpListener::from));
        }
        Ok(opened)
    }

    /// Connects from its network.
    pub(super) async fn connect(&self, address: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
        let cached = self.sockets().pop();
        let socket = match cached {
            Some(socket) => socket,
            None => {
                let request = Request::Sockets { place: String::new(), count: SOCKETS_AT_ONCE };
                let mut fetched = self.link.request(request, &[]).await?;
                let none = || io::Error::other("the sidecar sent no socket");
                let socket = fetched.pop().ok_or_else(none)?;
                self.sockets().append(&mut fetched);
                socket
            }
        };
        TcpSocket::from_std_stream(StdStream::from(socket))
            .connect(SocketAddr::V4(SocketAddrV4::new(address, port)))
            .await
    }

    fn sockets(&self) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A fixed address in a slot's network.
pub(super) fn endpoint(network: &str, address: Ipv4Addr) -> NetworkingConfig {
    let settings = EndpointSettings {
        ipam_config: Some(EndpointIpamConfig {
            ipv4_address: Some(address.to_string()),
            ..Default::default()
        }),
        ..Default::default()
    };
    NetworkingConfig { endpoints_config: Some(HashMap::from([(network.to_owned(), settings)])) }
}

/// The engine keeps no log of a container: the tool reads and bounds its output.
pub(super) fn no_log() -> HostConfigLogConfig {
    HostConfigLogConfig { typ: Some("none".into()), config: None }
}

fn listen(door: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let _ = fs::remove_dir_all(door);
    fs::create_dir_all(door)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Through the open folder, since the path may be longer than a socket address allows.
    let folder = File::open(door)?;
    let path = format!("/proc/self/fd/{}/link", folder.as_raw_fd());
    rustix::net::bind(&socket, &SocketAddrUnix::new(path.as_str())?)?;
    rustix::net::listen(&socket, 1)?;
    watched(socket)
}

async fn accept(listening: &AsyncFd<OwnedFd>) -> io::Result<AsyncFd<OwnedFd>> {
    loop {
        let mut guard = listening.readable().await?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accepted = guard.try_io(|listening| Ok(rustix::net::accept_with(listening.get_ref(), flags)?));
        if let Ok(socket) = accepted {
            return watched(socket?);
        }
    }
}
