//! Limits that a load must keep, written as `p95<200ms`, `errors<1%`, `rate>100` or `list:p99<1s`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::report::{Latencies, LoadReport};
use crate::units;

/// A limit of one figure, of all requests or of those with a name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Threshold {
    /// The request it is about; all if none.
    pub request: Option<String>,
    /// What is limited.
    pub measure: Measure,
    /// Whether the figure must be above the limit.
    pub is_least: bool,
    /// Microseconds, a share, or requests per second.
    pub limit: f64,
    /// As it was written.
    pub text: String,
}

/// A figure of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// A quantile of the latency, from 0 to 1.
    Quantile(f64),
    /// The mean latency.
    Mean,
    /// The longest latency.
    Longest,
    /// The share of failed requests.
    Errors,
    /// Requests per second.
    Rate,
}

/// Why a threshold cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no threshold: {problem}")]
pub struct ThresholdError {
    text: String,
    problem: String,
}

/// A threshold after a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThresholdResult {
    /// As it was written.
    pub threshold: String,
    /// The figure, in the unit of the limit; none if there was no such request.
    pub measured: Option<f64>,
    /// Whether it was kept. Without a figure it was not.
    pub is_kept: bool,
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let failed = |problem: &str| ThresholdError { text: text.to_owned(), problem: problem.to_owned() };
        let at = text.rfind(['<', '>']).ok_or_else(|| failed("write it as `p95<200ms` or `errors<1%`"))?;
        let (left, right) = text.split_at(at);
        let is_least = right.starts_with('>');
        let value = right[1..].trim_start_matches('=').trim();
        // A name may contain colons, a measure does not.
        let (request, measure) = match left.rsplit_once(':') {
            Some((name, measure)) => (Some(name.trim().to_owned()), measure.trim()),
            None => (None, left.trim()),
        };
        let measure = match measure {
            "mean" | "avg" => Measure::Mean,
            "max" => Measure::Longest,
            "errors" => Measure::Errors,
            "rate" => Measure::Rate,
            quantile => {
                let percent = quantile.strip_prefix('p').and_then(|percent| percent.parse::<f64>().ok());
                // Only what reports have, so that no other quantile stands for this one.
                let known = percent.and_then(|percent| {
                    Latencies::QUANTILES.into_iter().find(|known| (known * 100.0 - percent).abs() < 1e-6)
                });
                Measure::Quantile(known.ok_or_else(|| {
                    failed(
                        "the figure is one of `p50`, `p75`, `p90`, `p95`, `p99`, `p99.9`, `p99.99`, `mean`, `max`, \
                         `errors`, `rate`",
                    )
                })?)
            }
        };
        let limit = match measure {
            Measure::Quantile(_) | Measure::Mean | Measure::Longest => {
                let limit = units::parse_duration(value).map_err(|e| failed(&e.to_string()))?;
                limit.as_secs_f64() * 1e6
            }
            Measure::Errors => {
                let (number, scale) = match value.strip_suffix('%') {
                    Some(percent) => (percent, 100.0),
                    None => (value, 1.0),
                };
                let share = number.trim().parse::<f64>().ok().map(|number| number / scale);
                share
                    .filter(|share| (0.0..=1.0).contains(share))
                    .ok_or_else(|| failed("errors are a share: `1%`"))?
            }
            Measure::Rate => {
                let rate = value.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate >= 0.0);
                rate.ok_or_else(|| failed("a rate is a number of requests per second"))?
            }
        };
        Ok(Self { request, measure, is_least, limit, text: text.trim().to_owned() })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Threshold {
    /// Compares a load with it.
    pub fn judge(&self, report: &LoadReport) -> ThresholdResult {
        let measured = self.measure_in(report);
        let is_kept = measured.is_some_and(|measured| match self.is_least {
            true => measured > self.limit,
            false => measured < self.limit,
        });
        ThresholdResult { threshold: self.text.clone(), measured, is_kept }
    }

    fn measure_in(&self, report: &LoadReport) -> Option<f64> {
        let (latency, errors, rate) = match &self.request {
            None => (&report.latency, report.counts.failed_share(), report.rate),
            Some(name) => {
                let request = report.requests.iter().find(|request| request.name == *name)?;
                (&request.latency, request.counts.failed_share(), request.rate)
            }
        };
        let of_latency = |pick: fn(&Latencies) -> f64| latency.as_ref().map(pick);
        match self.measure {
            Measure::Quantile(quantile) => latency.as_ref().and_then(|latency| latency.quantile(quantile)),
            Measure::Mean => of_latency(|latency| latency.mean_us),
            Measure::Longest => of_latency(|latency| latency.max_us as f64),
            Measure::Errors => errors,
            Measure::Rate => Some(rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_read_as_k6_users_write_them() {
        let read = |text: &str| text.parse::<Threshold>().unwrap();
        assert_eq!(read("p95<200ms").limit, 200_000.0);
        assert_eq!(read("p99.9 < 1s").measure, Measure::Quantile(0.999));
        assert_eq!(read("errors<1%").limit, 0.01);
        assert_eq!(read("GET /a:b:max<=2s").request.as_deref(), Some("GET /a:b"));
        assert!(read("rate>100").is_least);
    }

    #[test]
    fn what_is_no_threshold_is_refused_with_its_reason() {
        for text in
            ["p95", "p0<1s", "p97<1s", "p100<1s", "speed<1s", "errors<200%", "errors<x", "rate>x", "rate>inf"]
        {
            let error = text.parse::<Threshold>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is no threshold: ")), "{error}");
        }
    }
}
