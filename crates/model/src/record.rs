//! What is recorded of an application: how much of each call, how often its instances are measured.

use std::time::Duration;

use serde::Serialize;

use crate::wiring::RecordLevel;

/// The `record` part of an application file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Record {
    /// How much the mesh records of a call.
    #[serde(flatten)]
    pub level: RecordLevel,
    /// How often instances are measured.
    pub metrics: Sampling,
}

/// How often instances are measured while they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Sampling {
    /// The time between two samples; none to take none.
    #[serde(with = "crate::units::duration::option")]
    pub every: Option<Duration>,
}

impl Sampling {
    /// The shortest time between two samples.
    pub const LEAST: Duration = Duration::from_millis(10);
}

impl Default for Sampling {
    fn default() -> Self {
        Self { every: Some(Duration::from_secs(1)) }
    }
}
