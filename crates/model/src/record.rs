//! What is recorded of an application: how much of each call, how often instances are measured, which
//! values are secret, and whether services get the address of the built-in collector.

use std::time::Duration;

use serde::Serialize;

use crate::wiring::RecordLevel;

/// The `record` part of an application file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Record {
    /// How much the mesh records of a call.
    #[serde(flatten)]
    pub level: RecordLevel,
    /// How often the resource usage of instances is measured.
    pub metrics: Sampling,
    /// Which values are redacted, and whether they are stored encrypted.
    pub secrets: SecretRules,
    /// Whether services get the address of the built-in collector.
    pub tracing: Tracing,
    /// Whether what is recorded is stored as it is, not encrypted. Secrets are encrypted or discarded all the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

/// How often the resource usage of running instances is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Sampling {
    /// The time between two samples; none switches sampling off.
    #[serde(with = "crate::units::duration::option")]
    pub every: Option<Duration>,
}

impl Sampling {
    /// Each sample reads several files of every instance; a shorter interval would disturb what it measures.
    pub const LEAST: Duration = Duration::from_millis(10);
}

impl Default for Sampling {
    fn default() -> Self {
        Self { every: Some(Duration::from_secs(1)) }
    }
}

/// Which values are secret, in addition to those that always are (`Authorization`, cookies, API keys).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SecretRules {
    /// Whether secrets are discarded instead of stored encrypted.
    pub drop: bool,
    /// Header names.
    pub headers: Vec<String>,
    /// Fields in bodies, queries and forms: names, or paths such as `$.card.number`.
    pub fields: Vec<String>,
}

/// Whether services get the address of the built-in collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracing {
    /// In the variables of OpenTelemetry and Zipkin, unless a service sets them itself.
    #[default]
    On,
    /// Services report wherever they do without this tool.
    Off,
}
