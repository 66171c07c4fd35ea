//! Queries of clients: parameters of Zipkin's and Jaeger's searches, and whether a trace matches them.

mod jaeger;
mod matches;
mod parameters;
mod times;
mod zipkin;

pub use jaeger::{jaeger_v1, jaeger_v3};
pub use matches::{matches, matches_one_span};
pub use parameters::{Parameters, QueryError};
pub use times::{go_duration_us, rfc3339_us};
pub use zipkin::{
    DEFAULT_LOOKBACK_MS, annotation_query, zipkin_dependencies, zipkin_trace_ids, zipkin_traces,
};
