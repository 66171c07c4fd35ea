//! Resource usage of instances in the trials of a campaign: `metrics.sqlite`, created with the first sample.
//!
//! It is a database of its own, so that samples never slow spans down and a campaign without any has no file.
//! A round of samples is one transaction, written by whoever took it; callers are on blocking threads.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use faultscope_model::metrics::{Metric, Point, PointsBySeries, Sample, TimeSeries, Values};
use faultscope_model::{InstanceId, SlotId, TrialId};
use rusqlite::Connection;

use crate::error::{StoreError, StoreErrorKind};
use crate::format::{DatabaseStep, Migration, is_unvacuumed, migrate_database, steps_from};
use crate::sealed::{AtRest, CellOpener, CellSealer, ReadKey, SEALS_TABLE};
use crate::series_table::{SeriesFound, SeriesNumbers, SeriesQuery, clamped, read_series, select_series};
use crate::spans::seal_series;
use crate::sqlite::{connect_reader, connect_writer, verify_pages, version};
use crate::upkeep::copy_table;

/// The file in a campaign's folder.
pub(super) const DATABASE: &str = "metrics.sqlite";

/// The version of its schema.
const SAMPLES_FORMAT: u32 = 2;

/// Migrations from each version to the next; the first one leads from version 1 to 2.
const SAMPLES_STEPS: &[DatabaseStep] = &[samples_to_2];

/// Databases of this version and later ones can be read as they are where they cannot be migrated.
const READABLE: u64 = 1;

const _: () = assert!(SAMPLES_STEPS.len() + 1 == SAMPLES_FORMAT as usize, "every format needs its step");

/// Samples are clustered by trial and instance, in the order in which they are read. The columns after `slot` are
/// the metrics that platforms measure; `series` and `points` hold what services export.
const TABLES: &str = "
CREATE TABLE instances (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE samples (
  trial INTEGER NOT NULL, instance INTEGER NOT NULL, at_us INTEGER NOT NULL, slot INTEGER NOT NULL,
  cpu_seconds REAL, cpu_limit REAL, memory_working_set REAL, memory_resident REAL, memory_limit REAL,
  network_received REAL, network_sent REAL, processes REAL, threads REAL, start_time REAL, restarts REAL,
  oom_kills REAL,
  PRIMARY KEY (trial, instance, at_us)
) STRICT, WITHOUT ROWID;
CREATE TABLE points (
  trial INTEGER NOT NULL, series INTEGER NOT NULL, at_us INTEGER NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (trial, series, at_us)
) STRICT, WITHOUT ROWID;
";

/// The table whose texts format 2 seals: they have the values of labels.
const TABLES_2: &str = "CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL, service TEXT NOT NULL, text ANY NOT NULL) STRICT;";

/// Migrates samples from format 1 to 2.
fn samples_to_2(connection: &Connection, path: &Path, migration: &mut Migration) -> Result<(), StoreError> {
    let mut migrate = || -> rusqlite::Result<()> {
        connection
            .execute_batch(&format!("ALTER TABLE series RENAME TO series_1; {TABLES_2} {SEALS_TABLE}"))?;
        seal_series(connection, migration, "series_1")?;
        connection.execute_batch("DROP TABLE series_1")
    };
    migrate().map_err(StoreError::sqlite("migrate", path))
}

const INSERT: &str =
    "INSERT OR REPLACE INTO samples VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)";

/// All time.
pub(crate) const EVER: (u64, u64) = (0, u64::MAX);

/// The parameter of the first metric in [`INSERT`].
const FIRST_METRIC: usize = 5;

/// Writes samples of a campaign.
#[derive(Debug)]
pub struct SampleWriter {
    path: PathBuf,
    at_rest: AtRest,
    key: ReadKey,
    /// Opened by the first sample, and again after an error.
    open: Mutex<Option<Open>>,
    /// Trials whose samples from before a moment are forgotten: whoever took them may be late.
    forgotten: Mutex<HashMap<TrialId, u64>>,
}

#[derive(Debug)]
struct Open {
    connection: Connection,
    instances: HashMap<InstanceId, i64>,
    series: SeriesNumbers,
    /// Made again with the connection, so that a failed transaction ends its epoch.
    cells: CellSealer,
}

impl SampleWriter {
    pub(crate) fn new(folder: &Path, at_rest: AtRest, key: ReadKey) -> Self {
        let path = folder.join(DATABASE);
        Self { path, at_rest, key, open: Mutex::default(), forgotten: Mutex::default() }
    }

    /// Writes what was measured in a slot during a trial, all of it or nothing. Blocks on the disk.
    pub fn write(
        &self,
        trial: TrialId,
        slot: SlotId,
        samples: &[Sample],
        points: &[Point],
    ) -> Result<(), StoreError> {
        if samples.is_empty() && points.is_empty() {
            return Ok(());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let since_us = {
            let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            forgotten.get(&trial).copied().unwrap_or_default()
        };
        let state = match open.as_mut() {
            Some(state) => state,
            None => open.insert(Open::new(&self.path, &self.at_rest, &self.key)?),
        };
        let written = state.write(trial, slot, since_us, samples, points);
        written.map_err(|error| {
            // Numbers assigned in the failed transaction are gone, so everything is read again.
            *open = None;
            StoreError::sqlite("write", &self.path)(error)
        })
    }

    /// Removes what was measured during a trial before a moment. It blocks on the disk.
    pub(crate) fn forget(&self, trial: TrialId, before_us: u64) -> Result<(), StoreError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).insert(trial, before_us);
        let state = match open.as_mut() {
            Some(state) => state,
            None if !self.path.exists() => return Ok(()),
            None => open.insert(Open::new(&self.path, &self.at_rest, &self.key)?),
        };
        state.forget(trial, before_us).map_err(StoreError::sqlite("write", &self.path))
    }
}

