//! Anomaly detectors: values of one series in, alarms out.
//!
//! Each detector is a small state machine with bounded memory. It knows no clock: every value comes with its time, and
//! only the order of values matters, so clocks that jump do no harm. Values that are not finite are skipped.
//!
//! [`FixedThreshold`], [`SigmaLimit`] and [`MeanShift`] are those of section 4.4.1 of the paper on replay debugging,
//! with its formulas and its mapping to traces. [`Adaptive`] is the default: it calibrates itself and needs no limits.
//! A [`Monitor`] puts one alarm per incident around any of them.

mod adaptive;
mod constants;
#[cfg(test)]
mod healthy_tests;
mod history;
mod level;
mod mean_shift;
mod monitor;
mod normal;
mod novelty;
mod sigma_limit;
mod threshold;

pub use adaptive::{Adaptive, AdaptiveOptions, Effect, Scale};
pub use constants::{EXPLORING_RISK, HISTORY, QUIET, RISK, WARM_UP};
pub use mean_shift::MeanShift;
pub use monitor::{Monitor, MonitorOptions};
pub use sigma_limit::SigmaLimit;
pub use threshold::FixedThreshold;

/// One value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Microseconds since 1970.
    pub at_us: u64,
    /// The value; skipped unless it is finite.
    pub value: f64,
}

/// Which way a value differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It is larger.
    Up,
    /// It is smaller.
    Down,
}

/// What a detector noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Values in a row are above a fixed threshold.
    AboveThreshold,
    /// A value is far above the median of those before.
    AboveSigmaLimit,
    /// The means of two adjacent windows differ.
    MeanShifted,
    /// A single value is beyond the tail of the history.
    Spike,
    /// The level has changed.
    Shift,
    /// The last values are a pattern that never occurred.
    NewPattern,
}

/// A time window, whose ends do not belong to it: the paper compares with `<` on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWindow {
    /// Microseconds since 1970.
    pub after_us: u64,
    /// Microseconds since 1970.
    pub before_us: u64,
}

/// The first value of an anomaly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// The number of finite values before it.
    pub position: u64,
    /// Its time in microseconds since 1970.
    pub at_us: u64,
}

/// A value that a detector finds anomalous.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alarm {
    /// What was noticed.
    pub signal: Signal,
    /// Which way the value differs.
    pub direction: Direction,
    /// The time of the value in microseconds since 1970.
    pub at_us: u64,
    /// The number of finite values before this one.
    pub position: u64,
    /// Where the anomaly began, which may be long before it is noticed.
    pub began: Beginning,
    /// The value, or the mean of the window that shifted.
    pub value: f64,
    /// What is usual: the median, mean or threshold that `value` is compared with.
    pub usual: f64,
    /// How far beyond its limit the value is: more than 1, in the unit of the detector.
    pub severity: f64,
    /// Traces that start in this window may have led to it.
    pub traces: TimeWindow,
}

impl TimeWindow {
    /// The window around a moment.
    pub fn around(at_us: u64, margin_us: u64) -> Self {
        Self { after_us: at_us.saturating_sub(margin_us), before_us: at_us.saturating_add(margin_us) }
    }

    /// Between two moments in either order: a clock may have been set back between them.
    pub fn between(one_us: u64, other_us: u64) -> Self {
        Self { after_us: one_us.min(other_us), before_us: one_us.max(other_us) }
    }

    /// Whether a moment is inside.
    pub fn contains(&self, at_us: u64) -> bool {
        self.after_us < at_us && at_us < self.before_us
    }
}

/// A detector of any kind.
#[derive(Debug, Clone)]
pub enum Detector {
    /// The default.
    Adaptive(Box<Adaptive>),
    /// Values in a row above a threshold.
    FixedThreshold(FixedThreshold),
    /// A value far above the median of those before.
    SigmaLimit(SigmaLimit),
    /// Means of two adjacent windows.
    MeanShift(MeanShift),
}

impl Detector {
    /// Takes the next value; returns what is anomalous about it, for every anomalous value.
    pub fn observe(&mut self, reading: Reading) -> Option<Alarm> {
        if !reading.value.is_finite() {
            return None;
        }
        match self {
            Self::Adaptive(detector) => detector.observe(reading),
            Self::FixedThreshold(detector) => detector.observe(reading),
            Self::SigmaLimit(detector) => detector.observe(reading),
            Self::MeanShift(detector) => detector.observe(reading),
        }
    }
}
