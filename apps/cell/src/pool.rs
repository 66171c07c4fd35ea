//! Bounded thread pools and named locks, as queues of tasks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};
use tokio::time::{Duration, timeout};

/// A pool of threads with a bounded queue before it.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: Semaphore,
    queue: usize,
    n_waiting: AtomicUsize,
    wait: Option<Duration>,
}

/// Why a task got no thread or no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The queue is full.
    Rejected,
    /// The wait was too long.
    TimedOut,
}

impl Pool {
    /// A pool with its limits.
    pub(crate) fn new(threads: usize, queue: usize, wait: Option<Duration>) -> Self {
        let threads = Semaphore::new(threads.min(Semaphore::MAX_PERMITS));
        Self { threads, queue, n_waiting: AtomicUsize::new(0), wait }
    }

    /// Waits for a thread, for `wait` or for the pool's own time.
    pub(crate) async fn enter(&self, wait: Option<Duration>) -> Result<SemaphorePermit<'_>, Refusal> {
        if let Ok(permit) = self.threads.try_acquire() {
            return Ok(permit);
        }
        let _place = Place::take(&self.n_waiting, self.queue).ok_or(Refusal::Rejected)?;
        let acquired = within(wait.or(self.wait), self.threads.acquire()).await?;
        // The semaphore is never closed.
        acquired.map_err(|_| Refusal::Rejected)
    }
}

/// A place in the queue, released even if the waiting task is dropped.
struct Place<'pool>(&'pool AtomicUsize);

impl<'pool> Place<'pool> {
    fn take(n_waiting: &'pool AtomicUsize, limit: usize) -> Option<Self> {
        let place = Self(n_waiting);
        let before = n_waiting.fetch_add(1, Ordering::Relaxed);
        (before < limit).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The named locks of an instance.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

/// How many unused locks are kept before they are removed.
const SPARE_LOCKS: usize = 256;

impl Locks {
    /// Waits for a lock, in the order of arrival.
    pub(crate) async fn lock(
        &self,
        name: String,
        wait: Option<Duration>,
    ) -> Result<OwnedMutexGuard<()>, Refusal> {
        let lock = {
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if locks.len() > SPARE_LOCKS {
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            }
            Arc::clone(locks.entry(name).or_default())
        };
        within(wait, lock.lock_owned()).await
    }
}

async fn within<F: Future>(wait: Option<Duration>, future: F) -> Result<F::Output, Refusal> {
    match wait {
        Some(wait) => timeout(wait, future).await.map_err(|_| Refusal::TimedOut),
        None => Ok(future.await),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::{Locks, Pool, Refusal};

    #[tokio::test(start_paused = true)]
    async fn a_pool_queues_rejects_and_times_out() {
        let pool = Pool::new(1, 1, Some(Duration::from_millis(200)));
        let working = pool.enter(None).await.unwrap();
        let (waiting, rejected) = tokio::join!(pool.enter(None), pool.enter(None));
        assert_eq!(waiting.unwrap_err(), Refusal::TimedOut);
        assert_eq!(rejected.unwrap_err(), Refusal::Rejected);
        drop(working);
        assert!(pool.enter(None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_excludes_by_name() {
        let locks = Locks::default();
        let held = locks.lock("a".to_owned(), None).await.unwrap();
        assert!(locks.lock("b".to_owned(), None).await.is_ok());
        let wait = Some(Duration::from_secs(1));
        assert_eq!(locks.lock("a".to_owned(), wait).await.unwrap_err(), Refusal::TimedOut);
        drop(held);
        assert!(locks.lock("a".to_owned(), wait).await.is_ok());
    }
}