impl Open {
    fn forget(&self, trial: TrialId, before_us: u64) -> rusqlite::Result<()> {
        let transaction = self.connection.unchecked_transaction()?;
        for table in ["samples", "points"] {
            let sql = format!("DELETE FROM {table} WHERE trial = ?1 AND at_us < ?2");
            transaction.execute(&sql, (trial.key().cast_signed(), clamped(before_us)))?;
        }
        transaction.commit()
    }

    fn new(path: &Path, at_rest: &AtRest, key: &ReadKey) -> Result<Self, StoreError> {
        let connection = connect_writer(path)?;
        match version(&connection, path)? {
            0 => {
                let create = format!(
                    "BEGIN; {TABLES} {TABLES_2} {SEALS_TABLE} PRAGMA user_version = {SAMPLES_FORMAT}; COMMIT;"
                );
                connection.execute_batch(&create).map_err(StoreError::sqlite("create", path))?;
            }
            _ => migrate_database(&connection, path, SAMPLES_STEPS, key)?,
        }
        let load = || -> rusqlite::Result<_> {
            let instances = instances(&connection)?.into_iter().map(|(number, id)| (id, number)).collect();
            Ok((instances, SeriesNumbers::load(&connection, &CellOpener::new(key.clone()))?))
        };
        let (instances, series) = load().map_err(StoreError::sqlite("read", path))?;
        Ok(Self { connection, instances, series, cells: CellSealer::new(at_rest) })
    }

