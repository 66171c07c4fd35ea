//! The connections to callees that belong to one caller's connection.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use faultscope_model::InstanceId;
use h2::client::SendRequest;
use tokio::sync::{Notify, OnceCell};
use tokio::task::AbortHandle;

use super::{CONNECTION_WINDOW, LONGEST_HEAD, STREAM_WINDOW};
use crate::balance::Target;
use crate::call::Call;
use crate::dial::{self, Dialling};
use crate::scene::Route;
use crate::slot::Slot;
use crate::trial::Lease;

/// One connection for each instance, opened when it is first needed.
pub(super) struct Ups {
    dialling: Dialling,
    cells: Mutex<BTreeMap<Option<InstanceId>, Arc<OnceCell<Up>>>>,
    losses: Arc<Losses>,
}

struct Up {
    sender: SendRequest<Bytes>,
    is_dead: Arc<AtomicBool>,
    driver: AbortHandle,
    lease: Lease,
}

/// What has to be known to dial.
type Place = (Arc<Slot>, Arc<Route>, Option<Arc<Target>>, Lease);

#[derive(Default)]
struct Losses {
    notify: Notify,
    was_reset: AtomicBool,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Ups {
    pub(super) fn new(dialling: Dialling) -> Self {
        Self { dialling, cells: Mutex::default(), losses: Arc::default() }
    }

    /// A sender to the instance of a call that is ready to send.
    pub(super) async fn sender(&self, call: &mut Call) -> io::Result<SendRequest<Bytes>> {
        // A kept connection may turn out to be closed when it is asked; a fresh one is then the last try.
        for is_last in [false, true] {
            let cell = self.cell(call);
            let place = (call.slot.clone(), call.route.clone(), call.target.clone(), call.lease());
            let up = cell.get_or_try_init(|| self.dial(place)).await?;
            match up.sender.clone().ready().await {
                Ok(sender) => return Ok(sender),
                Err(error) if is_last => {
                    return Err(error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()));
                }
                Err(_) => up.is_dead.store(true, Ordering::Release),
            }
        }
        Err(io::ErrorKind::ConnectionReset.into())
    }

    /// Whether a connection to some callee is open.
    pub(super) fn is_any_alive(&self) -> bool {
        self.lock().values().filter_map(|cell| cell.get()).any(Up::is_alive)
    }

    /// Waits until a connection is lost and none is left; tells whether it was reset.
    pub(super) async fn lost(&self) -> bool {
        loop {
            let mut notified = std::pin::pin!(self.losses.notify.notified());
            notified.as_mut().enable();
            // What a rule restarted is dialled again when it is needed.
            self.lock().retain(|_, cell| cell.get().is_none_or(|up| up.is_alive() || !up.lease.is_over()));
            let is_any_known = !self.lock().is_empty();
            if is_any_known && !self.is_any_alive() {
                return self.losses.was_reset.load(Ordering::Acquire);
            }
            notified.await;
        }
    }

    fn cell(&self, call: &Call) -> Arc<OnceCell<Up>> {
        let mut cells = self.lock();
        let cell = cells.entry(call.instance().cloned()).or_default();
        if cell.get().is_some_and(|up| !up.is_alive()) {
            *cell = Arc::default();
        }
        Arc::clone(cell)
    }

    async fn dial(&self, (slot, route, target, lease): Place) -> io::Result<Up> {
        let stream = dial::dial_target(&slot, &route, target.as_deref(), &self.dialling).await?;
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(LONGEST_HEAD)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(|error| error.into_io().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))?;
        let is_dead = Arc::new(AtomicBool::new(false));
        let (died, losses) = (Arc::clone(&is_dead), Arc::clone(&self.losses));
        let driver = tokio::spawn(async move {
            let ended = connection.await;
            let was_reset = ended.is_err_and(|error| error.is_io());
            losses.was_reset.store(was_reset, Ordering::Release);
            died.store(true, Ordering::Release);
            losses.notify.notify_waiters();
        });
        Ok(Up { sender, is_dead, driver: driver.abort_handle(), lease })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<InstanceId>, Arc<OnceCell<Up>>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Up {
    fn is_alive(&self) -> bool {
        !self.is_dead.load(Ordering::Acquire)
    }
}
