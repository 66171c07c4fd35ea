//! Entries that wait for the writer, and those who wait for their commit.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::budget::Hold;
use crate::error::{StoreError, StoreErrorKind};

/// How often a writer that has nothing to do looks whether something is due, such as a slice that is too old.
const TICK: Duration = Duration::from_secs(30);

/// How much may wait, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
    /// How long the writer gathers entries before it commits them.
    pub(crate) gather: Duration,
    /// How many items make it commit at once.
    pub(crate) enough: usize,
}

/// What an entry counts against the bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

/// Why an entry was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The disk is behind: the sender should try again later.
    #[error("too many spans wait to be written")]
    Busy,
    /// The writer has ended.
    #[error("the store is closed")]
    Closed,
}

/// Resolves once what was put is committed, or says why it could not be.
#[derive(Debug)]
pub struct Ack {
    answer: oneshot::Receiver<Result<(), StoreError>>,
    folder: PathBuf,
}

/// How a writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriterHealth {
    /// The last batch was written.
    Well,
    /// The last batch could not be written; the next one is tried all the same.
    Failing {
        /// Why not.
        kind: StoreErrorKind,
    },
    /// It writes no more.
    Ended,
}

/// The queue between recorders and the writer of a folder.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    state: Mutex<State<E>>,
    wake: Condvar,
    bounds: Bounds,
    folder: PathBuf,
    recorded: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    commits: AtomicU64,
    /// Why the last batch could not be written.
    failure: Mutex<Option<StoreError>>,
}

/// What is committed together, and who is told.
#[derive(Debug)]
pub(crate) struct Batch<E> {
    pub(crate) entries: Vec<E>,
    /// The items of all entries.
    pub(crate) items: usize,
    /// Senders who wait for their own entry.
    acks: Vec<Answer>,
    /// Those who wait for all that was recorded before.
    flushes: Vec<Answer>,
    /// The memory of entries that came from outside.
    holds: Vec<Hold>,
}

type Answer = oneshot::Sender<Result<(), StoreError>>;

#[derive(Debug)]
struct State<E> {
    batch: Batch<E>,
    bytes: usize,
    /// Someone waits, so gathering more would only delay them.
    is_urgent: bool,
    is_closed: bool,
}

// === impl Queue ===

