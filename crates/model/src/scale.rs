//! Numeric settings as people write them, with or without a unit, as integer positions.
//!
//! A boundary search bisects integers; [`Scale`] turns a position back into text that a service
//! understands, in the notation in which its setting was written.

use serde::Serialize;

use crate::units::{ByteSize, parse_duration};

/// Maps texts such as `300`, `64MiB`, `2s`, `0.5` to integer positions and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scale {
    kind: Kind,
    /// Whether positions that differ by less than 2 % count as neighbours.
    pub relative: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
enum Kind {
    /// Numbers with this many decimal places and this unit.
    Number { places: u32, unit: String },
    /// Sizes in multiples of `step` bytes; `style` is the part of the unit after its prefix, as `iB` in `MiB`.
    Size { step: u64, style: String },
    /// Durations in microseconds.
    Time { step: u64 },
}

impl Scale {
    /// The scale of a setting between two values; none if they are not numbers of one kind. With `bytes` a bare
    /// number, or one with any size unit, is a size.
    pub fn between(simple: Option<&str>, failing: &str, bytes: bool) -> Option<Self> {
        let (mantissa, unit) = split(failing)?;
        let other = match simple {
            Some(text) => Some(split(text)?),
            None => None,
        };
        let both = |test: &dyn Fn(&str) -> bool| test(unit) && other.is_none_or(|(_, unit)| test(unit));
        let kind = if both(&|unit| bytes || is_size(unit)) {
            let bytes: u64 = failing.parse::<ByteSize>().ok()?.0;
            let step = match bytes {
                0x200_0000.. => 1 << 20,
                0x20_0000.. => 64 << 10,
                0x1_0000.. => 1 << 10,
                _ => 1,
            };
            Kind::Size { step, style: unit.get(1..).unwrap_or_default().to_owned() }
        } else if both(&|unit| matches!(unit, "us" | "µs" | "ms" | "s" | "sec" | "min")) {
            let shortest = [Some(failing), simple].into_iter().flatten().filter_map(micros).min()?;
            Kind::Time { step: if shortest < 100_000 { 1 } else { 1000 } }
        } else if other.is_none_or(|(_, other)| other == unit) {
            let places = |mantissa: &str| mantissa.split_once('.').map_or(0, |(_, d)| d.len());
            let most = places(mantissa).max(other.map_or(0, |(m, _)| places(m)));
            if most > 9 {
                return None;
            }
            // Integers stay integers; fractions get a resolution of at least 0.01.
            let places = if most == 0 { 0 } else { u32::try_from(most.max(2)).ok()? };
            Kind::Number { places, unit: unit.to_owned() }
        } else {
            return None;
        };
        let relative = matches!(kind, Kind::Time { .. }) || matches!(kind, Kind::Number { places: 1.., .. });
        let scale = Self { kind, relative };
        scale.place(failing)?;
        simple.is_none_or(|text| scale.place(text).is_some()).then_some(scale)
    }

    /// The position of a value.
    pub fn place(&self, text: &str) -> Option<i64> {
        match &self.kind {
            Kind::Size { step, .. } => i64::try_from(text.parse::<ByteSize>().ok()?.0 / step).ok(),
            Kind::Time { step } => i64::try_from(micros(text)? / step).ok(),
            Kind::Number { places, .. } => {
                let (mantissa, _) = split(text)?;
                let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
                let part: String = part.chars().chain("000000000".chars()).take(*places as usize).collect();
                // Far from the limits of i64, so that doubling cannot overflow.
                format!("{whole}{part}").parse().ok().filter(|n: &i64| n.abs() < i64::MAX / 8)
            }
        }
    }

