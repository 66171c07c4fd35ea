//! `record` as it is written in the application file.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use super::raw::Scalar;
use super::read::Names;
use crate::operation::OperationPattern;
use crate::record::{OutcomeSampling, Record, Sampling, SecretRules, Tracing};
use crate::units::{ByteSize, parse_duration};
use crate::wiring::{LevelRule, RecordLevel};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRecord {
    level: Option<RawLevel>,
    most: Option<ByteSize>,
    #[serde(default)]
    services: IndexMap<String, RawServiceLevel>,
    sample: Option<RawOutcomeSampling>,
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
    Whole,
}

/// How much is recorded of the calls to one service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServiceLevel {
    level: Option<RawLevel>,
    most: Option<ByteSize>,
    #[serde(default)]
    operations: IndexMap<OperationPattern, RawOperationLevel>,
}

/// How much is recorded of one operation.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOperationLevel {
    level: Option<RawLevel>,
    most: Option<ByteSize>,
}

/// Which traces are kept with headers and bodies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOutcomeSampling {
    share: Option<Scalar>,
    #[serde(default, with = "crate::units::duration::option")]
    slow: Option<Duration>,
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
    /// Checks it; services must be among these names.
    pub(super) fn read(self, names: &Names) -> Result<Record, String> {
        let level = read_level(self.level, self.most)?.unwrap_or_default();
        let mut rules = Vec::new();
        for (name, own) in self.services {
            let service = names.get(name.as_str()).cloned();
            let service = service.ok_or_else(|| format!("there is no service `{name}`"))?;
            let of_service = read_level(own.level, own.most)?;
            // Operations first: the first rule that fits counts.
            for (operation, one) in own.operations {
                let level = read_level(one.level, one.most)?;
                let level = level.ok_or_else(|| format!("`{operation}` of `{name}` has no `level`"))?;
                rules.push(LevelRule { service: service.clone(), operation: Some(operation), level });
            }
            rules.extend(of_service.map(|level| LevelRule { service, operation: None, level }));
        }
        let sample = self.sample.map(RawOutcomeSampling::read).transpose()?;
        let (metrics, secrets, tracing) = (self.metrics.0, self.secrets.0, self.tracing.0);
        Ok(Record { level, rules, sample, metrics, secrets, tracing, plain: self.plain })
    }
}

/// A level; none if nothing is said.
fn read_level(level: Option<RawLevel>, most: Option<ByteSize>) -> Result<Option<RecordLevel>, String> {
    let most = most.map(|most| u32::try_from(most.0).ok().filter(|most| *most <= RecordLevel::WHOLE));
    Ok(match (level, most) {
        (_, Some(None)) => return Err("`most` is at most 16MiB".into()),
        (None, None) => None,
        (Some(RawLevel::Timing), None) => Some(RecordLevel::Timing),
        (Some(RawLevel::Headers), None) => Some(RecordLevel::Headers),
        (Some(RawLevel::Whole), None) => Some(RecordLevel::Bodies { most: RecordLevel::WHOLE }),
        (None | Some(RawLevel::Bodies), Some(Some(most))) => Some(RecordLevel::Bodies { most }),
        (Some(RawLevel::Bodies), None) => Some(RecordLevel::default()),
        (Some(_), Some(Some(_))) => {
            return Err("`most` says how much of bodies is kept; it goes with `level: bodies`".into());
        }
    })
}

impl RawOutcomeSampling {
    fn read(self) -> Result<OutcomeSampling, String> {
        let share = self.share.map(|Scalar(text)| OutcomeSampling::read_share(&text));
        let share_ppm = share.transpose()?.unwrap_or_default();
        Ok(OutcomeSampling { share_ppm, slow: self.slow })
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
