//! One stream of events for the terminal, the event log and pages.

use std::sync::Arc;

use faultscope_model::event::Event;
use faultscope_store::Campaign;
use tokio::sync::broadcast;

use crate::session::now_us;

/// How far a slow reader may fall behind before it loses events; the log loses none.
const CAPACITY: usize = 8_192;

/// Hands every event to the log and to all who listen.
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

    /// Tells everyone.
    pub fn emit(&self, event: Event) {
        // A campaign goes on without its log: the runs themselves are stored with errors reported.
        if let Err(error) = self.campaign.events().append(now_us(), &event) {
            tracing::warn!(%error, "the event log cannot be written");
        }
        // An error only says that nobody listens.
        let _ = self.sender.send(Arc::new(event));
    }
}
