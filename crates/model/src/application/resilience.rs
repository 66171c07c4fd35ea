//! What the application file says about resilience tests: what survives a restart, what may be delivered twice,
//! what must always hold, and how calls are perturbed.

use std::time::Duration;

use indexmap::IndexMap;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::raw::{RawTest, Scalar};
use super::read::{Reader, SpecError, one_line_regex};
use super::{Service, TestBody, TestCase};
use crate::grpc::GrpcCode;
use crate::operation::OperationPattern;
use crate::units;
use crate::wiring::OutageMode;

/// How often a request of an operation may be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Once or more: `resilience` may duplicate it.
    AtLeastOnce,
    /// Once or not at all: `resilience` never duplicates it.
    AtMostOnce,
}

/// Options of resilience tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Resilience {
    /// A regular expression; its first group captures the service or actor that a failure message blames.
    pub blame: String,
    /// How long a delayed call is held back.
    #[serde(with = "units::duration")]
    pub delay: Duration,
    /// How long a call goes unanswered before it is reset, unless its caller gives up earlier.
    #[serde(with = "units::duration")]
    pub timeout: Duration,
    /// How long a reordered call waits for another one to overtake it.
    #[serde(with = "units::duration")]
    pub reorder: Duration,
    /// The HTTP status of injected errors.
    pub status: u16,
    /// The code of injected errors for gRPC callers.
    #[serde(rename = "code", serialize_with = "write_code", skip_serializing_if = "is_unavailable")]
    pub grpc_code: GrpcCode,
    /// How a service is away in an outage.
    pub outage: Outage,
}

/// A service that goes away for a while and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// What callers meet meanwhile.
    pub how: OutageMode,
    /// How long it lasts.
    #[serde(rename = "for", with = "units::duration")]
    pub lasts: Duration,
    /// How long callers have, from its end on, until the test must pass again.
    #[serde(with = "units::duration")]
    pub recovery: Duration,
}

impl Default for Outage {
    fn default() -> Self {
        // Longer than the first attempts of most clients to connect again, shorter than most limits of tests.
        let (lasts, recovery) = (Duration::from_secs(3), Duration::from_secs(2));
        Self { how: OutageMode::default(), lasts, recovery }
    }
}

impl Default for Resilience {
    fn default() -> Self {
        Self {
            blame: r"error@\[([^\]]+)\]".into(),
            delay: Duration::from_millis(50),
            timeout: Duration::from_secs(5),
            reorder: Duration::from_secs(1),
            status: 503,
            grpc_code: UNAVAILABLE,
            outage: Outage::default(),
        }
    }
}

impl Service {
    /// The delivery of requests with this method and path; the first matching operation decides.
    pub fn delivery_of(&self, method: &str, path: &str) -> Option<Delivery> {
        self.delivery.iter().find(|(operation, _)| operation.matches(method, path)).map(|(_, how)| *how)
    }
}

/// What gRPC says when a service cannot be reached.
const UNAVAILABLE: GrpcCode = GrpcCode(14);

fn write_code<S: serde::Serializer>(code: &GrpcCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(code)
}

/// What is usual is not written: digests of older files stay valid.
fn is_unavailable(code: &GrpcCode) -> bool {
    *code == UNAVAILABLE
}

/// The longest outage and recovery; every trial with an outage takes both.
const MAX_OUTAGE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawResilience {
    blame: Option<String>,
    #[serde(default, with = "units::duration::option")]
    delay: Option<Duration>,
    #[serde(default, with = "units::duration::option")]
    timeout: Option<Duration>,
    #[serde(default, with = "units::duration::option")]
    reorder: Option<Duration>,
    status: Option<u16>,
    code: Option<Scalar>,
    outage: Option<RawOutage>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOutage {
    how: Option<OutageMode>,
    #[serde(rename = "for", default, with = "units::duration::option")]
    lasts: Option<Duration>,
    #[serde(default, with = "units::duration::option")]
    recovery: Option<Duration>,
}

/// `durable`: folders that survive a restart, or just whether the service keeps its state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RawDurable {
    pub(super) folders: Vec<String>,
    pub(super) keeps: Option<bool>,
}

