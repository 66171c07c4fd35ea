//! What is recorded of an application: how much of each call, how often its instances are measured, which
//! values are secret, whether services are told where to report spans of their own.

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
    /// Which values are never shown, and whether they are kept.
    pub secrets: SecretRules,
    /// Services are told where to report spans.
    pub tracing: Tracing,
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

/// Which values are secret beside those that always are (`Authorization`, cookies, keys of interfaces).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SecretRules {
    /// Secrets are forgotten instead of kept encrypted.
    pub drop: bool,
    /// Names of headers.
    pub headers: Vec<String>,
    /// Names of fields in bodies, queries and forms, or paths as `$.card.number`.
    pub fields: Vec<String>,
}

/// Whether services are told where to report spans of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tracing {
    /// By the variables of OpenTelemetry and Zipkin, unless a service sets them itself.
    #[default]
    On,
    /// They report wherever they do without this tool.
    Off,
}
