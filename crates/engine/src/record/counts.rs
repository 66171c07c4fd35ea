//! Counts what is recorded while it happens.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultscope_mesh::Recorder;
use faultscope_model::wiring::RecordLevel;
use faultscope_model::{ServiceName, Span};
use serde::Serialize;

use crate::trial::SlotRecorder;

/// What was recorded so far.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RecordCounts {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that the store was too slow for.
    pub dropped: u64,
    /// Calls that are not on disk, because the recording had its most.
    pub left_out: u64,
    /// The same by service.
    pub services: BTreeMap<ServiceName, ServiceCounts>,
}

/// What was recorded of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ServiceCounts {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls of which only the beginning of a body was kept.
    pub cut: u64,
}

/// Counts calls on their way to the store.
pub(super) struct CountingRecorder {
    inner: SlotRecorder,
    /// Whether bodies are kept at all; otherwise none is cut.
    keeps_bodies: bool,
    services: Mutex<BTreeMap<ServiceName, ServiceCounts>>,
}

impl std::fmt::Debug for CountingRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountingRecorder").finish_non_exhaustive()
    }
}

impl CountingRecorder {
    pub(super) fn new(inner: SlotRecorder, level: RecordLevel) -> Self {
        let keeps_bodies = matches!(level, RecordLevel::Bodies { .. });
        Self { inner, keeps_bodies, services: Mutex::default() }
    }

    /// Stores what is held of traces that have not ended.
    pub(super) fn end_sampling(&self) {
        self.inner.end_sampling();
    }

    pub(super) fn counts(&self, dropped: u64) -> RecordCounts {
        let services = self.services().clone();
        RecordCounts {
            calls: services.values().map(|counts| counts.calls).sum(),
            failed: services.values().map(|counts| counts.failed).sum(),
            dropped,
            left_out: self.inner.left_out(),
            services,
        }
    }

    fn services(&self) -> MutexGuard<'_, BTreeMap<ServiceName, ServiceCounts>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder for CountingRecorder {
    fn record(&self, span: Span) {
        let is_cut = span.payload.as_deref().is_some_and(|payload| {
            (payload.request_body.len() as u64) < span.request_bytes
                || (payload.response_body.len() as u64) < span.response_bytes
        });
        let mut services = self.services();
        // Only names of the command line are callees, so this does not grow.
        let counts = services.entry(span.callee.clone()).or_default();
        counts.calls += 1;
        counts.failed += u64::from(span.failed());
        counts.cut += u64::from(is_cut && self.keeps_bodies && !span.wire.is_opaque());
        drop(services);
        self.inner.record(span);
    }
}