    fn write(
        &mut self,
        trial: TrialId,
        slot: SlotId,
        since_us: u64,
        samples: &[Sample],
        points: &[Point],
    ) -> rusqlite::Result<()> {
        let Self { connection, instances, series, cells } = self;
        let transaction = connection.unchecked_transaction()?;
        let trial = trial.key().cast_signed();
        {
            let mut insert = transaction.prepare_cached(INSERT)?;
            for sample in samples.iter().filter(|sample| sample.at_us >= since_us) {
                let number = match instances.get(&sample.instance) {
                    Some(number) => *number,
                    None => {
                        let number = instances.len() as i64 + 1;
                        let text = sample.instance.to_string();
                        transaction
                            .prepare_cached("INSERT INTO instances VALUES (?1, ?2)")?
                            .execute((number, text))?;
                        instances.insert(sample.instance.clone(), number);
                        number
                    }
                };
                insert.raw_bind_parameter(1, trial)?;
                insert.raw_bind_parameter(2, number)?;
                insert.raw_bind_parameter(3, sample.at_us.cast_signed())?;
                insert.raw_bind_parameter(4, slot.0)?;
                for (index, metric) in Metric::ALL.into_iter().enumerate() {
                    insert.raw_bind_parameter(FIRST_METRIC + index, sample.get(metric))?;
                }
                insert.raw_execute()?;
            }
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO points VALUES (?1, ?2, ?3, ?4)")?;
            for point in points.iter().filter(|point| point.value.is_finite() && point.at_us >= since_us) {
                if let Some(number) = series.number(&transaction, &point.series, cells)? {
                    insert.execute((trial, number, point.at_us.cast_signed(), point.value))?;
                }
            }
        }
        transaction.commit()
    }
}

/// Reads samples of a campaign; opened by its reader.
#[derive(Debug)]
pub(crate) struct SampleReader {
    path: PathBuf,
    connection: Connection,
    opener: CellOpener,
}

impl SampleReader {
    /// Opens the samples of a campaign; none if nothing was measured.
    pub(crate) fn open(folder: &Path, key: &ReadKey) -> Result<Option<Self>, StoreError> {
        let path = folder.join(DATABASE);
        if !path.exists() {
            return Ok(None);
        }
        let connection = connect_reader(&path)?;
        let found = version(&connection, &path)?;
        if found == 0 {
            // Just being created.
            return Ok(None);
        }
        let opener = CellOpener::new(key.clone());
        if steps_from(&path, found, SAMPLES_STEPS)?.is_empty() && !is_unvacuumed(&connection, &path)? {
            return Ok(Some(Self { path, connection, opener }));
        }
        match migrate_samples(folder, key) {
            Ok(()) => Ok(Some(Self { connection: connect_reader(&path)?, path, opener })),
            // On a read-only disk nothing can be migrated, and it need not be. While an older version writes,
            // it is read as it is.
            Err(error)
                if matches!(error.kind, StoreErrorKind::NotPermitted | StoreErrorKind::InUse)
                    && found >= READABLE =>
            {
                Ok(Some(Self { path, connection, opener }))
            }
            Err(error) => Err(error),
        }
    }

    /// The samples of one trial, or of all, between two times.
    pub(crate) fn samples(
        &self,
        trial: Option<TrialId>,
        (from_us, to_us): (u64, u64),
    ) -> Result<Vec<Sample>, StoreError> {
        let columns: Vec<String> = Metric::ALL.iter().map(|metric| metric.name().replace('.', "_")).collect();
        let sql = format!(
            "SELECT instance, at_us, {} FROM samples WHERE (?1 IS NULL OR trial = ?1) AND at_us BETWEEN ?2 AND ?3",
            columns.join(", ")
        );
        let read = || -> rusqlite::Result<Vec<Sample>> {
            let instances: HashMap<i64, InstanceId> = instances(&self.connection)?.into_iter().collect();
            let mut statement = self.connection.prepare(&sql)?;
            let trial = trial.map(|trial| trial.key().cast_signed());
            let mut rows = statement.query((trial, clamped(from_us), clamped(to_us)))?;
            let mut samples = Vec::new();
            while let Some(row) = rows.next()? {
                let Some(instance) = instances.get(&row.get(0)?) else { continue };
                let mut values = Values::default();
                for (index, metric) in Metric::ALL.into_iter().enumerate() {
                    values.set(metric, row.get(2 + index)?);
                }
                let at_us = row.get::<_, i64>(1)?.cast_unsigned();
                samples.push(Sample { instance: instance.clone(), at_us, values });
            }
            Ok(samples)
        };
        read().map_err(StoreError::sqlite("read", &self.path))
    }

