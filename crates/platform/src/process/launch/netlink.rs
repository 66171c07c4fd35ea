//! The few rtnetlink messages that connect the networks, encoded by hand.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

// From linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h and linux/veth.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_NET_NS_FD: u16 = 28;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RT_TABLE_MAIN: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const RT_SCOPE_UNIVERSE: u8 = 0;
const RT_SCOPE_LINK: u8 = 253;
const RTN_UNICAST: u8 = 1;
const RTNH_F_ONLINK: u32 = 4;
const HEADER: usize = 16;

/// The loopback interface has this index in every network.
pub(super) const LOOPBACK: u32 = 1;

/// A connection to the network namespace it was opened in.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Connects to the network namespace of this thread.
    pub(super) fn open() -> rustix::io::Result<Self> {
        // No protocol means NETLINK_ROUTE.
        let socket =
            rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Switches an interface on.
    pub(super) fn up(&mut self, index: u32) -> rustix::io::Result<()> {
        let mut message = Packet::new(RTM_NEWLINK, 0);
        message.link(index, IFF_UP);
        self.exchange(message)
    }

    /// Makes `eth0` with index `index` here and its other end, `name` with index `there`, in `other`;
    /// only this end is up.
    pub(super) fn veth(
        &mut self,
        index: u32,
        name: &str,
        there: u32,
        other: impl AsFd,
    ) -> rustix::io::Result<()> {
        let mut message = Packet::new(RTM_NEWLINK, NLM_F_CREATE);
        message.link(index, IFF_UP);
        message.text(IFLA_IFNAME, "eth0");
        message.nest(IFLA_LINKINFO, |info| {
            info.text(IFLA_INFO_KIND, "veth");
            info.nest(IFLA_INFO_DATA, |data| {
                data.nest(VETH_INFO_PEER, |peer| {
                    // It cannot go up before both ends exist.
                    peer.link(there, 0);
                    peer.text(IFLA_IFNAME, name);
                    peer.attribute(IFLA_NET_NS_FD, &other.as_fd().as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.exchange(message)
    }

    /// Adds an address to an interface.
    pub(super) fn address(&mut self, index: u32, address: Ipv4Addr) -> rustix::io::Result<()> {
        let mut message = Packet::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE);
        message.bytes.extend([AF_INET, 32, 0, RT_SCOPE_UNIVERSE]);
        message.bytes.extend(index.to_ne_bytes());
        message.attribute(IFA_LOCAL, &address.octets());
        message.attribute(IFA_ADDRESS, &address.octets());
        self.exchange(message)
    }

    /// Routes packets for one address to an interface.
    pub(super) fn route_to(&mut self, address: Ipv4Addr, index: u32) -> rustix::io::Result<()> {
        let mut message = Packet::route(32, RT_SCOPE_LINK, 0);
        message.attribute(RTA_DST, &address.octets());
        message.attribute(RTA_OIF, &index.to_ne_bytes());
        self.exchange(message)
    }

    /// Routes the 16-bit network of a gateway to it, and nothing else: calls to any other address fail at
    /// once instead of timing out. With one gateway there is one neighbour to resolve,
    /// however many addresses lie behind it; the kernel shares one neighbour table among all networks.
    pub(super) fn route_by(&mut self, gateway: Ipv4Addr, index: u32) -> rustix::io::Result<()> {
        let [first, second, ..] = gateway.octets();
        let mut message = Packet::route(16, RT_SCOPE_UNIVERSE, RTNH_F_ONLINK);
        message.attribute(RTA_DST, &[first, second, 0, 0]);
        message.attribute(RTA_GATEWAY, &gateway.octets());
        message.attribute(RTA_OIF, &index.to_ne_bytes());
        self.exchange(message)
    }

    fn exchange(&mut self, mut message: Packet) -> rustix::io::Result<()> {
        self.sequence += 1;
        message.finish(self.sequence);
        rustix::net::send(&self.socket, &message.bytes, SendFlags::empty())?;
        let mut answer = [0_u8; 4096];
        let (_, length) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        let word = |at: usize| -> Option<[u8; 4]> { answer.get(at..at + 4)?.try_into().ok() };
        let kind = u16::from_ne_bytes([answer[4], answer[5]]);
        if length < HEADER + 4 || kind != NLMSG_ERROR {
            return Err(Errno::PROTO);
        }
        match word(HEADER).map(i32::from_ne_bytes) {
            Some(0) => Ok(()),
            Some(code) => Err(Errno::from_raw_os_error(-code)),
            None => Err(Errno::PROTO),
        }
    }
}

/// A message under construction.
struct Packet {
    bytes: Vec<u8>,
}

impl Packet {
    fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        bytes.extend([0; 8]);
        Self { bytes }
    }

    fn route(prefix: u8, scope: u8, flags: u32) -> Self {
        let mut message = Self::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
        message.bytes.extend([AF_INET, prefix, 0, 0, RT_TABLE_MAIN, RTPROT_STATIC, scope, RTN_UNICAST]);
        message.bytes.extend(flags.to_ne_bytes());
        message
    }

    /// `struct ifinfomsg`.
    fn link(&mut self, index: u32, flags: u32) {
        self.bytes.extend([0; 4]);
        self.bytes.extend(index.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nest(kind, |inner| inner.bytes.extend(value));
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.nest(kind, |inner| {
            inner.bytes.extend(value.as_bytes());
            inner.bytes.push(0);
        });
    }

    fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }

    fn finish(&mut self, sequence: u32) {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }
}
