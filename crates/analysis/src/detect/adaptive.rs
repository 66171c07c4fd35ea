//! The default detector. It calibrates itself from the history of the series and has one parameter: the risk of a false
//! alarm per value.
//!
//! It looks at each value in three ways and measures each in nats, the negative logarithm of the probability that a
//! healthy series shows as much:
//!
//! - **spike**: the value against the exponential tail of the history, on either side. That is the threshold of SPOT
//!   (Siffer et al. 2017) with a shape of zero, which a logarithmic scale justifies: a latency then may have any power
//!   law.
//! - **shift**: cumulative sums of ranks, and on a logarithmic scale of the ranks of the tail ([`super::level`]).
//! - **new pattern**: the distance of the last values from the nearest pattern in the history ([`super::novelty`]).
//!
//! An alarm is raised where one of them exceeds the negative logarithm of the risk, and the effect is large enough to
//! matter.

use super::constants::{
    GAP, HISTORY, INTERVAL_WEIGHT, LEAST_EXCESS_OF_MEDIAN, LEAST_EXCESS_OF_SPREAD, PATTERN, REFIT, RISK,
    TAIL, WARM_UP,
};
use super::history::{History, Tail};
use super::level::Level;
use super::novelty::Novelty;
use super::{Alarm, Beginning, Direction, Reading, Signal, TimeWindow};

/// How values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// By their difference.
    #[default]
    Linear,
    /// By their ratio, for what has a heavy tail, such as latency. Values of zero and below count as one millionth.
    Logarithmic,
}

/// The smallest effect that is worth an alarm: both must be reached.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effect {
    /// The difference from the median.
    pub absolute: f64,
    /// The difference from the median as a share of it.
    pub relative: f64,
}

/// Options of the adaptive detector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaptiveOptions {
    /// The probability that a value of a healthy series raises an alarm as a spike, and the same for shifts.
    pub risk: f64,
    /// The same for new patterns, if these are looked for. Bursts of a healthy service come in ever new patterns.
    pub pattern_risk: Option<f64>,
    /// How values are compared.
    pub scale: Scale,
    /// Smaller effects raise no alarm.
    pub least: Effect,
    /// Whether values that are too small count.
    pub both_sides: bool,
    /// Traces of a spike are looked for this far around it.
    pub margin_us: u64,
    /// No alarm before this many values.
    pub warm_up: usize,
}

impl Default for AdaptiveOptions {
    fn default() -> Self {
        Self {
            risk: RISK,
            pattern_risk: None,
            scale: Scale::Linear,
            least: Effect::default(),
            both_sides: true,
            margin_us: 1_000_000,
            warm_up: WARM_UP,
        }
    }
}

/// The adaptive detector of one series.
#[derive(Debug, Clone)]
pub struct Adaptive {
    options: AdaptiveOptions,
    /// The surprise in nats of spikes and shifts that raises an alarm.
    limit: f64,
    /// The same for new patterns.
    pattern_limit: f64,
    history: History,
    tails: Option<(Tail, Tail)>,
    until_refit: usize,
    level: Level,
    /// Begins after the warm-up, when it is known how large values are.
    novelty: Option<Novelty>,
    /// The last values with their times.
    recent: [Reading; PATTERN],
    clock: Clock,
    position: u64,
}

/// Finds gaps: times of values and the usual interval between them.
#[derive(Debug, Clone, Copy, Default)]
struct Clock {
    last_us: Option<u64>,
    interval_us: Option<f64>,
}

impl Adaptive {
    /// A detector that knows nothing yet.
    pub fn new(options: AdaptiveOptions) -> Self {
        // A risk of zero or NaN would never or always raise an alarm.
        let limit = |risk: f64| if risk > 0.0 && risk < 1.0 { -risk.ln() } else { -RISK.ln() };
        Self {
            options,
            limit: limit(options.risk),
            pattern_limit: options.pattern_risk.map_or(f64::INFINITY, limit),
            history: History::new(HISTORY),
            tails: None,
            until_refit: 0,
            level: Level::new(options.scale == Scale::Logarithmic),
            novelty: None,
            recent: [Reading { at_us: 0, value: 0.0 }; PATTERN],
            clock: Clock::default(),
            position: 0,
        }
    }

    /// Takes a finite value.
    pub(super) fn observe(&mut self, reading: Reading) -> Option<Alarm> {
        if self.clock.advance(reading.at_us) {
            self.level.note_gap();
            self.novelty.iter_mut().for_each(Novelty::note_gap);
        }
        let position = self.position;
        self.position += 1;
        self.recent.rotate_left(1);
        self.recent[PATTERN - 1] = reading;
        let scaled = self.scale(reading.value);
        let alarm = self.judge(reading, scaled, position);
        self.history.push(scaled);
        alarm
    }

