//! Names and numbers of things, each its own type so that they cannot be mixed up.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An id or a name that does not have the form it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: {reason}")]
pub struct InvalidId {
    /// What was expected, such as "service name".
    pub what: &'static str,
    /// What was found.
    pub text: String,
    /// Why it is refused.
    pub reason: &'static str,
}

/// The name of a service: a host name label, so that it can be used as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// The caller's name in spans for whatever the tests send.
    pub const TEST: &'static str = "test";

    /// The pseudo-service that stands for the test itself.
    pub fn test() -> Self {
        Self(Arc::from(Self::TEST))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServiceName {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse =
            |reason| Err(InvalidId { what: "service name", text: text.chars().take(80).collect(), reason });
        if text.is_empty() || text.len() > 63 {
            return refuse("it has 1 to 63 characters");
        }
        if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
            return refuse("it has letters, digits, `-`, `_` and `.` only");
        }
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return refuse("it starts with a letter or a digit");
        }
        Ok(Self(Arc::from(text)))
    }
}

impl Borrow<str> for ServiceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One running copy of a service; `order-2` is the second instance of `order`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId {
    /// The service it is a copy of.
    pub service: ServiceName,
    /// Its number, from 1.
    pub ordinal: u32,
}

impl InstanceId {
    /// The instance of `service` with number `ordinal`.
    pub fn new(service: ServiceName, ordinal: u32) -> Self {
        Self { service, ordinal }
    }

    /// The pseudo-instance that stands for the test itself.
    pub fn test() -> Self {
        Self::new(ServiceName::test(), 1)
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.service, self.ordinal)
    }
}

impl FromStr for InstanceId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = |reason| InvalidId { what: "instance", text: text.chars().take(80).collect(), reason };
        let (service, ordinal) = text.rsplit_once('-').ok_or_else(|| refuse("it reads like `order-1`"))?;
        let ordinal = ordinal.parse().map_err(|_| refuse("it ends with a number"))?;
        Ok(Self { service: service.parse()?, ordinal })
    }
}

/// A campaign: one search, one `test`, one `up`; the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CampaignId(Arc<str>);

/// A stored trial: the campaign's short name and the trial's number, `7f3a.12`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

macro_rules! text_id {
    ($type:ty, $what:literal) => {
        impl $type {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
                if text.is_empty() || text.len() > 80 || text.starts_with('.') || !text.bytes().all(plain) {
                    return Err(InvalidId {
                        what: $what,
                        text: text.chars().take(80).collect(),
                        reason: "it has letters, digits, `-`, `_` and `.` only",
                    });
                }
                Ok(Self(Arc::from(text)))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

text_id!(CampaignId, "campaign");
text_id!(RunId, "run");

macro_rules! serde_as_text {
    ($($type:ty),+) => {
        $(
            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }

            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                }
            }
        )+
    };
}

serde_as_text!(ServiceName, InstanceId, CampaignId, RunId, TraceId, SpanId);

/// A virtual or real node, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u16);

/// An isolated place that runs one trial at a time, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SlotId(pub u16);

/// One execution within a campaign: what it is for, and its number among those, from 1.
///
/// ```
/// use faultscope_model::{TrialId, TrialRole};
/// let check = TrialId::new(TrialRole::CheckFailing, 3);
/// assert_eq!(check.to_string(), "check-failing-3");
/// assert_eq!("check-failing-3".parse(), Ok(check));
/// assert_eq!(TrialId::new(TrialRole::Search, 12).name(), "12");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrialId {
    /// What it is for.
    pub role: TrialRole,
    /// Its number among the trials of this role, from 1.
    pub number: u32,
}

/// What a trial is for. Runs are named and numbered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialRole {
    /// Chosen by a search, or one of a plain list.
    Search,
    /// Repeats a known circumstance, to see whether the environment is still the same.
    Sentinel,
    /// A start-up check of the simplest circumstance.
    CheckSimplest,
    /// A start-up check of the failing circumstance.
    CheckFailing,
    /// Another value of a number in a cause.
    Boundary,
    /// A smaller input.
    Input,
    /// A failure of a flaky test that had to come again; format 2 kept those apart, and nothing makes them now.
    Again,
    /// A test without perturbations, whose calls are what can be perturbed.
    Baseline,
}

