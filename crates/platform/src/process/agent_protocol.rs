//! The protocol between the tool and its agents: JSON packets with file descriptors attached.
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

/// The most descriptors in one packet; the kernel's limit is 253.
pub(crate) const MAX_FDS: usize = 200;
/// The most bytes in one packet, below the default buffer of a socket.
pub(crate) const MAX_BYTES: usize = 128 << 10;

/// A request of the tool.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope {
    pub(crate) id: u64,
    pub(crate) request: Request,
}

/// The requests that an agent understands.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Creates networks that do not exist yet, each connected to the mesh.
    Places { places: Vec<PlaceSpec> },
    /// Adds addresses to the mesh that it does not have yet.
    Aliases { addresses: Vec<Ipv4Addr> },
    /// Opens listeners, or passes on those that are open; the answer has one descriptor for each.
    Listen { listeners: Vec<ListenAt> },
    /// Answers with a socket that hears of every connection that is begun to an address of the mesh.
    Watch,
    /// Answers with unconnected sockets of a place.
    Sockets { place: String, count: usize },
    /// Starts a process tree; comes with its socket, stdout and stderr.
    Spawn { key: u64, place: Option<String>, name: String },
    /// Starts a process tree inside a running one; comes with the same descriptors. It joins the control groups with
    /// these `cgroup.procs` files.
    Join { key: u64, into: u64, name: String, groups: Vec<PathBuf> },
    /// Sends a signal to the init of a process tree.
    Signal { key: u64, signal: i32 },
    /// Ends a process tree at once.
    Kill { key: u64 },
    /// Merges a template with the application folder, as a layer for instances.
    Layer { lower: PathBuf, upper: PathBuf, work: PathBuf, target: PathBuf, user: bool },
    /// Mounts a file system in memory, for disks that do not support overlays.
    Memory { target: PathBuf },
    /// Lays a fresh layer over the user's home, for one trial, and takes away the one before.
    Home { home: PathBuf, layer: PathBuf, masked: Vec<PathBuf>, before: Option<PathBuf>, user: bool },
    /// Ends everything, and the agent; it has no answer but the end of the socket.
    Leave,
}

/// A network to create.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PlaceSpec {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
}

/// Where to listen; in the mesh if no place is given.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ListenAt {
    pub(crate) place: Option<String>,
    pub(crate) address: SocketAddr,
}

/// The messages of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The agent's own process, as the tool sees it.
    Hello { pid: i32 },
    /// The namespaces exist and requests are accepted.
    Ready,
    /// The agent could not start.
    Refused { reason: String },
    /// A request succeeded; descriptors may be attached.
    Done { id: u64 },
    /// A request failed.
    Failed { id: u64, reason: String },
    /// All processes of a tree have ended.
    Gone { key: u64, code: Option<i32>, signal: Option<i32> },
}

/// Everything the init of a process tree needs.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct InitSpec {
    /// The host name, also used in errors.
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The complete environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) directory: PathBuf,
    /// `cgroup.procs` and `tasks` files to join.
    pub(crate) cgroups: Vec<PathBuf>,
    /// Its view of the disk; none without a mount namespace.
    pub(crate) view: Option<View>,
    /// Limit of the address space, where there is no control group.
    pub(crate) memory: Option<u64>,
    /// The soft limit of open files, where the tool has raised its own.
    pub(crate) open_files: Option<u64>,
    pub(crate) rights: InitRights,
}

/// The rights of the program that an init starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InitRights {
    /// At most those of a container; none at all in a user namespace.
    Limited { user: bool },
    /// Those of whoever runs the tool, for services that are `privileged`.
    Own,
    /// Those of the agent, for debuggers and profilers.
    Agent,
}

/// The view of the disk of an instance.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct View {
    /// The application folder, or the template merged with it; empty where links replace it.
    pub(crate) lower: Vec<PathBuf>,
    /// The mount point.
    pub(crate) target: PathBuf,
    /// The instance's own folder, for its layer and its files.
    pub(crate) own: PathBuf,
    /// Paths of the layer, relative to `target`, that survive a restart; others are removed.
    pub(crate) durable: Vec<PathBuf>,
    /// Whether the layer comes from a snapshot, of which everything is kept.
    pub(crate) is_restored: bool,
    /// The tool's folder, which instances must not see.
    pub(crate) hide: PathBuf,
    /// Folders in it that this instance sees nevertheless, under the same paths.
    pub(crate) seen: Vec<PathBuf>,
    /// A file of that folder that instances must see nevertheless, and its text.
    pub(crate) authority: Option<(PathBuf, String)>,
    pub(crate) hosts: String,
    /// The resolver for all other names, over TCP.
    pub(crate) resolver: Option<Ipv4Addr>,
    /// The tool's own program, which services may run.
    pub(crate) program: PathBuf,
    /// The user's home.
    pub(crate) home: Option<HomeView>,
    /// Secrets outside of that home, which nobody sees.
    pub(crate) masked: Vec<PathBuf>,
    /// Paths of this machine that stay as they are.
    pub(crate) shared: Vec<PathBuf>,
    /// Whether overlays store their attributes as user attributes.
    pub(crate) user: bool,
    /// Whether its layer must survive a crash of the machine, as a template must.
    pub(crate) lasting: bool,
    /// What it sees at paths of its own.
    pub(crate) mounts: Vec<MountSpec>,
    /// Whether it sees all devices and may change settings of the kernel.
    pub(crate) privileged: bool,
}

/// The user's home as an instance sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HomeView {
    pub(crate) path: PathBuf,
    /// The layer of the trial over it; without one it is read-only.
    pub(crate) layer: Option<PathBuf>,
}

/// Something that an instance sees at a path of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MountSpec {
    pub(crate) to: PathBuf,
    pub(crate) readonly: bool,
    pub(crate) shown: Shown,
}

/// What a mount shows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shown {
    /// A path of the application, relative to its folder.
    Path {
        path: PathBuf,
    },
    /// A folder that instances of the trial share.
    Volume {
        folder: PathBuf,
    },
    Memory {
        bytes: u64,
    },
    Content {
        text: String,
        mode: Option<u32>,
    },
}

/// The reports of an init, one JSON line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The program is running.
    Started,
    /// It could not be started.
    Failed { bad_plan: bool, reason: String },
    /// It ended.
    Exited { code: Option<i32>, signal: Option<i32> },
}

/// Sends one packet.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
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

/// Receives one packet; none if the other side is gone.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> rustix::io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
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
        // Descriptors were lost: this process has reached its limit.
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
