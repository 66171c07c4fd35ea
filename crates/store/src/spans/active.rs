//! The slice that is being written: one transaction for each group of batches.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use faultscope_model::trace::ReportedSpan;
use rusqlite::Connection;

use super::hash::Terms;
use super::intern::{Interner, NameList};
use super::points;
use super::row::{self, Numbers, RowReader, RowWriter, UNNUMBERED};
use super::segment::{Builder, Segment};
use super::slice_writer::Batch;
use super::{schema, seen};
use crate::error::StoreError;
use crate::sealed::{AtRest, CellOpener, CellSealer, ReadKey};
use crate::secrets::{Redactor, Sealer};
use crate::series_table::SeriesNumbers;

/// The most rows of `seen`; later names are not offered for autocompletion, but still found.
const MAX_SEEN: usize = 20_000;

/// The most bytes of a name that is offered for autocompletion.
const MAX_SUGGESTION: usize = 256;

/// The slice that is being written.
pub(super) struct Active {
    path: PathBuf,
    connection: Connection,
    opener: CellOpener,
    sealer: CellSealer,
    terms: Terms,
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
    /// Opens or creates the file of a slice. A slice that was not closed is continued, but none that is sealed in
    /// another way: then nothing is returned.
    pub(super) fn open(path: PathBuf, at_rest: &AtRest, key: &ReadKey) -> Result<Option<Self>, StoreError> {
        let Some(connection) = schema::open_writer(&path, at_rest, key)? else { return Ok(None) };
        let opener = CellOpener::new(key.clone());
        let terms = Terms::new(at_rest.key());
        let known = DatabaseState::load(&connection, &path, &opener, &terms)?;
        let sealer = CellSealer::new(at_rest);
        Ok(Some(Self { path, connection, opener, sealer, terms, known }))
    }

    /// Writes batches in one transaction; on an error nothing of them is kept. Returns how many points were written.
    pub(super) fn commit(
        &mut self,
        batches: &[Batch],
        keys: &[String],
        redactor: &Redactor,
        originals_sealer: &mut Sealer,
    ) -> Result<u64, StoreError> {
        let Self { connection, known, sealer, terms, .. } = self;
        let mut write = || -> rusqlite::Result<u64> {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let mut writer = RowWriter {
                connection,
                insert: connection.prepare_cached(row::INSERT)?,
                insert_name: connection.prepare_cached("INSERT INTO names VALUES (?1, ?2)")?,
            };
            for span in batches.iter().flat_map(|batch| &batch.spans) {
                let taken = redactor.redact_reported(span);
                let (span, originals) = match &taken {
                    Some((redacted, originals)) => (redacted, originals.as_slice()),
                    None => (span, [].as_slice()),
                };
                if let Some(sealed) = originals_sealer.seal(originals) {
                    let sql = "INSERT INTO secrets VALUES (?1, ?2)";
                    connection.prepare_cached(sql)?.execute((known.next_row, sealed))?;
                }
                known.write(&mut writer, sealer, terms, span, keys)?;
            }
            let (mut written, mut left_out) = (0_u64, 0_u64);
            for point in batches.iter().flat_map(Batch::points) {
                let has_room = points::write(&mut known.series, connection, &point, sealer)?;
                *(if has_room { &mut written } else { &mut left_out }) += 1;
            }
            if left_out > 0 {
                tracing::warn!(left_out, "there are too many time series; points of new ones are dropped");
            }
            connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(written)
        };
        write().map_err(|error| self.roll_back(error))
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
        self.sealer.end_epoch();
        match DatabaseState::load(&self.connection, &self.path, &self.opener, &self.terms) {
            Ok(known) => self.known = known,
            Err(error) => tracing::error!(%error, cause = %error.source, "a slice cannot be read back"),
        }
        error
    }
}

impl DatabaseState {
    fn load(
        connection: &Connection,
        path: &Path,
        opener: &CellOpener,
        terms: &Terms,
    ) -> Result<Self, StoreError> {
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let load = || -> rusqlite::Result<(Self, i64)> {
            let known = Self {
                interner: Interner::load(connection, opener)?,
                series: SeriesNumbers::load(connection, opener)?,
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
        known.load_tail(connection, opener, terms, covered).map_err(StoreError::sqlite("read", path))?;
        Ok(known)
    }

    /// Puts the rows after the last segment into the next one.
    fn load_tail(
        &mut self,
        connection: &Connection,
        opener: &CellOpener,
        terms: &Terms,
        covered: i64,
    ) -> rusqlite::Result<()> {
        let mut names = NameList::default();
        names.refresh(connection, opener)?;
        let reader = RowReader { connection, names: &names, opener };
        let sql = format!("SELECT {} FROM spans WHERE id > ?1 ORDER BY id", row::COLUMNS);
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([covered])?;
        while let Some(found) = rows.next()? {
            let span = row::read(found, reader)?;
            self.builder.add(found.get(0)?, &span, row::numbers(found)?, terms);
        }
        Ok(())
    }

    fn write(
        &mut self,
        writer: &mut RowWriter<'_>,
        sealer: &mut CellSealer,
        terms: &Terms,
        span: &ReportedSpan,
        keys: &[String],
    ) -> rusqlite::Result<()> {
        let (row, connection) = (self.next_row, writer.connection);
        let numbers = row::write(writer, &mut self.interner, sealer, &mut self.buffer, row, span)?;
        self.next_row += 1;
        self.builder.add(row, span, numbers, terms);
        self.add_suggestions(connection, span, numbers)?;
        for key in keys {
            if let Some(value) = span.tag(key).filter(|value| value.len() <= 256) {
                self.add_value(connection, sealer, terms, key, value)?;
            }
        }
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
        Ok(())
    }

    /// Adds a tag's value for autocompletion.
    fn add_value(
        &mut self,
        connection: &Connection,
        sealer: &mut CellSealer,
        terms: &Terms,
        key: &str,
        value: &str,
    ) -> rusqlite::Result<()> {
        if self.n_seen >= MAX_SEEN {
            return Ok(());
        }
        let sql = "INSERT OR IGNORE INTO seen VALUES (?1, ?2, ?3, ?4)";
        let mut insert = connection.prepare_cached(sql)?;
        self.n_seen += match terms.suggestion(key, value) {
            None => insert.execute((key, seen::TAG, value, None::<&[u8]>))?,
            Some(digest) => {
                let known = "SELECT count(*) FROM seen WHERE service = ?1 AND kind = ?2 AND text = ?3";
                let known =
                    connection.prepare_cached(known)?.query_row((key, seen::TAG, &digest), |row| row.get(0));
                if known.is_ok_and(|count: i64| count > 0) {
                    return Ok(());
                }
                let sealed = sealer.seal(connection, seen::SUGGESTION, value.as_bytes())?;
                insert.execute((key, seen::TAG, digest, sealed))?
            }
        };
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
        let sql = "INSERT OR IGNORE INTO seen VALUES (?1, ?2, ?3, NULL)";
        self.n_seen += connection.prepare_cached(sql)?.execute((service, memo.0, text))?;
        Ok(())
    }
}
