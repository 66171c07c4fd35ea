//! Says when each request is due, to a tenth of a millisecond.
//!
//! The timers of the runtime are good for a millisecond. A thread that sleeps by itself wakes within a fraction of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

/// The longest sleep at once, so that a dropped pacer ends soon.
const MAX_NAP: Duration = Duration::from_millis(50);

/// Time to begin, so that the first request is not late already.
const AHEAD: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Pacer {
    start: Instant,
    schedule: Arc<[Duration]>,
    is_over: Arc<AtomicBool>,
}

impl Pacer {
    /// Starts the clock; sends the number of each request when it is due.
    pub(super) fn start(schedule: Vec<Duration>) -> (Self, mpsc::UnboundedReceiver<usize>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let start = Instant::now() + AHEAD;
        let pacer = Self { start, schedule: schedule.into(), is_over: Arc::default() };
        let (schedule, is_over) = (Arc::clone(&pacer.schedule), Arc::clone(&pacer.is_over));
        let run = move || {
            for (index, after) in schedule.iter().enumerate() {
                let due = start + *after;
                while let left = due.saturating_duration_since(Instant::now())
                    && !left.is_zero()
                {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(left.min(MAX_NAP));
                }
                if sender.send(index).is_err() {
                    return;
                }
            }
        };
        if std::thread::Builder::new().name("pacer".to_owned()).spawn(run).is_err() {
            tracing::warn!("no thread could be started: nothing is sent");
        }
        (pacer, receiver)
    }

    /// When a request should be sent.
    pub(super) fn intended(&self, index: usize) -> Instant {
        self.start + self.schedule.get(index).copied().unwrap_or_default()
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
