//! The budget of a campaign.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Limits of a campaign; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// The most trials; start-up checks, baselines and sentinels do not count.
    pub trials: Option<usize>,
    /// The most time, from the first check on.
    pub time: Option<Duration>,
}

/// What is left of a budget.
#[derive(Debug)]
pub(super) struct Meter {
    budget: Budget,
    stop: CancellationToken,
    halt: CancellationToken,
    clock: Option<JoinHandle<()>>,
    /// Finished trials that count.
    pub(super) finished: usize,
    /// Whether a requested trial could not be started any more.
    pub(super) refused: bool,
}

impl Meter {
    /// Starts counting; the time runs from now.
    pub(super) fn start(budget: Budget, stop: &CancellationToken) -> Self {
        let halt = stop.child_token();
        let clock = budget.time.map(|time| {
            let halt = halt.clone();
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                halt.cancel();
            })
        });
        Self { budget, stop: stop.clone(), halt, clock, finished: 0, refused: false }
    }

    /// Cancelled when the caller stops or the time is up.
    pub(super) fn halt(&self) -> &CancellationToken {
        &self.halt
    }

    /// Whether the time is up.
    pub(super) fn ran_out_of_time(&self) -> bool {
        self.halt.is_cancelled() && !self.stop.is_cancelled()
    }

    /// Whether another trial may start beside those that run.
    pub(super) fn has_room(&self, running: usize) -> bool {
        self.budget.trials.is_none_or(|most| self.finished + running < most)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(clock) = &self.clock {
            clock.abort();
        }
    }
}
