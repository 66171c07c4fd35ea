//! Back ends that run an application: one trait, one contract, no container type in a signature.
//!
//! The engine opens a slot, reserves the listeners of a plan and hands them to the mesh, applies the
//! plan, and then runs tests in the slot. Everything a slot holds is gone when [`Platform::close_slot`]
//! returns, and also when the tool itself is killed.

#![expect(clippy::result_large_err, reason = "errors are rare and carry what people need to read")]

#[cfg(feature = "contract")]
pub mod contract;
#[cfg(feature = "docker")]
pub mod docker;
mod error;
mod grpc_health;
mod log;
#[cfg(feature = "loopback")]
pub mod loopback;
pub mod memory;
mod probe;
pub mod process;
mod readiness;
mod snapshot;
mod starting;
mod types;

#[cfg(feature = "docker")]
pub use docker::{DockerOptions, DockerPlatform};
pub use error::{PlatformError, PlatformErrorKind};
pub use memory::{MemoryPlatform, Simulation};
pub use probe::is_ready;
pub use process::{ProcessOptions, ProcessPlatform, WantedIsolation};
pub use snapshot::{DataForm, DataSize, InstanceSnapshot, SharedData, SharedSnapshot, Snapshot};
pub use types::{
    Action, Capabilities, ConnectionWatch, Deployed, Deployment, Execution, Exit, Isolation, LimitsBy,
    MeshPlace, Place, PlatformEvent, Reaped, Reservation, ReservedListener, Rights, SlotSpec,
};

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use faultscope_model::log::InstanceLog;
use faultscope_model::metrics::Sample;
use faultscope_model::plan::Plan;
use faultscope_model::{InstanceId, SlotId};
use tokio::net::TcpStream;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// A back end that runs plans in slots.
#[async_trait]
pub trait Platform: fmt::Debug + Send + Sync {
    /// Short name used in configuration, logs and reports.
    fn name(&self) -> &'static str;

    /// What this back end can do on this machine, determined by trying.
    fn capabilities(&self) -> Capabilities;

    /// Creates a slot for one trial at a time, and prepares what all its trials share (the result of `setup`).
    async fn open_slot(&self, spec: &SlotSpec) -> Result<(), PlatformError>;

    /// Stops instances that the plan does not keep, and opens the listeners that callers of the plan need,
    /// before anything is started. Connections made to them wait until the mesh accepts.
    async fn reserve(&self, slot: SlotId, plan: &Plan) -> Result<Reservation, PlatformError>;

    /// Applies the plan with the fewest actions and returns when every instance is ready. A service that ends or does
    /// not become ready is an error of kind [`PlatformErrorKind::NotReady`] with its last lines.
    /// When `cancel` fires, it returns at once with [`PlatformErrorKind::Cancelled`].
    async fn apply(
        &self,
        slot: SlotId,
        plan: &Plan,
        cancel: &CancellationToken,
    ) -> Result<Deployment, PlatformError>;

    /// Connects to a port of an instance, by whatever route this back end has.
    async fn dial(&self, slot: SlotId, instance: &InstanceId, port: u16) -> std::io::Result<TcpStream>;

    /// Events of the slot from now on.
    fn events(&self, slot: SlotId) -> broadcast::Receiver<PlatformEvent>;

    /// Acts on an instance; a restart keeps its durable data and returns when it is ready again.
    async fn act(&self, slot: SlotId, instance: &InstanceId, action: Action) -> Result<(), PlatformError>;

    /// Runs a test's command in the slot, where service names and their ports (also on `localhost`) lead
    /// into the mesh. Everything it started is gone when this returns, also after a time-out or a cancel.
    async fn exec(
        &self,
        slot: SlotId,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError>;

    /// A folder that test commands of the slot see under the same path as the tool, and may write to. What a killed
    /// tool leaves in it is removed as other leftovers are.
    fn exchange_folder(&self, _slot: SlotId) -> Result<PathBuf, PlatformError> {
        let shared = PathBuf::from("/dev/shm");
        Ok(if shared.is_dir() { shared } else { std::env::temp_dir() })
    }

    /// The resource usage of each running instance, with wall-clock times. What cannot be measured is missing.
    /// Counters decrease only if their instance was restarted.
    async fn metrics(&self, slot: SlotId) -> Result<Vec<Sample>, PlatformError>;

    /// The last lines an instance printed, with the times at which they arrived; bounded. A restart keeps them.
    async fn log(&self, slot: SlotId, instance: &InstanceId) -> Result<InstanceLog, PlatformError>;

    /// Copies the data of all instances into an empty folder, as it is at one moment: they are frozen together, and each
    /// goes on as soon as its own data is copied. They go on even if this future is dropped.
    async fn snapshot(&self, slot: SlotId, into: &Path) -> Result<Snapshot, PlatformError>;

    /// Lets the next `reserve` and `apply` of the slot start from this data, once. None of its instances is kept, and
    /// those that the snapshot does not have start with fresh data. The folder is only read.
    async fn restore(&self, slot: SlotId, from: &Path, snapshot: &Snapshot) -> Result<(), PlatformError>;

    /// Puts everything of a snapshot into its folder, so that it can be carried to another machine.
    async fn pack_snapshot(&self, _from: &Path, _snapshot: &Snapshot) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Removes what a snapshot has outside of its folder.
    async fn forget_snapshot(&self, _snapshot: &Snapshot) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Runs a command like [`Platform::exec`], with this terminal as its input and output.
    async fn attach(
        &self,
        _slot: SlotId,
        _run: &Execution,
        _terminal: OwnedFd,
        _cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        Err(PlatformError::new(PlatformErrorKind::Unsupported, self.name(), "open a terminal in an instance"))
    }

    /// Checks that what the slot itself needs (agents, sidecars) is still there; otherwise whatever was observed
    /// in the slot is no evidence. When it returns, everything that has happened was reported as an event.
    async fn intact(&self, _slot: SlotId) -> Result<(), PlatformError> {
        Ok(())
    }

    /// Ends everything in the slot at once and returns when it is gone. The slot can be used again by
    /// `reserve` and `apply`. Cancelled trials are removed in this way.
    async fn clear_slot(&self, slot: SlotId) -> Result<(), PlatformError>;

    /// Clears the slot and removes it.
    async fn close_slot(&self, slot: SlotId) -> Result<(), PlatformError>;

    /// Removes what a killed tool left behind.
    async fn reap_orphans(&self) -> Result<Reaped, PlatformError>;

    /// The simulated duration of a trial; real back ends have none.
    fn virtual_time(&self, _slot: SlotId) -> Option<Duration> {
        None
    }
}

/// Microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
