//! Anomalies and incidents, and the sentences that are made from them.

use std::fmt;

use faultscope_analysis::detect::{Alarm, Direction, Signal};
use faultscope_model::application::{Quantity, WatchedMetric};
use faultscope_model::terminal::neutralize_line;
use serde::Serialize;

/// Anomalies that begin within this time of the last one belong to the same incident: a fault shows in the service, in
/// its callers and in what they use, within a few samples.
const TOGETHER_US: u64 = 30_000_000;

/// Traces that a sentence names.
const NAMED_TRACES: usize = 3;

/// What a series is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SeriesKey {
    /// The service.
    pub service: String,
    /// The instance, for what is measured of instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The operation, for what is measured of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// What is measured.
    pub metric: WatchedMetric,
}

/// The detectors by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DetectorName {
    /// The default.
    Adaptive,
    /// The paper's.
    FixedThreshold,
    /// The paper's.
    SigmaLimit,
    /// The paper's.
    MeanShift,
}

/// What a detector noticed, for JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalyKind {
    /// Values in a row above a fixed threshold.
    AboveThreshold,
    /// A sudden burst.
    Spike,
    /// A new level.
    Shift,
    /// A pattern that never occurred.
    NewPattern,
}

/// An anomaly of a series, with the traces that may have led to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Anomaly {
    /// The series.
    #[serde(flatten)]
    pub series: SeriesKey,
    /// Who found it.
    pub detector: DetectorName,
    /// What it is.
    pub kind: AnomalyKind,
    /// Whether values are lower than usual.
    pub is_low: bool,
    /// Microseconds since 1970.
    pub at_us: u64,
    /// The anomalous value, or the mean of those since it began.
    pub value: f64,
    /// What it is compared with.
    pub usual: f64,
    /// How many times its limit it reached; none if the limit is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<f64>,
    /// Ids of traces in the paper's time window, the most conspicuous first, up to a limit.
    pub traces: Vec<String>,
    /// How many traces there are in the window.
    pub n_traces: usize,
}

/// Anomalies that began together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Incident {
    /// The first anomaly in microseconds since 1970.
    pub from_us: u64,
    /// The last anomaly in microseconds since 1970.
    pub to_us: u64,
    /// By time; never empty.
    pub anomalies: Vec<Anomaly>,
}

impl Anomaly {
    pub(super) fn new(
        series: SeriesKey,
        detector: DetectorName,
        alarm: &Alarm,
        (traces, n_traces): (Vec<String>, usize),
    ) -> Self {
        let kind = match alarm.signal {
            Signal::AboveThreshold => AnomalyKind::AboveThreshold,
            Signal::AboveSigmaLimit | Signal::Spike => AnomalyKind::Spike,
            Signal::MeanShifted | Signal::Shift => AnomalyKind::Shift,
            Signal::NewPattern => AnomalyKind::NewPattern,
        };
        Self {
            series,
            detector,
            kind,
            is_low: alarm.direction == Direction::Down,
            at_us: alarm.at_us,
            value: alarm.value,
            usual: alarm.usual,
            severity: Some(alarm.severity).filter(|severity| severity.is_finite()),
            traces,
            n_traces,
        }
    }

    /// A key that does not change when more of the incident is seen.
    pub fn key(&self) -> (&SeriesKey, u64) {
        (&self.series, self.at_us)
    }
}

