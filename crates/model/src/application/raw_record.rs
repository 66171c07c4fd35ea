//! `record` as it is written in the application file.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::record::{Record, Sampling, SecretRules, Tracing};
use crate::units::parse_duration;
use crate::wiring::RecordLevel;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRecord {
    level: Option<RawLevel>,
    most: Option<u32>,
    #[serde(default)]
    metrics: RawSampling,
    #[serde(default)]
    secrets: RawSecrets,
    #[serde(default)]
    tracing: RawSwitch,
    #[serde(default)]
    plain: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawLevel {
    Timing,
    Headers,
    Bodies,
}

/// A duration, or `off`; YAML 1.1 reads that as false.
#[derive(Debug, Clone, Copy, Default)]
struct RawSampling(Sampling);

/// `drop`, `keep`, or names of headers and fields.
#[derive(Debug, Clone, Default)]
struct RawSecrets(SecretRules);

/// `on` or `off`; YAML 1.1 reads these as booleans.
#[derive(Debug, Clone, Copy, Default)]
struct RawSwitch(Tracing);

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
        let Self { metrics, secrets, tracing, plain, .. } = self;
        Ok(Record { level, metrics: metrics.0, secrets: secrets.0, tracing: tracing.0, plain })
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

impl<'de> Deserialize<'de> for RawSecrets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Lists {
            #[serde(default)]
            drop: bool,
            #[serde(default)]
            headers: Vec<String>,
            #[serde(default)]
            fields: Vec<String>,
        }
        struct SecretsVisitor;
        impl<'de> Visitor<'de> for SecretsVisitor {
            type Value = RawSecrets;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`keep`, `drop`, or `{ headers: [...], fields: [...] }`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawSecrets, E> {
                match text {
                    "keep" | "drop" => {
                        Ok(RawSecrets(SecretRules { drop: text == "drop", ..SecretRules::default() }))
                    }
                    _ => Err(E::custom(format!("`{text}` is neither `keep` nor `drop`"))),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawSecrets, A::Error> {
                let Lists { drop, headers, fields } =
                    Lists::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RawSecrets(SecretRules { drop, headers, fields }))
            }
        }
        deserializer.deserialize_any(SecretsVisitor)
    }
}

impl<'de> Deserialize<'de> for RawSwitch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SwitchVisitor;
        impl Visitor<'_> for SwitchVisitor {
            type Value = RawSwitch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`on` or `off`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawSwitch, E> {
                match text {
                    "on" => Ok(RawSwitch(Tracing::On)),
                    "off" => Ok(RawSwitch(Tracing::Off)),
                    _ => Err(E::custom(format!("`{text}` is neither `on` nor `off`"))),
                }
            }
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<RawSwitch, E> {
                Ok(RawSwitch(if on { Tracing::On } else { Tracing::Off }))
            }
        }
        deserializer.deserialize_any(SwitchVisitor)
    }
}
