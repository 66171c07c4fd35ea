//! What stands in for store and platform.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

use faultscope_mesh::{Dialer, Recorder, Restarter};
use faultscope_model::span::Span;
use faultscope_model::{InstanceId, RestartError};
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc, watch};

/// Keeps spans in the order of their ends.
#[derive(Default)]
pub(crate) struct Spans {
    spans: Mutex<Vec<Span>>,
    changed: Notify,
}

impl Spans {
    /// Waits until there are so many.
    pub(crate) async fn wait(&self, count: usize) -> Vec<Span> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let spans = self.spans.lock().unwrap();
                if spans.len() >= count {
                    return spans.clone();
                }
            }
            changed.await;
        }
    }
}

impl Recorder for Spans {
    fn record(&self, span: Span) {
        self.spans.lock().unwrap().push(span);
        self.changed.notify_waiters();
    }
}

/// Dials what it was told, and notes restarts.
#[derive(Default)]
pub(crate) struct FakePlatform {
    slow: Mutex<Option<(mpsc::UnboundedSender<()>, watch::Receiver<bool>)>>,
    /// Whether this process has as many descriptors as it may have.
    pub(crate) is_full: std::sync::atomic::AtomicBool,
    pub(crate) reachable: Mutex<BTreeMap<InstanceId, SocketAddr>>,
    pub(crate) restarted: Mutex<Vec<InstanceId>>,
}

/// Restarts that take as long as the test wants.
pub(crate) struct SlowRestart {
    begun: mpsc::UnboundedReceiver<()>,
    end: watch::Sender<bool>,
}

impl FakePlatform {
    /// Lets restarts wait from now on.
    pub(crate) fn take_time(&self) -> SlowRestart {
        let (begins, begun) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(false);
        *self.slow.lock().unwrap() = Some((begins, ended));
        SlowRestart { begun, end }
    }
}

impl SlowRestart {
    pub(crate) async fn begun(&mut self) {
        self.begun.recv().await.unwrap();
    }

    pub(crate) fn end(&self) {
        self.end.send_replace(true);
    }
}

impl Dialer for FakePlatform {
    fn dial(&self, instance: &InstanceId, _port: u16) -> BoxFuture<'static, io::Result<std::net::TcpStream>> {
        let address = self.reachable.lock().unwrap().get(instance).copied();
        let is_full = self.is_full.load(std::sync::atomic::Ordering::Relaxed);
        Box::pin(async move {
            if is_full {
                const TOO_MANY_OPEN_FILES: i32 = 24;
                return Err(io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES));
            }
            let address = address.ok_or(io::ErrorKind::ConnectionRefused)?;
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        })
    }
}

impl Restarter for FakePlatform {
    fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        self.restarted.lock().unwrap().push(instance.clone());
        let slow = self.slow.lock().unwrap().clone();
        Box::pin(async move {
            if let Some((begins, mut ended)) = slow {
                begins.send(()).unwrap();
                ended.wait_for(|ended| *ended).await.unwrap();
            }
            Ok(())
        })
    }
}
