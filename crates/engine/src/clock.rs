//! The time that a campaign may take.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Stops a campaign when its caller does, or when its time is up.
#[derive(Debug)]
pub(crate) struct Clock {
    stop: CancellationToken,
    halt: CancellationToken,
    running: Option<JoinHandle<()>>,
}

impl Clock {
    /// Starts it; without a time only the caller stops.
    pub(crate) fn start(most: Option<Duration>, stop: &CancellationToken) -> Self {
        let halt = stop.child_token();
        let running = most.map(|most| {
            let halt = halt.clone();
            tokio::spawn(async move {
                tokio::time::sleep(most).await;
                halt.cancel();
            })
        });
        Self { stop: stop.clone(), halt, running }
    }

    /// What the campaign listens to.
    pub(crate) fn halt(&self) -> &CancellationToken {
        &self.halt
    }

    /// Whether it was the time that ended it.
    pub(crate) fn ran_out(&self) -> bool {
        self.halt.is_cancelled() && !self.stop.is_cancelled()
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}
