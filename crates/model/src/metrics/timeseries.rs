//! Values of one metric over time, as services push them or are scraped for them.
//!
//! Not to be confused with a *series* of the glossary: concurrent calls of one handling ([`crate::series`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Kind;

/// What identifies a time series. It is the key under which points are stored, so its JSON is a file format.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct TimeSeries {
    /// The metric, followed by `.count`, `.sum`, `.min`, `.max` or a quantile where it aggregates many values.
    pub name: String,
    /// The service that it describes; empty if unknown.
    pub service: String,
    /// How its values relate to one another.
    #[serde(default, skip_serializing_if = "is_gauge")]
    pub kind: Kind,
    /// The unit in OpenTelemetry's notation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Attributes of the metric and of the reporting resource, sorted by key.
    pub about: Vec<(String, String)>,
}

/// One value of a time series.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The time series it belongs to.
    pub series: TimeSeries,
    /// Microseconds since 1970.
    pub at_us: u64,
    /// NaN and infinite values are not stored.
    pub value: f64,
}

/// Times in microseconds since 1970 and values, sorted by time.
pub type PointsBySeries = BTreeMap<TimeSeries, Vec<(u64, f64)>>;

fn is_gauge(kind: &Kind) -> bool {
    *kind == Kind::Gauge
}
