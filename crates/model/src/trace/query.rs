//! Conditions of a search for traces.

use serde::{Deserialize, Serialize};

/// Conditions that a trace must meet; absent ones are not checked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceQuery {
    /// A service with at least one span in the trace.
    pub service: Option<String>,
    /// The other side of one of that service's spans.
    pub remote_service: Option<String>,
    /// The name of a span.
    pub name: Option<String>,
    /// Tags with their values, or annotations and tag keys without one; all must be present.
    pub terms: Vec<(String, Option<String>)>,
    /// The shortest duration of a span in microseconds.
    pub least_us: Option<u64>,
    /// The longest duration of a span in microseconds.
    pub most_us: Option<u64>,
    /// The latest start in microseconds since 1970.
    pub end_us: u64,
    /// The time window before `end_us`, in microseconds.
    pub lookback_us: u64,
    /// The largest number of traces; the newest are kept.
    pub limit: usize,
}
