//! What the tool and its agents say to each other: JSON packets with file descriptors attached.
//!
//! The socket keeps packets apart (SEQPACKET), so nothing is framed by hand. Each process tree has a
//! stream socket of its own to the tool: its spec comes in, its reports go out.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

/// File descriptors in one packet; the kernel's own bound is 253.
pub(crate) const MOST_FDS: usize = 200;
/// Bytes in one packet; a socket's default buffer holds a little more.
pub(crate) const MOST_BYTES: usize = 128 << 10;

/// A request of the tool.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) id: u64,
    pub(crate) request: Request,
}

/// What an agent can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Makes networks that are not there yet, each wired to the mesh.
    Places { places: Vec<PlaceSpec> },
    /// Adds addresses to the mesh that are not there yet.
    Aliases { addresses: Vec<Ipv4Addr> },
    /// Opens listeners, or hands over again the ones that are open; answers with one descriptor for each.
    Listen { listeners: Vec<ListenAt> },
    /// Answers with unconnected sockets that live in a place.
    Sockets { place: String, count: usize },
    /// Starts a process tree; brings its socket, its stdout and its stderr.
    Spawn { key: u64, place: Option<String>, name: String },
    /// Starts a process tree inside a running one; the same descriptors.
    Join { key: u64, into: u64, name: String },
    /// Sends a signal to the init of a process tree.
    Signal { key: u64, signal: i32 },
    /// Ends a process tree at once.
    Kill { key: u64 },
    /// Lays a template over the application folder, for instances to build upon.
    Layer { lower: PathBuf, upper: PathBuf, work: PathBuf, target: PathBuf, user: bool },
    /// Puts a file system in memory there, where overlays refuse the disk's own.
    Memory { target: PathBuf },
}

/// A network of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PlaceSpec {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

/// Where to listen; in the mesh when no place is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ListenAt {
    pub(crate) place: Option<String>,
    pub(crate) address: SocketAddr,
}

/// What an agent says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The agent's own process, as the tool sees it.
    Hello { pid: i32 },
    /// The namespaces are there, requests can come.
    Ready,
    /// The agent could not start.
    Refused { reason: String },
    /// A request was carried out; descriptors may be attached.
    Done { id: u64 },
    /// A request failed.
    Failed { id: u64, reason: String },
    /// A process tree is gone, all of it.
    Gone { key: u64, code: Option<i32>, signal: Option<i32> },
}

/// Everything the init of a process tree must know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InitSpec {
    /// Host name, and the name errors carry.
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The whole environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directory: PathBuf,
    /// `cgroup.procs` and `tasks` files to join.
    pub(crate) cgroups: Vec<PathBuf>,
    /// What it sees of the disk; none where there is no namespace to change it in.
    pub(crate) view: Option<View>,
    /// Bytes of address space, where no control group limits.
    pub(crate) memory: Option<u64>,
    /// The soft limit of open files, where the tool has raised its own.
    pub(crate) open_files: Option<u64>,
}

/// What an instance sees of the disk.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct View {
    /// The application folder, or the template laid over it; none where links stand for it.
    pub(crate) lower: Vec<PathBuf>,
    /// Where it is seen.
    pub(crate) target: PathBuf,
    /// The instance's own folder, for its layer and its files.
    pub(crate) own: PathBuf,
    /// Paths of the layer, relative to `target`, that outlive this start; others are dropped.
    pub(crate) durable: Vec<PathBuf>,
    /// The tool's own folder, which instances must not see.
    pub(crate) hide: Option<PathBuf>,
    /// A file of that folder that they must see all the same, and its text.
    pub(crate) authority: Option<(PathBuf, String)>,
    pub(crate) hosts: String,
    /// Who answers for other names, over TCP.
    pub(crate) resolver: Option<Ipv4Addr>,
    /// Whether `/tmp` can be its own.
    pub(crate) private_tmp: bool,
    /// Whether overlays keep their notes in user attributes.
    pub(crate) user: bool,
    /// Whether its layer must survive a crash of the machine, as a template must.
    pub(crate) lasting: bool,
}

/// What an init reports, one JSON line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The program runs.
    Started,
    /// It could not be started.
    Failed { bad_plan: bool, reason: String },
    /// It ended.
    Exited { code: Option<i32>, signal: Option<i32> },
}

/// Sends one packet.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(rustix::io::Errno::TOOBIG);
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Receives one packet; nothing when the other side is gone.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> rustix::io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(rustix::io::Errno::MSGSIZE);
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        // Descriptors were lost: this process has as many as it may have.
        return Err(rustix::io::Errno::MFILE);
    }
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((received.bytes > 0).then_some((received.bytes, fds)))
}
