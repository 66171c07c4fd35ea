//! What was observed in some time: calls of services and samples of instances.

use faultscope_model::metrics::Sample;
use faultscope_model::perturbation::masked_operation;
use faultscope_model::trace::{ReportedSpan, SpanKind, has_failed, is_mesh_call};
use faultscope_model::{Span, TraceId};

/// Characters of a service's or an operation's name: they come from outside.
const MAX_NAME: usize = 200;

/// A call as the watched service handled it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCall {
    /// The service that was called.
    pub service: String,
    /// What it was asked for, with ids masked.
    pub operation: String,
    /// The start in microseconds since 1970.
    pub at_us: u64,
    /// Until the answer.
    pub duration_us: u64,
    /// Whether it failed.
    pub failed: bool,
    /// The trace it belongs to.
    pub trace: TraceId,
}

/// Calls and samples of some time.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Calls, in any order.
    pub calls: Vec<ObservedCall>,
    /// Samples, in any order.
    pub samples: Vec<Sample>,
    /// Whether there were more traces than are read at once, so that some are missing.
    pub is_cut: bool,
}

impl ObservedCall {
    /// A call that the mesh recorded; none for questions for an address, and for calls that began before the trial.
    pub fn from_call(span: &Span) -> Option<Self> {
        if !span.is_traffic() || span.extent.continued || !span.wire.carries_headers() {
            return None;
        }
        Some(Self {
            service: bounded(span.callee.as_str()),
            operation: bounded(&masked_operation(&span.method, &span.path)),
            at_us: span.start_us,
            duration_us: span.duration_us,
            failed: span.failed(),
            trace: span.trace,
        })
    }

    /// What a service reports about a call it handled, or the mesh about one it saw. Reports of callers are left out,
    /// so that no call counts twice.
    pub fn from_report(span: &ReportedSpan) -> Option<Self> {
        let (at_us, duration_us) = (span.start_us?, span.duration_us?);
        let (service, operation) = if is_mesh_call(span) {
            let method = span.tag("http.method");
            let operation =
                method.zip(span.tag("http.path")).map(|(method, path)| masked_operation(method, path));
            (span.remote.service.as_deref()?, operation?)
        } else {
            if matches!(span.kind, Some(SpanKind::Client | SpanKind::Producer)) {
                return None;
            }
            (span.local.service.as_deref()?, span.name.clone())
        };
        Some(Self {
            service: bounded(service),
            operation: bounded(&operation),
            at_us,
            duration_us,
            failed: has_failed(span),
            trace: span.trace,
        })
    }
}

fn bounded(name: &str) -> String {
    name.chars().take(MAX_NAME).collect()
}
