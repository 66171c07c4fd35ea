//! Reads the database of a campaign, even while it is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use faultscope_model::grpc::{Descriptors, is_grpc};
use faultscope_model::log::InstanceLog;
use faultscope_model::metrics::{PointsBySeries, Sample};
use faultscope_model::span::Span;
use faultscope_model::{RunId, ServiceName, TraceId, TrialId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::call_row::{COLUMNS, CallReader, read_span};
use super::campaign_writer::{trace_key, trial_cell};
use super::descriptors_file::{read_descriptors, state_of_descriptors};
use super::log_text::read_log;
use super::metrics_database::{EVER, SampleReader};
use super::schema::{DATABASE, open_reader};
use crate::error::{StoreError, StoreErrorKind};
use crate::numbered_names::NameTable;
use crate::sealed::{CellOpener, Column, ReadKey};
use crate::secrets::Key;
use crate::series_table::{SeriesFound, SeriesQuery};
use crate::sqlite::damaged_row;

/// Reads what is committed of a campaign. Its functions block on the disk.
#[derive(Debug)]
pub struct Reader {
    pub(crate) path: PathBuf,
    connection: Mutex<Connection>,
    pub(super) opener: CellOpener,
    key: ReadKey,
    /// What is known of gRPC messages, and the state of the file that says so: a campaign that is still written
    /// may learn more.
    descriptors: Mutex<(Option<(SystemTime, u64)>, Descriptors)>,
}

/// A stored run with the columns by which it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRun {
    /// The trial.
    pub trial: TrialId,
    /// The run.
    pub id: RunId,
    /// `pass`, `fail` or `unresolved`.
    pub outcome: String,
    /// The start in microseconds since 1970.
    pub started_us: u64,
    /// Until the slot was clear.
    pub duration_us: u64,
    /// The run as JSON.
    pub json: String,
}

/// The calls from one service to another.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Edge {
    /// The calling service.
    pub caller: ServiceName,
    /// The called service.
    pub callee: ServiceName,
    /// Number of calls.
    pub calls: u64,
    /// Number of failed calls.
    pub errors: u64,
    /// Median duration.
    pub p50_us: u64,
    /// 99th percentile of the durations.
    pub p99_us: u64,
}

impl Reader {
    pub(crate) fn open(folder: &Path, key: &ReadKey) -> Result<Self, StoreError> {
        let path = folder.join(DATABASE);
        if !path.exists() {
            return Err(StoreError::new(StoreErrorKind::NotFound, "open", &path, "there is no such file"));
        }
        let connection = Mutex::new(open_reader(&path, key)?);
        let opener = CellOpener::new(key.clone());
        Ok(Self { path, connection, opener, key: key.clone(), descriptors: Mutex::default() })
    }

