//! Where clones are ordered while an application is up, and who takes them.
//!
//! The drive that keeps the application up holds the slot, so that it takes the clones, one after the other.

use faultscope_model::{Circumstance, Treatment};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::error::CloneError;
use super::manifest::{CloneId, CloneTrigger, Manifest};
use super::shelf::CloneShelf;
use super::source::CloneSource;
use super::take::take_clone;
use crate::trial::Live;

/// Orders that wait; more of them would only be clones of the same moment.
const MAX_WAITING: usize = 16;

/// Takes orders for clones.
#[derive(Debug, Clone)]
pub struct CloneDesk {
    orders: mpsc::Sender<Order>,
}

/// Takes the clones that are ordered.
#[derive(Debug)]
pub struct Cloner {
    orders: mpsc::Receiver<Order>,
    shelf: CloneShelf,
    treatment: Treatment,
    circumstance: Circumstance,
    /// How many clones without a name are kept.
    keep: usize,
}

/// What came of an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CloneReport {
    /// The clone.
    pub manifest: Manifest,
    /// Older ones that were removed for it.
    pub removed: Vec<CloneId>,
}

#[derive(Debug)]
struct Order {
    trigger: CloneTrigger,
    name: Option<String>,
    reply: oneshot::Sender<Result<CloneReport, CloneError>>,
}

impl CloneDesk {
    /// A desk, and who works for it.
    pub fn open(
        shelf: CloneShelf,
        (treatment, circumstance): (Treatment, Circumstance),
        keep: usize,
    ) -> (Self, Cloner) {
        let (sender, orders) = mpsc::channel(MAX_WAITING);
        (Self { orders: sender }, Cloner { orders, shelf, treatment, circumstance, keep })
    }

    /// Orders a clone and waits for it.
    pub async fn order(
        &self,
        trigger: CloneTrigger,
        name: Option<String>,
    ) -> Result<CloneReport, CloneError> {
        let ended = || CloneError::Refused { reason: "the application is ending".into() };
        let (reply, report) = oneshot::channel();
        self.orders.send(Order { trigger, name, reply }).await.map_err(|_| ended())?;
        report.await.map_err(|_| ended())?
    }

    /// Orders the clones that a source wants, and passes on what came of them, until one of the two ends.
    pub async fn serve(
        self,
        mut source: Box<dyn CloneSource>,
        reports: mpsc::Sender<Result<CloneReport, CloneError>>,
    ) {
        while let Some(trigger) = source.next().await {
            let report = self.order(trigger, None).await;
            if reports.send(report).await.is_err() {
                return;
            }
        }
    }
}

impl Cloner {
    /// Takes clones for as long as somebody may order them.
    pub(crate) async fn work(&mut self, live: &Live<'_>) {
        while let Some(Order { trigger, name, reply }) = self.orders.recv().await {
            let report = self.take(live, trigger, name).await;
            // Whoever ordered it may have gone; the clone is there nevertheless.
            let _ = reply.send(report);
        }
        std::future::pending().await
    }

    async fn take(
        &self,
        live: &Live<'_>,
        trigger: CloneTrigger,
        name: Option<String>,
    ) -> Result<CloneReport, CloneError> {
        if let Some(name) = &name {
            self.shelf.check_name(name)?;
        }
        let given = (self.treatment.clone(), self.circumstance.clone());
        let clone = take_clone(live, &self.shelf, trigger, name, given).await?;
        let mut removed = Vec::new();
        for id in self.shelf.beyond(self.keep)? {
            let old = self.shelf.read(&id)?;
            live.session.platform().forget_snapshot(&old.manifest.snapshot).await?;
            self.shelf.remove(&id)?;
            removed.push(id);
        }
        Ok(CloneReport { manifest: clone.manifest, removed })
    }
}
