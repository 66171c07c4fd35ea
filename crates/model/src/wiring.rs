//! What a mesh must know to carry the calls of one slot, as plain data: it is also sent to sidecars.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{InstanceId, NodeId, ServiceName, SlotId};
use crate::operation::OperationPattern;
use crate::protocol::Protocol;
use crate::rule::Rule;
use crate::series::Gate;
use crate::units;

/// Everything a slot's mesh must know during one trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wiring {
    /// The slot.
    pub slot: SlotId,
    /// The source of every random choice of the mesh: balancing, jitter, loss, span ids.
    pub seed: u64,
    /// Distinguishes campaigns with the same seed, whose trace ids must differ.
    #[serde(default)]
    pub campaign: u64,
    /// All callers, with their source addresses where a listener serves several of them.
    pub callers: Vec<Caller>,
    /// The instances of each service; an empty list means that the service is down.
    pub endpoints: BTreeMap<ServiceName, Vec<Endpoint>>,
    /// How instances are chosen; round robin for services that are not listed.
    #[serde(default)]
    pub balance: BTreeMap<ServiceName, Balance>,
    /// Latency and loss between nodes.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Effects on selected calls.
    #[serde(default)]
    pub rules: Vec<Rule>,
    /// Whether calls get stable names, the same in every run.
    #[serde(default)]
    pub targets: bool,
    /// Series that are released in a chosen order.
    #[serde(default)]
    pub gates: Vec<Gate>,
    /// Whether callers are found by the trace context of their calls, where neither listener nor address tells them.
    #[serde(default)]
    pub callers_by_context: bool,
    /// How much of each call is recorded.
    #[serde(default)]
    pub record: RecordLevel,
    /// How much is recorded of some calls; the first that fits counts.
    #[serde(default)]
    pub record_rules: Vec<LevelRule>,
    /// Hosts outside the application.
    #[serde(default)]
    pub externals: Vec<ExternalHost>,
}

/// An instance that may make calls.
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
    /// The service that callers address.
    pub callee: ServiceName,
    /// The port that callers address.
    pub port: u16,
    /// The protocol on this port.
    #[serde(default)]
    pub protocol: Protocol,
    /// The only caller that uses this listener; none if source addresses distinguish callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<InstanceId>,
}

/// An instance that can be called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The instance.
    pub instance: InstanceId,
    /// The node it is on.
    #[serde(default)]
    pub node: NodeId,
    /// The address of each of its ports, if it can be dialled directly; otherwise the platform dials.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<u16, SocketAddr>,
}

/// How the mesh chooses among instances.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Balance {
    /// In turn, over all callers of the slot.
    #[default]
    RoundRobin,
    /// At random from the seed.
    Random,
    /// The instance with the fewest calls in flight; the lowest ordinal among equals.
    LeastBusy,
    /// Always the same instance for one caller instance.
    StickyCaller,
    /// Always the same instance for one value of a header; round robin for calls without it.
    StickyHeader {
        /// The header's name.
        name: String,
    },
    /// Always this instance.
    Pinned {
        /// The ordinal of the instance.
        ordinal: u32,
    },
}

/// What the network between two nodes adds to each call.
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
    /// The largest additional latency, chosen at random from the seed.
    #[serde(default, with = "units::duration")]
    pub jitter: Duration,
    /// The share of calls whose connection is reset, 0 to 1.
    #[serde(default)]
    pub loss: f64,
}

/// The host at which instances reach the collector of their slot.
pub const COLLECTOR: &str = "faultscope-collector";

/// Its ports: OTLP over gRPC, OTLP over HTTP, Zipkin.
pub const COLLECTOR_PORTS: [u16; 3] = [4317, 4318, 9411];

/// The host that instances use as their resolver for undeclared hosts; the mesh answers for it. A plan that lists it
/// among its externals makes platforms configure it.
pub const RESOLVER: &str = "faultscope-names";

/// A host that is not part of the application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalHost {
    /// The name under which callers find it.
    pub host: String,
    /// The pseudo-service that stands for it in listeners and spans.
    pub service: ServiceName,
    /// Whether calls are forwarded; otherwise they are refused and recorded.
    #[serde(default)]
    pub allow: bool,
    /// The ports that callers use.
    #[serde(default)]
    pub ports: Vec<u16>,
}

/// What callers of a service meet while it is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutageMode {
    /// As if its process had ended: connections are closed, and new ones are refused.
    #[default]
    Refuse,
    /// Connections are reset, and new ones as soon as something is sent.
    Reset,
    /// Nothing is answered: connections stay open, and no byte moves until it is over.
    Hang,
}

impl OutageMode {
    /// The name in files and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Reset => "reset",
            Self::Hang => "hang",
        }
    }
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
        /// The most bytes of each body.
        most: u32,
    },
}

/// How much is recorded of the calls to a service, or of one of its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelRule {
    /// The service that is called.
    pub service: ServiceName,
    /// The operation; any if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationPattern>,
    /// How much is recorded.
    pub level: RecordLevel,
}

impl RecordLevel {
    /// The bound of bodies that are recorded whole: each is held in memory until it is written.
    pub const WHOLE: u32 = 16 << 20;
}

impl Default for RecordLevel {
    fn default() -> Self {
        Self::Bodies { most: 1024 }
    }
}
