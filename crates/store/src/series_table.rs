//! The table of time series in campaigns and slices: each series is written once, and then referred to by
//! number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use faultscope_model::metrics::TimeSeries;
use faultscope_model::secrets::{SecretNames, redact_str};
use rusqlite::Connection;

use crate::sealed::{Cell, CellOpener, CellSealer, Column};

/// The most series of a database; points of later ones are dropped. Exporters with unbounded labels exceed it.
const MAX_SERIES: usize = 20_000;

/// The most points in the answer to one query, which is built in memory.
const MAX_POINTS: usize = 500_000;

/// The writer's map from series to numbers.
///
/// It has digests instead of the series themselves: their labels come from outside, and thousands of long ones would
/// fill the memory. The digests are keyed, so nobody can make two series collide.
#[derive(Debug, Default)]
pub(crate) struct SeriesNumbers {
    /// Also of series with secrets, which are stored without them.
    numbers: HashMap<u128, i64>,
    n_stored: usize,
    keys: (RandomState, RandomState),
}

impl SeriesNumbers {
    pub(crate) fn load(connection: &Connection, opener: &CellOpener) -> rusqlite::Result<Self> {
        let mut known = Self::default();
        let mut statement = connection.prepare("SELECT id, text FROM series")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = row.get(0)?;
            let text = opener.open_text(connection, series_cell(number), row.get_ref(1)?)?;
            if let Ok(series) = serde_json::from_str::<TimeSeries>(&text) {
                known.numbers.insert(known.digest(&series), number);
            }
        }
        known.n_stored = known.numbers.len();
        Ok(known)
    }

    /// The number of a series, assigned if it is new; none if there are too many.
    pub(crate) fn number(
        &mut self,
        connection: &Connection,
        series: &TimeSeries,
        sealer: &mut CellSealer,
    ) -> rusqlite::Result<Option<i64>> {
        let digest = self.digest(series);
        if let Some(number) = self.numbers.get(&digest) {
            return Ok(Some(*number));
        }
        // Each series comes here once. Where it has secrets, it shares the number of the redacted one.
        let redacted = redact_series(series);
        let series = redacted.as_ref().unwrap_or(series);
        let stored = self.digest(series);
        if let Some(number) = self.numbers.get(&stored).copied() {
            if self.numbers.len() < 2 * MAX_SERIES {
                self.numbers.insert(digest, number);
            }
            return Ok(Some(number));
        }
        if self.n_stored >= MAX_SERIES {
            return Ok(None);
        }
        let number = self.n_stored as i64 + 1;
        let text = serde_json::to_string(series).unwrap_or_default();
        connection.prepare_cached("INSERT INTO series VALUES (?1, ?2, ?3, ?4)")?.execute((
            number,
            &series.name,
            &series.service,
            sealer.seal_text(connection, series_cell(number), &text)?,
        ))?;
        self.n_stored += 1;
        self.numbers.insert(digest, number);
        self.numbers.insert(stored, number);
        Ok(Some(number))
    }

    fn digest(&self, series: &TimeSeries) -> u128 {
        let (high, low) = (self.keys.0.hash_one(series), self.keys.1.hash_one(series));
        u128::from(high) << 64 | u128::from(low)
    }

    /// Whether the database has no series.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// A series without the secrets in its attributes and its name; none if it has none.
fn redact_series(series: &TimeSeries) -> Option<TimeSeries> {
    static NAMES: LazyLock<SecretNames> = LazyLock::new(SecretNames::default);
    let mut shown = series.clone();
    shown.about.iter_mut().for_each(|(key, value)| *value = NAMES.redact_setting(key, value));
    for text in [&mut shown.name, &mut shown.service] {
        if let Some(redacted) = redact_str(text, &NAMES) {
            *text = redacted;
        }
    }
    (shown != *series).then_some(shown)
}

/// Which series are read, and of which time.
#[derive(Clone, Copy)]
pub struct SeriesQuery<'q> {
    /// The services they describe, in lower case.
    pub services: &'q BTreeSet<String>,
    /// Whether series of a name are read.
    pub names: &'q dyn Fn(&str) -> bool,
    /// From and to, in microseconds since 1970.
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
    /// Values by time in microseconds since 1970.
    pub series: BTreeMap<TimeSeries, BTreeMap<u64, f64>>,
    points: usize,
    /// Whether there were too many points; whole series, or their ends, are missing then.
    pub is_cut: bool,
}

impl SeriesFound {
    /// Adds a point; returns whether there is room for more.
    pub(crate) fn take(&mut self, series: &TimeSeries, at_us: u64, value: f64) -> bool {
        if self.points >= MAX_POINTS {
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

/// The place of a series with the values of its labels.
pub(crate) fn series_cell(number: i64) -> Cell {
    Cell { column: Column::Series, row: number }
}

/// Reads a series with its labels; none if it cannot be parsed.
pub(crate) fn read_series(
    connection: &Connection,
    opener: &CellOpener,
    number: i64,
    text: rusqlite::types::ValueRef<'_>,
) -> rusqlite::Result<Option<TimeSeries>> {
    Ok(serde_json::from_str(&opener.open_text(connection, series_cell(number), text)?).ok())
}

/// The series that a query selects, with their numbers.
pub(crate) fn select_series(
    connection: &Connection,
    opener: &CellOpener,
    query: &SeriesQuery<'_>,
) -> rusqlite::Result<Vec<(i64, TimeSeries)>> {
    let mut statement = connection.prepare_cached("SELECT id, name, service, text FROM series")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let is_wanted = (query.names)(row.get_ref(1)?.as_str()?)
            && query.services.contains(&row.get_ref(2)?.as_str()?.to_lowercase());
        let number = row.get(0)?;
        if is_wanted && let Some(series) = read_series(connection, opener, number, row.get_ref(3)?)? {
            found.push((number, series));
        }
    }
    Ok(found)
}

/// Clamps a time to what SQLite's signed integers can hold.
pub(crate) fn clamped(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed::{AtRest, ReadKey};

    #[test]
    fn series_are_stored_without_their_secrets() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE series (id INTEGER, name TEXT, service TEXT, text TEXT)")
            .unwrap();
        let series = |token: &str, code: &str| TimeSeries {
            name: "http.requests".into(),
            service: "order".into(),
            kind: Default::default(),
            unit: String::new(),
            about: vec![
                ("http.code".into(), code.into()),
                ("http.url".into(), format!("http://u:{token}@order/x?api_key={token}")),
                ("token".into(), token.into()),
            ],
        };
        let (mut numbers, mut sealer) = (SeriesNumbers::default(), CellSealer::new(&AtRest::Plain));
        let mut number = |token: &str, code: &str| {
            numbers.number(&connection, &series(token, code), &mut sealer).unwrap().unwrap()
        };
        // What only a secret tells apart is one series.
        assert_eq!(
            [number("QSECRET-1", "200"), number("QSECRET-2", "200"), number("QSECRET-1", "500")],
            [1, 1, 2]
        );
        let text: String =
            connection.query_row("SELECT group_concat(text) FROM series", [], |row| row.get(0)).unwrap();
        assert!(!text.contains("QSECRET") && text.contains("http://[redacted]@order/x"), "{text}");
        let opener = CellOpener::new(ReadKey::default());
        let mut again = SeriesNumbers::load(&connection, &opener).unwrap();
        let number = again.number(&connection, &series("QSECRET-3", "500"), &mut sealer).unwrap();
        assert_eq!(number, Some(2));
    }
}
