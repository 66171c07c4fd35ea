//! The plain data of the platform interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use faultscope_model::units::ByteSize;
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec};
use faultscope_model::{InstanceId, NodeId, ServiceName, SlotId};
use serde::Serialize;

/// What a back end can do on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// How instances are isolated.
    pub isolation: Isolation,
    /// What enforces memory and CPU limits.
    pub limits: LimitsBy,
    /// Where the mesh runs.
    pub mesh: MeshPlace,
    /// Whether snapshots of the data of instances are supported.
    pub snapshots: bool,
    /// Whether instances can be frozen.
    pub pause: bool,
    /// The most slots that can be open at once; none if unlimited.
    pub most_slots: Option<u16>,
    /// Notes for people: why something is missing.
    pub notes: Vec<String>,
}

/// How instances are isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Their own network, mount and PID namespaces.
    Netns,
    /// Their own ports on the loopback interface of the host.
    Ports,
    /// Containers.
    Containers,
    /// Nothing runs.
    Simulated,
}

/// What enforces memory and CPU limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitsBy {
    /// Control groups, version 2.
    CgroupV2,
    /// Control groups, version 1.
    CgroupV1,
    /// Resource limits of the process: memory limits the address space, CPU is not limited.
    Rlimit,
    /// The container engine.
    Engine,
    /// The simulation.
    Simulated,
}

/// Where the mesh runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeshPlace {
    /// In the tool's own process: `reserve` passes sockets to it.
    Local,
    /// In a sidecar beside each instance.
    Sidecar,
    /// There are no calls.
    Nowhere,
}

/// What a slot needs to know about its application.
#[derive(Debug, Clone)]
pub struct SlotSpec {
    /// The number of the slot.
    pub id: SlotId,
    /// Unique among all slots on this machine; processes and containers are labelled with it.
    pub label: String,
    /// The folder of the application file.
    pub application: PathBuf,
    /// The tool's folder, `.faultscope`; slots keep their layers and logs in it.
    pub state: PathBuf,
    /// The command that fills the template from which every trial starts; runs once per `template`.
    pub setup: Option<Vec<String>>,
    /// Identifies the template: slots with the same text share one.
    pub template: String,
    /// The executable that `${faultscope}` stands for.
    pub program: PathBuf,
    /// The most bytes of log for each instance.
    pub log_limit: ByteSize,
    /// The certificate authority (PEM) that services must trust, if the mesh terminates their TLS.
    pub authority: Option<String>,
    /// For sidecars: the control socket they connect to.
    pub control: Option<PathBuf>,
    /// The home of whoever runs the tool. Processes see it without its secrets, and what they write is gone after
    /// the trial.
    pub home: Option<PathBuf>,
    /// Paths of this machine that processes see as they are, and may change.
    pub shared: Vec<PathBuf>,
}

/// The listeners and callers of a plan, before anything runs.
#[derive(Debug)]
pub struct Reservation {
    /// Listening sockets for the mesh; empty if sidecars listen.
    pub listeners: Vec<ReservedListener>,
    /// The instances that will call, with their source addresses.
    pub callers: Vec<Caller>,
    /// The addresses that instances will have.
    pub endpoints: Vec<Endpoint>,
    /// Instances of the trial before that go on; connections between them may, too.
    pub kept: BTreeSet<InstanceId>,
    /// Hears of connections that no listener takes, where the platform can.
    pub watch: Option<ConnectionWatch>,
}

/// A raw socket that hears of every connection to the slot's hosts, so that those are known which nobody takes.
#[derive(Debug)]
pub struct ConnectionWatch {
    /// Each packet is the first one of a connection, from its IP header on; non-blocking.
    pub socket: UdpSocket,
    /// The services, by the addresses under which callers reach them.
    pub hosts: BTreeMap<IpAddr, ServiceName>,
}

/// A listening socket and the port it stands for.
#[derive(Debug)]
pub struct ReservedListener {
    /// The service and port that callers address.
    pub spec: ListenerSpec,
    /// Already listening and non-blocking.
    pub socket: TcpListener,
}

/// The result of `apply`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deployment {
    /// All instances of the plan.
    pub instances: Vec<Deployed>,
    /// Instances created.
    pub created: usize,
    /// Instances destroyed.
    pub destroyed: usize,
    /// Instances that kept running.
    pub kept: usize,
}

/// One running instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deployed {
    /// The instance.
    pub id: InstanceId,
    /// The node it was placed on.
    pub node: NodeId,
    /// From its start until it was ready.
    #[serde(with = "faultscope_model::units::duration")]
    pub ready_after: Duration,
}

/// An event in a slot.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlatformEvent {
    /// An instance is ready.
    Ready {
        /// The instance.
        instance: InstanceId,
    },
    /// An instance ended without a request to do so.
    Exited {
        /// The instance.
        instance: InstanceId,
        /// Its exit code, if it had one.
        code: Option<i32>,
        /// The signal that killed it, if one did.
        signal: Option<i32>,
        /// Whether the kernel killed it (or one of its children) because memory ran out.
        out_of_memory: bool,
    },
    /// An instance was killed because its trial wrote more to disk than it may.
    OutOfDisk {
        /// The instance.
        instance: InstanceId,
        /// The most bytes of a trial.
        limit: ByteSize,
    },
    /// The kernel killed a child of an instance because memory ran out, and the instance goes on.
    OutOfMemory {
        /// The instance.
        instance: InstanceId,
    },
}

/// An action on an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Kills it (SIGKILL) and starts it again with its durable data.
    Restart,
    /// Kills it and leaves it down.
    Kill,
    /// Freezes it.
    Pause,
    /// Continues it after a pause.
    Resume,
}

/// Where a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Place {
    /// Beside the instances, as a test.
    #[default]
    Test,
    /// In this instance.
    Instance(InstanceId),
}

/// What a command may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rights {
    /// What services may: at most what a container may do by default.
    #[default]
    Service,
    /// What the slot's agent may, so that a debugger or a profiler can look into any process of the slot.
    Agent,
}

/// A command to run in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment variables in addition to the defaults.
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to the application file.
    pub directory: String,
    /// The command is killed if it takes longer.
    pub within: Duration,
    /// The most bytes kept of each output: the first and the last half of it.
    pub output_limit: usize,
    /// Where it runs.
    pub place: Place,
    /// What it may do there.
    pub rights: Rights,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// Its exit code, if it had one.
    pub code: Option<i32>,
    /// The signal that killed it, if one did.
    pub signal: Option<i32>,
    /// Whether it was killed because it took too long.
    pub timed_out: bool,
    /// Its stdout, bounded.
    pub stdout: String,
    /// Its stderr, bounded.
    pub stderr: String,
    /// From its start to its end.
    #[serde(with = "faultscope_model::units::duration")]
    pub took: Duration,
}

/// What was removed of a dead tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Reaped {
    /// Processes ended.
    pub processes: usize,
    /// Control groups removed.
    pub cgroups: usize,
    /// Mounts undone.
    pub mounts: usize,
    /// Containers removed.
    pub containers: usize,
    /// Folders deleted.
    pub folders: usize,
}

impl Reaped {
    /// Whether nothing was removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