    /// The time of the last sample.
    pub(crate) fn last_us(&self) -> Result<Option<u64>, StoreError> {
        let last = self.connection.query_row("SELECT max(at_us) FROM samples", [], |row| row.get(0));
        let last: Option<i64> = last.map_err(StoreError::sqlite("read", &self.path))?;
        Ok(last.map(i64::cast_unsigned))
    }

    /// Points that services exported between two times, in one trial or in all, under one name or any.
    pub(crate) fn points(
        &self,
        trial: Option<TrialId>,
        name: Option<&str>,
        between: (u64, u64),
    ) -> Result<PointsBySeries, StoreError> {
        let read = || -> rusqlite::Result<PointsBySeries> {
            let mut list =
                self.connection.prepare("SELECT id, text FROM series WHERE ?1 IS NULL OR name = ?1")?;
            let mut rows = list.query([name])?;
            let mut numbered = HashMap::new();
            while let Some(row) = rows.next()? {
                let number = row.get(0)?;
                let series = read_series(&self.connection, &self.opener, number, row.get_ref(1)?)?;
                if let Some(series) = series {
                    numbered.insert(number, (series, Vec::new()));
                }
            }
            self.each_point(trial, between, |number, at_us, value| {
                if let Some((_, points)) = numbered.get_mut(&number) {
                    points.push((at_us, value));
                }
                true
            })?;
            let mut found: PointsBySeries =
                numbered.into_values().filter(|(_, points)| !points.is_empty()).collect();
            // They come by trial, and trials run side by side.
            found.values_mut().for_each(|points| points.sort_by_key(|(at_us, _)| *at_us));
            Ok(found)
        };
        read().map_err(StoreError::sqlite("read", &self.path))
    }

    /// As [`Self::points`], for many series at once.
    pub(crate) fn many(&self, trial: TrialId, query: &SeriesQuery<'_>) -> Result<SeriesFound, StoreError> {
        let read = || -> rusqlite::Result<SeriesFound> {
            let wanted: HashMap<i64, TimeSeries> =
                select_series(&self.connection, &self.opener, query)?.into_iter().collect();
            let mut found = SeriesFound::default();
            self.each_point(Some(trial), query.between, |number, at_us, value| {
                wanted.get(&number).is_none_or(|series| found.take(series, at_us, value))
            })?;
            Ok(found)
        };
        read().map_err(StoreError::sqlite("read", &self.path))
    }

    /// Passes points to a function until it returns false. One pass over all of them: they are clustered by trial, so
    /// reading each series alone would take a pass for each.
    fn each_point(
        &self,
        trial: Option<TrialId>,
        (from_us, to_us): (u64, u64),
        mut take: impl FnMut(i64, u64, f64) -> bool,
    ) -> rusqlite::Result<()> {
        let only = if trial.is_some() { "trial = ?3" } else { "?3 IS NULL" };
        let sql = format!("SELECT series, at_us, value FROM points WHERE at_us BETWEEN ?1 AND ?2 AND {only}");
        let mut statement = self.connection.prepare(&sql)?;
        let trial = trial.map(|trial| trial.key().cast_signed());
        let mut rows = statement.query((clamped(from_us), clamped(to_us), trial))?;
        while let Some(row) = rows.next()? {
            if !take(row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned(), row.get(2)?) {
                break;
            }
        }
        Ok(())
    }
}

/// Whether the samples of a campaign need a migration; an error if they cannot be read.
pub(super) fn check(folder: &Path, key: &ReadKey) -> Result<bool, StoreError> {
    let path = folder.join(DATABASE);
    if !path.exists() {
        return Ok(false);
    }
    let connection = connect_reader(&path)?;
    let found = version(&connection, &path)?;
    if found == 0 {
        return Ok(false);
    }
    let is_older = !steps_from(&path, found, SAMPLES_STEPS)?.is_empty();
    verify_pages(&connection, &path)?;
    SeriesNumbers::load(&connection, &CellOpener::new(key.clone()))
        .map_err(StoreError::sqlite("read", &path))?;
    Ok(is_older || is_unvacuumed(&connection, &path)?)
}

