//! Parses times and durations.

/// Microseconds of a duration in Go's notation: `1.5s`, `300ms`, `2h45m`; none if it is invalid.
pub fn go_duration_us(text: &str) -> Option<u64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let number: f64 = number.parse().ok()?;
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let scale = match unit {
            "ns" => 0.001,
            // Both signs for micro are in use.
            "us" | "µs" | "μs" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            "m" => 60e6,
            "h" => 3_600e6,
            _ => return None,
        };
        total += number * scale;
        rest = after;
    }
    // Saturates.
    (total < 9.2e18).then_some(total as u64)
}

/// Microseconds since 1970 of a time such as `2024-05-01T12:00:00.5Z` or `…+02:00`; none if it is invalid
/// or before 1970.
pub fn rfc3339_us(text: &str) -> Option<u64> {
    if text.len() > 64 || !text.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = text.get(range)?;
        if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse::<i64>().ok() } else { None }
    };
    let sign = |at: usize, wanted: &[u8]| text.as_bytes().get(at).filter(|byte| wanted.contains(byte));
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    sign(4, b"-").and(sign(7, b"-")).and(sign(10, b"Tt ")).and(sign(13, b":")).and(sign(16, b":"))?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let month_days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is read as the second after it.
    if !(1..=month_days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
        let digits = fraction.get(..end).filter(|digits| !digits.is_empty())?;
        micros = format!("{digits:0<6}").get(..6)?.parse::<i64>().ok()?;
        rest = fraction.get(end..)?;
    }
    let offset = match rest.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let pair = |high: &u8, low: &u8| {
                let digit = |byte: &u8| char::from(*byte).to_digit(10).map(i64::from);
                Some(digit(high)? * 10 + digit(low)?)
            };
            let minutes = pair(h1, h2)? * 60 + pair(m1, m2)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute - offset) * 60 + second;
    u64::try_from(seconds * 1_000_000 + micros).ok()
}

/// Days since 1970 of a date, by counting years from March so that the leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
