//! `watch`: which series of which services are watched, and by which detector.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::raw::Scalar;
use super::read::{Reader, SpecError};
use crate::ids::ServiceName;
use crate::units::{self, ByteSize};

/// Rules of one file: people write a handful, and each is tried on every series.
const MAX_RULES: usize = 1000;
/// Values of a window: detectors keep that many for each series.
const MAX_WINDOW: usize = 100_000;
/// The paper's margin around an anomaly.
pub const MARGIN: Duration = Duration::from_secs(1);

/// Something that is measured of a service over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Seconds until the answer, for each call.
    Latency,
    /// The share of calls that fail.
    Errors,
    /// Calls per second.
    Requests,
    /// Cores in use.
    Cpu,
    /// Bytes of memory.
    Memory,
    /// Bytes per second, in both directions.
    Network,
}

/// A quantity, or the ratio of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchedMetric {
    /// The quantity, or what is divided.
    pub of: Quantity,
    /// What it is divided by.
    pub per: Option<Quantity>,
}

/// A detector with its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DetectorChoice {
    /// Calibrates itself.
    Adaptive {
        /// The probability of a false alarm per value.
        risk: Option<f64>,
        /// Whether patterns that never occurred raise alarms.
        patterns: bool,
    },
    /// Several values in a row above a limit.
    Threshold {
        /// The limit.
        above: f64,
        /// How many values in a row.
        consecutive: u64,
    },
    /// A value far above the median of those before.
    Sigma {
        /// How many standard deviations.
        sigma: f64,
        /// How many values before.
        window: usize,
    },
    /// Means of two adjacent windows differ.
    MeanShift {
        /// By more than this.
        lambda: f64,
        /// Values of each window.
        window: usize,
    },
    /// The series is not watched.
    Off,
}

impl Default for DetectorChoice {
    fn default() -> Self {
        Self::Adaptive { risk: None, patterns: false }
    }
}

/// How some series are watched. Of several rules for one series the last counts.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchRule {
    /// Only this service.
    pub service: Option<ServiceName>,
    /// Only this operation, as `faultscope watch` names it.
    pub operation: Option<String>,
    /// Only this metric.
    pub metric: Option<WatchedMetric>,
    /// The detector.
    pub detector: DetectorChoice,
    /// Traces are looked for this far around an anomaly.
    pub margin: Duration,
}

/// Limits as they are written, in the file or as options.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DetectorLimits {
    /// The name of the detector; the adaptive one if none is given.
    pub detector: Option<String>,
    /// `V` of the fixed threshold: a number, a duration or a size.
    pub above: Option<String>,
    /// `n` of the fixed threshold.
    pub consecutive: Option<u64>,
    /// Sensitivity of the sigma limit.
    pub sigma: Option<f64>,
    /// Values of a window.
    pub window: Option<usize>,
    /// Sensitivity of the mean shift: a number, a duration or a size.
    pub lambda: Option<String>,
    /// False alarms per value of the adaptive detector.
    pub risk: Option<f64>,
    /// Whether the adaptive detector reports new patterns.
    pub patterns: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWatchRule {
    service: Option<String>,
    operation: Option<String>,
    metric: Option<String>,
    detector: Option<String>,
    above: Option<Scalar>,
    consecutive: Option<u64>,
    sigma: Option<f64>,
    window: Option<usize>,
    lambda: Option<Scalar>,
    risk: Option<f64>,
    #[serde(default)]
    patterns: bool,
    #[serde(default, with = "units::duration::option")]
    margin: Option<Duration>,
}

