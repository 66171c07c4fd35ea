//! The last values of a series, by age and by size.

use std::collections::VecDeque;

/// A bounded number of values, sorted as they come.
#[derive(Debug, Clone)]
pub(super) struct History {
    capacity: usize,
    by_age: VecDeque<f64>,
    by_size: Vec<f64>,
}

/// The values beyond a quantile, as an exponential distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tail {
    /// The share of values beyond `from`.
    share: f64,
    from: f64,
    mean_excess: f64,
}

impl History {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, by_age: VecDeque::new(), by_size: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_size.len()
    }

    /// Adds a finite value; forgets the oldest one if there are too many.
    pub(super) fn push(&mut self, value: f64) {
        if self.by_age.len() >= self.capacity
            && let Some(oldest) = self.by_age.pop_front()
        {
            let place = self.by_size.partition_point(|known| *known < oldest);
            self.by_size.remove(place);
        }
        self.by_age.push_back(value);
        let place = self.by_size.partition_point(|known| *known < value);
        self.by_size.insert(place, value);
    }

    /// The value at a share of the sorted values; none if there are no values.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let place = (share * self.len() as f64) as usize;
        self.by_size.get(place.min(self.len().checked_sub(1)?)).copied()
    }

    /// The median; zero without values.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5).unwrap_or_default()
    }

    /// The middle value, or the mean of the two middle ones; zero without values.
    pub(super) fn middle(&self) -> f64 {
        let (Some(last), half) = (self.len().checked_sub(1), self.len() / 2) else { return 0.0 };
        (self.by_size[last / 2] + self.by_size[half]) / 2.0
    }

    /// The standard deviation of all values, not of a sample of them; zero without values.
    pub(super) fn deviation(&self) -> f64 {
        let count = self.len().max(1) as f64;
        let mean = self.by_size.iter().sum::<f64>() / count;
        (self.by_size.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
    }

    /// The share of values that are smaller, always between 0 and 1. Equal values share a rank.
    pub(super) fn rank(&self, value: f64) -> f64 {
        let below = self.by_size.partition_point(|known| *known < value);
        let not_above = below + self.by_size[below..].partition_point(|known| *known <= value);
        ((below + not_above) as f64 / 2.0 + 0.5) / (self.len() as f64 + 1.0)
    }

    /// The largest values, a share of all; none if there are too few.
    pub(super) fn upper_tail(&self, share: f64) -> Option<Tail> {
        let (split, count) = self.split(share)?;
        let from = self.by_size[split - 1];
        let excess: f64 = self.by_size[split..].iter().map(|value| value - from).sum();
        Some(Tail { share, from, mean_excess: excess / count as f64 })
    }

    /// The smallest values with their signs changed, so that they are a tail to above.
    pub(super) fn lower_tail(&self, share: f64) -> Option<Tail> {
        let (split, count) = self.split(share)?;
        let from = self.by_size[self.len() - split];
        let excess: f64 = self.by_size[..count].iter().map(|value| from - value).sum();
        Some(Tail { share, from: -from, mean_excess: excess / count as f64 })
    }

    /// Where the upper tail begins, and how many values it has.
    fn split(&self, share: f64) -> Option<(usize, usize)> {
        let count = ((share * self.len() as f64).ceil() as usize).max(LEAST_TAIL);
        let split = self.len().checked_sub(count).filter(|split| *split > 0)?;
        Some((split, count))
    }
}

/// Fewer values say nothing about a tail.
const LEAST_TAIL: usize = 4;

impl Tail {
    /// The same with a mean excess of at least this.
    pub(super) fn at_least(self, excess: f64) -> Self {
        Self { mean_excess: self.mean_excess.max(excess), ..self }
    }

    /// How surprising a value is: the negative logarithm of the probability of one that is larger, and zero below the
    /// tail.
    pub(super) fn surprise(&self, value: f64) -> f64 {
        let beyond = value - self.from;
        if beyond <= 0.0 || self.mean_excess <= 0.0 {
            return 0.0;
        }
        beyond / self.mean_excess - self.share.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_orders_have_the_same_values(values in proptest::collection::vec(-1e9f64..1e9, 0..200)) {
            let mut history = History::new(50);
            for value in &values {
                history.push(*value);
            }
            let mut last = values[values.len().saturating_sub(50)..].to_vec();
            last.sort_by(f64::total_cmp);
            prop_assert_eq!(&history.by_size, &last);
            prop_assert_eq!(history.by_age.len(), last.len());
        }

        #[test]
        fn ranks_do_not_depend_on_the_scale(values in proptest::collection::vec(0.01f64..1e6, 5..100), value in 0.01f64..1e6) {
            let (mut plain, mut log) = (History::new(100), History::new(100));
            for value in &values {
                plain.push(*value);
                log.push(value.ln());
            }
            prop_assert!((plain.rank(value) - log.rank(value.ln())).abs() < 1e-9);
        }

        #[test]
        fn tails_are_mirror_images(values in proptest::collection::vec(-1e3f64..1e3, 20..200)) {
            let (mut plain, mut mirrored) = (History::new(200), History::new(200));
            for value in values {
                plain.push(value);
                mirrored.push(-value);
            }
            let (upper, lower) = (plain.upper_tail(0.05).unwrap(), mirrored.lower_tail(0.05).unwrap());
            prop_assert_eq!(upper.from, lower.from);
            prop_assert!((upper.mean_excess - lower.mean_excess).abs() < 1e-9);
        }
    }

    #[test]
    fn an_empty_history_answers() {
        let history = History::new(3);
        assert_eq!((history.median(), history.upper_tail(0.1)), (0.0, None));
        assert_eq!(history.rank(7.0), 0.5);
    }

    #[test]
    fn the_tail_of_an_exponential_distribution_gives_its_probabilities() {
        let mut history = History::new(10_000);
        for place in 0..10_000 {
            history.push(-(1.0 - (f64::from(place) + 0.5) / 10_000.0).ln());
        }
        let tail = history.upper_tail(0.05).unwrap();
        // The probability of more than 12 is e^-12.
        assert!((tail.surprise(12.0) - 12.0).abs() < 0.3, "{}", tail.surprise(12.0));
        assert_eq!(tail.surprise(1.0), 0.0);
    }
}
