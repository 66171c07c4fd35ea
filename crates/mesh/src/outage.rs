//! Services that are away for a while: what their callers meet, whatever protocol they speak.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::BytesMut;
use faultscope_model::span::Wire;
use faultscope_model::wiring::OutageMode;
use faultscope_model::{CallError, ServiceName};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::admit::{Head, admit};
use crate::serve;
use crate::slot::{Origin, Slot};
use crate::stream::Stream;

/// Serves one connection to its end, or until its callee goes away.
pub(crate) async fn serve(origin: Origin, stream: Stream) {
    let watch = Watch {
        changes: origin.slot.changes(),
        slot: Arc::clone(&origin.slot),
        callee: origin.spec.callee.clone(),
    };
    serve_watched(origin, stream, watch).await;
}

/// Tells when a service goes away and comes back.
struct Watch {
    slot: Arc<Slot>,
    callee: ServiceName,
    changes: watch::Receiver<()>,
}

impl Watch {
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
                Some(OutageMode::Reset) => return fate.reset(),
                // Dropped, which closes it as the end of a process does.
                Some(OutageMode::Refuse) | None => return,
            },
        }
    }
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
    call.finish(Some(CallError::DroppedByRule));
    stream.reset();
}
