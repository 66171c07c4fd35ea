//! Points of metrics beside the spans of a slice.

use faultscope_model::metrics::{Point, TimeSeries};
use rusqlite::Connection;

use crate::sealed::{CellOpener, CellSealer};
use crate::series_table::{SeriesFound, SeriesNumbers, SeriesQuery, clamped, read_series, select_series};

/// Writes a point; of several for one time the last stays. Returns whether there was room.
pub(super) fn write(
    series: &mut SeriesNumbers,
    connection: &Connection,
    point: &Point,
    sealer: &mut CellSealer,
) -> rusqlite::Result<bool> {
    let Some(number) = series.number(connection, &point.series, sealer)? else { return Ok(false) };
    // SQLite stores NaN as NULL.
    if point.value.is_finite() {
        connection.prepare_cached("INSERT OR REPLACE INTO points VALUES (?1, ?2, ?3)")?.execute((
            number,
            point.at_us.cast_signed(),
            point.value,
        ))?;
    }
    Ok(true)
}

/// Reads the points of a metric between two times, of one service or all.
pub(super) fn read(
    connection: &Connection,
    opener: &CellOpener,
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
        let number = row.get(0)?;
        let Some(series) = read_series(connection, opener, number, row.get_ref(1)?)? else { continue };
        let mut found = points.query((number, clamped(from_us), clamped(to_us)))?;
        while let Some(point) = found.next()? {
            take(series.clone(), point.get::<_, i64>(0)?.cast_unsigned(), point.get(1)?);
        }
    }
    Ok(())
}

/// Reads the points of many series.
pub(super) fn read_many(
    connection: &Connection,
    opener: &CellOpener,
    query: &SeriesQuery<'_>,
    found: &mut SeriesFound,
) -> rusqlite::Result<()> {
    let mut points = connection.prepare_cached(
        "SELECT at_us, value FROM points WHERE series = ?1 AND at_us BETWEEN ?2 AND ?3 ORDER BY at_us",
    )?;
    for (number, series) in select_series(connection, opener, query)? {
        let mut rows = points.query((number, clamped(query.between.0), clamped(query.between.1)))?;
        while let Some(row) = rows.next()? {
            if !found.take(&series, row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A time series and its extent.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesEntry {
    /// The series.
    pub series: TimeSeries,
    /// Number of points.
    pub points: u64,
    /// The first point in microseconds since 1970.
    pub first_us: u64,
    /// The last point in microseconds since 1970.
    pub last_us: u64,
    /// The last value.
    pub last: f64,
}

/// Passes all series with points to a function.
pub(super) fn list(
    connection: &Connection,
    opener: &CellOpener,
    take: &mut dyn FnMut(SeriesEntry),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT text, count(at_us), min(at_us), max(at_us),
           (SELECT value FROM points l WHERE l.series = s.id ORDER BY at_us DESC LIMIT 1), s.id
         FROM series s JOIN points p ON p.series = s.id GROUP BY s.id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let Some(series) = read_series(connection, opener, row.get(5)?, row.get_ref(0)?)? else { continue };
        let number = |column: usize| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let (points, first_us, last_us) = (number(1)?, number(2)?, number(3)?);
        take(SeriesEntry { series, points, first_us, last_us, last: row.get(4)? });
    }
    Ok(())
}
