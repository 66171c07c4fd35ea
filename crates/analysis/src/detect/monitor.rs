//! One alarm per incident.

use super::constants::QUIET;
use super::{Alarm, Detector, Reading};

/// When an incident is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorOptions {
    /// After this many values without a signal.
    pub quiet_values: u64,
    /// Nor before this time has passed without a signal.
    pub quiet_us: u64,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        Self { quiet_values: QUIET as u64, quiet_us: 0 }
    }
}

/// A detector whose signals are grouped: the first one of an incident is an alarm, the others prolong it.
#[derive(Debug, Clone)]
pub struct Monitor {
    detector: Detector,
    options: MonitorOptions,
    /// Position and time of the last signal.
    last: Option<(u64, u64)>,
    /// Values that were not finite.
    skipped: u64,
}

impl Monitor {
    /// Watches a series with a detector.
    pub fn new(detector: Detector, options: MonitorOptions) -> Self {
        Self { detector, options, last: None, skipped: 0 }
    }

    /// Takes the next value; returns an alarm if an incident begins with it.
    pub fn observe(&mut self, reading: Reading) -> Option<Alarm> {
        self.skipped += u64::from(!reading.value.is_finite());
        let alarm = self.detector.observe(reading)?;
        // What began before an incident was over is a part of it, however late it is noticed.
        let began = alarm.began;
        let is_new = self.last.is_none_or(|(position, at_us)| {
            began.position.saturating_sub(position) > self.options.quiet_values
                // A clock that was set back says nothing about the time that has passed.
                && began.at_us.checked_sub(at_us).is_none_or(|us| us >= self.options.quiet_us)
        });
        self.last = Some((alarm.position, alarm.at_us));
        is_new.then_some(alarm)
    }

    /// The time of the last signal of the last incident.
    pub fn last_signal_us(&self) -> Option<u64> {
        self.last.map(|(_, at_us)| at_us)
    }

    /// How many values were skipped because they are not finite.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

#[cfg(test)]
mod tests {
    use super::super::FixedThreshold;
    use super::*;

    fn alarms(options: MonitorOptions, values: &[f64]) -> Vec<u64> {
        let mut monitor = Monitor::new(Detector::FixedThreshold(FixedThreshold::new(1.0, 1, 0)), options);
        let readings = (0..).zip(values).map(|(at, value)| Reading { at_us: 1000 * at, value: *value });
        readings.filter_map(|reading| monitor.observe(reading)).map(|alarm| alarm.position).collect()
    }

    #[test]
    fn an_incident_ends_when_it_was_quiet_for_long_enough() {
        let values = [2.0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0];
        let quiet = |quiet_values, quiet_us| alarms(MonitorOptions { quiet_values, quiet_us }, &values);
        assert_eq!(quiet(0, 0), [0, 1, 3, 7]);
        assert_eq!(quiet(2, 0), [0, 7]);
        assert_eq!(quiet(2, 5000), [0]);
    }

    #[test]
    fn values_that_are_not_finite_are_counted_and_skipped() {
        let detector = Detector::FixedThreshold(FixedThreshold::new(1.0, 2, 0));
        let mut monitor = Monitor::new(detector, MonitorOptions::default());
        let mut found = Vec::new();
        for (at, value) in (0..).zip([2.0, f64::NAN, f64::INFINITY, 2.0]) {
            found.extend(monitor.observe(Reading { at_us: at, value }));
        }
        assert_eq!((found.len(), found[0].position, monitor.skipped()), (1, 1, 2));
    }
}
