//! Decodes OTLP metrics into points.

use std::borrow::Cow;
use std::sync::Arc;

use super::buckets;
use super::containers::{Item, Sink, walk_json, walk_proto};
use super::messages::{KeyValue, Resource, Scope};
use super::metric_messages::{Metric, NumberPoint};
use crate::interop::draft::cut;
use crate::interop::protobuf::Fields;
use crate::interop::{Batch, DecodeError, Limits, Weigh};
use crate::weight::weigh_pairs;

/// A metric holds many points, so it may be larger than a span.
const LARGER_THAN_A_SPAN: usize = 4;

/// The most bytes of a metric's name, and of a label's name or value; longer ones are cut. Labels are names to group
/// by, not texts, and each of a histogram's buckets is a time series that repeats all of them.
const MAX_LABEL_BYTES: usize = 1024;

/// The most labels of a point, its own and those of its resource; later ones are left out.
const MAX_LABELS: usize = 128;

/// The most bytes of a point's own labels, and of its resource's; later ones are left out.
const MAX_LABELS_BYTES: usize = 8 << 10;

/// The most quantiles of a point.
const QUANTILES: usize = 64;

/// The flag of a point without a value.
const NO_RECORDED_VALUE: u32 = 1;

/// One value of one metric at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricPoint {
    /// The metric's name.
    pub name: Arc<str>,
    /// Its unit, such as `By` or `s`.
    pub unit: Arc<str>,
    /// Its attributes, in order.
    pub attributes: Vec<(String, String)>,
    /// The attributes of the resource, in order: `service.name` and the like.
    pub resource: Arc<[(String, String)]>,
    /// When counting began in microseconds since 1970; none for gauges.
    pub start_us: Option<u64>,
    /// The time of the value in microseconds since 1970.
    pub time_us: u64,
    /// The value.
    pub value: MetricValue,
}

/// The value of a point.
#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    /// The current value.
    Gauge(f64),
    /// A total.
    Sum {
        /// The total.
        value: f64,
        /// Whether it only grows.
        monotonic: bool,
        /// What it is relative to.
        temporality: Temporality,
    },
    /// A distribution of values.
    Histogram {
        /// Number of values.
        count: u64,
        /// Their sum.
        sum: Option<f64>,
        /// The smallest value.
        min: Option<f64>,
        /// The largest value.
        max: Option<f64>,
        /// Upper bounds with cumulative counts.
        buckets: Vec<(f64, u64)>,
        /// What the counts are relative to.
        temporality: Temporality,
    },
    /// Quantiles computed by the reporter.
    Summary {
        /// Number of values.
        count: u64,
        /// Their sum.
        sum: f64,
        /// Quantiles, from 0 to 1, and their values.
        quantiles: Vec<(f64, f64)>,
    },
}

/// What a total is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Temporality {
    /// Unspecified.
    #[default]
    Unknown,
    /// The point before.
    Delta,
    /// The start.
    Cumulative,
}

/// Reads an `ExportMetricsServiceRequest` as protobuf.
pub fn metrics_proto(body: &[u8], limits: &Limits) -> Result<Batch<MetricPoint>, DecodeError> {
    let mut reading = Reading::new(limits);
    walk_proto(body, limits, &mut reading)?;
    Ok(reading.out)
}

/// Reads an `ExportMetricsServiceRequest` as JSON.
pub fn metrics_json(body: &[u8], limits: &Limits) -> Result<Batch<MetricPoint>, DecodeError> {
    let mut reading = Reading::new(limits);
    walk_json(body, true, limits, &mut reading)?;
    Ok(reading.out)
}

struct Reading<'l> {
    limits: &'l Limits,
    out: Batch<MetricPoint>,
    index: usize,
    resource: Arc<[(String, String)]>,
}

/// The fields that all kinds of points have.
struct Common {
    start_ns: u64,
    time_ns: u64,
    attributes: Vec<KeyValue>,
    flags: u32,
}

