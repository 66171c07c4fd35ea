//! The fixed threshold detector: `v(j+i) > V` for `i = 1..n`.

use super::{Alarm, Beginning, Direction, Reading, Signal, TimeWindow};

/// Finds `n` consecutive values above a threshold. Good for leaks, and for latencies that grow slowly.
#[derive(Debug, Clone)]
pub struct FixedThreshold {
    threshold: f64,
    consecutive: u64,
    margin_us: u64,
    above: u64,
    position: u64,
}

impl FixedThreshold {
    /// With the threshold `V`, the number of consecutive values `n`, and the margin Δ around the last of them.
    pub fn new(threshold: f64, consecutive: u64, margin_us: u64) -> Self {
        Self { threshold, consecutive: consecutive.max(1), margin_us, above: 0, position: 0 }
    }

    /// Takes a finite value.
    pub(super) fn observe(&mut self, Reading { at_us, value }: Reading) -> Option<Alarm> {
        let position = self.position;
        self.position += 1;
        self.above = if value > self.threshold { self.above + 1 } else { 0 };
        (self.above >= self.consecutive).then(|| Alarm {
            signal: Signal::AboveThreshold,
            direction: Direction::Up,
            at_us,
            position,
            began: Beginning { position, at_us },
            value,
            usual: self.threshold,
            severity: if self.threshold > 0.0 { value / self.threshold } else { f64::INFINITY },
            traces: TimeWindow::around(at_us, self.margin_us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(threshold: f64, consecutive: u64, values: &[f64]) -> Vec<u64> {
        let mut detector = FixedThreshold::new(threshold, consecutive, 1_000_000);
        let at = |place: usize| 10_000_000 * (place as u64 + 1);
        let readings =
            values.iter().enumerate().map(|(place, value)| Reading { at_us: at(place), value: *value });
        readings.filter_map(|reading| detector.observe(reading)).map(|alarm| alarm.position).collect()
    }

    #[test]
    fn as_many_values_in_a_row_are_needed() {
        assert_eq!(positions(5.0, 3, &[6.0, 6.0, 4.0, 6.0, 6.0, 6.0, 6.0, 5.0]), [5, 6]);
        assert_eq!(positions(5.0, 1, &[5.0, 5.1]), [1]);
        assert!(positions(5.0, 0, &[5.0]).is_empty());
    }

    #[test]
    fn traces_are_those_around_the_last_value() {
        let mut detector = FixedThreshold::new(0.0, 2, 1_000_000);
        assert_eq!(detector.observe(Reading { at_us: 5_000_000, value: 1.0 }), None);
        let alarm = detector.observe(Reading { at_us: 9_000_000, value: 1.0 }).unwrap();
        assert_eq!(alarm.traces, TimeWindow { after_us: 8_000_000, before_us: 10_000_000 });
        assert!(!alarm.traces.contains(8_000_000) && alarm.traces.contains(8_000_001));
    }
}