impl Reader<'_> {
    pub(super) fn watch(
        &self,
        raw: Vec<RawWatchRule>,
        names: &super::read::Names,
    ) -> Result<Vec<WatchRule>, SpecError> {
        if raw.len() > MAX_RULES {
            return Err(self.error(&["watch"], format!("more than {MAX_RULES} rules")));
        }
        raw.into_iter()
            .enumerate()
            .map(|(index, raw)| self.watch_rule(&index.to_string(), raw, names))
            .collect()
    }

    fn watch_rule(
        &self,
        at: &str,
        raw: RawWatchRule,
        names: &super::read::Names,
    ) -> Result<WatchRule, SpecError> {
        let path = ["watch", at];
        let service = match &raw.service {
            Some(name) => Some(self.service(&["watch", at, "service"], name, names)?),
            None => None,
        };
        let metric = raw.metric.as_deref().map(str::parse::<WatchedMetric>).transpose();
        let metric = metric.map_err(|problem| self.error(&["watch", at, "metric"], problem))?;
        let limits = DetectorLimits {
            detector: raw.detector,
            above: raw.above.map(|value| value.0),
            consecutive: raw.consecutive,
            sigma: raw.sigma,
            window: raw.window,
            lambda: raw.lambda.map(|value| value.0),
            risk: raw.risk,
            patterns: raw.patterns,
        };
        let detector = limits.choose().map_err(|problem| self.error(&path, problem))?;
        let margin = raw.margin.unwrap_or(MARGIN);
        Ok(WatchRule { service, operation: raw.operation, metric, detector, margin })
    }
}

impl WatchRule {
    /// Whether it is about a series.
    pub fn matches(&self, service: &str, operation: Option<&str>, metric: WatchedMetric) -> bool {
        self.service.as_ref().is_none_or(|own| own.as_str().eq_ignore_ascii_case(service))
            && self
                .operation
                .as_ref()
                .is_none_or(|own| operation.is_some_and(|operation| own.eq_ignore_ascii_case(operation)))
            && self.metric.is_none_or(|own| own == metric)
    }
}

impl DetectorLimits {
    /// Checks the limits and chooses the detector; the error says what is missing or belongs to another detector.
    pub fn choose(&self) -> Result<DetectorChoice, String> {
        let name = self.detector.as_deref().unwrap_or("adaptive");
        let given = [
            ("above", self.above.is_some(), "threshold"),
            ("consecutive", self.consecutive.is_some(), "threshold"),
            ("sigma", self.sigma.is_some(), "sigma"),
            ("window", self.window.is_some(), "sigma, mean-shift"),
            ("lambda", self.lambda.is_some(), "mean-shift"),
            ("risk", self.risk.is_some(), "adaptive"),
            ("patterns", self.patterns, "adaptive"),
        ];
        if let Some((limit, _, detectors)) = given
            .iter()
            .find(|(_, is_given, detectors)| *is_given && !detectors.split(", ").any(|one| one == name))
        {
            return Err(format!("`{limit}` is for the detector {detectors}, not for {name}"));
        }
        let window = self.window.unwrap_or(DEFAULT_WINDOW);
        if !(2..=MAX_WINDOW).contains(&window) {
            return Err(format!("a window has 2 to {MAX_WINDOW} values"));
        }
        match name {
            "adaptive" => {
                if self.risk.is_some_and(|risk| !(risk > 0.0 && risk < 1.0)) {
                    return Err("a risk is between 0 and 1, such as 1e-7".to_owned());
                }
                Ok(DetectorChoice::Adaptive { risk: self.risk, patterns: self.patterns })
            }
            "threshold" => {
                let above = self.above.as_deref().ok_or("a threshold needs `above`: 500ms, 64MiB, 0.8")?;
                let consecutive = self.consecutive.unwrap_or(DEFAULT_CONSECUTIVE).max(1);
                Ok(DetectorChoice::Threshold { above: parse_limit(above)?, consecutive })
            }
            "sigma" => {
                let sigma = self.sigma.unwrap_or(DEFAULT_SIGMA);
                if !(sigma > 0.0 && sigma.is_finite()) {
                    return Err("`sigma` is a positive number; 3 to 5 is usual".to_owned());
                }
                Ok(DetectorChoice::Sigma { sigma, window })
            }
            "mean-shift" => {
                let lambda = self.lambda.as_deref().ok_or("a mean shift needs `lambda`: 20ms, 16MiB, 0.1")?;
                Ok(DetectorChoice::MeanShift { lambda: parse_limit(lambda)?, window })
            }
            "off" => Ok(DetectorChoice::Off),
            other => {
                Err(format!("there is no detector `{other}`: adaptive, threshold, sigma, mean-shift, off"))
            }
        }
    }
}

