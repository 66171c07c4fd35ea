//! What people and tools ask of traces.

use serde::{Deserialize, Serialize};

/// What a search for traces asks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceQuery {
    /// A service that takes part.
    pub service: Option<String>,
    /// The other side of one of that service's spans.
    pub remote_service: Option<String>,
    /// A span's name.
    pub name: Option<String>,
    /// Tags with their values, or annotations and tag keys without one: all must be there.
    pub terms: Vec<(String, Option<String>)>,
    /// The least duration of a span in microseconds.
    pub least_us: Option<u64>,
    /// The greatest.
    pub most_us: Option<u64>,
    /// Microseconds since 1970: traces that start at or before this.
    pub end_us: u64,
    /// How far back from there, in microseconds.
    pub lookback_us: u64,
    /// How many traces, the newest first.
    pub limit: usize,
}