impl<'l> Reading<'l> {
    fn new(limits: &'l Limits) -> Self {
        Self { limits, out: Batch::default(), index: 0, resource: Arc::new([]) }
    }
}

impl Sink for Reading<'_> {
    fn restart(&mut self) {
        *self = Self::new(self.limits);
    }

    fn resource(&mut self, resource: Resource) {
        self.resource = labels(&resource.attributes, self.limits).into();
    }

    fn scope(&mut self, _: Scope) {}

    fn item(&mut self, item: Item<'_>) -> Result<(), DecodeError> {
        let index = self.index;
        self.index += 1;
        // Empty messages of two bytes take a hundred and more when they are decoded.
        if count_messages(item) > self.limits.items.saturating_mul(2) {
            self.out.reject(index, "it has too many points and attributes");
            return Ok(());
        }
        match item.decode::<Metric>(self.limits.item_bytes.saturating_mul(LARGER_THAN_A_SPAN)) {
            Ok(metric) if metric.name.is_empty() => self.out.reject(index, "it has no name"),
            Ok(metric) => self.read(metric)?,
            Err(reason) => self.out.reject(index, reason),
        }
        Ok(())
    }
}

impl Reading<'_> {
    fn read(&mut self, metric: Metric) -> Result<(), DecodeError> {
        let name: Arc<str> = short(metric.name.into(), self.limits).into();
        let unit: Arc<str> = short(metric.unit.into(), self.limits).into();
        let number = |point: &NumberPoint| point.as_double.or(point.as_int.map(|number| number as f64));
        for point in metric.gauge.unwrap_or_default().data_points {
            let value = number(&point).map(MetricValue::Gauge);
            self.push(&name, &unit, point.common(), value)?;
        }
        let sum = metric.sum.unwrap_or_default();
        let (monotonic, temporality) = (sum.is_monotonic, sum.aggregation_temporality.into());
        for point in sum.data_points {
            let value = number(&point).map(|value| MetricValue::Sum { value, monotonic, temporality });
            self.push(&name, &unit, point.common(), value)?;
        }
        let histogram = metric.histogram.unwrap_or_default();
        let temporality = histogram.aggregation_temporality.into();
        for point in histogram.data_points {
            let (start_ns, time_ns) = (point.start_time_unix_nano, point.time_unix_nano);
            let common = Common { start_ns, time_ns, attributes: point.attributes, flags: point.flags };
            let (count, sum, min, max) = (point.count, point.sum, point.min, point.max);
            let buckets = buckets::explicit(&point.explicit_bounds, &point.bucket_counts);
            let value = MetricValue::Histogram { count, sum, min, max, buckets, temporality };
            self.push(&name, &unit, common, Some(value))?;
        }
        let histogram = metric.exponential_histogram.unwrap_or_default();
        let temporality = histogram.aggregation_temporality.into();
        for point in histogram.data_points {
            let (start_ns, time_ns) = (point.start_time_unix_nano, point.time_unix_nano);
            let common = Common { start_ns, time_ns, attributes: point.attributes, flags: point.flags };
            let (count, sum, min, max) = (point.count, point.sum, point.min, point.max);
            let below = point.negative.iter().flat_map(|negative| &negative.bucket_counts);
            let not_above_zero = below.fold(point.zero_count, |all, count| all.saturating_add(*count));
            let positive = point.positive.unwrap_or_default();
            let (offset, counts) = (positive.offset, &positive.bucket_counts);
            let buckets = buckets::exponential(point.scale, not_above_zero, offset, counts);
            let value = MetricValue::Histogram { count, sum, min, max, buckets, temporality };
            self.push(&name, &unit, common, Some(value))?;
        }
        for point in metric.summary.unwrap_or_default().data_points {
            let (start_ns, time_ns) = (point.start_time_unix_nano, point.time_unix_nano);
            let common = Common { start_ns, time_ns, attributes: point.attributes, flags: point.flags };
            let quantiles = point.quantile_values.iter().take(QUANTILES);
            let quantiles = quantiles.map(|quantile| (quantile.quantile, quantile.value)).collect();
            let value = MetricValue::Summary { count: point.count, sum: point.sum, quantiles };
            self.push(&name, &unit, common, Some(value))?;
        }
        Ok(())
    }

    fn push(
        &mut self,
        name: &Arc<str>,
        unit: &Arc<str>,
        common: Common,
        value: Option<MetricValue>,
    ) -> Result<(), DecodeError> {
        if self.out.items.len() >= self.limits.items {
            return Err(DecodeError::TooLarge { what: "the number of points", limit: self.limits.items });
        }
        // A point without a value marks the end of the series.
        let Some(value) = value.filter(|_| common.flags & NO_RECORDED_VALUE == 0) else { return Ok(()) };
        let mut attributes = labels(&common.attributes, self.limits);
        attributes.truncate(MAX_LABELS.saturating_sub(self.resource.len()));
        let point = MetricPoint {
            name: name.clone(),
            unit: unit.clone(),
            attributes,
            resource: self.resource.clone(),
            start_us: Some(common.start_ns / 1_000).filter(|us| *us > 0),
            time_us: common.time_ns / 1_000,
            value,
        };
        self.out.count_bytes(point.weigh(), self.limits)?;
        self.out.items.push(point);
        Ok(())
    }
}

