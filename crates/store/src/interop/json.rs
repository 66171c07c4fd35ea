//! Lenient JSON decoding: forgiving scalars, and arrays in which bad elements do not spoil the others.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::DecodeError;

/// A text, or a number as text, as in Zipkin's own decoder; borrowed if it has no escapes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(number.to_string())))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// A number, or a text that contains one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// Without a fraction.
    Whole(i64),
    /// With one.
    Part(f64),
}

impl Number {
    /// A time in microseconds; fractions are cut off.
    pub(super) fn micros(self) -> i64 {
        match self {
            Self::Whole(n) => n,
            // Saturates; NaN becomes zero, which means unknown.
            Self::Part(n) => n as i64,
        }
    }

    /// A duration in microseconds; what is below 1 but not 0 becomes 1.
    pub(super) fn micros_at_least_one(self) -> i64 {
        match self {
            Self::Part(n) if n > 0.0 && n < 1.0 => 1,
            other => other.micros(),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
                Ok(Number::Whole(number))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Number, E> {
                i64::try_from(number).map(Number::Whole).map_err(|_| E::custom("a number is too large"))
            }
            fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Number, E> {
                if number.abs() < 9.2e18 {
                    Ok(Number::Part(number))
                } else {
                    Err(E::custom("a number is too large"))
                }
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Number, E> {
                match text.parse() {
                    Ok(whole) => Ok(Number::Whole(whole)),
                    Err(_) => match text.parse::<f64>() {
                        Ok(number) => self.visit_f64(number),
                        Err(_) => Err(E::custom("a text holds no number")),
                    },
                }
            }
        }
        deserializer.deserialize_any(NumberVisitor)
    }
}

/// Receives each element of an array.
pub(super) trait Take<T> {
    /// Receives the element with this index; an error ends the decoding.
    fn take(&mut self, index: usize, element: Result<T, String>) -> Result<(), DecodeError>;
}

impl<T, F: FnMut(usize, Result<T, String>) -> Result<(), DecodeError>> Take<T> for F {
    fn take(&mut self, index: usize, element: Result<T, String>) -> Result<(), DecodeError> {
        self(index, element)
    }
}

/// Decodes the elements of an array one by one.
///
/// All elements are decoded in one pass as long as they have the right types. From the first that has not, each
/// is first cut out and then decoded on its own, so that the others are still accepted.
pub(super) fn each_element<'de, S>(
    body: &'de [u8],
    seed: S,
    format: &'static str,
    mut take: impl Take<S::Value>,
) -> Result<(), DecodeError>
where
    S: DeserializeSeed<'de> + Copy,
{
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    // Validated once for all texts in it.
    let body =
        std::str::from_utf8(body).map_err(|error| DecodeError::malformed(format, error.to_string()))?;
    let mut progress = Progress { taken: 0, stop: None };
    let mut deserializer = serde_json::Deserializer::from_str(body);
    let visitor = Elements { seed, take: &mut take, progress: &mut progress };
    let read = deserializer.deserialize_seq(visitor).and_then(|()| deserializer.end());
    if read.is_ok() {
        return Ok(());
    }
    if let Some(stop) = progress.stop {
        return Err(stop);
    }
    let taken = progress.taken;
    each_raw(body, format, |index, raw: &'de RawValue| {
        if index < taken {
            return Ok(());
        }
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        let element = seed.deserialize(&mut deserializer).map_err(|error| plain(&error));
        take.take(index, element)
    })
}

/// Cuts out the elements of an array one by one.
pub(super) fn each_raw<'de>(
    body: &'de str,
    format: &'static str,
    mut take: impl FnMut(usize, &'de RawValue) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    #[derive(Clone, Copy)]
    struct Raw;
    impl<'de> DeserializeSeed<'de> for Raw {
        type Value = &'de RawValue;
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            serde::Deserialize::deserialize(deserializer)
        }
    }
    let mut progress = Progress { taken: 0, stop: None };
    let mut deserializer = serde_json::Deserializer::from_str(body);
    let mut each = |index, raw: Result<&'de RawValue, String>| match raw {
        Ok(raw) => take(index, raw),
        Err(reason) => Err(DecodeError::malformed(format, reason)),
    };
    let visitor = Elements { seed: Raw, take: &mut each, progress: &mut progress };
    let read = deserializer.deserialize_seq(visitor).and_then(|()| deserializer.end());
    match (progress.stop, read) {
        (Some(stop), _) => Err(stop),
        (None, Err(error)) => Err(DecodeError::malformed(format, plain(&error))),
        (None, Ok(())) => Ok(()),
    }
}

/// The error's text with line and column, which suits one-line bodies too.
pub(super) fn plain(error: &serde_json::Error) -> String {
    error.to_string().chars().take(300).collect()
}

struct Progress {
    taken: usize,
    stop: Option<DecodeError>,
}

struct Elements<'p, S, T> {
    seed: S,
    take: &'p mut T,
    progress: &'p mut Progress,
}

impl<'de, S, T> Visitor<'de> for Elements<'_, S, T>
where
    S: DeserializeSeed<'de> + Copy,
    T: Take<S::Value>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while let Some(element) = sequence.next_element_seed(self.seed)? {
            if let Err(stop) = self.take.take(self.progress.taken, Ok(element)) {
                self.progress.stop = Some(stop);
                return Err(A::Error::custom("stopped"));
            }
            self.progress.taken += 1;
        }
        Ok(())
    }
}
