//! Zipkin's formats: v2 as JSON and protobuf in both directions, v1 as JSON and Thrift decoded only.

mod endpoint;
mod thrift;
mod v1;
mod v1_json;
mod v2_json;
mod v2_proto;
mod write;

pub use thrift::v1_thrift;
pub use v1_json::v1_json;
pub use v2_json::{v2_json, v2_lines, v2_traces};
pub use v2_proto::{to_proto, v2_proto};
pub(crate) use write::write_json;
pub use write::{to_json, to_lines, traces_to_json};

use super::{DecodeError, Limits};

/// The names of the formats in messages.
const V1_JSON: &str = "Zipkin v1 JSON";
const V2_JSON: &str = "Zipkin v2 JSON";
const V1_THRIFT: &str = "Zipkin v1 Thrift";
const V2_PROTO: &str = "Zipkin v2 protobuf";

fn too_many(limits: &Limits) -> DecodeError {
    DecodeError::TooLarge { what: "the number of spans", limit: limits.items }
}
