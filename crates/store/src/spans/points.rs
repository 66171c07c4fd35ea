//! Points of metrics beside the spans: each series written once, its points as time and value.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use faultscope_model::metrics::{Kind, Point, TimeSeries};
use rusqlite::Connection;

use crate::interop::otlp::{MetricPoint, MetricValue, Temporality};

/// The most series of a slice; points of later ones are left out.
const MOST_SERIES: usize = 20_000;

/// The most points that one question for many series is answered with.
const MOST_POINTS: usize = 500_000;

/// The points that one reported metric stands for. A histogram becomes the count and sum of its values, the
/// least and the greatest, and for each of its buckets the count of values up to its bound, as Prometheus does.
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

/// The numbers of series, as the writer knows them.
#[derive(Debug, Default)]
pub(crate) struct SeriesNumbers {
    numbers: HashMap<TimeSeries, i64>,
}

impl SeriesNumbers {
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
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

    /// The number of a series, which is written when it is new; none when there are too many.
    pub(crate) fn number(
        &mut self,
        connection: &Connection,
        series: &TimeSeries,
    ) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.numbers.get(series) {
            return Ok(Some(*number));
        }
        if self.numbers.len() >= MOST_SERIES {
            return Ok(None);
        }
        let number = self.numbers.len() as i64 + 1;
        let text = serde_json::to_string(series).unwrap_or_default();
        connection.prepare_cached("INSERT INTO series VALUES (?1, ?2, ?3, ?4)")?.execute((
            number,
            &series.name,
            &series.service,
            text,
        ))?;
        self.numbers.insert(series.clone(), number);
        Ok(Some(number))
    }

    /// Writes a point; of several for one moment the last stays. Says whether there was room.
    pub(super) fn write(&mut self, connection: &Connection, point: &Point) -> rusqlite::Result<bool> {
        let Some(number) = self.number(connection, &point.series)? else { return Ok(false) };
        // The database has no word for what is not a number.
        if point.value.is_finite() {
            connection.prepare_cached("INSERT OR REPLACE INTO points VALUES (?1, ?2, ?3)")?.execute((
                number,
                point.at_us.cast_signed(),
                point.value,
            ))?;
        }
        Ok(true)
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// Reads the points of a metric between two moments, of one service or all.
pub(super) fn read(
    connection: &Connection,
    name: &str,
    service: Option<&str>,
    (from_us, to_us): (u64, u64),
    take: &mut dyn FnMut(TimeSeries, u64, f64),
) -> rusqlite::Result<()> {
    let mut points = connection.prepare_cached(
        "SELECT at_us, value FROM points WHERE series = ?1 AND at_us BETWEEN ?2 AND ?3 ORDER BY at_us",
    )?;
    let mut statement = connection
        .prepare_cached("SELECT id, text FROM series WHERE name = ?1 AND (?2 IS NULL OR service = ?2)")?;
    let mut rows = statement.query((name, service))?;
    while let Some(row) = rows.next()? {
        let Ok(series) = serde_json::from_str::<TimeSeries>(row.get_ref(1)?.as_str()?) else { continue };
        let mut found = points.query((row.get::<_, i64>(0)?, clamped(from_us), clamped(to_us)))?;
        while let Some(point) = found.next()? {
            take(series.clone(), point.get::<_, i64>(0)?.cast_unsigned(), point.get(1)?);
        }
    }
    Ok(())
}

/// Which of many series are read, and of when.
#[derive(Clone, Copy)]
pub struct SeriesQuery<'q> {
    /// The services that they are about, in lower case.
    pub services: &'q BTreeSet<String>,
    /// Whether series of a name are wanted.
    pub names: &'q dyn Fn(&str) -> bool,
    /// Microseconds since 1970, from and to.
    pub between: (u64, u64),
}

impl fmt::Debug for SeriesQuery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { services, between, .. } = self;
        f.debug_struct("SeriesQuery").field("services", services).field("between", between).finish()
    }
}

/// Points of many series, by series and time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeriesFound {
    /// The points.
    pub series: BTreeMap<TimeSeries, BTreeMap<u64, f64>>,
    points: usize,
    /// Whether there were more than fit; whole series are missing then, or their ends.
    pub is_cut: bool,
}

impl SeriesFound {
    /// Takes a point; says whether there is room for more.
    pub(crate) fn take(&mut self, series: &TimeSeries, at_us: u64, value: f64) -> bool {
        if self.points >= MOST_POINTS {
            self.is_cut = true;
            return false;
        }
        self.points += 1;
        match self.series.get_mut(series) {
            Some(points) => drop(points.insert(at_us, value)),
            None => drop(self.series.insert(series.clone(), BTreeMap::from([(at_us, value)]))),
        }
        true
    }
}

/// The series that are wanted, with their numbers.
pub(crate) fn wanted(
    connection: &Connection,
    query: &SeriesQuery<'_>,
) -> rusqlite::Result<Vec<(i64, TimeSeries)>> {
    let mut statement = connection.prepare_cached("SELECT id, name, service, text FROM series")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let is_wanted = (query.names)(row.get_ref(1)?.as_str()?)
            && query.services.contains(&row.get_ref(2)?.as_str()?.to_lowercase());
        if is_wanted && let Ok(series) = serde_json::from_str(row.get_ref(3)?.as_str()?) {
            found.push((row.get(0)?, series));
        }
    }
    Ok(found)
}

/// Reads the points of many series.
pub(super) fn read_many(
    connection: &Connection,
    query: &SeriesQuery<'_>,
    found: &mut SeriesFound,
) -> rusqlite::Result<()> {
    let mut points = connection.prepare_cached(
        "SELECT at_us, value FROM points WHERE series = ?1 AND at_us BETWEEN ?2 AND ?3 ORDER BY at_us",
    )?;
    for (number, series) in wanted(connection, query)? {
        let mut rows = points.query((number, clamped(query.between.0), clamped(query.between.1)))?;
        while let Some(row) = rows.next()? {
            if !found.take(&series, row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Moments far beyond what 63 bits hold are as good as the last one.
pub(crate) fn clamped(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

/// A series and what there is of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesEntry {
    /// What it is about.
    pub series: TimeSeries,
    /// How many points it has.
    pub points: u64,
    /// Microseconds since 1970 at its first one.
    pub first_us: u64,
    /// And at its last one.
    pub last_us: u64,
    /// The last value.
    pub last: f64,
}

/// Hands all series with points to a function.
pub(super) fn list(connection: &Connection, take: &mut dyn FnMut(SeriesEntry)) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT text, count(at_us), min(at_us), max(at_us),
           (SELECT value FROM points l WHERE l.series = s.id ORDER BY at_us DESC LIMIT 1)
         FROM series s JOIN points p ON p.series = s.id GROUP BY s.id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Ok(series) = serde_json::from_str::<TimeSeries>(row.get_ref(0)?.as_str()?) else { continue };
        let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let (points, first_us, last_us) = (number(1)?, number(2)?, number(3)?);
        take(SeriesEntry { series, points, first_us, last_us, last: row.get(4)? });
    }
    Ok(())
}
