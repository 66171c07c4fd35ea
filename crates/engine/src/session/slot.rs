//! A slot and the lease by which it is used.
//!
//! Everything that deploys, tests or clears holds a [`Lease`], and there is one for each slot. It is returned
//! when it is dropped, which its holder does only when everything of its trial is gone. So no trial can see
//! what another one left, whoever cancelled that one and however long clearing took.

use std::ops::Deref;
use std::sync::Arc;

use faultscope_mesh::MeshSlot;
use faultscope_model::SlotId;
use faultscope_model::application::Expansion;
use faultscope_platform::{Platform, PlatformErrorKind, SlotSpec};
use tokio::sync::{Mutex, OnceCell, OwnedMutexGuard};

use crate::error::EngineError;
use crate::session::Session;
use crate::trial::{SlotCollector, SlotRecorder};

/// What a session holds for one slot; only accessible through a lease.
pub struct Slot {
    pub(crate) id: SlotId,
    pub(crate) mesh: Option<MeshSlot>,
    pub(crate) recorder: Arc<SlotRecorder>,
    /// Where instances report spans; none if they are not asked to.
    pub(crate) collector: Option<SlotCollector>,
    pub(crate) expansion: Expansion,
    pub(super) spec: SlotSpec,
    pub(super) opened: OnceCell<()>,
    pub(super) owner: Arc<Mutex<()>>,
}

/// The right to use a slot, until it is dropped.
pub struct Lease {
    slot: Arc<Slot>,
    _owned: OwnedMutexGuard<()>,
}

impl Lease {
    /// The number of the slot.
    pub fn id(&self) -> SlotId {
        self.slot.id
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.slot.id).finish()
    }
}

impl Deref for Lease {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Session {
    /// Waits until a slot is unused and leases it; opens it on first use.
    pub async fn lease(&self, slot: SlotId) -> Result<Lease, EngineError> {
        let slot =
            self.slots.get(&slot).ok_or_else(|| EngineError::Internal(format!("there is no {slot}")))?;
        let owned = slot.owner.clone().lock_owned().await;
        slot.opened.get_or_try_init(|| self.platform.open_slot(&slot.spec)).await?;
        Ok(Lease { slot: slot.clone(), _owned: owned })
    }

    /// Removes everything of a trial from its slot.
    pub(crate) async fn clear(&self, lease: &Lease) -> Result<(), EngineError> {
        lease.disconnect().await;
        self.platform.clear_slot(lease.id()).await?;
        Ok(())
    }

    /// Makes a slot usable again after its trial was spoiled: clears it, or reopens it if it died.
    pub(crate) async fn refresh(&self, lease: &Lease) -> Result<(), EngineError> {
        match self.clear(lease).await {
            Err(EngineError::Platform(error)) if error.kind == PlatformErrorKind::Infrastructure => {
                tracing::warn!(slot = %lease.id(), %error, "the slot could not be cleared and is reopened");
                self.platform.close_slot(lease.id()).await?;
                Ok(self.platform.open_slot(&lease.spec).await?)
            }
            other => other,
        }
    }
}

impl Slot {
    /// Stops listening and drops all connections through the mesh.
    async fn disconnect(&self) {
        if let Some(mesh) = &self.mesh {
            mesh.close_listeners();
            mesh.reset_connections().await;
        }
        if let Some(collector) = &self.collector {
            collector.close();
        }
    }

    /// Ends everything in the slot for good.
    pub(super) async fn close(&self, platform: &dyn Platform) -> Result<(), EngineError> {
        if !self.opened.initialized() {
            return Ok(());
        }
        let _owned = self.owner.lock().await;
        self.disconnect().await;
        Ok(platform.close_slot(self.id).await?)
    }
}
