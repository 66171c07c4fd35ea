//! The networks of a slot: one for the mesh, one for each place, connected by veth pairs.
//!
//! The mesh's network forwards nothing and has no route out, so neither have the places behind it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use rustix::thread::UnshareFlags;

use super::namespaces::{self, unshare};
use super::netlink::{LOOPBACK, Netlink};
use crate::process::agent_protocol::{ListenAt, PlaceSpec};

/// The default gateway of every place: the mesh.
pub(crate) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);
/// Pending connections; the kernel caps it at its own limit.
const BACKLOG: i32 = 4096;
/// The index of the first veth end in the mesh's network; below are the loopback and whatever the kernel creates.
const FIRST_INDEX: u32 = 100;

/// The networks of an agent.
pub(super) struct Networks {
    home: OwnedFd,
    mesh: Netlink,
    places: HashMap<String, OwnedFd>,
    next_index: u32,
    listeners: HashMap<ListenAt, OwnedFd>,
}

impl Networks {
    /// Uses the network of this process for the mesh.
    pub(super) fn new() -> io::Result<Self> {
        let mut mesh = Netlink::open()?;
        mesh.up(LOOPBACK)?;
        mesh.address(LOOPBACK, GATEWAY)?;
        tune(&[("ipv4/ip_forward", "0"), ("ipv6/conf/default/disable_ipv6", "1")]);
        Ok(Self {
            home: namespaces::own("net")?,
            mesh,
            places: HashMap::new(),
            next_index: FIRST_INDEX,
            listeners: HashMap::new(),
        })
    }

    /// Creates a place unless it exists.
    pub(super) fn make(&mut self, place: &PlaceSpec) -> io::Result<()> {
        if self.places.contains_key(&place.name) {
            return Ok(());
        }
        let index = self.next_index;
        self.next_index += 1;
        unshare(UnshareFlags::NEWNET)?;
        let made = self.furnish(place, index);
        namespaces::enter_network(&self.home)?;
        self.places.insert(place.name.clone(), made?);
        self.mesh.up(index)?;
        self.mesh.route_to(place.address, index)?;
        Ok(())
    }

    /// Adds an address to the mesh.
    pub(super) fn alias(&mut self, address: Ipv4Addr) -> io::Result<()> {
        Ok(self.mesh.address(LOOPBACK, address)?)
    }

    /// Opens a listener, or returns the one that is open.
    pub(super) fn listen(&mut self, at: &ListenAt) -> io::Result<&OwnedFd> {
        if !self.listeners.contains_key(at) {
            let listener = match &at.place {
                Some(place) => self.within(place, || open_listener(at.address))?,
                None => open_listener(at.address)?,
            };
            self.listeners.insert(at.clone(), listener);
        }
        self.listeners.get(at).ok_or_else(|| io::Error::other("listener vanished"))
    }

    /// Unconnected sockets of a place.
    pub(super) fn sockets(&self, place: &str, count: usize) -> io::Result<Vec<OwnedFd>> {
        self.within(place, || {
            let one = |_| {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                Ok(rustix::net::socket_with(
                    AddressFamily::INET,
                    SocketType::STREAM,
                    flags,
                    Some(ipproto::TCP),
                )?)
            };
            (0..count).map(one).collect()
        })
    }

    /// Runs a function in the network of a place.
    pub(super) fn within<T>(&self, place: &str, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let namespace =
            self.places.get(place).ok_or_else(|| io::Error::other(format!("no place `{place}`")))?;
        namespaces::enter_network(namespace)?;
        let result = action();
        namespaces::enter_network(&self.home)?;
        result
    }

    fn furnish(&self, place: &PlaceSpec, index: u32) -> io::Result<OwnedFd> {
        tune(&[
            ("ipv6/conf/default/disable_ipv6", "1"),
            // A restarted service finds its port free, as in a fresh container.
            ("ipv4/tcp_max_tw_buckets", "0"),
            ("ipv4/ip_unprivileged_port_start", "0"),
        ]);
        let mut here = Netlink::open()?;
        here.up(LOOPBACK)?;
        here.veth(2, &format!("place{index}"), index, self.home.as_fd())?;
        here.address(2, place.address)?;
        here.route_by(GATEWAY, 2)?;
        Ok(namespaces::own("net")?)
    }
}

/// Optional settings of the current network; with a read-only `/proc/sys` the defaults stay.
fn tune(settings: &[(&str, &str)]) {
    for (name, value) in settings {
        let _ = fs::write(format!("/proc/sys/net/{name}"), value);
    }
}

/// A raw socket of this network that gets the first packet of each connection, also of those that nobody takes. The
/// filter runs in the kernel, so that other packets cost next to nothing.
pub(super) fn watch_connections() -> io::Result<OwnedFd> {
    // Instructions of the classic packet filter; packets begin with the IP header.
    const LOAD_HEADER_LENGTH: u16 = 0xb1;
    const LOAD_BYTE_BEHIND_HEADER: u16 = 0x50;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(socket2::Protocol::TCP))?;
    socket.attach_filter(&[
        socket2::SockFilter::new(LOAD_HEADER_LENGTH, 0, 0, 0),
        socket2::SockFilter::new(LOAD_BYTE_BEHIND_HEADER, 0, 0, FLAGS),
        socket2::SockFilter::new(AND, 0, 0, SYN | ACK),
        socket2::SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        socket2::SockFilter::new(RETURN, 0, 0, WATCHED_BYTES),
        socket2::SockFilter::new(RETURN, 0, 0, 0),
    ])?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Both headers with all their options.
const WATCHED_BYTES: u32 = 120;

pub(super) fn open_listener(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}
