//! Other values for settings.

/// Words in the names of variables that say how long or how often something is tried.
const PATIENCE: [&str; 7] = ["TIMEOUT", "RETR", "DEADLINE", "TTL", "PATIENCE", "INTERVAL", "WAIT"];

/// Whether a variable says how long or how often something is tried.
pub(super) fn is_patience(variable: &str) -> bool {
    let upper = variable.to_ascii_uppercase();
    PATIENCE.iter().any(|word| upper.contains(word))
}

/// The opposite of a flag.
pub(super) fn invert_flag(text: &str) -> Option<String> {
    const PAIRS: [(&str, &str); 5] =
        [("true", "false"), ("True", "False"), ("TRUE", "FALSE"), ("yes", "no"), ("on", "off")];
    PAIRS.iter().find_map(|(on, off)| match text {
        _ if text == *on => Some((*off).to_owned()),
        _ if text == *off => Some((*on).to_owned()),
        _ => None,
    })
}

/// A value that is wrong in the way a slip is: the next number or port, a name with one letter too many.
pub(super) fn edit_value(text: &str) -> String {
    if let Ok(number) = text.parse::<i64>() {
        return number.saturating_add(1).to_string();
    }
    next_port(text).unwrap_or_else(|| format!("{text}x"))
}

/// The text with its port plus one, if it has one.
fn next_port(text: &str) -> Option<String> {
    let (start, _) =
        text.match_indices(':').find(|(at, _)| text[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?;
    let digits =
        text[start + 1..].len() - text[start + 1..].trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text[start + 1..].split_at(digits);
    let port: u16 = number.parse().ok()?;
    Some(format!("{}:{}{rest}", &text[..start], port.checked_add(1)?))
}

/// A tenth of a duration or number. What becomes too small for its unit is written in the next smaller one.
pub(super) fn shorten(text: &str) -> String {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let Ok(number) = number.parse::<u64>() else { return text.to_owned() };
    match unit {
        _ if number == 0 => text.to_owned(),
        _ if number.is_multiple_of(10) => format!("{}{unit}", number / 10),
        "s" => format!("{}ms", number.saturating_mul(100)),
        "m" => format!("{}s", number.saturating_mul(6)),
        "h" => format!("{}m", number.saturating_mul(6)),
        "" | "ms" if number >= 10 => format!("{}{unit}", number / 10),
        "" => "0".to_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_change_as_a_slip_changes_them() {
        assert_eq!(edit_value("6379"), "6380");
        assert_eq!(edit_value("http://stock:8081/v1"), "http://stock:8082/v1");
        assert_eq!(edit_value("redis:99999"), "redis:99999x");
        assert_eq!(edit_value("gold"), "goldx");
        assert_eq!(invert_flag("true").as_deref(), Some("false"));
        assert_eq!(invert_flag("off").as_deref(), Some("on"));
        assert_eq!(invert_flag("offside"), None);
    }

    #[test]
    fn times_become_a_tenth() {
        for (text, shorter) in
            [("10s", "1s"), ("5s", "500ms"), ("1m", "6s"), ("250ms", "25ms"), ("3", "0"), ("soon", "soon")]
        {
            assert_eq!(shorten(text), shorter);
        }
    }
}
