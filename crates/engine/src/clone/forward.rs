//! Forwards a port of the loopback interface to a port of an instance, for debuggers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::{InstanceId, SlotId};
use faultscope_platform::Platform;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// How often, and how many times, to try to reach a debugger that is still starting: 30 seconds in all.
const TRY_EVERY: Duration = Duration::from_millis(100);
const TRIES: usize = 300;
/// Connections at the same time; a debugger needs one or two.
const MAX_CONNECTIONS: usize = 64;

/// A forwarded port, until it is dropped.
#[derive(Debug)]
pub struct Forwarded {
    /// Where people connect to.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens on the same port of the loopback interface, or on a free one if it is in use.
pub async fn forward_port(
    platform: Arc<dyn Platform>,
    slot: SlotId,
    instance: InstanceId,
    port: u16,
) -> io::Result<Forwarded> {
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?,
    };
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                Ok((stream, _)) = listener.accept(), if open.len() < MAX_CONNECTIONS => {
                    open.spawn(carry(Arc::clone(&platform), slot, instance.clone(), port, stream));
                }
                Some(_) = open.join_next() => {}
                // This process has no descriptor for another connection.
                else => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    });
    Ok(Forwarded { address, task: task.abort_handle() })
}

async fn carry(
    platform: Arc<dyn Platform>,
    slot: SlotId,
    instance: InstanceId,
    port: u16,
    mut stream: TcpStream,
) {
    for _ in 0..TRIES {
        if let Ok(mut debugger) = platform.dial(slot, &instance, port).await {
            // Both ends decide when they are done, and errors are theirs.
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut debugger).await;
            return;
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
}
