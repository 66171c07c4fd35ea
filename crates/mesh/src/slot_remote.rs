//! What a slot offers to its sidecars, and what a sidecar's own slot offers to the line to the tool.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use faultscope_model::span::Span;
use faultscope_model::{InstanceId, RestartError};
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};

use super::{MeshSlot, Slot};
use crate::scene::Scene;

/// The calls that one sidecar carries, as part of those of its slot.
#[derive(Debug)]
pub(crate) struct RemoteFlow {
    slot: Arc<Slot>,
    calls: usize,
}

impl RemoteFlow {
    pub(crate) fn set(&mut self, calls: usize) {
        if calls > self.calls {
            self.slot.flow.calls.fetch_add(calls - self.calls, Ordering::AcqRel);
        } else if calls < self.calls {
            self.slot.flow.leave_many(self.calls - calls);
        }
        self.calls = calls;
    }
}

impl Drop for RemoteFlow {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl MeshSlot {
    pub(crate) fn set_scene(&self, scene: Scene) {
        self.slot.set_scene(|_| scene);
    }

    pub(crate) fn scene(&self) -> Arc<Scene> {
        self.slot.scene()
    }

    /// Wakes whenever the scene has changed.
    pub(crate) fn scene_changes(&self) -> watch::Receiver<()> {
        self.slot.changes.subscribe()
    }

    pub(crate) fn remote_flow(&self) -> RemoteFlow {
        RemoteFlow { slot: Arc::clone(&self.slot), calls: 0 }
    }

    /// Waits until the calls in flight are others than those.
    pub(crate) async fn flow_changed(&self, than: usize) -> usize {
        let changed = self.slot.flow.watched.get_or_init(Notify::new);
        loop {
            let calls = self.in_flight();
            if calls != than {
                return calls;
            }
            // A change since the look has left its mark, so this wakes at once.
            changed.notified().await;
        }
    }

    pub(crate) fn record(&self, span: Span) {
        self.slot.hooks.recorder.record(span);
    }

    pub(crate) fn restart(&self, instance: &InstanceId) -> BoxFuture<'static, Result<(), RestartError>> {
        self.slot.hooks.restarter.restart(instance)
    }

    /// Notes that the trial cannot be trusted.
    pub(crate) fn note_lost_report(&self) {
        self.slot.lost.fetch_add(1, Ordering::Relaxed);
        self.slot.scene().trial.steering.lost();
    }
}
