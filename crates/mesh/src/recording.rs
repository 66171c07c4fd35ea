//! What is recorded of a call: once, when it ends or when its trial ends, whichever comes first.
//!
//! A connection may outlive its trial, and the trial's evidence is read as soon as the trial is over. So the trial
//! knows its open calls and can record them as far as they have come, without a word with the tasks that carry them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_model::span::Span;
use faultscope_model::{CallError, InstanceId, ServiceName, SpanId, TraceId};
use tokio::time::Instant;

/// The span of a call in flight, shared by the call and its trial.
#[derive(Debug)]
pub(crate) struct Recording {
    entry: Mutex<Entry>,
    started: Instant,
}

#[derive(Debug)]
struct Entry {
    /// None once the call has ended.
    span: Option<Span>,
    /// The trial has ended: what follows belongs to no trial, or to the next one.
    is_cut: bool,
}

/// The calls of a trial that are in flight.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    calls: HashMap<SpanId, Arc<Recording>>,
    is_over: bool,
}

// === impl Recording ===

impl Recording {
    /// Changes the span, unless the call has ended.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Span)) {
        if let Some(span) = &mut self.lock().span {
            change(span);
        }
    }

    /// Looks at the span; none once the call has ended.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&Span) -> T) -> Option<T> {
        self.lock().span.as_ref().map(look)
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Whether the trial ended before the call.
    pub(crate) fn is_cut(&self) -> bool {
        self.lock().is_cut
    }

    /// Ends the call; gives its span unless the trial has recorded it.
    fn finish(&self, error: Option<CallError>) -> Option<Span> {
        let mut entry = self.lock();
        let mut span = entry.span.take()?;
        if entry.is_cut {
            return None;
        }
        span.duration_us = self.started.elapsed().as_micros() as u64;
        span.error = error;
        Some(span)
    }

    /// The span so far, for a trial that ends.
    fn cut(&self) -> Option<Span> {
        let mut entry = self.lock();
        if std::mem::replace(&mut entry.is_cut, true) {
            return None;
        }
        let mut span = entry.span.clone()?;
        span.duration_us = self.started.elapsed().as_micros() as u64;
        span.extent.open = true;
        Some(span)
    }

    fn lock(&self) -> MutexGuard<'_, Entry> {
        lock(&self.entry)
    }
}

// === impl OpenCalls ===

impl OpenCalls {
    /// Begins to record a call. One that begins when the trial is over is never recorded.
    pub(crate) fn begin(&self, span: Span, started: Instant) -> Arc<Recording> {
        let id = span.id;
        let mut open = lock(&self.0);
        let entry = Mutex::new(Entry { span: Some(span), is_cut: open.is_over });
        let recording = Arc::new(Recording { entry, started });
        if !open.is_over {
            open.calls.insert(id, Arc::clone(&recording));
        }
        recording
    }

    /// A call that leaves no span.
    pub(crate) fn ignore(span: Span, started: Instant) -> Arc<Recording> {
        let entry = Mutex::new(Entry { span: Some(span), is_cut: true });
        Arc::new(Recording { entry, started })
    }

    /// Ends a call; gives its span unless the trial has recorded it.
    pub(crate) fn finish(&self, id: SpanId, recording: &Recording, error: Option<CallError>) -> Option<Span> {
        let finished = recording.finish(error);
        lock(&self.0).calls.remove(&id);
        finished
    }

    /// Who makes a call with this context: whoever handles the call that it names. A service with a tracer names a span
    /// of its own; then it is whoever handles the latest open call of the trace, the callee aside.
    pub(crate) fn find_handler(
        &self,
        (trace, span): (TraceId, SpanId),
        callee: &ServiceName,
    ) -> Option<InstanceId> {
        let open = lock(&self.0);
        if let Some(named) = open.calls.get(&span) {
            return named.read(|call| call.callee_instance.clone()).flatten();
        }
        let handles = |recording: &Arc<Recording>| {
            let found = recording.read(|call| {
                let fits = call.trace == trace && call.callee != *callee;
                fits.then(|| Some((call.start_us, call.id, call.callee_instance.clone()?))).flatten()
            });
            found.flatten()
        };
        open.calls.values().filter_map(handles).max().map(|(.., instance)| instance)
    }

    /// Ends the trial: gives the spans of all open calls so far, in the order of their start.
    pub(crate) fn end(&self) -> Vec<Span> {
        let calls = {
            let mut open = lock(&self.0);
            open.is_over = true;
            std::mem::take(&mut open.calls)
        };
        let mut spans: Vec<Span> = calls.into_values().filter_map(|recording| recording.cut()).collect();
        spans.sort_by_key(|span| (span.start_us, span.id));
        spans
    }

    /// Whether the trial has ended.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.0).is_over
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All changes are single steps, so the data stays whole whatever panicked.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
