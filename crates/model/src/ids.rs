//! Names and numbers, each with a type of its own so that they cannot be mixed up.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An id or a name that does not have the form it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: {reason}")]
pub struct InvalidId {
    /// The kind of id that was expected, such as "service name".
    pub what: &'static str,
    /// The rejected text, cut to 80 characters.
    pub text: String,
    /// Why it was rejected, as a fragment.
    pub reason: &'static str,
}

/// The name of a service: a host name label, so that it can be used as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// The name of the caller in spans of requests that tests send.
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

    /// Whether it stands for the test itself.
    pub fn is_test(&self) -> bool {
        self.service.as_str() == ServiceName::TEST
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

/// A campaign: one `debug`, one `test`, one `up`; also the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CampaignId(Arc<str>);

/// A stored trial: the short name of the campaign and the trial's number, `7f3a.12`.
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
    fn ids_refuse_zero_and_length() {
        assert!("0000".parse::<TraceId>().is_err());
        assert!("g".parse::<SpanId>().is_err());
        assert!("1".repeat(17).parse::<SpanId>().is_err());
        assert_eq!("AB".parse::<SpanId>().unwrap().to_string(), "00000000000000ab");
    }
}