    /// All runs, in the order of their trials.
    pub fn runs(&self) -> Result<Vec<StoredRun>, StoreError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<rusqlite::Result<StoredRun>>> {
            let mut statement =
                connection.prepare_cached(&format!("{RUNS} ORDER BY trial, started_us, id"))?;
            let runs = statement.query_map([], |row| read_run(row, &connection, &self.opener))?;
            Ok(runs.collect())
        };
        let runs = read().map_err(StoreError::sqlite("read", &self.path))?;
        runs.into_iter().collect::<Result<_, _>>().map_err(StoreError::sqlite("read", &self.path))
    }

    /// One run by its id.
    pub fn run(&self, id: &RunId) -> Result<Option<StoredRun>, StoreError> {
        let connection = self.lock();
        let read = || {
            let mut statement = connection.prepare_cached(&format!("{RUNS} WHERE id = ?1"))?;
            let run = |row: &Row<'_>| read_run(row, &connection, &self.opener);
            statement.query_row([id.as_str()], run).optional()
        };
        read().map_err(StoreError::sqlite("read", &self.path))
    }

    /// The spans of a trial by start. Bodies of gRPC calls are decoded.
    pub fn spans_of(&self, trial: TrialId) -> Result<Vec<Span>, StoreError> {
        Ok(self.decoded(self.rows_of(trial)?.into_iter().map(|(_, span)| span).collect()))
    }

    /// As [`Self::spans_of`], with secrets restored for a replay on this machine. Discarded secrets stay redacted.
    pub fn restored_spans_of(&self, trial: TrialId, key: &Key) -> Result<Vec<Span>, StoreError> {
        self.restored(self.rows_of(trial)?, key)
    }

    fn rows_of(&self, trial: TrialId) -> Result<Vec<(i64, Span)>, StoreError> {
        let mut spans = Vec::new();
        self.read(|connection, names| {
            let sql = format!("SELECT {COLUMNS}, id FROM spans WHERE id BETWEEN ?1 AND ?2 AND trial = ?3");
            let mut statement = connection.prepare_cached(&sql)?;
            for (first, last) in segments(connection, trial)? {
                let mut rows = statement.query((first, last, trial.key().cast_signed()))?;
                while let Some(row) = rows.next()? {
                    let reader = CallReader { connection, names, opener: &self.opener };
                    spans.push((row.get(26)?, read_span(row, reader)?));
                }
            }
            Ok(())
        })?;
        spans.sort_by_key(|(_, span)| (span.start_us, span.id));
        Ok(spans)
    }

    /// The spans of a trace by start, over all trials. Bodies of gRPC calls are decoded.
    pub fn spans_of_trace(&self, trace: TraceId) -> Result<Vec<Span>, StoreError> {
        Ok(self.decoded(self.rows_of_trace(trace)?.into_iter().map(|(_, span)| span).collect()))
    }

    /// What is known of the gRPC messages of the campaign.
    pub fn descriptors(&self) -> Descriptors {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut known = self.descriptors.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state_of_descriptors(folder);
        if known.0 != state {
            *known = (state, read_descriptors(folder, &self.key));
        }
        known.1.clone()
    }

    fn decoded(&self, mut spans: Vec<Span>) -> Vec<Span> {
        let mut descriptors = None;
        for span in spans.iter_mut().filter(|span| span.payload.is_some() && is_grpc(span)) {
            // Looked for only where there is a call of gRPC.
            span.decode_bodies(descriptors.get_or_insert_with(|| self.descriptors()));
        }
        spans
    }

    /// As [`Self::spans_of_trace`], with secrets restored. Discarded secrets stay redacted.
    pub fn restored_spans_of_trace(&self, trace: TraceId, key: &Key) -> Result<Vec<Span>, StoreError> {
        self.restored(self.rows_of_trace(trace)?, key)
    }

    fn rows_of_trace(&self, trace: TraceId) -> Result<Vec<(i64, Span)>, StoreError> {
        let (high, low) = (((trace.0 >> 64) as u64).cast_signed(), (trace.0 as u64).cast_signed());
        let mut spans = Vec::new();
        self.read(|connection, names| {
            let sql = format!(
                "SELECT {COLUMNS}, id FROM spans WHERE id BETWEEN ?1 AND ?2 AND trial = ?3 \
                 AND trace_low = ?4 AND trace_high = ?5"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            for (trial, first, last) in segments_with(connection, trace)? {
                let mut rows = statement.query((first, last, trial, low, high))?;
                while let Some(row) = rows.next()? {
                    let reader = CallReader { connection, names, opener: &self.opener };
                    spans.push((row.get(26)?, read_span(row, reader)?));
                }
            }
            Ok(())
        })?;
        spans.sort_by_key(|(_, span)| (span.start_us, span.id));
        Ok(spans)
    }

    /// Calls between services with counts and durations, in one trial or in all; sorted by caller and callee.
    pub fn edges(&self, trial: Option<TrialId>) -> Result<Vec<Edge>, StoreError> {
        let mut edges: BTreeMap<(ServiceName, ServiceName), (u64, Vec<u64>)> = BTreeMap::new();
        self.read(|connection, names| {
            // Without a port nothing was called: a service asked for the address of an undeclared host.
            let sql = "SELECT caller, callee, duration_us, status, grpc_status, error IS NOT NULL FROM spans \
                       WHERE id BETWEEN ?1 AND ?2 AND (?3 IS NULL OR trial = ?3) AND port <> 0";
            let mut statement = connection.prepare_cached(sql)?;
            let ranges = match trial {
                Some(trial) => segments(connection, trial)?,
                None => vec![(0, i64::MAX)],
            };
            for (first, last) in ranges {
                let mut rows =
                    statement.query((first, last, trial.map(|trial| trial.key().cast_signed())))?;
                while let Some(row) = rows.next()? {
                    let service = |value: ValueRef<'_>| names.service(value).map_err(damaged_row);
                    let key = (service(row.get_ref(0)?)?, service(row.get_ref(1)?)?);
                    let (errors, durations) = edges.entry(key).or_default();
                    *errors += u64::from(failed(row)?);
                    durations.push(row.get::<_, i64>(2)?.cast_unsigned());
                }
            }
            Ok(())
        })?;
        let edge = |((caller, callee), (errors, mut durations)): (_, (u64, Vec<u64>))| {
            durations.sort_unstable();
            let calls = durations.len() as u64;
            Edge {
                caller,
                callee,
                calls,
                errors,
                p50_us: quantile(&durations, 50),
                p99_us: quantile(&durations, 99),
            }
        };
        Ok(edges.into_iter().map(edge).collect())
    }

    /// The number of recorded calls.
    pub fn span_count(&self) -> Result<u64, StoreError> {
        let count = self.lock().query_row("SELECT count(*) FROM spans", [], |row| row.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(StoreError::sqlite("read", &self.path))
    }

    /// What the instances of a trial printed.
    pub fn logs_of(&self, trial: TrialId) -> Result<Vec<InstanceLog>, StoreError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<InstanceLog>> {
            let sql = "SELECT instance, text FROM logs WHERE trial = ?1 ORDER BY rowid";
            let mut statement = connection.prepare_cached(sql)?;
            let logs = statement.query_map([trial.key().cast_signed()], |row| {
                let instance =
                    row.get::<_, String>(0)?.parse().map_err(|error| damaged_row(format!("{error}")))?;
                let cell = trial_cell(Column::Log, trial);
                Ok(read_log(instance, &self.opener.open_text(&connection, cell, row.get_ref(1)?)?))
            })?;
            logs.collect()
        };
        read().map_err(StoreError::sqlite("read", &self.path))
    }

    /// Samples of one trial, or of all, by instance and time; empty if nothing was measured.
    pub fn samples_of(&self, trial: Option<TrialId>) -> Result<Vec<Sample>, StoreError> {
        self.samples()?.map_or_else(|| Ok(Vec::new()), |samples| samples.samples(trial, EVER))
    }

    /// Samples between two times, in one trial or in all.
    pub fn samples_between(
        &self,
        trial: Option<TrialId>,
        between: (u64, u64),
    ) -> Result<Vec<Sample>, StoreError> {
        self.samples()?.map_or_else(|| Ok(Vec::new()), |samples| samples.samples(trial, between))
    }

    /// The latest samples: those within this many microseconds before the last one.
    pub fn latest_samples(&self, within_us: u64) -> Result<Vec<Sample>, StoreError> {
        let Some(samples) = self.samples()? else { return Ok(Vec::new()) };
        let last = samples.last_us()?;
        last.map_or_else(|| Ok(Vec::new()), |us| samples.samples(None, (us.saturating_sub(within_us), us)))
    }

    /// Points that services exported between two times, in one trial or in all, under one name or any.
    pub fn points_between(
        &self,
        trial: Option<TrialId>,
        name: Option<&str>,
        between: (u64, u64),
    ) -> Result<PointsBySeries, StoreError> {
        self.samples()?
            .map_or_else(|| Ok(PointsBySeries::new()), |samples| samples.points(trial, name, between))
    }

    /// Points that services exported in a trial, for many series at once.
    pub fn exported_points(
        &self,
        trial: TrialId,
        query: &SeriesQuery<'_>,
    ) -> Result<SeriesFound, StoreError> {
        self.samples()?.map_or_else(|| Ok(SeriesFound::default()), |samples| samples.many(trial, query))
    }

    fn samples(&self) -> Result<Option<SampleReader>, StoreError> {
        SampleReader::open(self.path.parent().unwrap_or(Path::new("")), &self.key)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads names and rows in one transaction, so that a row never refers to a name that was not read.
    pub(crate) fn read(
        &self,
        read: impl FnOnce(&Connection, &NameTable) -> rusqlite::Result<()>,
    ) -> Result<(), StoreError> {
        let connection = self.lock();
        let all = || {
            let transaction = connection.unchecked_transaction()?;
            let names = NameTable::load(&transaction)?;
            read(&transaction, &names)
        };
        all().map_err(StoreError::sqlite("read", &self.path))
    }
}

const RUNS: &str = "SELECT trial, id, outcome, started_us, duration_us, json FROM runs";

fn read_run(row: &Row<'_>, connection: &Connection, opener: &CellOpener) -> rusqlite::Result<StoredRun> {
    let trial = read_trial(row.get(0)?)?;
    Ok(StoredRun {
        trial,
        id: row.get::<_, String>(1)?.parse().map_err(|error| damaged_row(format!("{error}")))?,
        outcome: row.get(2)?,
        started_us: row.get::<_, i64>(3)?.cast_unsigned(),
        duration_us: row.get::<_, i64>(4)?.cast_unsigned(),
        json: opener.open_text(connection, trial_cell(Column::Run, trial), row.get_ref(5)?)?,
    })
}

/// The row ranges of a trial, adjacent ones joined.
fn segments(connection: &Connection, trial: TrialId) -> rusqlite::Result<Vec<(i64, i64)>> {
    let mut statement =
        connection.prepare_cached("SELECT first, last FROM segments WHERE trial = ?1 ORDER BY first")?;
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    let mut rows = statement.query([trial.key().cast_signed()])?;
    while let Some(row) = rows.next()? {
        let (first, last) = (row.get(0)?, row.get(1)?);
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => ranges.push((first, last)),
        }
    }
    Ok(ranges)
}

