//! Values of one metric by time, as services report them or are scraped for them.
//!
//! Not to be confused with a *series*, which is concurrent calls of one handling ([`crate::series`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Kind;

/// What a line of values is about. It is the key under which points are stored, so its JSON is a file format.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct TimeSeries {
    /// The metric, with `.count`, `.sum`, `.min`, `.max` or a quantile behind it where it holds many values.
    pub name: String,
    /// The service that it is about; empty where nobody says.
    pub service: String,
    /// How its values follow one another.
    #[serde(default, skip_serializing_if = "is_gauge")]
    pub kind: Kind,
    /// As OpenTelemetry writes units.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Attributes and the resource of who reports, sorted by key.
    pub about: Vec<(String, String)>,
}

/// One value of a time series.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What it is about.
    pub series: TimeSeries,
    /// Microseconds since 1970.
    pub at_us: u64,
    /// May be no number; such points are not stored.
    pub value: f64,
}

/// Times in microseconds since 1970 and values, sorted by time.
pub type PointsBySeries = BTreeMap<TimeSeries, Vec<(u64, f64)>>;

fn is_gauge(kind: &Kind) -> bool {
    *kind == Kind::Gauge
}
