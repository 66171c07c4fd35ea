//! The sigma limit detector: `v(j) - median(v(j-i)..v(j-1)) > sigma * deviation(v(j-i)..v(j-1))`.

use super::history::History;
use super::{Alarm, Beginning, Direction, Reading, Signal, TimeWindow};

/// Finds values that are far above the median of those before. Good for sudden bursts that special inputs cause.
#[derive(Debug, Clone)]
pub struct SigmaLimit {
    sigma: f64,
    window: usize,
    margin_us: u64,
    before: History,
    position: u64,
}

impl SigmaLimit {
    /// With the sensitivity `sigma` (3 to 5 in the paper), the window of `i` values, and the margin Δ around the value.
    pub fn new(sigma: f64, window: usize, margin_us: u64) -> Self {
        let window = window.max(2);
        Self { sigma, window, margin_us, before: History::new(window), position: 0 }
    }

    /// Takes a finite value. A window of equal values has no deviation, so every larger value is beyond it.
    pub(super) fn observe(&mut self, Reading { at_us, value }: Reading) -> Option<Alarm> {
        let position = self.position;
        self.position += 1;
        let is_full = self.before.len() == self.window;
        let (median, deviation) = (self.before.middle(), self.before.deviation());
        self.before.push(value);
        let limit = self.sigma * deviation;
        (is_full && value - median > limit).then(|| Alarm {
            signal: Signal::AboveSigmaLimit,
            direction: Direction::Up,
            at_us,
            position,
            began: Beginning { position, at_us },
            value,
            usual: median,
            severity: if limit > 0.0 { (value - median) / limit } else { f64::INFINITY },
            traces: TimeWindow::around(at_us, self.margin_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observe_all(detector: &mut SigmaLimit, values: &[f64]) -> Vec<u64> {
        let readings =
            values.iter().enumerate().map(|(at, value)| Reading { at_us: at as u64, value: *value });
        readings.filter_map(|reading| detector.observe(reading)).map(|alarm| alarm.position).collect()
    }

    proptest! {
        #[test]
        fn it_is_the_formula_of_the_paper(
            values in proptest::collection::vec(-100.0f64..100.0, 0..120), sigma in 0.5f64..5.0, window in 2usize..30,
        ) {
            let expected: Vec<u64> = (window..values.len()).filter(|&j| {
                let before = &values[j - window..j];
                let mut sorted = before.to_vec();
                sorted.sort_by(f64::total_cmp);
                let median = (sorted[(window - 1) / 2] + sorted[window / 2]) / 2.0;
                let mean = before.iter().sum::<f64>() / window as f64;
                let variance = before.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / window as f64;
                values[j] - median > sigma * variance.sqrt()
            }).map(|j| j as u64).collect();
            prop_assert_eq!(observe_all(&mut SigmaLimit::new(sigma, window, 0), &values), expected);
        }
    }

    #[test]
    fn only_values_above_count_and_not_before_the_window_is_full() {
        let mut values = vec![1.0, 2.0, 1.0, 2.0, 1.0, 2.0];
        values.extend([-50.0, 1.0, 2.0, 1.0, 2.0, 1.0, 90.0]);
        assert_eq!(observe_all(&mut SigmaLimit::new(3.0, 6, 0), &values), [12]);
        assert!(observe_all(&mut SigmaLimit::new(3.0, 6, 0), &[1.0, 900.0]).is_empty());
    }
}
