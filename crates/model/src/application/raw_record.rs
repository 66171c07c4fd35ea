//! `record` as it is written in the application file.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::record::{Record, Sampling};
use crate::units::parse_duration;
use crate::wiring::RecordLevel;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRecord {
    level: Option<RawLevel>,
    most: Option<u32>,
    #[serde(default)]
    metrics: RawSampling,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawLevel {
    Timing,
    Headers,
    Bodies,
}

/// A duration, or `off`; YAML of old reads that as false.
#[derive(Debug, Clone, Copy, Default)]
struct RawSampling(Sampling);

impl RawRecord {
    pub(super) fn read(self) -> Result<Record, String> {
        let level = match (self.level, self.most) {
            (None, None) => RecordLevel::default(),
            (Some(RawLevel::Timing), None) => RecordLevel::Timing,
            (Some(RawLevel::Headers), None) => RecordLevel::Headers,
            (None | Some(RawLevel::Bodies), Some(most)) => RecordLevel::Bodies { most },
            (Some(RawLevel::Bodies), None) => RecordLevel::default(),
            (Some(RawLevel::Timing | RawLevel::Headers), Some(_)) => {
                return Err("`most` says how much of bodies is kept; it goes with `level: bodies`".into());
            }
        };
        Ok(Record { level, metrics: self.metrics.0 })
    }
}

impl<'de> Deserialize<'de> for RawSampling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SamplingVisitor;
        impl Visitor<'_> for SamplingVisitor {
            type Value = RawSampling;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`off` or a duration as `1s`")
            }
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<RawSampling, E> {
                Ok(RawSampling(if on { Sampling::default() } else { Sampling { every: None } }))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawSampling, E> {
                match text {
                    "on" | "off" => self.visit_bool(text == "on"),
                    _ => match parse_duration(text) {
                        Ok(every) if every >= Sampling::LEAST => every_so_often(every),
                        Ok(_) => Err(E::custom("instances are measured every 10ms at most")),
                        Err(_) => Err(E::custom(format!("`{text}` is neither `off` nor a duration as `1s`"))),
                    },
                }
            }
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<RawSampling, E> {
                self.visit_str(&seconds.to_string())
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<RawSampling, E> {
                self.visit_str(&seconds.to_string())
            }
        }
        deserializer.deserialize_any(SamplingVisitor)
    }
}

fn every_so_often<E>(every: Duration) -> Result<RawSampling, E> {
    Ok(RawSampling(Sampling { every: Some(every) }))
}
