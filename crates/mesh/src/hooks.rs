//! What a mesh needs from its owner. It asks for nothing else, so it can run beside any platform.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use faultscope_model::span::Span;
use faultscope_model::{InstanceId, RestartError};
use futures_util::future::BoxFuture;

/// The owner's side of a slot's mesh.
#[derive(Clone)]
pub struct Hooks {
    /// Opens connections to instances whose endpoint has no address.
    pub dialer: Arc<dyn Dialer>,
    /// Takes the spans.
    pub recorder: Arc<dyn Recorder>,
    /// Restarts instances for `Effect::RestartAfter`.
    pub restarter: Arc<dyn Restarter>,
}

/// Opens connections into places that the mesh cannot reach by an address.
pub trait Dialer: Send + Sync {
    /// Connects to a port of an instance; the socket is non-blocking.
    fn dial(&self, instance: &InstanceId, port: u16) -> BoxFuture<'static, io::Result<TcpStream>>;
}

/// Takes finished spans.
pub trait Recorder: Send + Sync {
    /// Takes one span; called on a worker thread, so it must not block.
    fn record(&self, span: Span);
}

/// Restarts instances.
pub trait Restarter: Send + Sync {
    /// Restarts an instance and ends when it is ready again.
    fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>>;
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}
