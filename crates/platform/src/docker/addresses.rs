//! The addresses of a slot: one network per slot, one address per instance, one alias per callee.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use faultscope_model::plan::Plan;

/// Host bits of a slot's network: 4096 addresses, enough for a thousand instances and their callees.
const HOST_BITS: u32 = 12;
/// The first of the networks that slots use; 10.208.0.0/9 is rarely in use.
const FIRST: u32 = u32::from_be_bytes([10, 208, 0, 0]);
const NETWORKS: u32 = 512;
const SIDECAR: u32 = 2;
const PLACES: u32 = 16;
const ALIASES: u32 = 1 << (HOST_BITS - 1);
const END: u32 = (1 << HOST_BITS) - 1;

/// A network of 4096 addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subnet(u32);

/// Assigned addresses; they stay the same as long as the slot exists.
#[derive(Debug)]
pub(super) struct Addresses {
    subnet: Subnet,
    places: BTreeMap<String, u32>,
    aliases: BTreeMap<String, u32>,
    /// Host names that callers use, each with its callee.
    names: BTreeMap<String, String>,
}

// === impl Subnet ===

impl Subnet {
    /// Networks that no route of this machine uses, in an order that depends on the label.
    pub(super) fn candidates(label: &str, routes: &str) -> impl Iterator<Item = Self> {
        let taken: BTreeSet<(u32, u32)> = routes.lines().skip(1).filter_map(route).collect();
        let start = label.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let at = move |n: u32| Self(FIRST + (((start.wrapping_add(n)) % NETWORKS) << HOST_BITS));
        (0..NETWORKS).map(at).filter(move |subnet| {
            let own = !((1_u32 << HOST_BITS) - 1);
            // A default route, or one for all of 10.0.0.0/8 as VPNs set it, does not exclude a network.
            !taken
                .iter()
                .any(|(net, mask)| mask.count_ones() > 8 && (net & mask & own) == (subnet.0 & mask & own))
        })
    }

    /// As `10.208.16.0/20`.
    pub(super) fn text(self) -> String {
        format!("{}/{}", Ipv4Addr::from(self.0), 32 - HOST_BITS)
    }

    /// The address of the sidecar.
    pub(super) fn sidecar(self) -> Ipv4Addr {
        Ipv4Addr::from(self.0 + SIDECAR)
    }
}

/// One line of `/proc/net/route`: network and mask.
fn route(line: &str) -> Option<(u32, u32)> {
    let mut fields = line.split_whitespace();
    let mut number = |at: usize| -> Option<u32> {
        let bytes = u32::from_str_radix(fields.nth(at)?, 16).ok()?.to_le_bytes();
        Some(u32::from_be_bytes(bytes))
    };
    Some((number(1)?, number(5)?))
}

// === impl Addresses ===

impl Addresses {
    pub(super) fn new(subnet: Subnet) -> Self {
        let (places, aliases, names) = Default::default();
        Self { subnet, places, aliases, names }
    }

    /// Assigns addresses to everything in a plan and forgets the names of the plan before. Fails if there
    /// are too many.
    pub(super) fn learn(&mut self, plan: &Plan) -> Result<(), String> {
        for instance in &plan.instances {
            assign(&mut self.places, &instance.id.to_string(), PLACES, ALIASES)?;
        }
        let services = plan.ports.keys().map(|s| (s.as_str(), s.as_str()));
        let aliases = plan.aliases.iter().map(|(name, service)| (name.as_str(), service.as_str()));
        let externals = plan.externals.iter().map(|e| (e.host.as_str(), e.service.as_str()));
        self.names.clear();
        for (name, callee) in services.chain(aliases).chain(externals) {
            assign(&mut self.aliases, callee, ALIASES, END)?;
            self.names.insert(name.to_owned(), callee.to_owned());
        }
        Ok(())
    }

    /// The address of an instance.
    pub(super) fn place(&self, instance: &str) -> Option<Ipv4Addr> {
        self.places.get(instance).map(|n| Ipv4Addr::from(self.subnet.0 + n))
    }

    /// The address at which instances reach a callee.
    pub(super) fn alias(&self, callee: &str) -> Option<Ipv4Addr> {
        self.aliases.get(callee).map(|n| Ipv4Addr::from(self.subnet.0 + n))
    }

    /// The address at which the test, which runs in the sidecar's network, reaches a callee.
    pub(super) fn test_alias(&self, callee: &str) -> Option<Ipv4Addr> {
        let number = self.aliases.get(callee)? - ALIASES;
        Some(Ipv4Addr::new(127, 1, (number / 250) as u8, (1 + number % 250) as u8))
    }

    /// The host names for instances, in the form of `--add-host`.
    pub(super) fn extra_hosts(&self) -> Vec<String> {
        let line = |(name, callee): (&String, &String)| Some(format!("{name}:{}", self.alias(callee)?));
        self.names.iter().filter_map(line).collect()
    }

    /// The hosts file of the test.
    pub(super) fn test_hosts(&self) -> String {
        let line =
            |(name, callee): (&String, &String)| Some(format!("{} {name}\n", self.test_alias(callee)?));
        let names: String = self.names.iter().filter_map(line).collect();
        format!("127.0.0.1 localhost test-1\n{names}")
    }
}

fn assign(given: &mut BTreeMap<String, u32>, name: &str, first: u32, end: u32) -> Result<(), String> {
    let next = first + given.len() as u32;
    if given.contains_key(name) {
        return Ok(());
    }
    if next >= end {
        return Err(format!("a slot has room for {} addresses of a kind", end - first));
    }
    given.insert(name.to_owned(), next);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_that_are_routed_are_left_alone() {
        let head = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
        let all: Vec<_> = Subnet::candidates("a", head).collect();
        assert_eq!(all.len(), 512);
        let routes = format!("{head}eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n");
        assert_eq!(Subnet::candidates("a", &routes).count(), 512);
        // 10.208.16.0/24 lies in one of them, 10.224.0.0/11 covers the upper half.
        let routes = format!(
            "{head}tun0 0010D00A 00000000 0001 0 0 0 00FFFFFF 0 0 0\ntun1 0000E00A 00000000 0001 0 0 0 0000E0FF 0 0 0\n"
        );
        let free: Vec<_> = Subnet::candidates("a", &routes).map(Subnet::text).collect();
        assert_eq!(free.len(), 255);
        assert!(!free.contains(&"10.208.16.0/20".to_owned()));
        let whole = format!("{head}tun0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\n");
        assert_eq!(Subnet::candidates("a", &whole).count(), 512, "a VPN's");
    }
}
