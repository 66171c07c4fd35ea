//! Plain data that goes in and out of a platform.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use faultscope_model::units::ByteSize;
use faultscope_model::wiring::{Caller, Endpoint, ListenerSpec};
use faultscope_model::{InstanceId, NodeId, SlotId};
use serde::Serialize;

/// What a back end can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// How instances are kept apart.
    pub isolation: Isolation,
    /// What limits memory and CPU.
    pub limits: LimitsBy,
    /// Where the mesh runs.
    pub mesh: MeshPlace,
    /// Whether durable data can be kept and put back.
    pub snapshots: bool,
    /// Whether instances can be frozen.
    pub pause: bool,
    /// How many slots can be open at once, where there is a bound.
    pub most_slots: Option<u16>,
    /// What people should know: why something is missing.
    pub notes: Vec<String>,
}

/// How instances are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Own network, mount and process namespaces.
    Netns,
    /// Own ports on the host's loopback.
    Ports,
    /// Containers.
    Containers,
    /// Nothing runs.
    Simulated,
}

/// What limits memory and CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitsBy {
    /// Control groups, version 2.
    CgroupV2,
    /// Control groups, version 1.
    CgroupV1,
    /// Resource limits of the process: memory is address space, CPU is not limited.
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
    /// In the tool's own process: `reserve` hands over sockets.
    Local,
    /// In a sidecar beside each instance.
    Sidecar,
    /// There are no calls.
    Nowhere,
}

/// What a slot needs to know of its application.
#[derive(Debug, Clone)]
pub struct SlotSpec {
    /// Its number.
    pub id: SlotId,
    /// Unique among all slots of all tools of this machine; labels carry it.
    pub label: String,
    /// The folder of the application file.
    pub application: PathBuf,
    /// The tool's own folder, `.faultscope`; slots keep their layers and logs below it.
    pub state: PathBuf,
    /// Command that fills the template every trial starts from; run once for each `template`.
    pub setup: Option<Vec<String>>,
    /// Names the template: the same text means the same template, shared by slots.
    pub template: String,
    /// The tool's own program, what `${faultscope}` stands for.
    pub program: PathBuf,
    /// Bytes of log kept for each instance.
    pub log_limit: ByteSize,
    /// The certificate authority (PEM) that services must trust, where the mesh ends their TLS.
    pub authority: Option<String>,
    /// For sidecars: the control socket they report to.
    pub control: Option<PathBuf>,
}

/// Listeners and callers of a plan, before anything runs.
#[derive(Debug)]
pub struct Reservation {
    /// Listening sockets for the mesh; empty where sidecars listen.
    pub listeners: Vec<ReservedListener>,
    /// Who will call, from which address.
    pub callers: Vec<Caller>,
    /// Where instances will be.
    pub endpoints: Vec<Endpoint>,
}

/// A listening socket and what it stands for.
#[derive(Debug)]
pub struct ReservedListener {
    /// What callers mean by it.
    pub spec: ListenerSpec,
    /// The socket, already listening, non-blocking.
    pub socket: TcpListener,
}

/// What runs after `apply`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deployment {
    /// Every instance.
    pub instances: Vec<Deployed>,
    /// How many were created.
    pub created: usize,
    /// How many were destroyed.
    pub destroyed: usize,
    /// How many went on.
    pub kept: usize,
}

/// One running instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deployed {
    /// Which.
    pub id: InstanceId,
    /// Where.
    pub node: NodeId,
    /// How long from its start until it was ready.
    #[serde(with = "faultscope_model::units::duration")]
    pub ready_after: Duration,
}

/// Something that happened in a slot.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PlatformEvent {
    /// An instance is ready.
    Ready {
        /// Which.
        instance: InstanceId,
    },
    /// An instance ended without being asked to.
    Exited {
        /// Which.
        instance: InstanceId,
        /// Its exit code, if it had one.
        code: Option<i32>,
        /// The signal that ended it, if one did.
        signal: Option<i32>,
        /// Whether the kernel ended it (or one of its children) because memory ran out.
        out_of_memory: bool,
    },
    /// The kernel ended a child of an instance because memory ran out, and the instance goes on.
    OutOfMemory {
        /// Which.
        instance: InstanceId,
    },
}

/// What can be done to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Ends it at once (SIGKILL) and starts it again with its durable data.
    Restart,
    /// Ends it at once and leaves it down.
    Kill,
    /// Freezes it.
    Pause,
    /// Lets it go on.
    Resume,
}

/// Where a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Place {
    /// Beside the instances, as the test.
    #[default]
    Test,
    /// Where this instance runs.
    Instance(InstanceId),
}

/// A command to run in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment beyond the defaults.
    pub env: BTreeMap<String, String>,
    /// Working directory, relative to the application file.
    pub directory: String,
    /// How long it may take.
    pub within: Duration,
    /// Bytes kept of each of its outputs: the first and the last half of it.
    pub output_limit: usize,
    /// Where.
    pub place: Place,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exit {
    /// Its exit code, if it had one.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Whether it was ended because it took too long.
    pub timed_out: bool,
    /// What it printed to stdout, bounded.
    pub stdout: String,
    /// What it printed to stderr, bounded.
    pub stderr: String,
    /// How long it took.
    #[serde(with = "faultscope_model::units::duration")]
    pub took: Duration,
}

/// Durable data that was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Where it lies; only the platform that made it understands it.
    pub location: PathBuf,
}

/// What a dead tool had left.
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
    /// Whether there was nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
