//! Points of metrics beside the spans: each series written once, its points as time and value.

use std::collections::HashMap;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::interop::otlp::{MetricPoint, MetricValue};

/// The most series of a slice; points of later ones are left out.
const MOST_SERIES: usize = 20_000;

/// What a line of values is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Series {
    /// The metric, with `.count`, `.sum`, `.min`, `.max` or a quantile behind it where it holds many values.
    pub name: String,
    /// The service that it is about; empty where nobody says.
    pub service: String,
    /// Its unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// What else it is about, by key: attributes, and the resource of who reports.
    pub about: Vec<(String, String)>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What it is about.
    pub series: Series,
    /// Microseconds since 1970.
    pub at_us: u64,
    /// The value.
    pub value: f64,
}

/// The points that one reported metric stands for.
pub fn points_of(metric: &MetricPoint) -> Vec<Point> {
    let service = metric.resource.iter().find(|(key, _)| key == "service.name");
    let mut about: Vec<_> = metric.resource.iter().chain(&metric.attributes).cloned().collect();
    about.retain(|(key, _)| key != "service.name");
    about.sort();
    let point = |suffix: &str, value: f64| Point {
        series: Series {
            name: format!("{}{suffix}", metric.name),
            service: service.map(|(_, name)| name.clone()).unwrap_or_default(),
            unit: metric.unit.to_string(),
            about: about.clone(),
        },
        at_us: metric.time_us,
        value,
    };
    match &metric.value {
        MetricValue::Gauge(value) | MetricValue::Sum { value, .. } => vec![point("", *value)],
        MetricValue::Histogram { count, sum, min, max, .. } => {
            let others = [(".sum", sum), (".min", min), (".max", max)];
            let others = others.into_iter().filter_map(|(suffix, value)| Some(point(suffix, (*value)?)));
            [point(".count", *count as f64)].into_iter().chain(others).collect()
        }
        MetricValue::Summary { count, sum, quantiles } => {
            let quantiles = quantiles.iter().map(|(q, value)| point(&format!(".p{}", q * 100.0), *value));
            [point(".count", *count as f64), point(".sum", *sum)].into_iter().chain(quantiles).collect()
        }
    }
}

/// The numbers of series, as the writer knows them.
#[derive(Debug, Default)]
pub(super) struct SeriesNumbers {
    numbers: HashMap<Series, i64>,
}

impl SeriesNumbers {
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut numbers = HashMap::new();
        let mut statement = connection.prepare("SELECT id, text FROM series")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if let Ok(series) = serde_json::from_str(row.get_ref(1)?.as_str()?) {
                numbers.insert(series, row.get(0)?);
            }
        }
        Ok(Self { numbers })
    }

    /// Writes a point; of several for one moment the last stays.
    pub(super) fn write(&mut self, connection: &Connection, point: &Point) -> rusqlite::Result<()> {
        let number = match self.numbers.get(&point.series) {
            Some(number) => *number,
            None if self.numbers.len() >= MOST_SERIES => return Ok(()),
            None => {
                let number = self.numbers.len() as i64 + 1;
                let text = serde_json::to_string(&point.series).unwrap_or_default();
                connection.prepare_cached("INSERT INTO series VALUES (?1, ?2, ?3, ?4)")?.execute((
                    number,
                    &point.series.name,
                    &point.series.service,
                    text,
                ))?;
                self.numbers.insert(point.series.clone(), number);
                number
            }
        };
        // The database has no word for what is not a number.
        if point.value.is_finite() {
            connection.prepare_cached("INSERT OR REPLACE INTO points VALUES (?1, ?2, ?3)")?.execute((
                number,
                point.at_us.cast_signed(),
                point.value,
            ))?;
        }
        Ok(())
    }
}

/// Reads the points of a metric between two moments, of one service or all.
pub(super) fn read(
    connection: &Connection,
    name: &str,
    service: Option<&str>,
    (from_us, to_us): (u64, u64),
    take: &mut dyn FnMut(Series, u64, f64),
) -> rusqlite::Result<()> {
    let mut points = connection.prepare_cached(
        "SELECT at_us, value FROM points WHERE series = ?1 AND at_us BETWEEN ?2 AND ?3 ORDER BY at_us",
    )?;
    let mut statement = connection
        .prepare_cached("SELECT id, text FROM series WHERE name = ?1 AND (?2 IS NULL OR service = ?2)")?;
    let mut rows = statement.query((name, service))?;
    // Moments far beyond what 63 bits hold are as good as the last one.
    let clamp = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
    while let Some(row) = rows.next()? {
        let Ok(series) = serde_json::from_str::<Series>(row.get_ref(1)?.as_str()?) else { continue };
        let mut found = points.query((row.get::<_, i64>(0)?, clamp(from_us), clamp(to_us)))?;
        while let Some(point) = found.next()? {
            take(series.clone(), point.get::<_, i64>(0)?.cast_unsigned(), point.get(1)?);
        }
    }
    Ok(())
}