/// The window of the paper's second case study.
const DEFAULT_WINDOW: usize = 25;
/// The sensitivity of the same case study.
const DEFAULT_SIGMA: f64 = 4.0;
/// One slow call is no trend, and three in a row hardly chance.
const DEFAULT_CONSECUTIVE: u64 = 3;

/// Parses a number, a duration as seconds, or a size as bytes.
fn parse_limit(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok();
    let duration = || units::parse_duration(text).ok().map(|duration| duration.as_secs_f64());
    let size = || text.parse::<ByteSize>().ok().map(|size| size.0 as f64);
    number
        .or_else(duration)
        .or_else(size)
        .filter(|limit| limit.is_finite())
        .ok_or_else(|| format!("`{text}` is not a number, a duration such as 500ms or a size such as 64MiB"))
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Self; 6] =
        [Self::Latency, Self::Errors, Self::Requests, Self::Cpu, Self::Memory, Self::Network];

    /// The name in files and options.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Errors => "errors",
            Self::Requests => "requests",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Network => "network",
        }
    }

    fn by_name(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|quantity| quantity.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no metric `{name}`: {names}, or two of them as in cpu/requests")
        })
    }
}

impl From<Quantity> for WatchedMetric {
    fn from(of: Quantity) -> Self {
        Self { of, per: None }
    }
}

impl FromStr for WatchedMetric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            None => Quantity::by_name(text.trim()).map(Self::from),
            Some((of, per)) => {
                let (of, per) = (Quantity::by_name(of.trim())?, Quantity::by_name(per.trim())?);
                if of == per {
                    Err("a ratio is of two metrics".to_owned())
                } else {
                    Ok(Self { of, per: Some(per) })
                }
            }
        }
    }
}

impl fmt::Display for WatchedMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.of.name())?;
        self.per.map_or(Ok(()), |per| write!(f, "/{}", per.name()))
    }
}

impl Serialize for WatchedMetric {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Application;

    fn read(rules: &str) -> Result<Vec<WatchRule>, String> {
        let file = format!("services:\n  web:\n    command: [web]\nwatch: {rules}\n");
        Application::read_alone(&file, "f.yaml").map(|read| read.watch).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_name_services_metrics_and_limits() {
        let rules = read(
            "[{ service: web, metric: latency, detector: threshold, above: 500ms, consecutive: 5, margin: 2s },\n  \
             { metric: memory, detector: threshold, above: 64MiB }, { metric: cpu/requests, risk: 1e-5 },\n  \
             { operation: GET /, detector: sigma }, { service: web, detector: off }]",
        )
        .unwrap();
        assert_eq!(rules[0].detector, DetectorChoice::Threshold { above: 0.5, consecutive: 5 });
        assert_eq!(rules[0].margin, Duration::from_secs(2));
        assert_eq!(rules[1].detector, DetectorChoice::Threshold { above: 67_108_864.0, consecutive: 3 });
        assert_eq!(rules[2].metric.unwrap().to_string(), "cpu/requests");
        assert_eq!(rules[3].detector, DetectorChoice::Sigma { sigma: 4.0, window: 25 });
        assert!(rules[0].matches("WEB", Some("GET /"), Quantity::Latency.into()));
        assert!(!rules[3].matches("web", Some("GET /x"), Quantity::Latency.into()));
        assert!(rules[4].matches("web", None, Quantity::Cpu.into()));
    }

    #[test]
    fn mistakes_are_named() {
        for (rules, problem) in [
            ("[{ service: wep }]", "wep"),
            ("[{ metric: speed }]", "no metric `speed`"),
            ("[{ metric: cpu/cpu }]", "two metrics"),
            ("[{ detector: magic }]", "no detector `magic`"),
            ("[{ detector: threshold }]", "needs `above`"),
            ("[{ detector: threshold, above: high }]", "not a number"),
            ("[{ detector: sigma, sigma: -1 }]", "positive"),
            ("[{ detector: sigma, window: 1 }]", "a window has"),
            ("[{ detector: mean-shift }]", "needs `lambda`"),
            ("[{ sigma: 3 }]", "not for adaptive"),
            ("[{ risk: 2 }]", "between 0 and 1"),
            ("[{ limit: 2 }]", "limit"),
        ] {
            let error = read(rules).unwrap_err();
            assert!(error.contains(problem), "{rules}: {error}");
        }
    }
}