    /// The text of the value at a position.
    pub fn show(&self, place: i64) -> String {
        match &self.kind {
            Kind::Size { step, style } => {
                let bytes = u64::try_from(place).unwrap_or_default().saturating_mul(*step);
                let style = if style.is_empty() && *step > 1 { "iB" } else { style.as_str() };
                match bytes {
                    0 => "0".to_owned(),
                    _ if bytes.is_multiple_of(1 << 20) => format!("{}M{style}", bytes >> 20),
                    _ if bytes.is_multiple_of(1 << 10) => format!("{}K{style}", bytes >> 10),
                    _ => bytes.to_string(),
                }
            }
            Kind::Time { step } => {
                let micros = u64::try_from(place).unwrap_or_default().saturating_mul(*step);
                match micros {
                    _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
                    _ if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
                    _ => format!("{micros}us"),
                }
            }
            Kind::Number { places: 0, unit } => format!("{place}{unit}"),
            Kind::Number { places, unit } => {
                let factor = 10_i64.pow(*places);
                let sign = if place < 0 { "-" } else { "" };
                let (whole, part) = (place.abs() / factor, place.abs() % factor);
                let text = format!("{sign}{whole}.{part:0width$}", width = *places as usize);
                format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }

    /// Whether no position between two is worth a trial.
    pub fn are_neighbours(&self, a: i64, b: i64) -> bool {
        let apart = a.abs_diff(b);
        apart <= 1 || (self.relative && apart <= a.unsigned_abs().min(b.unsigned_abs()) / 50)
    }
}

/// Splits into a number (sign, digits, at most one dot) and its unit.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let sign = text.len() - digits.len();
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (mantissa, unit) = text.split_at(sign + end);
    let numeric = mantissa[sign..].starts_with(|c: char| c.is_ascii_digit())
        && mantissa.matches('.').count() <= 1
        && mantissa.len() <= 18;
    let plain_unit = unit.len() <= 8 && unit.chars().all(|c| c.is_alphabetic() || c == '%');
    (numeric && plain_unit).then_some((mantissa, unit))
}

/// Whether a unit can only mean a size; a lone `m` may be minutes.
fn is_size(unit: &str) -> bool {
    matches!(
        unit.to_ascii_lowercase().as_str(),
        "kb" | "ki" | "kib" | "mb" | "mi" | "mib" | "gb" | "gi" | "gib" | "tb" | "ti" | "tib"
    )
}

fn micros(text: &str) -> Option<u64> {
    let text = text.replace("sec", "s");
    u64::try_from(parse_duration(&text).ok()?.as_micros()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(simple: Option<&str>, failing: &str, bytes: bool) -> Option<(i64, String, Option<i64>)> {
        let scale = Scale::between(simple, failing, bytes)?;
        let place = scale.place(failing)?;
        Some((place, scale.show(place - 1), simple.and_then(|s| scale.place(s))))
    }

    #[test]
    fn values_keep_their_style() {
        let some = |place, before: &str, simple| Some((place, before.to_owned(), simple));
        assert_eq!(shown(Some("30"), "300", false), some(300, "299", Some(30)));
        assert_eq!(shown(None, "64MiB", true), some(64, "63MiB", None));
        assert_eq!(shown(Some("1Gi"), "64Mi", false), some(64, "63Mi", Some(1024)));
        assert_eq!(shown(Some("256m"), "64m", false), some(64, "63m", Some(256)));
        assert_eq!(shown(None, "4MB", true), some(64, "4032KB", None));
        assert_eq!(shown(None, "67108864", true), some(64, "63MiB", None));
        assert_eq!(shown(Some("500ms"), "2s", false), some(2000, "1999ms", Some(500)));
        assert_eq!(shown(Some("2"), "0.5", false), some(50, "0.49", Some(200)));
        assert_eq!(shown(Some("-2"), "-1", false), some(-1, "-2", Some(-2)));
        assert_eq!(shown(Some("10%"), "50%", false), some(50, "49%", Some(10)));
    }

    #[test]
    fn only_numbers_have_a_scale() {
        for (simple, failing) in [
            (None, "fast"),
            (None, "1.2.3"),
            (None, "10.0.0.7"),
            (Some("on"), "1"),
            (Some("5m"), "5s"),
            (Some("1s"), "64MiB"),
            (None, "99999999999999999999"),
            (None, ""),
            (None, "-"),
        ] {
            assert_eq!(Scale::between(simple, failing, false), None, "{simple:?} {failing}");
        }
    }

    #[test]
    fn neighbours() {
        let whole = Scale::between(None, "300", false).unwrap();
        assert!(whole.are_neighbours(300, 301) && !whole.are_neighbours(300, 302));
        let time = Scale::between(None, "2s", false).unwrap();
        assert!(time.are_neighbours(2000, 2040) && !time.are_neighbours(2000, 2050));
    }

    proptest! {
        #[test]
        fn places_read_back(number in 0_u32..2_000_000, unit in "(|MiB|kb|ms|s|%|x)", step in -5_i64..5) {
            let text = format!("{number}{unit}");
            if let Some(scale) = Scale::between(None, &text, false) {
                let place = (scale.place(&text).unwrap() + step).max(0);
                prop_assert_eq!(scale.place(&scale.show(place)), Some(place));
            }
        }

        #[test]
        fn arbitrary_text_never_panics(simple in ".{0,24}", failing in "[-0-9.a-zA-Z%µ]{0,24}", bytes: bool) {
            if let Some(scale) = Scale::between(Some(&simple), &failing, bytes) {
                let _ = scale.show(scale.place(&failing).unwrap());
            }
        }
    }
}
