//! The messages of OTLP metrics: one set of types for protobuf and JSON, only decoded.

use prost::Message;
use serde::Deserialize;

use super::messages::KeyValue;
use super::scalars::{big, bigs, double, double_or_none, nullable, signed_or_none};

/// A metric with its points, which are of one type.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metric {
    #[prost(string, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) unit: String,
    #[prost(message, optional, tag = "5")]
    pub(super) gauge: Option<Gauge>,
    #[prost(message, optional, tag = "7")]
    pub(super) sum: Option<Sum>,
    #[prost(message, optional, tag = "9")]
    pub(super) histogram: Option<Histogram>,
    #[prost(message, optional, tag = "10")]
    pub(super) exponential_histogram: Option<ExponentialHistogram>,
    #[prost(message, optional, tag = "11")]
    pub(super) summary: Option<Summary>,
}

/// Values as they were at a moment.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Gauge {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) data_points: Vec<NumberPoint>,
}

/// Values that add up.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Sum {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    #[serde(deserialize_with = "nullable")]
    pub(super) is_monotonic: bool,
}

/// How values are spread over buckets.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Histogram {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) aggregation_temporality: i32,
}

/// How values are spread over buckets that grow.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExponentialHistogram {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) data_points: Vec<ExponentialHistogramPoint>,
    #[prost(int32, tag = "2")]
    #[serde(deserialize_with = "nullable")]
    pub(super) aggregation_temporality: i32,
}

/// Quantiles.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) data_points: Vec<SummaryPoint>,
}

/// One value.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NumberPoint {
    #[prost(fixed64, tag = "2")]
    #[serde(with = "big")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(with = "big")]
    pub(super) time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) as_double: Option<f64>,
    #[prost(sfixed64, optional, tag = "6")]
    #[serde(deserialize_with = "signed_or_none")]
    pub(super) as_int: Option<i64>,
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "8")]
    #[serde(deserialize_with = "nullable")]
    pub(super) flags: u32,
}

/// One spread of values.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct HistogramPoint {
    #[prost(fixed64, tag = "2")]
    #[serde(with = "big")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(with = "big")]
    pub(super) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(with = "big")]
    pub(super) count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    #[serde(deserialize_with = "bigs")]
    pub(super) bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    #[serde(deserialize_with = "nullable")]
    pub(super) explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "nullable")]
    pub(super) flags: u32,
    #[prost(double, optional, tag = "11")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) min: Option<f64>,
    #[prost(double, optional, tag = "12")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) max: Option<f64>,
}

/// Counts of buckets that grow, from one on.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Buckets {
    #[prost(sint32, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) offset: i32,
    #[prost(uint64, repeated, tag = "2")]
    #[serde(deserialize_with = "bigs")]
    pub(super) bucket_counts: Vec<u64>,
}

/// One spread of values.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ExponentialHistogramPoint {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "2")]
    #[serde(with = "big")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(with = "big")]
    pub(super) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(with = "big")]
    pub(super) count: u64,
    #[prost(double, optional, tag = "5")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) sum: Option<f64>,
    #[prost(sint32, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    pub(super) scale: i32,
    #[prost(fixed64, tag = "7")]
    #[serde(with = "big")]
    pub(super) zero_count: u64,
    #[prost(message, optional, tag = "8")]
    pub(super) positive: Option<Buckets>,
    #[prost(message, optional, tag = "9")]
    pub(super) negative: Option<Buckets>,
    #[prost(uint32, tag = "10")]
    #[serde(deserialize_with = "nullable")]
    pub(super) flags: u32,
    #[prost(double, optional, tag = "12")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) min: Option<f64>,
    #[prost(double, optional, tag = "13")]
    #[serde(deserialize_with = "double_or_none")]
    pub(super) max: Option<f64>,
}

/// One set of quantiles.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SummaryPoint {
    #[prost(fixed64, tag = "2")]
    #[serde(with = "big")]
    pub(super) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    #[serde(with = "big")]
    pub(super) time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    #[serde(with = "big")]
    pub(super) count: u64,
    #[prost(double, tag = "5")]
    #[serde(deserialize_with = "double")]
    pub(super) sum: f64,
    #[prost(message, repeated, tag = "6")]
    #[serde(deserialize_with = "nullable")]
    pub(super) quantile_values: Vec<Quantile>,
    #[prost(message, repeated, tag = "7")]
    #[serde(deserialize_with = "nullable")]
    pub(super) attributes: Vec<KeyValue>,
    #[prost(uint32, tag = "8")]
    #[serde(deserialize_with = "nullable")]
    pub(super) flags: u32,
}

/// A value that so many are below.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Quantile {
    #[prost(double, tag = "1")]
    #[serde(deserialize_with = "double")]
    pub(super) quantile: f64,
    #[prost(double, tag = "2")]
    #[serde(deserialize_with = "double")]
    pub(super) value: f64,
}
