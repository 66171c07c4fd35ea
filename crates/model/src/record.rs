//! What is recorded of an application: how much of each call, how often instances are measured, which
//! values are secret, and whether services get the address of the built-in collector.

use std::time::Duration;

use serde::Serialize;

use crate::ids::TraceId;
use crate::wiring::{LevelRule, RecordLevel};

/// The `record` part of an application file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Record {
    /// How much the mesh records of a call.
    #[serde(flatten)]
    pub level: RecordLevel,
    /// How much of the calls to some services and of some operations; the first that fits counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<LevelRule>,
    /// Of which traces headers and bodies are kept; of all if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<OutcomeSampling>,
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

/// Of which traces headers and bodies are kept: those that failed, slow ones, and a share of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct OutcomeSampling {
    /// The share of traces that is kept whatever they are, in millionths.
    pub share_ppm: u32,
    /// From which duration of its request on a trace is slow; none is slow if there is no such duration.
    #[serde(with = "crate::units::duration::option")]
    pub slow: Option<Duration>,
}

impl OutcomeSampling {
    /// All of a million.
    pub const ALL_PPM: u32 = 1_000_000;

    /// Reads a share such as `10%` or `0.1`, as millionths.
    pub fn read_share(text: &str) -> Result<u32, String> {
        let (number, scale) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim(), 100.0),
            None => (text, 1.0),
        };
        let share = number.parse::<f64>().ok().map(|number| number / scale);
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        let share = share.ok_or_else(|| format!("`{text}` is not a share; write `10%` or `0.1`"))?;
        Ok((share * f64::from(Self::ALL_PPM)).round() as u32)
    }

    /// Whether a trace belongs to the share, by its id alone: all who see the trace decide the same.
    pub fn is_chosen(&self, trace: TraceId) -> bool {
        // The multiplication spreads ids that somebody counts up; the upper bits are the best ones.
        let spread = (trace.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        spread * u64::from(Self::ALL_PPM) < u64::from(self.share_ppm) << 32
    }
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
