//! The mean shift detector: `|mean(v(p-d)..v(p)) - mean(v(p-2d-1)..v(p-d-1))| > lambda`.
//!
//! The text of the paper speaks of `d` values, its formula has one more on both sides; this is the formula.

use std::collections::VecDeque;

use super::{Alarm, Beginning, Direction, Reading, Signal, TimeWindow};

/// Finds long-term changes: the means of two adjacent windows differ.
#[derive(Debug, Clone)]
pub struct MeanShift {
    lambda: f64,
    /// The values of each window: `d + 1`.
    width: usize,
    values: VecDeque<Reading>,
    older_sum: f64,
    newer_sum: f64,
    position: u64,
}

impl MeanShift {
    /// With the sensitivity λ and the window δ in values.
    pub fn new(lambda: f64, window: usize) -> Self {
        let width = window.max(1) + 1;
        Self { lambda, width, values: VecDeque::new(), older_sum: 0.0, newer_sum: 0.0, position: 0 }
    }

    /// Takes a finite value.
    pub(super) fn observe(&mut self, reading: Reading) -> Option<Alarm> {
        let position = self.position;
        self.position += 1;
        self.push(reading);
        if self.values.len() < 2 * self.width {
            return None;
        }
        let (older, newer) = (self.older_sum / self.width as f64, self.newer_sum / self.width as f64);
        let difference = (newer - older).abs();
        (difference > self.lambda).then(|| Alarm {
            signal: Signal::MeanShifted,
            direction: if newer > older { Direction::Up } else { Direction::Down },
            at_us: reading.at_us,
            position,
            began: Beginning { position, at_us: reading.at_us },
            value: newer,
            usual: older,
            severity: if self.lambda > 0.0 { difference / self.lambda } else { f64::INFINITY },
            traces: TimeWindow::between(self.values[self.width].at_us, reading.at_us),
        })
    }

    fn push(&mut self, reading: Reading) {
        if self.values.len() == 2 * self.width
            && let Some(oldest) = self.values.pop_front()
        {
            self.older_sum -= oldest.value;
            let moved = self.values[self.width - 1].value;
            self.older_sum += moved;
            self.newer_sum -= moved;
        }
        if self.values.len() < self.width {
            self.older_sum += reading.value;
        } else {
            self.newer_sum += reading.value;
        }
        self.values.push_back(reading);
        // Rounding errors of running sums would add up for ever.
        if self.position.is_multiple_of(4 * self.width as u64) {
            let sum = |part: &mut dyn Iterator<Item = &Reading>| part.map(|reading| reading.value).sum();
            self.older_sum = sum(&mut self.values.iter().take(self.width));
            self.newer_sum = sum(&mut self.values.iter().skip(self.width));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_the_formula_of_the_paper(
            values in proptest::collection::vec(-100.0f64..100.0, 0..120), lambda in 1.0f64..60.0, delta in 1usize..20,
        ) {
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            let difference = |p: usize| {
                (mean(&values[p - delta..=p]) - mean(&values[p - 2 * delta - 1..=p - delta - 1])).abs()
            };
            let mut detector = MeanShift::new(lambda, delta);
            for (p, value) in values.iter().enumerate() {
                let found = detector.observe(Reading { at_us: p as u64, value: *value });
                if p < 2 * delta + 1 {
                    prop_assert!(found.is_none());
                } else if (difference(p) - lambda).abs() > 1e-6 {
                    prop_assert_eq!(found.is_some(), difference(p) > lambda);
                }
            }
        }
    }

    #[test]
    fn traces_are_those_of_the_newer_window() {
        let mut detector = MeanShift::new(5.0, 2);
        let values = [1.0, 1.0, 1.0, 20.0, 20.0, 20.0];
        let alarms: Vec<Alarm> = (1..)
            .zip(values)
            .filter_map(|(at, value)| detector.observe(Reading { at_us: 100 * at, value }))
            .collect();
        assert_eq!(alarms.len(), 1);
        assert_eq!(alarms[0].traces, TimeWindow { after_us: 400, before_us: 600 });
        assert_eq!((alarms[0].value, alarms[0].usual, alarms[0].direction), (20.0, 1.0, Direction::Up));
    }
}
