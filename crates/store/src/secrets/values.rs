//! Secret values that have occurred, so that they are found wherever else they appear.

use std::collections::VecDeque;

use aho_corasick::AhoCorasick;

use super::REDACTED;

/// How many values are remembered, the latest: each makes the search a little slower.
const MOST: usize = 256;

/// Shorter values occur by chance.
const SHORTEST: usize = 8;

/// Longer values are remembered by their beginning.
const LONGEST: usize = 256;

#[derive(Debug, Default)]
pub(super) struct SecretValues {
    values: VecDeque<Vec<u8>>,
    /// Built on demand.
    finder: Option<AhoCorasick>,
}

impl SecretValues {
    pub(super) fn add(&mut self, value: &[u8]) {
        let value = &value[..value.len().min(LONGEST)];
        let is_plain = value.iter().all(|byte| byte.is_ascii_lowercase()) && value.len() < 12;
        // `undefined` and the like are words that occur in harmless texts.
        if value.len() < SHORTEST || is_plain || self.values.iter().any(|known| known == value) {
            return;
        }
        if self.values.len() >= MOST {
            self.values.pop_front();
        }
        self.values.push_back(value.to_vec());
        self.finder = None;
    }

    /// Replaces these values; none if none occurs.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.values.is_empty() || bytes.len() < SHORTEST {
            return None;
        }
        if self.finder.is_none() {
            // Longest first, so that a value that begins with another is replaced as a whole.
            let kind = aho_corasick::MatchKind::LeftmostLongest;
            self.finder = AhoCorasick::builder().match_kind(kind).build(&self.values).ok();
        }
        let finder = self.finder.as_ref()?;
        finder.is_match(bytes).then(|| {
            let mut out = Vec::with_capacity(bytes.len());
            finder.replace_all_with_bytes(bytes, &mut out, |_, _, out: &mut Vec<u8>| {
                out.extend(REDACTED.as_bytes());
                true
            });
            out
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_once_is_found_again() {
        let mut known = SecretValues::default();
        assert_eq!(known.replace(b"abcd-1234"), None);
        for value in ["abcd-1234", "short", "undefined", "abcd-1234-long", "abcd-1234"] {
            known.add(value.as_bytes());
        }
        assert_eq!(known.replace(b"x abcd-1234-long y abcd-1234!").unwrap(), b"x [redacted] y [redacted]!");
        assert_eq!(known.replace(b"short undefined"), None);
        for n in 0..MOST {
            known.add(format!("value-number-{n}").as_bytes());
        }
        assert_eq!(known.replace(b"x abcd-1234 y"), None, "the oldest are forgotten");
    }
}
