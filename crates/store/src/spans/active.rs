//! The slice that is being written: one transaction for each group of batches.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use faultscope_model::trace::ReportedSpan;
use rusqlite::{Connection, Statement};

use super::intern::{Interner, NameList};
use super::points;
use super::row::{self, Numbers, UNNUMBERED};
use super::segment::{Builder, Segment};
use super::slice_writer::Batch;
use super::{schema, seen};
use crate::error::StoreError;
use crate::secrets::{Redactor, Sealer};
use crate::series_table::SeriesNumbers;
use crate::sqlite::damaged_row;

/// The most rows of `seen`; later names are not offered for autocompletion, but still found.
const MAX_SEEN: usize = 20_000;

/// The most bytes of a name that is offered for autocompletion.
const MAX_SUGGESTION: usize = 256;

/// The slice that is being written.
pub(super) struct Active {
    path: PathBuf,
    connection: Connection,
    known: DatabaseState,
}

/// The writer's copy of what the database contains; read again after a failed commit.
struct DatabaseState {
    interner: Interner,
    series: SeriesNumbers,
    builder: Builder,
    next_row: i64,
    next_segment: i64,
    /// The rows of `seen`, by numbers of names.
    seen: HashSet<(u8, u16, u16)>,
    n_seen: usize,
    buffer: Vec<u8>,
}

impl Active {
    /// Opens or creates the file of a slice. A slice that was not closed is continued.
    pub(super) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let connection = schema::open_writer(&path)?;
        let known = DatabaseState::load(&connection, &path)?;
        Ok(Self { path, connection, known })
    }

    /// Writes batches in one transaction; on an error nothing of them is kept. Returns how many points were written.
    pub(super) fn commit(
        &mut self,
        batches: &[Batch],
        keys: &[String],
        redactor: &Redactor,
        sealer: &mut Sealer,
    ) -> Result<u64, StoreError> {
        let mut write = |known: &mut DatabaseState, connection: &Connection| -> rusqlite::Result<u64> {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let mut insert = connection.prepare_cached(row::INSERT)?;
            let mut insert_name = connection.prepare_cached("INSERT INTO names VALUES (?1, ?2)")?;
            for span in batches.iter().flat_map(|batch| &batch.spans) {
                let taken = redactor.redact_reported(span);
                let (span, originals) = match &taken {
                    Some((redacted, originals)) => (redacted, originals.as_slice()),
                    None => (span, [].as_slice()),
                };
                if let Some(sealed) = sealer.seal(originals) {
                    let sql = "INSERT INTO secrets VALUES (?1, ?2)";
                    connection.prepare_cached(sql)?.execute((known.next_row, sealed))?;
                }
                known.write(connection, &mut insert, &mut insert_name, span, keys)?;
            }
            let (mut written, mut left_out) = (0_u64, 0_u64);
            for point in batches.iter().flat_map(Batch::points) {
                let has_room = points::write(&mut known.series, connection, &point)?;
                *(if has_room { &mut written } else { &mut left_out }) += 1;
            }
            if left_out > 0 {
                tracing::warn!(left_out, "there are too many time series; points of new ones are dropped");
            }
            connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(written)
        };
        write(&mut self.known, &self.connection).map_err(|error| self.roll_back(error))
    }

    /// Closes the slice: its last rows become a segment, and the write-ahead log is checkpointed.
    pub(super) fn close(mut self) -> Result<Connection, StoreError> {
        let finish = |known: &mut DatabaseState, connection: &Connection| -> rusqlite::Result<()> {
            let transaction = connection.unchecked_transaction()?;
            if let Some(segment) = known.builder.finish() {
                known.put_segment(&transaction, &segment)?;
            }
            transaction.commit()
        };
        if let Err(error) = finish(&mut self.known, &self.connection) {
            return Err(StoreError::sqlite("close", &self.path)(error));
        }
        // Readers may block the checkpoint; then the log stays beside the file, which works as well.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        Ok(self.connection)
    }

    /// Whether nothing was written to it.
    pub(super) fn is_empty(&self) -> bool {
        self.known.next_row == 1 && self.known.series.is_empty()
    }

    /// The number of its spans and bytes so far.
    pub(super) fn size(&self) -> (u64, u64) {
        let pragma = |name: &str| {
            let value = self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            value.unwrap_or_default().cast_unsigned()
        };
        ((self.known.next_row - 1).cast_unsigned(), pragma("page_count") * pragma("page_size"))
    }

    fn roll_back(&mut self, error: rusqlite::Error) -> StoreError {
        // On a full disk SQLite may have rolled back already.
        let _ = self.connection.execute_batch("ROLLBACK");
        let error = StoreError::sqlite("write", &self.path)(error);
        // Names of these batches are gone, so the database is read again.
        match DatabaseState::load(&self.connection, &self.path) {
            Ok(known) => self.known = known,
            Err(error) => tracing::error!(%error, cause = %error.source, "a slice cannot be read back"),
        }
        error
    }
}

