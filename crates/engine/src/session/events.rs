//! One stream of events for the terminal, the event log and pages.

use std::sync::Arc;

use faultscope_model::event::Event;
use faultscope_store::Campaign;
use tokio::sync::broadcast;

use crate::session::now_us;

/// How far a slow receiver may fall behind before it loses events; the log loses none.
const CAPACITY: usize = 8_192;

/// Sends every event to the log and to all subscribers.
#[derive(Debug, Clone)]
pub struct EventBus {
    campaign: Arc<Campaign>,
    sender: broadcast::Sender<Arc<Event>>,
}

impl EventBus {
    pub(crate) fn new(campaign: Arc<Campaign>) -> Self {
        Self { campaign, sender: broadcast::Sender::new(CAPACITY) }
    }

    /// All events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.sender.subscribe()
    }

    /// Sends an event.
    pub fn emit(&self, event: Event) {
        // A campaign continues without its log: runs are stored separately, with errors reported.
        if let Err(error) = self.campaign.events().append(now_us(), &event) {
            tracing::warn!(%error, "the event log cannot be written");
        }
        // An error only means that there are no subscribers.
        let _ = self.sender.send(Arc::new(event));
    }
}