    fn judge(&mut self, reading: Reading, scaled: f64, position: u64) -> Option<Alarm> {
        let rank = self.history.rank(scaled);
        if self.history.len() < self.options.warm_up {
            self.level.warm_up(rank);
            return None;
        }
        let shift = self.level.observe((reading.at_us, reading.value), rank, self.limit);
        let novelty = self.novelty(scaled);
        let (spike, spike_direction) = self.spike(scaled);
        let usual = self.unscale(self.history.median());
        let matters = |value: f64, direction: Direction| {
            let difference = (value - usual).abs();
            difference >= self.options.least.absolute
                && difference >= self.options.least.relative * usual.abs()
                && (direction == Direction::Up || self.options.both_sides)
        };
        let now = Beginning { position, at_us: reading.at_us };
        let alarm = |signal, direction, value, severity, traces| Alarm {
            signal,
            direction,
            at_us: reading.at_us,
            position,
            began: now,
            value,
            usual,
            severity,
            traces,
        };
        if shift.surprise > shift.limit && matters(shift.mean, shift.direction) {
            let traces =
                TimeWindow::between(shift.since_us.saturating_sub(1), reading.at_us.saturating_add(1));
            let severity = shift.surprise / shift.limit;
            let earlier = shift.values.saturating_sub(1) as u64;
            let began = Beginning { position: position.saturating_sub(earlier), at_us: shift.since_us };
            return Some(Alarm {
                began,
                ..alarm(Signal::Shift, shift.direction, shift.mean, severity, traces)
            });
        }
        if spike > self.limit && matters(reading.value, spike_direction) {
            let traces = TimeWindow::around(reading.at_us, self.options.margin_us);
            return Some(alarm(Signal::Spike, spike_direction, reading.value, spike / self.limit, traces));
        }
        if novelty > self.pattern_limit {
            let far = |reading: &&Reading| (reading.value - usual).abs();
            let farthest = self.recent.iter().max_by(|a, b| far(a).total_cmp(&far(b)))?;
            let direction = if farthest.value >= usual { Direction::Up } else { Direction::Down };
            if matters(farthest.value, direction) {
                let traces = TimeWindow::between(
                    self.recent[0].at_us.saturating_sub(1),
                    reading.at_us.saturating_add(1),
                );
                return Some(alarm(
                    Signal::NewPattern,
                    direction,
                    farthest.value,
                    novelty / self.pattern_limit,
                    traces,
                ));
            }
        }
        None
    }

    /// The surprise of the pattern that ends with a value.
    fn novelty(&mut self, scaled: f64) -> f64 {
        if self.options.pattern_risk.is_none() {
            return 0.0;
        }
        let unit = self.least_excess().unwrap_or(1.0) / LEAST_EXCESS_OF_SPREAD;
        self.novelty.get_or_insert_with(|| Novelty::new(self.history.median(), unit)).observe(scaled)
    }

    /// The surprise of a single value, and on which side it is.
    fn spike(&mut self, scaled: f64) -> (f64, Direction) {
        if self.until_refit == 0 {
            self.until_refit = REFIT;
            self.tails = self.fit_tails();
        }
        self.until_refit -= 1;
        let Some((lower, upper)) = self.tails else { return (0.0, Direction::Up) };
        let (low, high) = (lower.surprise(-scaled), upper.surprise(scaled));
        if high >= low { (high, Direction::Up) } else { (low, Direction::Down) }
    }

    fn fit_tails(&self) -> Option<(Tail, Tail)> {
        let least = self.least_excess()?;
        let (lower, upper) = (self.history.lower_tail(TAIL)?, self.history.upper_tail(TAIL)?);
        Some((lower.at_least(least), upper.at_least(least)))
    }

    /// The smallest mean excess of a tail.
    fn least_excess(&self) -> Option<f64> {
        let spread = self.history.quantile(0.9)? - self.history.quantile(0.1)?;
        let of_median = match self.options.scale {
            Scale::Linear => LEAST_EXCESS_OF_MEDIAN * self.history.median().abs(),
            Scale::Logarithmic => LEAST_EXCESS_OF_MEDIAN,
        };
        Some((LEAST_EXCESS_OF_SPREAD * spread).max(of_median).max(1e-12))
    }

    fn scale(&self, value: f64) -> f64 {
        match self.options.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.max(SMALLEST).ln(),
        }
    }

    fn unscale(&self, scaled: f64) -> f64 {
        match self.options.scale {
            Scale::Linear => scaled,
            Scale::Logarithmic => scaled.exp(),
        }
    }
}

/// The smallest value on a logarithmic scale: a microsecond, where values are in seconds.
const SMALLEST: f64 = 1e-6;

impl Clock {
    /// Takes the time of the next value; returns whether there is a gap before it, or the clock was set back.
    fn advance(&mut self, at_us: u64) -> bool {
        let Some(last_us) = self.last_us.replace(at_us) else { return false };
        let Some(passed) = at_us.checked_sub(last_us) else { return true };
        let passed = passed as f64;
        let Some(usual) = self.interval_us else {
            self.interval_us = Some(passed);
            return false;
        };
        if usual > 0.0 && passed > GAP * usual {
            return true;
        }
        self.interval_us = Some(usual + INTERVAL_WEIGHT * (passed - usual));
        false
    }
}
