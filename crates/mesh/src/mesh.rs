//! The mesh as a whole: its worker threads and what they share.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use faultscope_model::SlotId;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::hooks::Hooks;
use crate::slot::MeshSlot;
use crate::tls::Authority;

/// How a mesh runs.
#[derive(Debug, Clone)]
pub struct MeshOptions {
    /// Threads that carry calls, each with a runtime of its own.
    pub workers: usize,
}

/// Why a mesh could not start.
#[derive(Debug, thiserror::Error)]
pub enum MeshError {
    /// A worker thread did not start.
    #[error("cannot start a mesh worker")]
    Worker(#[source] io::Error),
    /// The certificate authority could not be made.
    #[error("cannot make the mesh's certificate authority")]
    Authority(#[source] rcgen::Error),
    /// The stream between tool and sidecar broke.
    #[error("lost the stream between tool and sidecar")]
    Control(#[source] io::Error),
    /// A sidecar was refused: another version, or the wrong token.
    #[error("a sidecar of another version or with a wrong token was refused")]
    Refused,
    /// There is no runtime to run on.
    #[error("the mesh was started outside of a runtime")]
    NoRuntime,
}

/// Worker threads that carry the calls of slots; ends them when it is dropped.
#[derive(Debug)]
pub struct Mesh {
    workers: Arc<Workers>,
    threads: Mutex<Vec<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// The runtimes of the workers and what these share.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Vec<Handle>,
    next: AtomicUsize,
    pub(crate) clock: Arc<Clock>,
    pub(crate) authority: Arc<Authority>,
}

impl Default for MeshOptions {
    fn default() -> Self {
        Self { workers: 1 }
    }
}

// === impl Mesh ===

impl Mesh {
    /// Starts the worker threads.
    pub fn start(options: MeshOptions) -> Result<Self, MeshError> {
        let mut handles = Vec::new();
        let mut threads = Vec::new();
        for number in 0..options.workers.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build().map_err(MeshError::Worker)?;
            handles.push(runtime.handle().clone());
            let (stop, stopped) = oneshot::channel::<()>();
            let thread = std::thread::Builder::new().name(format!("mesh-{number}")).spawn(move || {
                // The sender is dropped when the mesh is, which is also a reason to stop.
                let _ = runtime.block_on(stopped);
            });
            threads.push((stop, thread.map_err(MeshError::Worker)?));
        }
        Ok(Self { workers: Arc::new(Workers::new(handles)?), threads: Mutex::new(threads) })
    }

    /// Runs on the current runtime instead of threads of its own: for sidecars and for tests that pause
    /// the clock.
    pub fn start_here() -> Result<Self, MeshError> {
        let handle = Handle::try_current().map_err(|_| MeshError::NoRuntime)?;
        Ok(Self { workers: Arc::new(Workers::new(vec![handle])?), threads: Mutex::default() })
    }

    /// The mesh of one slot.
    pub fn open(&self, slot: SlotId, hooks: Hooks) -> MeshSlot {
        MeshSlot::new(slot, hooks, Arc::clone(&self.workers))
    }

    /// The certificate authority that services must trust for `Protocol::Https`, in PEM form.
    pub fn authority_pem(&self) -> String {
        self.workers.authority.pem().to_owned()
    }

    /// Ends the worker threads and everything they carry.
    pub fn shutdown(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let (stops, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        drop(stops);
        for thread in threads {
            // A worker that panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.shutdown();
    }
}

// === impl Workers ===

impl Workers {
    fn new(handles: Vec<Handle>) -> Result<Self, MeshError> {
        let authority = Authority::new().map_err(MeshError::Authority)?;
        let clock = Arc::new(Clock::start());
        Ok(Self { handles, next: AtomicUsize::new(0), clock, authority: Arc::new(authority) })
    }

    /// Runs work on the next worker in turn.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len();
        self.handles[turn].spawn(work).abort_handle()
    }
}
