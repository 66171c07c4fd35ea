//! Where OTLP's JSON differs from serde's: hexadecimal ids, 64-bit numbers as texts, `null` for absent.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Treats `null` as absent.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Ids: hexadecimal digits in either case.
pub(super) mod hex {
    use std::fmt::Write;

    use super::{Deserialize, Deserializer, Error};
    use serde::Serializer;

    pub(in super::super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        serializer.serialize_str(&text)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?.unwrap_or_default();
        if text.len() > 32 || text.len() % 2 != 0 {
            return Err(D::Error::custom("an id has 16 or 32 hexadecimal digits"));
        }
        let digit = |byte: u8| {
            char::from(byte).to_digit(16).ok_or_else(|| D::Error::custom("an id is not hexadecimal"))
        };
        let mut bytes = Vec::with_capacity(16);
        for pair in text.as_bytes().chunks_exact(2) {
            // Two digits make one byte.
            bytes.push((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        }
        Ok(bytes)
    }
}

/// Unsigned 64-bit numbers: texts or numbers.
pub(super) mod big {
    use super::{Deserializer, Error, NumberVisitor};
    use serde::Serializer;

    pub(in super::super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let number = deserializer.deserialize_any(NumberVisitor)?;
        u64::try_from(number).map_err(|_| D::Error::custom("a number is negative or too large"))
    }
}

/// Signed 64-bit numbers: texts or numbers.
pub(super) fn signed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = deserializer.deserialize_any(NumberVisitor)?;
    i64::try_from(number).map_err(|_| D::Error::custom("a number is too large"))
}

/// A signed 64-bit number that may be missing.
pub(super) fn signed_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    struct Inner(i64);
    impl<'de> Deserialize<'de> for Inner {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            signed(deserializer).map(Self)
        }
    }
    Ok(Option::<Inner>::deserialize(deserializer)?.map(|Inner(number)| number))
}

/// A list of unsigned 64-bit numbers.
pub(super) fn bigs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
    struct Inner(u64);
    impl<'de> Deserialize<'de> for Inner {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            big::deserialize(deserializer).map(Self)
        }
    }
    let list = Option::<Vec<Inner>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(list.into_iter().map(|Inner(number)| number).collect())
}

/// A float: a number, or one of the texts for values that JSON cannot represent.
pub(super) fn double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    deserializer.deserialize_any(DoubleVisitor)
}

/// A fraction that may be missing.
pub(super) fn double_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    struct Inner(f64);
    impl<'de> Deserialize<'de> for Inner {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            double(deserializer).map(Self)
        }
    }
    Ok(Option::<Inner>::deserialize(deserializer)?.map(|Inner(number)| number))
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = i128;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number or a text with one")
    }

    fn visit_unit<E>(self) -> Result<i128, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, number: u64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<i128, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i128, E> {
        // Writers without 64-bit integers send floats, often as 1.7e18.
        if number.fract() == 0.0 && number.abs() < 1.9e19 {
            Ok(number as i128)
        } else {
            Err(E::custom("a number is not whole or too large"))
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i128, E> {
        text.parse::<i128>().map_err(|_| E::custom("a text holds no whole number"))
    }
}

struct DoubleVisitor;

impl Visitor<'_> for DoubleVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_unit<E>(self) -> Result<f64, E> {
        Ok(0.0)
    }

    fn visit_u64<E>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_i64<E>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_f64<E>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<f64, E> {
        // Rust also parses `NaN`, `Infinity` and `-Infinity`.
        text.parse().map_err(|_| E::custom("a text holds no number"))
    }
}