/// Trials and row ranges that may contain spans of a trace.
pub(crate) fn segments_with(
    connection: &Connection,
    trace: TraceId,
) -> rusqlite::Result<Vec<(i64, i64, i64)>> {
    let key = trace_key(trace);
    let mut found = Vec::new();
    let mut statement = connection.prepare_cached("SELECT trial, first, last, traces FROM segments")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (keys, _) = row.get_ref(3)?.as_blob()?.as_chunks::<4>();
        if keys.binary_search_by_key(&key, |bytes| u32::from_le_bytes(*bytes)).is_ok() {
            found.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    Ok(found)
}

/// [`Span::failed`] on the columns of the query for edges.
fn failed(row: &Row<'_>) -> rusqlite::Result<bool> {
    let status: Option<i64> = row.get(3)?;
    let grpc_status: Option<i64> = row.get(4)?;
    Ok(row.get(5)?
        || status.is_some_and(|status| status >= 500)
        || grpc_status.is_some_and(|status| status != 0))
}

/// The smallest value that is not exceeded by this many per cent of the values.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// The trial of a stored key.
pub(super) fn read_trial(key: i64) -> rusqlite::Result<TrialId> {
    let known = TrialId::from_key(key.cast_unsigned());
    known.ok_or_else(|| damaged_row(format!("no trial has the key {key}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let values: Vec<u64> = (1..=100).collect();
        assert_eq!((quantile(&values, 50), quantile(&values, 99)), (50, 99));
        assert_eq!((quantile(&[7], 50), quantile(&[7], 99)), (7, 7));
        assert_eq!(quantile(&[], 50), 0);
    }
}
