//! The sidecar of a slot of containers: it owns the addresses that stand for services, opens sockets there
//! and passes them to the tool.
//!
//! It carries no calls itself: the mesh does, in the tool's own process, on sockets that belong to this
//! network. It ends when the tool does.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto};

use super::netlink::{LOOPBACK, Netlink};
use super::network::open_listener;
use crate::process::agent_protocol::{self, Envelope, Message, Request};

/// Serves the tool behind a socket until it goes away.
pub(super) fn run(socket: &str) -> ExitCode {
    match serve(socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

struct Sidecar {
    network: Netlink,
    listeners: HashMap<SocketAddr, OwnedFd>,
}

fn serve(path: &str) -> io::Result<()> {
    let tool =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&tool, &SocketAddrUnix::new(path)?)?;
    let mut sidecar = Sidecar { network: Netlink::open()?, listeners: HashMap::new() };
    let mut buffer = vec![0; agent_protocol::MAX_BYTES];
    while let Some((length, _)) = agent_protocol::receive(tool.as_fd(), &mut buffer)? {
        let Envelope { id, request } = serde_json::from_slice(&buffer[..length])?;
        let (message, fds) = match sidecar.answer(request) {
            Ok(fds) => (Message::Done { id }, fds),
            Err(error) => {
                let reason = error.to_string();
                (Message::Failed { id, reason }, Vec::new())
            }
        };
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        agent_protocol::send(tool.as_fd(), &serde_json::to_vec(&message)?, &fds)?;
    }
    Ok(())
}

impl Sidecar {
    fn answer(&mut self, request: Request) -> io::Result<Vec<OwnedFd>> {
        match request {
            Request::Aliases { addresses } => {
                for address in addresses {
                    // On loopback: this network answers for all of its addresses on every interface.
                    self.network.address(LOOPBACK, address)?;
                }
                Ok(Vec::new())
            }
            Request::Listen { listeners } => listeners.iter().map(|at| self.listen(at.address)).collect(),
            Request::Sockets { count, .. } => {
                (0..count.min(agent_protocol::MAX_FDS)).map(|_| unconnected()).collect()
            }
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, "a sidecar starts nothing")),
        }
    }

    /// Opens a listener, or passes on the one that is open.
    fn listen(&mut self, address: SocketAddr) -> io::Result<OwnedFd> {
        if let Some(listener) = self.listeners.get(&address) {
            return listener.try_clone();
        }
        let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
        let listener = open_listener(address).map_err(named)?;
        let ours = listener.try_clone()?;
        self.listeners.insert(address, listener);
        Ok(ours)
    }
}

fn unconnected() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP))?)
}
