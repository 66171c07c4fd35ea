//! Amounts with units: durations in milliseconds, sizes in bytes.

/// Reads `5ms` as 5, `2s` as 2000, `4KiB` as 4096; `None` if the text is not exactly one number with a unit.
pub(crate) fn amount(text: &str) -> Option<f64> {
    let split = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    Some(number * factor(unit)?)
}

/// What one of the unit is in base units.
pub(crate) fn factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" => 0.001,
        "ms" => 1.0,
        "s" => 1000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::amount;

    #[test]
    fn amounts_are_in_base_units() {
        for (text, expected) in [
            ("5ms", Some(5.0)),
            ("2s", Some(2000.0)),
            ("250us", Some(0.25)),
            ("1.5KiB", Some(1536.0)),
            ("64MiB", Some(67_108_864.0)),
            ("5", None),
            ("ms", None),
            ("-5ms", None),
            ("5 apples", None),
            ("1.2.3s", None),
            ("", None),
        ] {
            assert_eq!(amount(text), expected, "{text}");
        }
    }
}