impl DatabaseState {
    fn load(connection: &Connection, path: &Path) -> Result<Self, StoreError> {
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let load = || -> rusqlite::Result<(Self, i64)> {
            let known = Self {
                interner: Interner::load(connection)?,
                series: SeriesNumbers::load(connection)?,
                builder: Builder::default(),
                next_row: one("SELECT coalesce(max(id), 0) + 1 FROM spans")?,
                next_segment: one("SELECT coalesce(max(id), 0) + 1 FROM segments")?,
                seen: HashSet::new(),
                n_seen: usize::try_from(one("SELECT count(*) FROM seen")?).unwrap_or_default(),
                buffer: Vec::new(),
            };
            Ok((known, one("SELECT coalesce(max(last), 0) FROM segments")?))
        };
        let (mut known, covered) = load().map_err(StoreError::sqlite("read", path))?;
        known.load_tail(connection, covered).map_err(StoreError::sqlite("read", path))?;
        Ok(known)
    }

    /// Puts the rows after the last segment into the next one.
    fn load_tail(&mut self, connection: &Connection, covered: i64) -> rusqlite::Result<()> {
        let mut names = NameList::default();
        names.refresh(connection)?;
        let sql = format!("SELECT {} FROM spans WHERE id > ?1 ORDER BY id", row::COLUMNS);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([covered])?;
        while let Some(found) = rows.next()? {
            let span = row::read(found, &names).map_err(damaged_row)?;
            self.builder.add(found.get(0)?, &span, row::numbers(found)?);
        }
        Ok(())
    }

    fn write(
        &mut self,
        connection: &Connection,
        insert: &mut Statement<'_>,
        insert_name: &mut Statement<'_>,
        span: &ReportedSpan,
        keys: &[String],
    ) -> rusqlite::Result<()> {
        let row = self.next_row;
        let numbers = row::write(insert, insert_name, &mut self.interner, &mut self.buffer, row, span)?;
        self.next_row += 1;
        self.builder.add(row, span, numbers);
        self.add_suggestions(connection, span, numbers, keys)?;
        if self.builder.is_full()
            && let Some(segment) = self.builder.finish()
        {
            self.put_segment(connection, &segment)?;
        }
        Ok(())
    }

    fn put_segment(&mut self, connection: &Connection, segment: &Segment) -> rusqlite::Result<()> {
        let id = self.next_segment;
        let Segment { first, last, min_us, max_us, services, traces, columns, terms } = segment;
        connection.prepare_cached("INSERT INTO segments VALUES (?1,?2,?3,?4,?5,?6,?7)")?.execute((
            id,
            first,
            last,
            min_us.cast_signed(),
            max_us.cast_signed(),
            services,
            traces,
        ))?;
        connection.prepare_cached("INSERT INTO columns VALUES (?1,?2)")?.execute((id, columns))?;
        connection.prepare_cached("INSERT INTO terms VALUES (?1,?2)")?.execute((id, terms))?;
        self.next_segment += 1;
        Ok(())
    }

    /// Adds names for autocompletion.
    fn add_suggestions(
        &mut self,
        connection: &Connection,
        span: &ReportedSpan,
        numbers: Numbers,
        keys: &[String],
    ) -> rusqlite::Result<()> {
        let service = span.local.service.as_deref().unwrap_or_default();
        let remote = span.remote.service.as_deref().unwrap_or_default();
        if !service.is_empty() {
            self.add_suggestion(connection, (seen::SERVICE, numbers.service, 0), service, "")?;
            if !span.name.is_empty() {
                self.add_suggestion(
                    connection,
                    (seen::NAME, numbers.service, numbers.name),
                    service,
                    &span.name,
                )?;
            }
            if !remote.is_empty() {
                self.add_suggestion(
                    connection,
                    (seen::REMOTE, numbers.service, numbers.remote),
                    service,
                    remote,
                )?;
            }
        }
        for key in keys {
            if let Some(value) = span.tag(key).filter(|value| value.len() <= 256) {
                self.add_suggestion(connection, (seen::TAG, UNNUMBERED, UNNUMBERED), key, value)?;
            }
        }
        Ok(())
    }

    fn add_suggestion(
        &mut self,
        connection: &Connection,
        memo: (u8, u16, u16),
        service: &str,
        text: &str,
    ) -> rusqlite::Result<()> {
        let numbered = memo.1 != UNNUMBERED && memo.2 != UNNUMBERED;
        // Long names are still found, but nobody picks them from a list, and all lists are held in memory.
        if service.len().max(text.len()) > MAX_SUGGESTION {
            return Ok(());
        }
        if self.n_seen >= MAX_SEEN || numbered && !self.seen.insert(memo) {
            return Ok(());
        }
        let sql = "INSERT OR IGNORE INTO seen VALUES (?1, ?2, ?3)";
        self.n_seen += connection.prepare_cached(sql)?.execute((service, memo.0, text))?;
        Ok(())
    }
}
