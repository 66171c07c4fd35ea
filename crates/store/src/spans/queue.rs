//! The way from many senders to the one writer: bounded, never blocking, full when the disk is behind.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::metrics::Point;
use faultscope_model::trace::ReportedSpan;
use tokio::sync::oneshot;

use crate::error::StoreError;

/// How long the writer gathers batches before it commits them.
const GATHER: Duration = Duration::from_millis(4);

/// How many spans make it commit at once.
const ENOUGH: usize = 2000;

/// How often the writer looks whether a slice is too old, when nothing comes.
const TICK: Duration = Duration::from_secs(30);

/// What is answered once a batch is committed, or could not be.
pub(super) type Answer = oneshot::Sender<Result<(), StoreError>>;

/// Spans and points that came together and are acknowledged together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) spans: Vec<ReportedSpan>,
    pub(super) points: Vec<Point>,
    pub(super) answer: Answer,
}

impl Batch {
    fn len(&self) -> usize {
        self.spans.len() + self.points.len()
    }
}

/// What happened to the spans so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) stored: AtomicU64,
    pub(super) points: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) commits: AtomicU64,
}

/// The queue between senders and the writer.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    most_items: usize,
    most_bytes: usize,
    pub(super) counters: Counters,
}

#[derive(Debug, Default)]
struct State {
    batches: Vec<Batch>,
    items: usize,
    bytes: usize,
    closed: bool,
}

/// What came of a batch that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Taken,
    Full,
    Closed,
}

impl Queue {
    pub(super) fn new(most_items: usize, most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            most_items,
            most_bytes,
            counters: Counters::default(),
        }
    }

    /// Takes a batch, or refuses and counts it when the writer is behind.
    pub(super) fn offer(&self, batch: Batch) -> Offer {
        let bytes = batch.spans.iter().map(size).chain(batch.points.iter().map(point_size)).sum::<usize>();
        let items = batch.len();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return Offer::Closed;
        }
        let full = state.items + items > self.most_items || state.bytes + bytes > self.most_bytes;
        // One batch that is larger than all the room there is would never find any.
        if full && state.items > 0 {
            drop(state);
            self.counters.refused.fetch_add(items as u64, Ordering::Relaxed);
            return Offer::Full;
        }
        let before = state.items;
        state.items += items;
        state.bytes += bytes;
        let after = state.items;
        let first = state.batches.is_empty();
        state.batches.push(batch);
        drop(state);
        // Waking costs a system call: it happens at the first batch and when there is enough.
        if first || (before < ENOUGH && after >= ENOUGH) {
            self.wake.notify_one();
        }
        Offer::Taken
    }

    /// Ends the queue; the writer takes what is left and stops.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.wake.notify_one();
    }

    /// Ends the queue when nobody takes from it any more; whoever waits is told so.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        state.batches.clear();
    }

    /// Waits for batches and exchanges them for the given empty vector; false when all is over. The vector
    /// stays empty when nothing came for a while.
    pub(super) fn take(&self, batches: &mut Vec<Batch>) -> bool {
        batches.clear();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| state.batches.is_empty() && !state.closed;
        let (state, _) =
            self.wake.wait_timeout_while(state, TICK, idle).unwrap_or_else(PoisonError::into_inner);
        if state.batches.is_empty() {
            return !state.closed;
        }
        let gathering = |state: &mut State| state.items < ENOUGH && !state.closed;
        let waited = self.wake.wait_timeout_while(state, GATHER, gathering);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut state.batches, batches);
        (state.items, state.bytes) = (0, 0);
        true
    }

    /// How many spans wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).items
    }
}

/// About how many bytes a span takes in memory.
fn size(span: &ReportedSpan) -> usize {
    let tags: usize = span.tags.iter().map(|(key, value)| key.len() + value.len() + 48).sum();
    let annotations: usize = span.annotations.iter().map(|(_, text)| text.len() + 32).sum();
    size_of::<ReportedSpan>() + span.name.len() + tags + annotations
}

/// About how many bytes a point takes in memory.
fn point_size(point: &Point) -> usize {
    let about: usize = point.series.about.iter().map(|(key, value)| key.len() + value.len() + 48).sum();
    size_of::<Point>() + point.series.name.len() + point.series.service.len() + about
}
