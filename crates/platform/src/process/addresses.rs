//! Addresses of instances and services in a slot, and hosts files with them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use faultscope_model::plan::Plan;
use faultscope_model::wiring::RESOLVER;

/// Assigned addresses; they stay the same as long as the slot's networks exist.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    places: BTreeMap<String, Ipv4Addr>,
    aliases: BTreeMap<String, Ipv4Addr>,
    /// Host names that callers use, each with its alias.
    names: BTreeMap<String, Ipv4Addr>,
}

impl Addresses {
    /// The address of a place, and whether it is new.
    pub(crate) fn place(&mut self, name: &str) -> (Ipv4Addr, bool) {
        assign(&mut self.places, name, 200)
    }

    /// The address under which callers reach a service, and whether it is new.
    pub(crate) fn alias(&mut self, service: &str) -> (Ipv4Addr, bool) {
        assign(&mut self.aliases, service, 201)
    }

    /// The address of a known place.
    pub(crate) fn of_place(&self, name: &str) -> Option<Ipv4Addr> {
        self.places.get(name).copied()
    }

    /// Adds the names of a plan, forgetting those of the plan before.
    pub(crate) fn learn(&mut self, plan: &Plan) {
        self.names.clear();
        for service in plan.ports.keys() {
            let (address, _) = self.alias(service.as_str());
            self.names.insert(service.as_str().to_owned(), address);
        }
        for (name, service) in &plan.aliases {
            let (address, _) = self.alias(service.as_str());
            self.names.insert(name.clone(), address);
        }
        for external in &plan.externals {
            let (address, _) = self.alias(external.service.as_str());
            self.names.insert(external.host.clone(), address);
        }
    }

    /// The resolver for names that no hosts file has.
    pub(crate) fn resolver(&self) -> Option<Ipv4Addr> {
        self.names.get(RESOLVER).copied()
    }

    /// The hosts file of a place.
    pub(crate) fn hosts(&self, place: &str) -> String {
        let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
        for (name, address) in &self.names {
            let _ = writeln!(text, "{address} {name}");
        }
        if let Some(address) = self.of_place(place) {
            let _ = writeln!(text, "{address} {place}");
        }
        text
    }
}

fn assign(given: &mut BTreeMap<String, Ipv4Addr>, name: &str, net: u8) -> (Ipv4Addr, bool) {
    if let Some(address) = given.get(name) {
        return (*address, false);
    }
    let number = given.len();
    // From x.y.1.1 on: 10.201.0.1 is the gateway.
    let address = Ipv4Addr::new(10, net, (1 + number / 250).min(255) as u8, (1 + number % 250) as u8);
    given.insert(name.to_owned(), address);
    (address, true)
}