/// The sentence of the paper, section 4.4.1.
impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SeriesKey { service, operation, instance, metric } = &self.series;
        let usual = describe_value(*metric, self.usual);
        let value = describe_value(*metric, self.value);
        let change = match (self.kind, self.is_low) {
            (AnomalyKind::AboveThreshold, _) => {
                format!("{value} several times in a row, above the threshold of {usual}")
            }
            (AnomalyKind::Spike, false) => format!("a sudden spike to {value}, usually {usual}"),
            (AnomalyKind::Spike, true) => format!("a sudden drop to {value}, usually {usual}"),
            (AnomalyKind::Shift, false) => format!("a lasting rise to {value} from {usual}"),
            (AnomalyKind::Shift, true) => format!("a lasting fall to {value} from {usual}"),
            (AnomalyKind::NewPattern, _) => {
                format!("a pattern that never occurred, with {value}, usually {usual}")
            }
        };
        let by = match operation {
            Some(operation) => format!("{} of the {} service", plain(operation), plain(service)),
            None => format!("the {} service", plain(service)),
        };
        let at = instance.as_deref().map(|name| format!(" ({})", plain(name))).unwrap_or_default();
        write!(f, "There was {change}, in {} by {by}{at}.", describe_metric(*metric))?;
        let detector = self.detector;
        match self.traces.as_slice() {
            [] => write!(f, " No trace was recorded around it. It was found by the {detector}."),
            [only] => write!(
                f,
                " Trace {only} was marked as faulty by the {detector} and may help in finding the root cause."
            ),
            several => {
                let named = &several[..several.len().min(NAMED_TRACES)];
                let more = self.n_traces.saturating_sub(named.len());
                let list = match (named, more) {
                    ([before @ .., last], 0) => format!("{} and {last}", before.join(", ")),
                    (all, more) => format!("{} and {more} more", all.join(", ")),
                };
                write!(
                    f,
                    " Traces: {list} were marked as faulty by the {detector} and may help in finding the root cause."
                )
            }
        }
    }
}

impl fmt::Display for DetectorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Adaptive => "Adaptive Anomaly Detector",
            Self::FixedThreshold => "Fixed Threshold Anomaly Detector",
            Self::SigmaLimit => "Sigma Limit Anomaly Detector",
            Self::MeanShift => "Mean Shift Anomaly Detector",
        })
    }
}

/// Groups anomalies that begin soon after one another.
pub fn group_into_incidents(mut anomalies: Vec<Anomaly>) -> Vec<Incident> {
    anomalies.sort_by(|a, b| a.at_us.cmp(&b.at_us).then_with(|| a.series.cmp(&b.series)));
    let mut incidents: Vec<Incident> = Vec::new();
    for anomaly in anomalies {
        match incidents.last_mut() {
            Some(incident) if anomaly.at_us - incident.to_us <= TOGETHER_US => {
                incident.to_us = anomaly.at_us;
                incident.anomalies.push(anomaly);
            }
            _ => incidents.push(Incident {
                from_us: anomaly.at_us,
                to_us: anomaly.at_us,
                anomalies: vec![anomaly],
            }),
        }
    }
    incidents
}

fn describe_metric(metric: WatchedMetric) -> String {
    let word = |quantity: Quantity| match quantity {
        Quantity::Latency => "latency",
        Quantity::Errors => "error rate",
        Quantity::Requests => "request rate",
        Quantity::Cpu => "CPU usage",
        Quantity::Memory => "memory usage",
        Quantity::Network => "network I/O",
    };
    match metric.per {
        None => word(metric.of).to_owned(),
        Some(per) => format!("{} per {}", word(metric.of), word(per)),
    }
}

fn describe_value(metric: WatchedMetric, value: f64) -> String {
    if metric.per.is_some() {
        return format!("{value:.3e}");
    }
    match metric.of {
        Quantity::Latency if value < 1.0 => format!("{:.1} ms", 1000.0 * value),
        Quantity::Latency => format!("{value:.2} s"),
        Quantity::Errors => format!("{:.0} %", 100.0 * value),
        Quantity::Requests => format!("{value:.1}/s"),
        Quantity::Cpu => format!("{value:.2} cores"),
        Quantity::Memory => format!("{:.1} MiB", value / 1_048_576.0),
        Quantity::Network => format!("{:.1} KiB/s", value / 1024.0),
    }
}

fn plain(text: &str) -> String {
    neutralize_line(text).into_owned()
}
