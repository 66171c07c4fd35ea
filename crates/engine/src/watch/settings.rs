//! Which detector watches which series.

use std::collections::BTreeSet;

use faultscope_analysis::detect::{
    Adaptive, AdaptiveOptions, Detector, EXPLORING_RISK, Effect, FixedThreshold, MeanShift, Monitor,
    MonitorOptions, RISK, Scale, SigmaLimit, WARM_UP,
};
use faultscope_model::application::{DetectorChoice, MARGIN, Quantity, WatchRule, WatchedMetric};

use super::anomaly::{DetectorName, SeriesKey};

/// An incident of a series ends after this time without a signal.
const QUIET_US: u64 = 30_000_000;

/// What is watched unless a rule says otherwise. Requests are not: that more people come is no fault of a service.
const BY_DEFAULT: [Quantity; 5] =
    [Quantity::Latency, Quantity::Errors, Quantity::Cpu, Quantity::Memory, Quantity::Network];

/// Which detector watches which series.
#[derive(Debug, Clone, Default)]
pub struct WatchSettings {
    /// Of several rules for a series the last counts.
    pub rules: Vec<WatchRule>,
    /// Only these services; all if there are none.
    pub services: BTreeSet<String>,
    /// Only these metrics; the usual ones and those of rules if there are none.
    pub metrics: BTreeSet<WatchedMetric>,
}

impl WatchSettings {
    /// The ratios that are watched.
    pub(super) fn ratios(&self) -> impl Iterator<Item = WatchedMetric> {
        let of_rules = self.rules.iter().filter_map(|rule| rule.metric);
        let all: BTreeSet<_> =
            of_rules.chain(self.metrics.iter().copied()).filter(|m| m.per.is_some()).collect();
        all.into_iter()
    }

    /// The monitor of a series; none if it is not watched.
    pub(super) fn monitor(&self, key: &SeriesKey) -> Option<(Monitor, DetectorName)> {
        let is_service = |name: &String| name.eq_ignore_ascii_case(&key.service);
        if !self.services.is_empty() && !self.services.iter().any(is_service) {
            return None;
        }
        let matches = |rule: &&WatchRule| rule.matches(&key.service, key.operation.as_deref(), key.metric);
        let rule = self.rules.iter().rev().find(matches);
        let is_wanted = match self.metrics.is_empty() {
            false => self.metrics.contains(&key.metric),
            true => {
                let is_usual = key.metric.per.is_none() && BY_DEFAULT.contains(&key.metric.of);
                is_usual || self.rules.iter().any(|rule| rule.metric == Some(key.metric))
            }
        };
        if !is_wanted {
            return None;
        }
        let choice = rule.map(|rule| rule.detector).unwrap_or_default();
        let margin = rule.map_or(MARGIN, |rule| rule.margin);
        let margin_us = u64::try_from(margin.as_micros()).unwrap_or(u64::MAX);
        let (detector, name) = match choice {
            DetectorChoice::Adaptive { risk, patterns } => {
                let options = AdaptiveOptions {
                    risk: risk.unwrap_or(RISK),
                    pattern_risk: patterns.then_some(EXPLORING_RISK),
                    margin_us,
                    both_sides: false,
                    ..usual_options(key.metric)
                };
                (Detector::Adaptive(Box::new(Adaptive::new(options))), DetectorName::Adaptive)
            }
            DetectorChoice::Threshold { above, consecutive } => {
                let detector = FixedThreshold::new(above, consecutive, margin_us);
                (Detector::FixedThreshold(detector), DetectorName::FixedThreshold)
            }
            DetectorChoice::Sigma { sigma, window } => {
                (Detector::SigmaLimit(SigmaLimit::new(sigma, window, margin_us)), DetectorName::SigmaLimit)
            }
            DetectorChoice::MeanShift { lambda, window } => {
                (Detector::MeanShift(MeanShift::new(lambda, window)), DetectorName::MeanShift)
            }
            DetectorChoice::Off => return None,
        };
        let options = MonitorOptions { quiet_us: QUIET_US, ..MonitorOptions::default() };
        Some((Monitor::new(detector, options), name))
    }
}

/// Values until it is known what is usual. Shares of errors are zero more often than not, and there are few of them.
pub(super) fn warm_up(metric: WatchedMetric) -> usize {
    if metric == Quantity::Errors.into() { WARM_UP / 4 } else { WARM_UP }
}

/// How values are compared, and the smallest effect that a person would call an incident.
fn usual_options(metric: WatchedMetric) -> AdaptiveOptions {
    let (scale, absolute, relative) = match metric {
        // Ratios have units of all sizes, so only the factor counts.
        WatchedMetric { per: Some(_), .. } => (Scale::Logarithmic, 0.0, 1.0),
        // Twice the time, and more than a scheduler takes to run a process again.
        WatchedMetric { of: Quantity::Latency, .. } => (Scale::Logarithmic, 0.005, 1.0),
        // Three of the ten calls that a share is computed from at least.
        WatchedMetric { of: Quantity::Errors, .. } => (Scale::Linear, 0.25, 0.0),
        WatchedMetric { of: Quantity::Requests, .. } => (Scale::Logarithmic, 1.0, 1.0),
        // A fifth of a core: garbage collectors and caches of idle services use less.
        WatchedMetric { of: Quantity::Cpu, .. } => (Scale::Logarithmic, 0.2, 1.0),
        // Caches fill and heaps grow by less.
        WatchedMetric { of: Quantity::Memory, .. } => (Scale::Linear, 16.0 * 1024.0 * 1024.0, 0.25),
        WatchedMetric { of: Quantity::Network, .. } => (Scale::Logarithmic, 64.0 * 1024.0, 1.0),
    };
    let least = Effect { absolute, relative };
    AdaptiveOptions { scale, least, warm_up: warm_up(metric), ..AdaptiveOptions::default() }
}
