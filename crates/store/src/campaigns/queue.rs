//! The way from many recorders to the one writer: bounded for spans, never blocking.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use faultscope_model::span::Span;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{InstanceId, RunId, SlotId, TrialId};
use tokio::sync::oneshot;

use super::call_row::payload_size;
use crate::error::StoreError;

/// How long the writer gathers spans before it commits them.
const GATHER: Duration = Duration::from_millis(20);

/// How many entries make it commit at once.
const BATCH: usize = 1000;

/// Something to be written.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all entries are spans: a box would only cost an allocation"
)]
pub(crate) enum Entry {
    /// A span of a trial in a slot.
    Span(TrialId, SlotId, Span),
    /// Spans that an instance reported itself.
    Reported { trial: TrialId, slot: SlotId, instance: Option<InstanceId>, spans: Vec<ReportedSpan> },
    /// A run's record.
    Run { trial: TrialId, id: RunId, outcome: String, started_us: u64, duration_us: u64, json: String },
    /// What an instance wrote.
    Log { trial: TrialId, instance: String, text: String },
    /// Someone waits until everything before is committed.
    Flush(oneshot::Sender<Result<(), StoreError>>),
}

/// The queue between recorders and the writer.
#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    most_spans: usize,
    most_bytes: usize,
    recorded: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    spans: usize,
    bytes: usize,
    /// Someone waits for an answer, so gathering more would only delay them.
    urgent: bool,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(most_spans: usize, most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            most_spans,
            most_bytes,
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Takes a span, or drops and counts it when the writer is behind.
    pub(crate) fn record(&self, trial: TrialId, slot: SlotId, span: Span) {
        let bytes = span.path.len() + span.payload.as_deref().map_or(0, payload_size);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.spans >= self.most_spans || state.bytes + bytes > self.most_bytes {
            drop(state);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.entries.push(Entry::Span(trial, slot, span));
        state.spans += 1;
        state.bytes += bytes;
        let waiting = state.entries.len();
        drop(state);
        self.recorded.fetch_add(1, Ordering::Relaxed);
        // Waking costs a system call, so it happens twice a batch: at its first entry and when it is full.
        if waiting == 1 || waiting == BATCH {
            self.wake.notify_one();
        }
    }

    /// Takes reported spans, or drops and counts them when the writer is behind.
    pub(crate) fn report(
        &self,
        trial: TrialId,
        slot: SlotId,
        instance: Option<InstanceId>,
        spans: Vec<ReportedSpan>,
    ) -> bool {
        let count = spans.len();
        let text = |span: &ReportedSpan| -> usize {
            let tags = span.tags.iter().map(|(key, value)| key.len() + value.len());
            200 + tags.sum::<usize>() + span.annotations.iter().map(|(_, text)| text.len()).sum::<usize>()
        };
        let bytes: usize = spans.iter().map(text).sum();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed || state.spans + count > self.most_spans || state.bytes + bytes > self.most_bytes {
            drop(state);
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
            return false;
        }
        state.entries.push(Entry::Reported { trial, slot, instance, spans });
        state.spans += count;
        state.bytes += bytes;
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Takes something that must not be lost; false when the queue is closed.
    pub(crate) fn push(&self, entry: Entry) -> bool {
        let urgent = matches!(entry, Entry::Flush(_));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return false;
        }
        state.entries.push(entry);
        state.urgent |= urgent;
        drop(state);
        self.wake.notify_one();
        true
    }

    /// Ends the queue; the writer takes what is left and stops.
    pub(crate) fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.wake.notify_one();
    }

    /// Waits for entries and exchanges them for the given empty vector; false when all is over.
    pub(crate) fn take(&self, batch: &mut Vec<Entry>) -> bool {
        batch.clear();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |state: &mut State| state.entries.is_empty() && !state.closed;
        let state = self.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        let gathering = |state: &mut State| state.entries.len() < BATCH && !state.urgent && !state.closed;
        let waited = self.wake.wait_timeout_while(state, GATHER, gathering);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mem::swap(&mut state.entries, batch);
        (state.spans, state.bytes, state.urgent) = (0, 0, false);
        !batch.is_empty()
    }

    /// Counts spans that were taken but could not be written.
    pub(crate) fn lose(&self, spans: u64) {
        self.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    /// Spans taken so far.
    pub(crate) fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Spans that were not kept.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
