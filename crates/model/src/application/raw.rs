//! The application file as it is written, close to the YAML. Only [`super::read`] sees these types.

use std::fmt;
use std::time::Duration;

use indexmap::IndexMap;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::import::shell::{needs_shell, split_words};
use crate::plan::Reset;
use crate::protocol::Protocol;
use crate::units::{self, ByteSize};
use crate::wiring::{Balance, Link};

use super::protos::RawProtos;
use super::raw_record::RawRecord;
use super::resilience::{RawDurable, RawResilience};
use super::watch::RawWatchRule;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawApplication {
    pub(super) extends: Option<String>,
    pub(super) name: Option<String>,
    pub(super) directory: Option<String>,
    #[serde(default)]
    pub(super) services: IndexMap<String, RawService>,
    pub(super) setup: Option<Vec<String>>,
    pub(super) reset: Option<Reset>,
    pub(super) isolation: Option<super::IsolationChoice>,
    pub(super) external: Option<Vec<RawExternal>>,
    pub(super) tests: Option<Vec<RawTest>>,
    pub(super) invariants: Option<Vec<RawTest>>,
    pub(super) resilience: Option<RawResilience>,
    pub(super) test: Option<String>,
    pub(super) simplest: Option<RawCircumstance>,
    pub(super) failing: Option<RawCircumstance>,
    pub(super) links: Option<Vec<Link>>,
    pub(super) constraints: Option<Vec<RawConstraint>>,
    pub(super) record: Option<RawRecord>,
    pub(super) bundle: Option<RawBundle>,
    pub(super) protos: Option<RawProtos>,
    pub(super) shared: Option<Vec<String>>,
    pub(super) watch: Option<Vec<RawWatchRule>>,
    #[serde(default, with = "units::duration::option")]
    pub(super) gate_wait: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBundle {
    #[serde(default)]
    pub(super) exclude: Vec<String>,
    #[serde(default, deserialize_with = "some_words")]
    pub(super) restore: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawService {
    #[serde(default, deserialize_with = "some_words")]
    pub(super) entrypoint: Option<Vec<String>>,
    #[serde(default, deserialize_with = "words")]
    pub(super) command: Vec<String>,
    pub(super) image: Option<String>,
    pub(super) build: Option<String>,
    pub(super) directory: Option<String>,
    pub(super) working_dir: Option<String>,
    pub(super) user: Option<Scalar>,
    #[serde(default)]
    pub(super) ports: Vec<RawPort>,
    pub(super) protocol: Option<Protocol>,
    #[serde(default)]
    pub(super) env: IndexMap<String, Scalar>,
    pub(super) ready: Option<RawReadiness>,
    #[serde(default)]
    pub(super) after: Vec<String>,
    pub(super) calls: Option<Vec<String>>,
    #[serde(default)]
    pub(super) durable: RawDurable,
    #[serde(default)]
    pub(super) delivery: IndexMap<String, super::Delivery>,
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    #[serde(default)]
    pub(super) publish: IndexMap<u16, u16>,
    pub(super) balance: Option<Balance>,
    #[serde(default)]
    pub(super) versions: IndexMap<String, RawVersion>,
    #[serde(default, with = "units::duration::option")]
    pub(super) stop_within: Option<Duration>,
    pub(super) metrics: Option<RawMetrics>,
    #[serde(default)]
    pub(super) mounts: Vec<RawMount>,
    pub(super) reset: Option<Reset>,
    pub(super) privileged: Option<bool>,
    pub(super) clone: Option<RawCloneHook>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCloneHook {
    #[serde(default, deserialize_with = "words")]
    pub(super) before: Vec<String>,
    #[serde(default, with = "units::duration::option")]
    pub(super) within: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMount {
    pub(super) from: Option<String>,
    pub(super) volume: Option<String>,
    pub(super) tmpfs: Option<String>,
    pub(super) size: Option<String>,
    pub(super) content: Option<String>,
    pub(super) to: Option<String>,
    pub(super) readonly: Option<bool>,
    pub(super) mode: Option<Scalar>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMetrics {
    pub(super) port: Option<u16>,
    pub(super) path: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawVersion {
    #[serde(default, deserialize_with = "some_words")]
    pub(super) entrypoint: Option<Vec<String>>,
    #[serde(default, deserialize_with = "some_words")]
    pub(super) command: Option<Vec<String>>,
    pub(super) image: Option<String>,
    pub(super) directory: Option<String>,
    #[serde(default)]
    pub(super) env: IndexMap<String, Scalar>,
    pub(super) ready: Option<RawReadiness>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExternal {
    pub(super) host: String,
    #[serde(default)]
    pub(super) allow: bool,
    #[serde(default)]
    pub(super) ports: Vec<u16>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawReadiness {
    pub(super) http: Option<String>,
    pub(super) tcp: Option<u16>,
    pub(super) grpc: Option<Scalar>,
    pub(super) log: Option<String>,
    #[serde(default, deserialize_with = "some_words")]
    pub(super) command: Option<Vec<String>>,
    pub(super) port: Option<u16>,
    #[serde(default, with = "units::duration::option")]
    pub(super) within: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTest {
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "some_words")]
    pub(super) run: Option<Vec<String>>,
    pub(super) http: Option<RawStep>,
    pub(super) steps: Option<Vec<RawStep>>,
    pub(super) discover: Option<String>,
    #[serde(default, deserialize_with = "some_words")]
    pub(super) list: Option<Vec<String>>,
    #[serde(default, deserialize_with = "some_words")]
    pub(super) each: Option<Vec<String>>,
    pub(super) failure: Option<String>,
    pub(super) degraded: Option<String>,
    pub(super) input: Option<RawInput>,
    pub(super) directory: Option<String>,
    #[serde(default)]
    pub(super) env: IndexMap<String, Scalar>,
    #[serde(default, with = "units::duration::option")]
    pub(super) within: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) get: Option<String>,
    pub(super) post: Option<String>,
    pub(super) put: Option<String>,
    pub(super) delete: Option<String>,
    pub(super) patch: Option<String>,
    pub(super) head: Option<String>,
    pub(super) grpc: Option<String>,
    #[serde(default)]
    pub(super) headers: IndexMap<String, Scalar>,
    #[serde(default)]
    pub(super) metadata: IndexMap<String, Scalar>,
    pub(super) json: Option<serde_json::Value>,
    pub(super) body: Option<String>,
    pub(super) expect: Option<super::Expectation>,
    #[serde(default)]
    pub(super) save: IndexMap<String, String>,
    #[serde(default, with = "units::duration::option")]
    pub(super) within: Option<Duration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCircumstance {
    pub(super) nodes: Option<u16>,
    #[serde(default)]
    pub(super) instances: IndexMap<String, u32>,
    #[serde(default)]
    pub(super) config: IndexMap<String, IndexMap<String, Scalar>>,
    #[serde(default)]
    pub(super) sequence: Vec<RawOrder>,
    #[serde(default)]
    pub(super) versions: IndexMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOrder {
    pub(super) from: String,
    #[serde(rename = "in")]
    pub(super) handling: String,
    pub(super) order: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConstraint {
    #[serde(rename = "if")]
    pub(super) when: Option<String>,
    pub(super) then: Option<String>,
    pub(super) not: Option<Vec<String>>,
}

/// The input of a test: a file, or a map with its format.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum RawInput {
    File(String),
    Long { file: String, format: Option<crate::input::InputFormat> },
}

/// A port: a number, or a map with its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawPort {
    pub(super) port: u16,
    pub(super) protocol: Option<Protocol>,
}

impl<'de> Deserialize<'de> for RawPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Long {
            port: u16,
            protocol: Option<Protocol>,
        }
        struct PortVisitor;
        impl<'de> Visitor<'de> for PortVisitor {
            type Value = RawPort;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port number, or `{ port: 8080, protocol: grpc }`")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<RawPort, E> {
                let port = u16::try_from(number).map_err(|_| E::custom("a port lies between 1 and 65535"))?;
                Ok(RawPort { port, protocol: None })
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawPort, E> {
                let port = u16::try_from(number).map_err(|_| E::custom("a port lies between 1 and 65535"))?;
                Ok(RawPort { port, protocol: None })
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawPort, E> {
                let port = text.parse().map_err(|_| E::custom(format!("`{text}` is not a port number")))?;
                Ok(RawPort { port, protocol: None })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawPort, A::Error> {
                let long = Long::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(RawPort { port: long.port, protocol: long.protocol })
            }
        }
        deserializer.deserialize_any(PortVisitor)
    }
}

/// A scalar that people write as text, number or boolean and that a process sees as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Scalar(pub(super) String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }
            fn visit_unit<E: de::Error>(self) -> Result<Scalar, E> {
                Ok(Scalar(String::new()))
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl RawApplication {
    /// Merges this file over the one it extends: its own values win, maps are merged key by key.
    pub(super) fn over(self, base: Self) -> Self {
        let mut services = base.services;
        services.extend(self.services);
        Self {
            extends: None,
            name: self.name.or(base.name),
            directory: self.directory.or(base.directory),
            services,
            setup: self.setup.or(base.setup),
            reset: self.reset.or(base.reset),
            isolation: self.isolation.or(base.isolation),
            external: self.external.or(base.external),
            tests: self.tests.or(base.tests),
            invariants: self.invariants.or(base.invariants),
            resilience: self.resilience.or(base.resilience),
            test: self.test.or(base.test),
            simplest: self.simplest.or(base.simplest),
            failing: self.failing.or(base.failing),
            links: self.links.or(base.links),
            constraints: self.constraints.or(base.constraints),
            record: self.record.or(base.record),
            bundle: self.bundle.or(base.bundle),
            protos: self.protos.or(base.protos),
            shared: self.shared.or(base.shared),
            watch: self.watch.or(base.watch),
            gate_wait: self.gate_wait.or(base.gate_wait),
        }
    }
}

/// Reads a command: a list of words, or one line as typed in a shell. A line that needs a shell is run by one.
fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Command;
    impl<'de> Visitor<'de> for Command {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a command, as a list of words or as one line")
        }

        fn visit_str<E: de::Error>(self, line: &str) -> Result<Self::Value, E> {
            if needs_shell(line) {
                return Ok(["sh", "-c", line].map(str::to_owned).into());
            }
            split_words(line).map_err(E::custom)
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(de::value::SeqAccessDeserializer::new(list))
        }
    }
    from.deserialize_any(Command)
}

fn some_words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    words(from).map(Some)
}

/// Whether this is a limit in which no process can start.
pub(super) fn is_tiny(text: &str) -> bool {
    text.parse::<ByteSize>().is_ok_and(ByteSize::is_tiny)
}

pub(super) fn is_size(text: &str) -> bool {
    text.parse::<ByteSize>().is_ok_and(|size| size.0 > 0)
}
