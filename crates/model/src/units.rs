//! Sizes and durations as people write them: `64MiB`, `250ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number with its noun, for people.
///
/// ```
/// use faultscope_model::units::count;
/// assert_eq!([count(1, "trial"), count(3, "trial"), count(0, "try")], ["1 trial", "3 trials", "0 tries"]);
/// ```
pub fn count<N: fmt::Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let noun = nouns(&number, noun);
    format!("{number} {noun}")
}

/// The noun in the form that follows a number: `trial` after 1, `trials` otherwise.
pub fn nouns<N: PartialEq + From<u8>>(number: &N, noun: &str) -> String {
    let one = *number == N::from(1);
    let before = noun.chars().rev().nth(1);
    match noun.strip_suffix('y') {
        _ if one => noun.to_owned(),
        Some(stem) if before.is_some_and(|letter| !"aeiou".contains(letter)) => format!("{stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

/// A text that is not a size or not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}; write it like {example}")]
pub struct InvalidUnit {
    what: &'static str,
    text: String,
    example: &'static str,
}

/// A number of bytes, written like `64MiB`, `512k` or `1048576`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = InvalidUnit;

    fn from_str(text: &str) -> Result<Self, InvalidUnit> {
        let invalid =
            || InvalidUnit { what: "size", text: text.chars().take(40).collect(), example: "`64MiB`" };
        let (number, unit) = split_unit(text);
        let factor: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "ki" | "kib" => 1 << 10,
            "m" | "mb" | "mi" | "mib" => 1 << 20,
            "g" | "gb" | "gi" | "gib" => 1 << 30,
            "t" | "tb" | "ti" | "tib" => 1 << 40,
            _ => return Err(invalid()),
        };
        let bytes = number * factor as f64;
        // Beyond 2^53 a float no longer represents single bytes; no machine has that much memory.
        if !(0.0..=9.0e15).contains(&bytes) {
            return Err(invalid());
        }
        Ok(Self(bytes as u64))
    }
}

impl ByteSize {
    /// Whether no process can run in this much memory, so that a unit must be missing.
    pub fn is_tiny(self) -> bool {
        self.0 < 64 << 10
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (factor, unit) in UNITS {
            if self.0 >= factor {
                return if self.0.is_multiple_of(factor) {
                    write!(f, "{}{unit}", self.0 / factor)
                } else {
                    write!(f, "{:.1}{unit}", self.0 as f64 / factor as f64)
                };
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(
            deserializer,
            |text| text.parse().map_err(|e: InvalidUnit| e.to_string()),
            |n| Ok(Self(n)),
        )
    }
}

/// Reads a duration: `250ms`, `10s`, `1.5m`, `2h`, `300us`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidUnit> {
    let invalid = || InvalidUnit {
        what: "duration",
        text: text.chars().take(40).collect(),
        example: "`250ms` or `10s`",
    };
    let (number, unit) = split_unit(text);
    let seconds = match unit {
        "us" | "µs" => number / 1e6,
        "ms" => number / 1e3,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(invalid()),
    };
    // A hundred years: a longer duration is a typing error, and sums of shorter ones cannot overflow.
    if !(0.0..=3.2e9).contains(&seconds) {
        return Err(invalid());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| invalid())
}

/// Writes a duration the way [`parse_duration`] reads it, short.
pub fn show_duration(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros}us"),
        1_000..10_000 => format!("{:.1}ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{}ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{:.1}s", micros as f64 / 1e6),
        _ => format!("{}m{:02}s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}

/// Durations in files: text with a unit, or a number of seconds. Written as a number of seconds.
pub mod duration {
    use super::*;

    /// Writes seconds.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.as_secs_f64())
    }

    /// Reads text with a unit, or seconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        text_or_number(
            deserializer,
            |text| parse_duration(text).map_err(|e| e.to_string()),
            |seconds| parse_duration(&seconds.to_string()).map_err(|e| e.to_string()),
        )
    }

    /// The same for a value that may be absent.
    pub mod option {
        use super::*;

        /// Writes seconds or nothing.
        pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
            value.map(|d| d.as_secs_f64()).serialize(serializer)
        }

        /// Reads text with a unit, or seconds, or nothing.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
            #[derive(Deserialize)]
            #[serde(transparent)]
            struct Wrapped(#[serde(with = "super")] Duration);
            Ok(Option::<Wrapped>::deserialize(deserializer)?.map(|w| w.0))
        }
    }
}

fn split_unit(text: &str) -> (f64, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (text[..end].parse().unwrap_or(f64::NAN), text[end..].trim())
}

fn text_or_number<'de, D, T>(
    deserializer: D,
    from_text: impl Fn(&str) -> Result<T, String>,
    from_number: impl Fn(u64) -> Result<T, String>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    struct Visitor<F, G>(F, G);

    impl<T, F, G> serde::de::Visitor<'_> for Visitor<F, G>
    where
        F: Fn(&str) -> Result<T, String>,
        G: Fn(u64) -> Result<T, String>,
    {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number with a unit")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(E::custom)
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            (self.1)(number).map_err(E::custom)
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            (self.0)(&number.to_string()).map_err(E::custom)
        }

        fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
            (self.0)(&number.to_string()).map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Visitor(from_text, from_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("64MiB", 64 << 20), ("64m", 64 << 20), ("1.5Gi", 3 << 29), ("12", 12), ("1 KB", 1024)]
        {
            assert_eq!(text.parse::<ByteSize>().unwrap().0, bytes, "{text}");
        }
        for bad in ["", "x", "-1", "1e9", "1q", "99999999T", "1..2"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
        assert_eq!(ByteSize(64 << 20).to_string(), "64MiB");
        assert_eq!(ByteSize(1536).to_string(), "1.5KiB");
    }

    #[test]
    fn durations() {
        for (text, millis) in [("250ms", 250), ("10s", 10_000), ("1.5m", 90_000), ("2", 2_000)] {
            assert_eq!(parse_duration(text).unwrap().as_millis(), millis, "{text}");
        }
        for bad in ["", "s", "-1s", "10 parsecs", "9999999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(show_duration(Duration::from_millis(2500)), "2.5s");
    }
}
