//! Which campaigns are removed when there are too many: the oldest ones that are not pinned.

use std::time::Duration;

/// Limits of what is kept; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// The largest number of campaigns.
    pub most_campaigns: Option<usize>,
    /// The most bytes of all campaigns together.
    pub most_bytes: Option<u64>,
    /// The age of the oldest campaign.
    pub most_age: Option<Duration>,
}

/// The properties of a campaign that retention considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) bytes: u64,
    pub(crate) age: Duration,
    /// Pinned by the user, or being written.
    pub(crate) kept: bool,
}

/// If even the newest campaign is older than this, the clock is taken to be wrong: a jump ahead must not remove
/// everything. Limits of number and size still hold.
const MAX_PAUSE: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Whether the ages of campaigns, newest first, look like those of a clock that jumped ahead.
pub(crate) fn is_clock_doubtful(candidates: &[Candidate]) -> bool {
    candidates.iter().map(|candidate| candidate.age).min().is_some_and(|youngest| youngest > MAX_PAUSE)
}

/// The indexes of those to remove. Candidates come newest first; pinned ones count but are never removed.
pub(crate) fn choose(retention: Retention, candidates: &[Candidate]) -> Vec<usize> {
    let mut count = candidates.len();
    let mut bytes: u64 = candidates.iter().map(|candidate| candidate.bytes).sum();
    let mut chosen = Vec::new();
    for (position, candidate) in candidates.iter().enumerate().rev() {
        let too_many = retention.most_campaigns.is_some_and(|most| count > most);
        let too_large = retention.most_bytes.is_some_and(|most| bytes > most);
        let too_old = retention.most_age.is_some_and(|most| candidate.age > most);
        if !too_many && !too_large && !too_old {
            // All that follow are younger.
            break;
        }
        if !candidate.kept {
            chosen.push(position);
            count -= 1;
            bytes -= candidate.bytes;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_kept_ones_never() {
        let of = |list: &[(u64, bool)]| -> Vec<Candidate> {
            let age = |n: usize| Duration::from_secs(n as u64);
            let candidate = |(n, &(bytes, kept))| Candidate { bytes, age: age(n), kept };
            list.iter().enumerate().map(candidate).collect()
        };
        let four = of(&[(10, false), (10, false), (10, true), (10, false)]);
        for (most_campaigns, most_bytes, expected) in [
            (None, None, &[] as &[usize]),
            (Some(4), Some(40), &[]),
            (Some(3), None, &[3]),
            (Some(2), None, &[3, 1]),
            (Some(0), None, &[3, 1, 0]),
            (None, Some(25), &[3, 1]),
            (Some(3), Some(0), &[3, 1, 0]),
        ] {
            let retention = Retention { most_campaigns, most_bytes, most_age: None };
            assert_eq!(choose(retention, &four), expected);
        }
        let aged =
            |seconds| Retention { most_age: Some(Duration::from_secs(seconds)), ..Retention::default() };
        assert_eq!(choose(aged(0), &four), [3, 1], "the kept one stays however old it is");
        assert_eq!(choose(aged(3), &four), [0; 0]);
        assert!(!is_clock_doubtful(&four) && !is_clock_doubtful(&[]));
        let years = four.iter().map(|c| Candidate { age: c.age + Duration::from_secs(1 << 28), ..*c });
        assert!(is_clock_doubtful(&years.collect::<Vec<_>>()));
    }
}
