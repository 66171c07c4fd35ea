//! Converts OTLP metrics to points of time series.

use faultscope_model::metrics::{Kind, Point, TimeSeries};

use super::{MetricPoint, MetricValue, Temporality};

/// The points of one metric. A histogram becomes the count and sum of its values, the
/// minimum and maximum, and for each bucket the count of values up to its bound, as in Prometheus.
pub fn points_of(metric: &MetricPoint) -> Vec<Point> {
    let service = metric.resource.iter().find(|(key, _)| key == "service.name");
    let mut about: Vec<_> = metric.resource.iter().chain(&metric.attributes).cloned().collect();
    about.retain(|(key, _)| key != "service.name");
    about.sort();
    let point = |suffix: &str, kind: Kind, value: f64| Point {
        series: TimeSeries {
            name: format!("{}{suffix}", metric.name),
            service: service.map(|(_, name)| name.clone()).unwrap_or_default(),
            kind,
            unit: metric.unit.to_string(),
            about: about.clone(),
        },
        at_us: metric.time_us,
        value,
    };
    match &metric.value {
        MetricValue::Gauge(value) => vec![point("", Kind::Gauge, *value)],
        MetricValue::Sum { value, monotonic, temporality } => {
            let kind = if *monotonic { kind_of(*temporality) } else { Kind::Gauge };
            vec![point("", kind, *value)]
        }
        MetricValue::Histogram { count, sum, min, max, buckets, temporality } => {
            let kind = kind_of(*temporality);
            let others = [(".sum", kind, sum), (".min", Kind::Gauge, min), (".max", Kind::Gauge, max)];
            let others =
                others.into_iter().filter_map(|(suffix, kind, value)| Some(point(suffix, kind, (*value)?)));
            let buckets = buckets.iter().map(|(bound, count)| {
                let mut bucket = point(".bucket", kind, *count as f64);
                bucket.series.unit = String::new();
                bucket.series.about.push(("le".to_owned(), bound.to_string()));
                bucket.series.about.sort();
                bucket
            });
            [point(".count", kind, *count as f64)].into_iter().chain(others).chain(buckets).collect()
        }
        MetricValue::Summary { count, sum, quantiles } => {
            let quantiles =
                quantiles.iter().map(|(q, value)| point(&format!(".p{}", q * 100.0), Kind::Gauge, *value));
            let counted = [(".count", *count as f64), (".sum", *sum)];
            let counted = counted.into_iter().map(|(suffix, value)| point(suffix, Kind::Counter, value));
            counted.chain(quantiles).collect()
        }
    }
}

fn kind_of(temporality: Temporality) -> Kind {
    match temporality {
        Temporality::Delta => Kind::Delta,
        Temporality::Cumulative | Temporality::Unknown => Kind::Counter,
    }
}