/// Copies what can be read of samples into a new database; returns how many rows there were.
pub(super) fn salvage(from: &Path, to: &Path) -> Result<u64, StoreError> {
    let _ = std::fs::remove_file(to);
    let old = connect_reader(from)?;
    let new = connect_writer(to)?;
    let copy = || -> rusqlite::Result<u64> {
        new.execute_batch(&format!("BEGIN; {TABLES} {TABLES_2} {SEALS_TABLE}"))?;
        let mut rows = 0;
        for (table, is_numbered) in
            [("instances", true), ("seals", true), ("series", true), ("samples", false), ("points", false)]
        {
            rows += copy_table(&old, &new, table, is_numbered)?;
        }
        new.execute_batch(&format!("PRAGMA user_version = {SAMPLES_FORMAT}; COMMIT"))?;
        let _ = new.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Ok(rows)
    };
    copy().map_err(StoreError::sqlite("copy", from))
}

/// Migrates the samples of a campaign, if there are any and it is needed.
pub(super) fn migrate_samples(folder: &Path, key: &ReadKey) -> Result<(), StoreError> {
    let path = folder.join(DATABASE);
    if !path.exists() {
        return Ok(());
    }
    let connection = connect_writer(&path)?;
    if version(&connection, &path)? == 0 {
        return Ok(());
    }
    migrate_database(&connection, &path, SAMPLES_STEPS, key)
}

