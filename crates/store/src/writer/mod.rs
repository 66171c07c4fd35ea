//! The way from many recorders to the one writer of a database.
//!
//! Recorders never block: they leave entries in a bounded [`Queue`], and a thread of its own commits whatever
//! has gathered there as one transaction. A batch that cannot be written is lost and counted, and those who
//! wait for it are told; the next batch starts afresh, so a disk that was full for a while costs no more than
//! what came meanwhile. Closing writes what is queued.

mod queue;

use std::io;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

pub use queue::{Ack, Refused, WriterHealth};
pub(crate) use queue::{Batch, Bounds, Queue, Weight};

use crate::error::{StoreError, StoreErrorKind};

/// What writes batches to a database.
pub(crate) trait Commit {
    /// Spans and the like.
    type Entry;

    /// Writes entries in one transaction; on an error nothing of them is kept.
    fn commit(&mut self, entries: &mut [Self::Entry]) -> Result<(), StoreError>;

    /// Forgets what it knows of the database, which is read again: a commit broke off at an unknown place.
    fn recover(&mut self) {}

    /// Tidies up after each batch, when those who waited were told, and now and then when nothing comes.
    fn maintain(&mut self) {}
}

/// A queue and the thread that empties it. Dropping it writes what is queued and ends the thread.
#[derive(Debug)]
pub(crate) struct Writer<E> {
    queue: Arc<Queue<E>>,
    thread: Option<JoinHandle<()>>,
}

impl<E: Send + 'static> Writer<E> {
    /// Starts a thread that runs `body`, which hands a [`Commit`] of its own to [`write_batches`].
    pub(crate) fn start(
        name: &str,
        queue: Queue<E>,
        body: impl FnOnce(&Queue<E>) + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(queue);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn({
            let queue = Arc::clone(&queue);
            move || {
                // Whatever ends the thread, waiting for it must end too.
                let _abandoning = AbandonOnDrop(&queue);
                body(&queue);
            }
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// A handle that records without keeping the thread alive.
    pub(crate) fn queue(&self) -> Arc<Queue<E>> {
        Arc::clone(&self.queue)
    }
}

impl<E> Deref for Writer<E> {
    type Target = Queue<E>;

    fn deref(&self) -> &Queue<E> {
        &self.queue
    }
}

impl<E> Drop for Writer<E> {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A panic of the writer was already reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Commits batches until the queue is closed and empty.
pub(crate) fn write_batches<C: Commit>(queue: &Queue<C::Entry>, mut database: C) {
    let mut batch = Batch::default();
    // Of entries that nobody waited for; whoever flushes next is told.
    let mut untold: Option<StoreError> = None;
    while queue.take(&mut batch) {
        let written = if batch.entries.is_empty() {
            Ok(())
        } else {
            // One batch that nobody expected must not end the writing of all others.
            let committed = caught(|| database.commit(&mut batch.entries));
            committed.unwrap_or_else(|| {
                let _ = caught(|| database.recover());
                Err(StoreError::new(StoreErrorKind::Other, "write", queue.folder(), "the writer panicked"))
            })
        };
        queue.note_commit(&written, batch.entries.len(), batch.items);
        if let Err(error) = &written {
            untold.get_or_insert_with(|| error.again());
        }
        batch.answer_acks(&written);
        if batch.is_flushed() {
            batch.answer_flushes(&untold.take().map_or(Ok(()), Err));
        }
        // After all answers: a log that cannot be written must not keep anybody waiting.
        let _ = caught(|| {
            if let Err(error) = &written {
                tracing::warn!(%error, cause = %error.source, items = batch.items, "a batch could not be stored");
            }
            // Whoever waits for this batch need not wait for the next slice.
            database.maintain();
        });
    }
}

/// Runs something that may panic; none if it does.
fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What a panic leaves behind is read again, see `Commit::recover`.
    catch_unwind(AssertUnwindSafe(work)).ok()
}

struct AbandonOnDrop<'q, E>(&'q Queue<E>);

impl<E> Drop for AbandonOnDrop<'_, E> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests;