impl TrialRole {
    /// All of them; the place of each is its code in stored rows, so new ones go to the end.
    const ALL: [Self; 8] = [
        Self::Search,
        Self::Sentinel,
        Self::CheckSimplest,
        Self::CheckFailing,
        Self::Boundary,
        Self::Input,
        Self::Again,
        Self::Baseline,
    ];

    /// How runs of this role are named; those that a search chose have nothing but a number.
    fn name(self) -> &'static str {
        match self {
            Self::Search => "",
            Self::Sentinel => "sentinel",
            Self::CheckSimplest => "check-simplest",
            Self::CheckFailing => "check-failing",
            Self::Boundary => "boundary",
            Self::Input => "input",
            Self::Again => "again",
            Self::Baseline => "baseline",
        }
    }

    /// Whether the first of its kind goes without its number: most campaigns have just one.
    fn is_often_alone(self) -> bool {
        matches!(self, Self::Sentinel | Self::CheckSimplest | Self::CheckFailing | Self::Baseline)
    }

    /// Whether a budget of trials counts it. Checks are what makes an answer possible at all, and sentinels guard
    /// it: neither is what people want to limit.
    pub fn is_budgeted(self) -> bool {
        matches!(self, Self::Search | Self::Boundary | Self::Input)
    }

    /// Whether a run from before an interruption can answer it. A sentinel says that the environment is the same
    /// *now*; a baseline is needed for the names of its calls, which are not stored.
    pub fn is_resumable(self) -> bool {
        !matches!(self, Self::Sentinel | Self::Baseline)
    }
}

impl TrialId {
    /// A trial that a search chose, or one of a plain list.
    pub fn chosen(number: u32) -> Self {
        Self::new(TrialRole::Search, number)
    }

    /// A trial of a role.
    pub fn new(role: TrialRole, number: u32) -> Self {
        Self { role, number }
    }

    /// Whether a search chose it, or it is one of a plain list.
    pub fn is_chosen(self) -> bool {
        self.role == TrialRole::Search
    }

    /// What it is called after the dot in the name of its run: `12`, `check-failing`, `sentinel-2`.
    pub fn name(self) -> String {
        let Self { role, number } = self;
        match role {
            TrialRole::Search => number.to_string(),
            _ if number == 1 && role.is_often_alone() => role.name().to_owned(),
            _ => format!("{}-{number}", role.name()),
        }
    }

    /// Itself as one number, for rows of integers: the code of the role above 32 bits of its number.
    pub fn key(self) -> u64 {
        (self.role as u64) << 32 | u64::from(self.number)
    }

    /// The trial of a key; none where no role has its code.
    pub fn from_key(key: u64) -> Option<Self> {
        let role = TrialRole::ALL.get(usize::try_from(key >> 32).ok()?)?;
        Some(Self::new(*role, key as u32))
    }
}

impl FromStr for TrialId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            what: "trial",
            text: text.chars().take(80).collect(),
            reason: "it reads like `12` or `check-failing-3`",
        };
        if let Ok(number) = text.parse() {
            return Ok(Self::new(TrialRole::Search, number));
        }
        for role in TrialRole::ALL.into_iter().filter(|role| *role != TrialRole::Search) {
            let Some(rest) = text.strip_prefix(role.name()) else { continue };
            match rest.strip_prefix('-').map(str::parse) {
                None if rest.is_empty() && role.is_often_alone() => return Ok(Self::new(role, 1)),
                Some(Ok(number)) => return Ok(Self::new(role, number)),
                _ => {}
            }
        }
        Err(refuse())
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_chosen() { write!(f, "trial-{}", self.number) } else { f.write_str(&self.name()) }
    }
}