fn instances(connection: &Connection) -> rusqlite::Result<Vec<(i64, InstanceId)>> {
    let mut statement = connection.prepare("SELECT id, text FROM instances")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if let Ok(instance) = row.get_ref(1)?.as_str()?.parse() {
            found.push((row.get(0)?, instance));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::error::StoreErrorKind;

    fn plain_writer(folder: &Path) -> SampleWriter {
        SampleWriter::new(folder, AtRest::Plain, ReadKey::default())
    }

    fn sample(instance: &str, at_us: u64, cpu: f64) -> Sample {
        let values =
            Values::default().with(Metric::CpuSeconds, Some(cpu)).with(Metric::OutOfMemoryKills, Some(2.0));
        Sample { instance: instance.parse().unwrap(), at_us, values }
    }

    #[test]
    fn samples_and_points_are_read_back_by_trial() {
        let folder = tempfile::tempdir().unwrap();
        assert!(SampleReader::open(folder.path(), &ReadKey::default()).unwrap().is_none());
        let series = TimeSeries { name: "requests".into(), service: "a".into(), ..TimeSeries::default() };
        let point = |at_us, value| Point { series: series.clone(), at_us, value };
        let writer = plain_writer(folder.path());
        writer.write(TrialId::chosen(1), SlotId(0), &[], &[]).unwrap();
        assert!(
            SampleReader::open(folder.path(), &ReadKey::default()).unwrap().is_none(),
            "nothing makes no file"
        );
        let first = [sample("b-1", 5, 1.0), sample("a-1", 5, 0.5)];
        writer.write(TrialId::chosen(1), SlotId(0), &first, &[point(5, 1.0), point(6, f64::NAN)]).unwrap();
        writer.write(TrialId::chosen(2), SlotId(1), &[sample("a-1", 7, 0.7)], &[point(7, 3.0)]).unwrap();
        // Another writer of the same campaign, as after an error.
        plain_writer(folder.path())
            .write(TrialId::chosen(1), SlotId(0), &[sample("a-1", 9, 0.9)], &[])
            .unwrap();
        let reader = SampleReader::open(folder.path(), &ReadKey::default()).unwrap().unwrap();
        let of = |trial: u32| reader.samples(Some(TrialId::chosen(trial)), EVER).unwrap();
        assert_eq!(of(1), [sample("b-1", 5, 1.0), sample("a-1", 5, 0.5), sample("a-1", 9, 0.9)]);
        assert_eq!(of(2), [sample("a-1", 7, 0.7)]);
        assert_eq!(reader.samples(None, EVER).unwrap().len(), 4);
        assert_eq!(reader.last_us().unwrap(), Some(9));
        assert_eq!(reader.samples(None, (6, 8)).unwrap(), [sample("a-1", 7, 0.7)]);
        assert_eq!(reader.points(Some(TrialId::chosen(2)), None, EVER).unwrap()[&series], [(7, 3.0)]);
        assert_eq!(reader.points(None, Some("requests"), EVER).unwrap()[&series], [(5, 1.0), (7, 3.0)]);
        assert_eq!(reader.points(None, Some("requests"), (6, 9)).unwrap()[&series], [(7, 3.0)]);
        assert!(reader.points(None, Some("other"), EVER).unwrap().is_empty());
        let services = BTreeSet::from(["a".to_owned()]);
        let many = |trial, names: &dyn Fn(&str) -> bool, between| {
            let query = SeriesQuery { services: &services, names, between };
            reader
                .many(TrialId::chosen(trial), &query)
                .unwrap()
                .series
                .into_values()
                .flatten()
                .collect::<Vec<_>>()
        };
        assert_eq!(many(2, &|name| name == "requests", EVER), [(7, 3.0)]);
        assert_eq!(many(2, &|_| true, (0, 6)), []);
        assert_eq!(many(1, &|name| name == "other", EVER), []);
    }

    #[test]
    fn what_a_spoiled_attempt_measured_is_forgotten_even_when_it_comes_late() {
        let folder = tempfile::tempdir().unwrap();
        let writer = plain_writer(folder.path());
        writer.forget(TrialId::chosen(1), 3).unwrap();
        assert!(
            SampleReader::open(folder.path(), &ReadKey::default()).unwrap().is_none(),
            "forgetting nothing makes no file"
        );
        let (first, second) = (TrialId::chosen(1), TrialId::chosen(2));
        let series = TimeSeries { name: "requests".into(), ..TimeSeries::default() };
        let point = |at_us| Point { series: series.clone(), at_us, value: 1.0 };
        for trial in [first, second] {
            writer.write(trial, SlotId(0), &[sample("a-1", 5, 0.5)], &[point(5)]).unwrap();
        }
        writer.forget(first, 10).unwrap();
        let late = [sample("a-1", 9, 0.9), sample("a-1", 11, 1.1)];
        writer.write(first, SlotId(0), &late, &[point(9), point(11)]).unwrap();
        let reader = SampleReader::open(folder.path(), &ReadKey::default()).unwrap().unwrap();
        assert_eq!(reader.samples(Some(first), EVER).unwrap(), [sample("a-1", 11, 1.1)]);
        assert_eq!(reader.points(Some(first), None, EVER).unwrap()[&series], [(11, 1.0)]);
        assert_eq!(reader.samples(Some(second), EVER).unwrap().len(), 1);
    }

    #[test]
    fn a_newer_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let writer = plain_writer(folder.path());
        writer.write(TrialId::chosen(1), SlotId(0), &[sample("a-1", 1, 0.0)], &[]).unwrap();
        let connection = connect_writer(&folder.path().join(DATABASE)).unwrap();
        connection.pragma_update(None, "user_version", SAMPLES_FORMAT + 1).unwrap();
        assert_eq!(
            SampleReader::open(folder.path(), &ReadKey::default()).unwrap_err().kind,
            StoreErrorKind::Newer
        );
        let again =
            plain_writer(folder.path()).write(TrialId::chosen(1), SlotId(0), &[sample("a-1", 2, 0.0)], &[]);
        assert_eq!(again.unwrap_err().kind, StoreErrorKind::Newer);
    }
}
