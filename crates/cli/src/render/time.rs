//! Times relative to now.

use std::time::{SystemTime, UNIX_EPOCH};

/// The age of something: `5 s ago`, `3 h ago`.
pub(crate) fn ago(at_us: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    words(now.saturating_sub(at_us / 1_000_000))
}

fn words(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_a_unit() {
        let shown: Vec<_> = [5, 61, 7_300, 200_000].map(words).to_vec();
        assert_eq!(shown, ["5 s ago", "1 min ago", "2 h ago", "2 days ago"]);
    }
}
