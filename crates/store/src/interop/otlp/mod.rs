//! OpenTelemetry's protocol: traces as protobuf and JSON in both directions, metrics decoded only.

mod answer;
mod buckets;
mod containers;
mod messages;
mod metric_messages;
mod metrics;
mod read;
mod scalars;
mod stream;
mod to_points;
mod value;
mod write;

pub use answer::partial_success;
pub use metrics::{MetricPoint, MetricValue, Temporality, metrics_json, metrics_proto};
pub(super) use read::find_endpoints;
pub use read::{traces_json, traces_proto};
pub use to_points::points_of;
pub(super) use write::to_data;
pub use write::{to_json, to_proto};

/// The names of the formats in messages.
const JSON: &str = "OTLP JSON";
const PROTO: &str = "OTLP protobuf";

/// Tags for what a reported span has no field for; they are restored when it is encoded.
mod tags {
    /// `OK` when the status says so.
    pub(super) const STATUS_CODE: &str = "otel.status_code";
    /// The status message, if the tag `error` has another text.
    pub(super) const STATUS_DESCRIPTION: &str = "otel.status_description";
    /// The instrumentation scope's name.
    pub(super) const SCOPE_NAME: &str = "otel.scope.name";
    /// Its version.
    pub(super) const SCOPE_VERSION: &str = "otel.scope.version";
    /// Linked spans as `trace-span`, separated by commas.
    pub(super) const LINKS: &str = "otel.links";
    /// The W3C trace state.
    pub(super) const TRACE_STATE: &str = "w3c.tracestate";
    /// Why a span failed.
    pub(super) const ERROR: &str = "error";
}
