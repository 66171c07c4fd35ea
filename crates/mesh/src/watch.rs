//! Connections that no listener takes: to a port that nobody declared, or to a service without instances.
//!
//! The kernel refuses them before any listener could see them. A raw socket of the slot's network hears of their first
//! packets, so that they are recorded all the same.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use faultscope_model::ServiceName;
use tokio::task::AbortHandle;

use crate::slot::Slot;

/// Hears of connections.
#[derive(Debug)]
pub(crate) struct Watch {
    socket: UdpSocket,
    hosts: BTreeMap<IpAddr, ServiceName>,
    task: Mutex<Option<AbortHandle>>,
}

/// Packets that are looked at when a trial ends; a service that goes on connecting must not keep it from ending.
const MAX_WAITING: usize = 1000;
/// The headers of a packet with all their options.
const LONGEST_HEADERS: usize = 120;

impl Watch {
    pub(crate) fn new(socket: UdpSocket, hosts: BTreeMap<IpAddr, ServiceName>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, hosts, task: Mutex::default() })
    }

    /// The task that runs for it, which ends with it.
    pub(crate) fn set_task(&self, task: AbortHandle) {
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Records what comes for as long as the slot is there.
    pub(crate) async fn run(self: Arc<Self>, slot: Weak<Slot>) {
        let socket = self.socket.try_clone().and_then(tokio::net::UdpSocket::from_std);
        let Ok(socket) = socket else { return };
        // Only the other one is kept: the task must not keep itself alive.
        let watch = Arc::downgrade(&self);
        drop(self);
        let mut packet = [0; LONGEST_HEADERS];
        while let Ok(length) = socket.recv(&mut packet).await {
            let (Some(slot), Some(watch)) = (slot.upgrade(), watch.upgrade()) else { return };
            watch.record(&slot, &packet[..length]);
        }
    }

    /// Records what has come and was not looked at yet.
    pub(crate) fn record_waiting(&self, slot: &Arc<Slot>) {
        let mut packet = [0; LONGEST_HEADERS];
        for _ in 0..MAX_WAITING {
            let Ok(length) = self.socket.recv(&mut packet) else { return };
            self.record(slot, &packet[..length]);
        }
    }

    fn record(&self, slot: &Arc<Slot>, packet: &[u8]) {
        let Some(first) = FirstPacket::parse(packet) else { return };
        if let Some(callee) = self.hosts.get(&first.to) {
            slot.record_untaken(first.from, callee, first.port);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// The packet that begins a connection.
#[derive(Debug, PartialEq, Eq)]
struct FirstPacket {
    from: IpAddr,
    to: IpAddr,
    port: u16,
}

impl FirstPacket {
    /// Reads the headers of IPv4 and TCP; whatever else it is, is none.
    fn parse(packet: &[u8]) -> Option<Self> {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        let header = usize::from(packet.first()? & 0x0f) * 4;
        if packet.first()? >> 4 != 4 || header < 20 {
            return None;
        }
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
            Some(IpAddr::V4(Ipv4Addr::from(bytes)))
        };
        let tcp = packet.get(header..)?;
        let port = u16::from_be_bytes(tcp.get(2..4)?.try_into().ok()?);
        (tcp.get(13)? & (SYN | ACK) == SYN).then_some(Self { from: address(12)?, to: address(16)?, port })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(flags: u8) -> Vec<u8> {
        let ip = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 200, 1, 1, 10, 201, 1, 2];
        let tcp = [0x9c, 0x40, 0x1f, 0x90, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0];
        [&ip[..], &tcp].concat()
    }

    #[test]
    fn first_packets_are_read() {
        let first = FirstPacket::parse(&packet(0x02)).unwrap();
        let wanted = ("10.200.1.1", "10.201.1.2", 8080);
        assert_eq!((first.from.to_string().as_str(), first.to.to_string().as_str(), first.port), wanted);
        // An answer, and data of a connection that is there.
        assert_eq!(FirstPacket::parse(&packet(0x12)), None);
        assert_eq!(FirstPacket::parse(&packet(0x18)), None);
        for end in 0..34 {
            assert_eq!(FirstPacket::parse(&packet(0x02)[..end]), None);
        }
    }

    proptest! {
        #[test]
        fn anything_may_come(packet in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = FirstPacket::parse(&packet);
        }
    }
}
