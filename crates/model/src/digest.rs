//! Digests that stay the same from release to release: SHA-256 over canonical JSON, cut to 128 bits.
//!
//! They identify the questions and the inputs of a campaign that may be resumed later, perhaps by a newer version of
//! the tool. Two things keep them stable. Keys are sorted, so the order of fields does not count. And empty values
//! (null, false, empty texts and lists) are left out, so that a field which a later release adds changes nothing for
//! those who do not use it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The digest of a document, 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Hashes anything that can be written as JSON.
    ///
    /// ```
    /// use faultscope_model::digest::Digest;
    /// let one = serde_json::json!({"b": 1, "a": "x", "later": null});
    /// let other = serde_json::json!({"a": "x", "b": 1});
    /// assert_eq!(Digest::hash_json(&one), Digest::hash_json(&other));
    /// assert_eq!(Digest::hash_json(&other).to_string(), "cdab067e9f3beb32d1252cfd63e49259");
    /// ```
    pub fn hash_json(document: &impl Serialize) -> Self {
        // Serializing fails only for maps whose keys are not text, and our documents have none.
        let value = serde_json::to_value(document).unwrap_or(Value::Null);
        let mut text = String::new();
        write_canonical(&value, &mut text);
        Self::hash_bytes(text.as_bytes())
    }

    /// Hashes bytes as they are.
    pub fn hash_bytes(bytes: &[u8]) -> Self {
        let full = Sha256::digest(bytes);
        let mut short = [0; 16];
        short.copy_from_slice(&full[..16]);
        Self(short)
    }

    /// The first 64 bits, for places that need a number.
    pub fn number(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(first)
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
    }
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(_, value)| !is_empty(value)).collect();
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (place, (key, value)) in fields.into_iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        // Positions in a list count, so an empty item stays.
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 32 hexadecimal digits")]
pub struct InvalidDigest;

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| Self(number.to_be_bytes())).ok_or(InvalidDigest)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_empty_does_not_count_but_places_in_lists_do() {
        let plain = Digest::hash_json(&json!({"a": {"b": [1, 2]}}));
        assert_eq!(
            plain,
            Digest::hash_json(&json!({"a": {"b": [1, 2], "c": {}, "d": [], "e": "", "f": false}}))
        );
        assert_ne!(plain, Digest::hash_json(&json!({"a": {"b": [2, 1]}})));
        assert_ne!(Digest::hash_json(&json!(["", 1])), Digest::hash_json(&json!([1])));
        assert_ne!(
            Digest::hash_json(&json!({"a": 0})),
            Digest::hash_json(&json!({})),
            "a number says something"
        );
    }

    #[test]
    fn digests_read_back() {
        let digest = Digest::hash_json(&json!({"a": 1}));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(serde_json::from_value::<Digest>(serde_json::to_value(digest).unwrap()).unwrap(), digest);
        for bad in ["", "00", &"g".repeat(32), &"0".repeat(33)] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