impl NumberPoint {
    fn common(self) -> Common {
        Common {
            start_ns: self.start_time_unix_nano,
            time_ns: self.time_unix_nano,
            attributes: self.attributes,
            flags: self.flags,
        }
    }
}

impl From<i32> for Temporality {
    fn from(number: i32) -> Self {
        match number {
            1 => Self::Delta,
            2 => Self::Cumulative,
            _ => Self::Unknown,
        }
    }
}

impl Weigh for MetricPoint {
    /// Its resource is shared with all other points, and no larger than the body.
    fn weigh(&self) -> usize {
        let value = match &self.value {
            MetricValue::Histogram { buckets, .. } => size_of_val(buckets.as_slice()),
            MetricValue::Summary { quantiles, .. } => size_of_val(quantiles.as_slice()),
            MetricValue::Gauge(_) | MetricValue::Sum { .. } => 0,
        };
        size_of::<Self>() + weigh_pairs(&self.attributes) + value
    }
}

/// Attributes as the labels of a time series.
fn labels(attributes: &[KeyValue], limits: &Limits) -> Vec<(String, String)> {
    let label = |attribute: &KeyValue| {
        let key = short(Cow::Borrowed(attribute.key.as_str()), limits);
        (key.into_owned(), short(attribute.text(), limits).into_owned())
    };
    let mut bytes = 0;
    let fits = |(key, value): &(String, String)| {
        bytes += key.len() + value.len();
        bytes <= MAX_LABELS_BYTES
    };
    attributes.iter().take(limits.tags.min(MAX_LABELS)).map(label).take_while(fits).collect()
}

fn short<'t>(text: Cow<'t, str>, limits: &Limits) -> Cow<'t, str> {
    let limits = Limits { text_bytes: limits.text_bytes.min(MAX_LABEL_BYTES), ..limits.clone() };
    cut(text, &limits)
}

/// At least as many as there are points and attributes in a metric.
fn count_messages(item: Item<'_>) -> usize {
    let fields = |message| Fields::new(message).map_while(Result::ok).filter(|field| field.is_bytes);
    match item {
        // A metric has kinds of points, those have points, and those have attributes.
        Item::Proto(metric) => {
            let points = || fields(metric).flat_map(|kind| fields(kind.bytes));
            points().count() + points().flat_map(|point| fields(point.bytes)).count()
        }
        Item::Json(text) => text.bytes().filter(|byte| *byte == b'{').count(),
        Item::Wrong(_) => 0,
    }
}