impl Serialize for TrialId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

impl<'de> Deserialize<'de> for TrialId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What a campaign is: the command that ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignKind {
    /// Tests under one circumstance.
    Test,
    /// An application that is kept up for people.
    Up,
    /// A failing circumstance, reduced.
    Debug,
    /// Tests, perturbed.
    Resilience,
    /// The failure of a bundle, shown again.
    Repro,
    /// One trial that shows what an application does.
    Probe,
    /// The sample.
    Demo,
    /// A yardstick.
    Bench,
}

impl CampaignKind {
    /// Its word in files and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Up => "up",
            Self::Debug => "debug",
            Self::Resilience => "resilience",
            Self::Repro => "repro",
            Self::Probe => "probe",
            Self::Demo => "demo",
            Self::Bench => "bench",
        }
    }
}

impl fmt::Display for CampaignKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

macro_rules! display_number {
    ($($type:ty => $prefix:literal),+) => {
        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        })+
    };
}

display_number!(NodeId => "node-", SlotId => "slot-");

/// A trace id of 128 bits; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId(pub u128);

/// A span id of 64 bits; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId(pub u64);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for TraceId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        parse_hex(text, 32, "trace id").map(Self)
    }
}

impl FromStr for SpanId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        // At most 16 hex digits were read, so the value fits.
        parse_hex(text, 16, "span id").map(|value| Self(value as u64))
    }
}

fn parse_hex(text: &str, most: usize, what: &'static str) -> Result<u128, InvalidId> {
    let refuse = |reason| InvalidId { what, text: text.chars().take(80).collect(), reason };
    if text.is_empty() || text.len() > most || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(refuse("it has 1 to 16 (span) or 32 (trace) hexadecimal digits"));
    }
    match u128::from_str_radix(text, 16) {
        Ok(0) | Err(_) => Err(refuse("it is not zero")),
        Ok(value) => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!("order".parse::<ServiceName>().is_ok());
        for bad in ["", "-x", "a b", "a/b", &"x".repeat(64)] {
            assert!(bad.parse::<ServiceName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn instances_read_back() {
        let instance: InstanceId = "ts-order-12".parse().unwrap();
        assert_eq!((instance.service.as_str(), instance.ordinal), ("ts-order", 12));
        assert_eq!(instance.to_string(), "ts-order-12");
    }

    #[test]
    fn trials_read_back_by_name_and_by_key() {
        let names = [
            (TrialRole::Search, 12, "12"),
            (TrialRole::Sentinel, 2, "sentinel-2"),
            (TrialRole::CheckSimplest, 1, "check-simplest"),
            (TrialRole::CheckFailing, 3, "check-failing-3"),
            (TrialRole::Boundary, 1, "boundary-1"),
            (TrialRole::Input, 1, "input-1"),
            (TrialRole::Again, 4, "again-4"),
            (TrialRole::Baseline, 1, "baseline"),
        ];
        for (role, number, name) in names {
            let trial = TrialId::new(role, number);
            assert_eq!((trial.name().as_str(), name.parse()), (name, Ok(trial)));
            assert_eq!(TrialId::from_key(trial.key()), Some(trial));
            assert_eq!(trial.is_chosen(), role == TrialRole::Search);
        }
        // Keys that are in stored rows.
        assert_eq!(TrialId::new(TrialRole::CheckFailing, 3).key(), 3 << 32 | 3);
        assert_eq!(TrialId::from_key(99 << 32), None);
        for bad in ["", "boundary", "check-failing-", "check-failing-x", "nobody-1"] {
            assert!(bad.parse::<TrialId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_refuse_zero_and_length() {
        assert!("0000".parse::<TraceId>().is_err());
        assert!("g".parse::<SpanId>().is_err());
        assert!("1".repeat(17).parse::<SpanId>().is_err());
        assert_eq!("AB".parse::<SpanId>().unwrap().to_string(), "00000000000000ab");
    }
}
