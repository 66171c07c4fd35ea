//! Services that are away for a while: what their callers meet, whatever protocol they speak.
//!
//! The test is spared: it must be able to ask those services that are there. How a listener refuses connections is
//! in [`crate::serve`]; here are the connections that it accepts, and those that were open when the outage began.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::BytesMut;
use faultscope_model::span::Wire;
use faultscope_model::wiring::OutageMode;
use faultscope_model::{CallError, Protocol, ServiceName};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admit::{Head, admit};
use crate::serve;
use crate::slot::{Origin, Slot};
use crate::steering::Answer;
use crate::stream::Stream;

/// Serves one connection to its end, or until its callee goes away.
pub(crate) async fn serve(mut origin: Origin, stream: Stream) {
    if origin.route().caller_is_test {
        return serve::speak(origin, stream).await;
    }
    let watch = Watch::new(Arc::clone(&origin.slot), origin.spec.callee.clone());
    serve_watched(origin, stream, watch).await;
}

/// Counts a call to a service, which may be the one with which an outage begins. Gives what the call has to wait for.
pub(crate) fn count_call(slot: &Arc<Slot>, callee: &ServiceName) -> Option<BoxFuture<'static, ()>> {
    // A connection may be older than the trial, so the scene of now decides.
    let scene = slot.scene();
    if !scene.wiring.targets {
        return None;
    }
    match scene.trial.steering.count_call(callee) {
        Answer::Now(None) => None,
        Answer::Now(Some(mode)) => {
            slot.begin_outage(callee, mode);
            Some(Box::pin(Watch::new(Arc::clone(slot), callee.clone()).until_back()))
        }
        Answer::Later(counted) => {
            let (slot, callee) = (Arc::clone(slot), callee.clone());
            Some(Box::pin(async move {
                if let Some(mode) = counted.await {
                    slot.begin_outage(&callee, mode);
                    Watch::new(slot, callee).until_back().await;
                }
            }))
        }
    }
}

/// Notices when a service goes away and comes back.
pub(crate) struct Watch {
    slot: Arc<Slot>,
    callee: ServiceName,
    changes: watch::Receiver<()>,
}

impl Watch {
    pub(crate) fn new(slot: Arc<Slot>, callee: ServiceName) -> Self {
        Self { changes: slot.changes(), slot, callee }
    }

    pub(crate) async fn until_away(mut self) {
        self.until(true).await;
    }

    async fn until_back(mut self) {
        self.until(false).await;
    }

    fn now(&self) -> Option<OutageMode> {
        self.slot.scene().outages.get(&self.callee).copied()
    }

    /// Waits until the service is away, or is no longer. Waits for ever when the slot is gone.
    async fn until(&mut self, is_away: bool) -> Option<OutageMode> {
        loop {
            // Marked as seen before the look, so that no change is missed.
            self.changes.borrow_and_update();
            let now = self.now();
            if now.is_some() == is_away {
                return now;
            }
            if self.changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn serve_watched(origin: Origin, stream: Stream, mut watch: Watch) {
    if let Some(mode) = watch.now() {
        return turn_away(origin, stream, mode, watch).await;
    }
    let (slot, ends, protocol) = (Arc::clone(&origin.slot), origin.ends(), origin.spec.protocol);
    slot.note_connected(&ends);
    let fate = stream.fate();
    let mut serving = std::pin::pin!(serve::speak(origin, stream));
    loop {
        tokio::select! {
            () = &mut serving => return,
            mode = watch.until(true) => match mode {
                // What is not polled does not move.
                Some(OutageMode::Hang) => {
                    watch.until(false).await;
                }
                Some(mode @ (OutageMode::Reset | OutageMode::Refuse)) => {
                    if is_kept_open(protocol) {
                        slot.note_cut(ends);
                    }
                    if mode == OutageMode::Reset {
                        return fate.reset();
                    }
                    // The caller learns of the outage when its connection ends. Whatever it tries then must be
                    // refused, so the listeners come first.
                    let callee = watch.callee.clone();
                    tokio::select! {
                        () = slot.until_refusing(&callee) => {}
                        _ = watch.until(false) => {}
                    }
                    // Dropped, which closes it as the end of a process does.
                    return;
                }
                None => return,
            },
        }
    }
}

/// Whether callers of a protocol hold connections that they open again by themselves. A client of HTTP opens one when
/// it has a request.
fn is_kept_open(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Http | Protocol::Grpc | Protocol::Https | Protocol::Detect)
}

/// Ends a connection that comes while its callee is away, and records it.
async fn turn_away(mut origin: Origin, mut stream: Stream, mode: OutageMode, mut watch: Watch) {
    let slot = Arc::clone(&origin.slot);
    let mut call = admit(&slot, origin.route(), &Head::of_connection(Wire::Tcp, Instant::now()));
    match mode {
        OutageMode::Refuse => {}
        OutageMode::Reset => {
            let mut input = BytesMut::new();
            // Whatever comes, an end included, is followed by the reset.
            let _ = poll_fn(|cx| stream.poll_fill(cx, &mut input)).await;
        }
        OutageMode::Hang => {
            watch.until(false).await;
        }
    }
    call.finish(Some(CallError::ServiceAway));
    stream.reset();
}