impl<'de> Deserialize<'de> for RawDurable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DurableVisitor;
        impl<'de> Visitor<'de> for DurableVisitor {
            type Value = RawDurable;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a list of folders that a restart keeps, or true")
            }
            fn visit_bool<E>(self, keeps: bool) -> Result<RawDurable, E> {
                Ok(RawDurable { folders: Vec::new(), keeps: Some(keeps) })
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawDurable, A::Error> {
                let mut folders = Vec::new();
                while let Some(folder) = items.next_element()? {
                    folders.push(folder);
                }
                Ok(RawDurable { folders, keeps: None })
            }
        }
        deserializer.deserialize_any(DurableVisitor)
    }
}

impl Reader<'_> {
    pub(super) fn resilience(&self, raw: RawResilience) -> Result<Resilience, SpecError> {
        let usual = Resilience::default();
        let blame = raw.blame.unwrap_or(usual.blame);
        let pattern = regex::Regex::new(&blame)
            .map_err(|e| self.error(&["resilience", "blame"], one_line_regex(&e)))?;
        if pattern.captures_len() < 2 {
            let problem = "it has a group in parentheses around the name";
            return Err(self.error(&["resilience", "blame"], problem));
        }
        let status = raw.status.unwrap_or(usual.status);
        if !(400..600).contains(&status) {
            return Err(self.error(&["resilience", "status"], "an error's status lies between 400 and 599"));
        }
        Ok(Resilience {
            blame,
            delay: raw.delay.unwrap_or(usual.delay),
            timeout: raw.timeout.unwrap_or(usual.timeout),
            reorder: raw.reorder.unwrap_or(usual.reorder),
            status,
            grpc_code: raw.code.map_or(Ok(usual.grpc_code), |code| self.error_code(&code.0))?,
            outage: self.outage(raw.outage.unwrap_or_default())?,
        })
    }

    /// A code that a failed call can have.
    fn error_code(&self, text: &str) -> Result<GrpcCode, SpecError> {
        let here = |problem: String| self.error(&["resilience", "code"], problem);
        match GrpcCode::parse_known(text).map_err(here)? {
            GrpcCode(0) => Err(here("`OK` is no error; write a code such as `UNAVAILABLE`".into())),
            code => Ok(code),
        }
    }

    fn outage(&self, raw: RawOutage) -> Result<Outage, SpecError> {
        let usual = Outage::default();
        let outage = Outage {
            how: raw.how.unwrap_or(usual.how),
            lasts: raw.lasts.unwrap_or(usual.lasts),
            recovery: raw.recovery.unwrap_or(usual.recovery),
        };
        for (key, time) in [("for", outage.lasts), ("recovery", outage.recovery)] {
            if time > MAX_OUTAGE {
                let problem = format!("at most {}", units::show_duration(MAX_OUTAGE));
                return Err(self.error(&["resilience", "outage", key], problem));
            }
        }
        Ok(outage)
    }

    pub(super) fn delivery(
        &self,
        service: &str,
        raw: &IndexMap<String, Delivery>,
    ) -> Result<Vec<(OperationPattern, Delivery)>, SpecError> {
        let parse = |(operation, how): (&String, &Delivery)| match operation.parse() {
            Ok(operation) => Ok((operation, *how)),
            Err(e) => Err(self.error(&["services", service, "delivery"], format!("{e}"))),
        };
        raw.iter().map(parse).collect()
    }

    /// Reads the tests that must pass after every trial. They cannot discover cases, whose names would be unknown.
    pub(super) fn invariants(&self, raw: Vec<RawTest>) -> Result<Vec<TestCase>, SpecError> {
        let mut invariants: Vec<TestCase> = Vec::new();
        for (index, test) in raw.into_iter().enumerate() {
            let at = index.to_string();
            let test = self.test_of("invariants", index, test)?;
            if matches!(test.body, TestBody::Discover { .. }) {
                return Err(self.error(&["invariants", &at], "an invariant has `run`, `http` or `steps`"));
            }
            if invariants.iter().any(|known| known.name == test.name) {
                let problem = format!("two invariants are called `{}`", test.name);
                return Err(self.error(&["invariants", &at, "name"], problem));
            }
            invariants.push(test);
        }
        Ok(invariants)
    }
}
