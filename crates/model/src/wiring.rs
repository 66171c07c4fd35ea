//! What a mesh must know to carry the calls of one slot, as plain data: it also travels to sidecars.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceId, NodeId, ServiceName, SlotId};
use crate::protocol::Protocol;
use crate::rule::Rule;
use crate::series::Gate;
use crate::units;

/// Everything a slot's mesh must know during one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// The slot.
    pub slot: SlotId,
    /// Decides every random choice of the mesh: balancing, jitter, loss, span ids.
    pub seed: u64,
    /// Tells campaigns of the same seed apart: the ids of their traces must differ.
    #[serde(default)]
    pub campaign: u64,
    /// Who may call, with the address it calls from where a listener serves several callers.
    pub callers: Vec<Caller>,
    /// Where each service's instances are; an empty list means that the service is down.
    pub endpoints: BTreeMap<ServiceName, Vec<Endpoint>>,
    /// How an instance is chosen; round robin where nothing is said.
    #[serde(default)]
    pub balance: BTreeMap<ServiceName, Balance>,
    /// What the links between nodes add.
    #[serde(default)]
    pub links: Vec<Link>,
    /// What is done to chosen calls.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Whether calls get names by which they are known in every run.
    #[serde(default)]
    pub targets: bool,
    /// Series that are released in a chosen order.
    #[serde(default)]
    pub gates: Vec<Gate>,
    /// How much is recorded.
    #[serde(default)]
    pub record: RecordLevel,
    /// Hosts outside the application.
    #[serde(default)]
    pub externals: Vec<ExternalHost>,
}

/// An instance that makes calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The instance; `test-1` for the test.
    pub instance: InstanceId,
    /// The node it is on.
    #[serde(default)]
    pub node: NodeId,
    /// The source address of its connections, where listeners are shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// Where the mesh accepts calls to one port of one service (or of an external host).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerSpec {
    /// The service that callers mean.
    pub callee: ServiceName,
    /// The port that callers mean.
    pub port: u16,
    /// What it speaks.
    #[serde(default)]
    pub protocol: Protocol,
    /// The one caller that uses this listener; none where callers are told apart by their address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<InstanceId>,
}

/// One instance that can be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The instance.
    pub instance: InstanceId,
    /// The node it is on.
    #[serde(default)]
    pub node: NodeId,
    /// The address for each of its ports, where it can be dialled from here; otherwise the platform dials.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<u16, SocketAddr>,
}

/// How the mesh chooses among instances.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Balance {
    /// One after the other, over all callers of the slot.
    #[default]
    RoundRobin,
    /// At random, from the seed.
    Random,
    /// The one with the fewest calls in flight, the lowest ordinal among equals.
    LeastBusy,
    /// Always the same for one caller instance.
    StickyCaller,
    /// Always the same for one value of a header; round robin without it.
    StickyHeader {
        /// The header's name.
        name: String,
    },
    /// Always this one.
    Pinned {
        /// The ordinal of the instance.
        ordinal: u32,
    },
}

/// What the way between two nodes adds to each call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// One end; none means any other node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeId>,
    /// The other end; none means any other node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<NodeId>,
    /// Added to each direction of a call.
    #[serde(default, with = "units::duration")]
    pub latency: Duration,
    /// Up to so much more, at random from the seed.
    #[serde(default, with = "units::duration")]
    pub jitter: Duration,
    /// The share of calls whose connection is reset, 0 to 1.
    #[serde(default)]
    pub loss: f64,
}

/// The host that instances ask for the addresses of hosts which nobody declared; the mesh answers for it. Where a plan
/// has it among its externals, their resolver is told.
pub const RESOLVER: &str = "faultscope-names";

/// A host that is not part of the application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalHost {
    /// Its name; callers find it under this name, listeners name it as callee.
    pub host: String,
    /// The pseudo-service name that its listeners and spans carry.
    pub service: ServiceName,
    /// Whether calls may leave; otherwise they are refused and recorded.
    #[serde(default)]
    pub allow: bool,
    /// Its ports.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// How much of a call is recorded beside its timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "level", rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordLevel {
    /// Names, times, sizes, status.
    Timing,
    /// Also headers.
    Headers,
    /// Also the first bytes of each body.
    Bodies {
        /// How many.
        most: u32,
    },
}

impl Default for RecordLevel {
    fn default() -> Self {
        Self::Bodies { most: 1024 }
    }
}