impl<E> Queue<E> {
    pub(crate) fn new(folder: &Path, bounds: Bounds) -> Self {
        let state = State { batch: Batch::default(), bytes: 0, is_urgent: false, is_closed: false };
        Self {
            state: Mutex::new(state),
            wake: Condvar::new(),
            bounds,
            folder: folder.to_owned(),
            recorded: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    /// Takes an entry whose recorder does not wait, or drops and counts it when the writer is behind.
    // Inlined, as `add` is: entries are a few hundred bytes, and each call would copy one once more.
    #[inline]
    pub(crate) fn record(&self, entry: E, weight: Weight) {
        let state = self.lock();
        if state.is_closed || !self.has_room(&state, weight) {
            drop(state);
            self.refused.fetch_add(weight.items as u64, Ordering::Relaxed);
            return;
        }
        self.add(state, entry, weight);
        self.recorded.fetch_add(weight.items as u64, Ordering::Relaxed);
    }

    /// Takes an entry whose sender waits for its commit, or refuses and counts it when the writer is behind.
    ///
    /// The memory that it stands for is held until it is written.
    pub(crate) fn submit(&self, entry: E, weight: Weight, hold: Option<Hold>) -> Result<Ack, Refused> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Refused::Closed);
        }
        // Who is refused comes again, and an entry larger than all the room there is would never find any.
        if !self.has_room(&state, weight) && !state.batch.entries.is_empty() {
            drop(state);
            self.refused.fetch_add(weight.items as u64, Ordering::Relaxed);
            return Err(Refused::Busy);
        }
        let (sender, ack) = self.ack();
        state.batch.acks.push(sender);
        state.batch.holds.extend(hold);
        self.add(state, entry, weight);
        Ok(ack)
    }

    /// Takes an entry that must not be dropped, whatever waits already.
    pub(crate) fn push(&self, entry: E) -> Result<(), StoreError> {
        let state = self.lock();
        if state.is_closed {
            return Err(ended(&self.folder));
        }
        self.add(state, entry, Weight { items: 0, bytes: 0 });
        Ok(())
    }

    /// Asks for a commit of everything recorded before. The answer also tells what of it was lost since the
    /// last flush.
    pub(crate) fn flush(&self) -> Result<Ack, StoreError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(ended(&self.folder));
        }
        let (sender, ack) = self.ack();
        state.batch.flushes.push(sender);
        state.is_urgent = true;
        drop(state);
        self.wake.notify_one();
        Ok(ack)
    }

    /// Has what is queued committed without gathering more.
    pub(crate) fn hurry(&self) {
        self.lock().is_urgent = true;
        self.wake.notify_one();
    }

    /// Ends the queue; the writer takes what is left and stops.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Ends the queue when nobody takes from it any more; whoever waits is told so.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = mem::take(&mut state.batch);
        drop(state);
        self.count_lost(left.items);
    }

    /// Waits for entries and exchanges them for the given batch, which is emptied; false when all is over. The
    /// batch stays empty when nothing came for a while.
    pub(super) fn take(&self, batch: &mut Batch<E>) -> bool {
        batch.clear();
        let idle = |state: &mut State<E>| state.batch.is_empty() && !state.is_closed;
        let waited = self.wake.wait_timeout_while(self.lock(), TICK, idle);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.batch.is_empty() {
            return !state.is_closed;
        }
        let enough = self.bounds.enough;
        let gathering =
            |state: &mut State<E>| state.batch.items < enough && !state.is_urgent && !state.is_closed;
        let waited = self.wake.wait_timeout_while(state, self.bounds.gather, gathering);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut state.batch, batch);
        (state.bytes, state.is_urgent) = (0, false);
        true
    }

    /// Notes how a batch was written, for those who ask how the writer is.
    pub(super) fn note_commit(&self, written: &Result<(), StoreError>, entries: usize, items: usize) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match written {
            Ok(()) if entries > 0 => {
                self.commits.fetch_add(1, Ordering::Relaxed);
                *failure = None;
            }
            Ok(()) => {}
            Err(error) => {
                self.count_lost(items);
                *failure = Some(error.again());
            }
        }
    }

    /// How the writer is.
    pub(crate) fn health(&self) -> WriterHealth {
        if self.lock().is_closed {
            return WriterHealth::Ended;
        }
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map_or(WriterHealth::Well, |error| WriterHealth::Failing { kind: error.kind })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn count_lost(&self, items: usize) {
        self.lost.fetch_add(items as u64, Ordering::Relaxed);
    }

    /// Items taken by [`Self::record`].
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Items that found no room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Items that were taken but could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Batches that were written.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Items that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().batch.items
    }

    fn has_room(&self, state: &State<E>, weight: Weight) -> bool {
        state.batch.items + weight.items <= self.bounds.items
            && state.bytes + weight.bytes <= self.bounds.bytes
    }

    #[inline]
    fn add(&self, mut state: MutexGuard<'_, State<E>>, entry: E, weight: Weight) {
        let is_first = state.batch.entries.is_empty();
        let before = state.batch.items;
        state.batch.entries.push(entry);
        state.batch.items += weight.items;
        state.bytes += weight.bytes;
        let is_enough = before < self.bounds.enough && state.batch.items >= self.bounds.enough;
        drop(state);
        // Waking costs a system call, so it happens twice a batch: at its first entry and when it is full.
        if is_first || is_enough {
            self.wake.notify_one();
        }
    }

    fn ack(&self) -> (Answer, Ack) {
        let (sender, answer) = oneshot::channel();
        (sender, Ack { answer, folder: self.folder.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Batch ===

impl<E> Default for Batch<E> {
    fn default() -> Self {
        Self { entries: Vec::new(), items: 0, acks: Vec::new(), flushes: Vec::new(), holds: Vec::new() }
    }
}

impl<E> Batch<E> {
    /// Whether someone waits for all that was recorded before.
    pub(super) fn is_flushed(&self) -> bool {
        !self.flushes.is_empty()
    }

    pub(super) fn answer_acks(&mut self, written: &Result<(), StoreError>) {
        answer_all(&mut self.acks, written);
    }

    pub(super) fn answer_flushes(&mut self, written: &Result<(), StoreError>) {
        answer_all(&mut self.flushes, written);
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.flushes.is_empty()
    }

    /// Empties it and keeps its memory for the next entries.
    fn clear(&mut self) {
        self.entries.clear();
        self.acks.clear();
        self.flushes.clear();
        self.holds.clear();
        self.items = 0;
    }
}

fn answer_all(answers: &mut Vec<Answer>, written: &Result<(), StoreError>) {
    for answer in answers.drain(..) {
        // Whoever waited may have gone, which is their business.
        let _ = answer.send(written.as_ref().copied().map_err(StoreError::again));
    }
}

// === impl Ack ===

impl Ack {
    /// Waits until the entry is committed.
    pub async fn committed(self) -> Result<(), StoreError> {
        self.answer.await.unwrap_or_else(|_| Err(ended(&self.folder)))
    }

    /// The same for callers outside of an async runtime; it panics inside of one.
    pub fn committed_blocking(self) -> Result<(), StoreError> {
        self.answer.blocking_recv().unwrap_or_else(|_| Err(ended(&self.folder)))
    }
}

fn ended(folder: &Path) -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "write", folder, "its writer has ended")
}
