//! Reading one slice, also while it is written.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faultscope_model::trace::ReportedSpan;
use rusqlite::{Connection, OptionalExtension, Row};

use super::catalogue::SliceEntry;
use super::hash::Terms;
use super::intern::NameList;
use super::row::{self, Numbers, RowReader, UNNUMBERED};
use super::scan::{Answer, Numbered, Part, Scan};
use super::segment::{self, Described, Entry, contains, entries, entries_of, rows_of, trace_key};
use super::trace_memory::TraceSpans;
use super::{schema, seen};
use crate::error::{StoreError, StoreErrorKind};
use crate::sealed::{CellOpener, ReadKey};
use crate::secrets::{Key, restore_reported, unseal};

/// One slice. What describes its rows is kept in memory, the rows are read as they are needed.
#[derive(Debug)]
pub(super) struct Slice {
    path: PathBuf,
    inner: Mutex<Inner>,
    /// Whether it was named as damaged already.
    is_named: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    opener: CellOpener,
    terms: Terms,
    names: NameList,
    segments: Vec<Described>,
    /// Trace keys with the positions of the segments that have them, sorted.
    keys: Vec<(u32, u32)>,
    /// The row of the first entry of the tail.
    tail_first: i64,
    /// Rows behind the last segment.
    tail: Vec<Entry>,
    /// Columns that were read last, by segment: what is found in a segment is looked up in it next.
    recent: RefCell<VecDeque<(i64, Arc<Vec<u8>>)>>,
    /// Nothing can come any more.
    complete: bool,
}

/// How many columns are kept.
const RECENT: usize = 4;

/// A part of a slice that may hold what a search looks for.
#[derive(Debug)]
pub(super) struct Piece {
    /// No span in it starts later.
    pub(super) max_us: u64,
    /// The position of a segment, or what was found behind the last one.
    place: Result<usize, Vec<Found>>,
}

/// A span that a search found: its start, [`TIMELESS`] when it has none, and the lower half of its trace's id.
pub(super) type Found = (u64, u64);

/// Stands for the start of a span that has none; such spans are always looked at.
pub(super) const TIMELESS: u64 = u64::MAX;

impl Slice {
    /// Opens a slice; none when it has no tables yet or is just being removed.
    pub(super) fn open(path: PathBuf, key: &ReadKey) -> Result<Option<Self>, StoreError> {
        if !path.exists() {
            return Ok(None);
        }
        let connection = match schema::open_reader(&path, key) {
            Ok(Some(connection)) => connection,
            Ok(None) => return Ok(None),
            Err(_) if !path.exists() => return Ok(None),
            Err(error) => return Err(error),
        };
        let terms = schema::terms_of(&connection, &path, key)?;
        let inner = Inner {
            connection,
            opener: CellOpener::new(key.clone()),
            terms,
            names: NameList::default(),
            segments: Vec::new(),
            keys: Vec::new(),
            tail_first: 1,
            tail: Vec::new(),
            recent: RefCell::default(),
            complete: false,
        };
        Ok(Some(Self { path, inner: Mutex::new(inner), is_named: AtomicBool::new(false) }))
    }

    /// Takes notice of what was committed since the last time.
    pub(super) fn refresh(&self, listed: &SliceEntry) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if inner.complete {
            return Ok(());
        }
        inner.refresh().map_err(self.failed())?;
        inner.complete = listed.closed_us.is_some();
        Ok(())
    }

    /// The spans of all traces whose id has this lower half, in the order of their arrival.
    pub(super) fn spans_of(&self, trace_low: u64, out: &mut TraceSpans<'_>) -> Result<(), StoreError> {
        let inner = self.lock();
        let mut read = || -> rusqlite::Result<()> {
            for row in inner.rows_of(trace_low)? {
                if let Some(span) = inner.span(row)?
                    && !out.add(span)
                {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(self.failed())
    }

    /// The same with their secrets.
    pub(super) fn restored_spans_of(
        &self,
        trace_low: u64,
        key: &Key,
        out: &mut Vec<ReportedSpan>,
    ) -> Result<(), StoreError> {
        let inner = self.lock();
        for row in inner.rows_of(trace_low).map_err(self.failed())? {
            let Some(mut span) = inner.span(row).map_err(self.failed())? else { continue };
            let read = || -> rusqlite::Result<Option<Vec<u8>>> {
                let sql = "SELECT sealed FROM secrets WHERE span = ?1";
                inner.connection.prepare_cached(sql)?.query_row([row], |row| row.get(0)).optional()
            };
            if let Some(sealed) = read().map_err(self.failed())? {
                let originals =
                    unseal(key, &sealed).map_err(|error| StoreError::unseal(&self.path, &error))?;
                restore_reported(&mut span, originals);
            }
            out.push(span);
        }
        Ok(())
    }

    /// A scan in the numbers of this slice, and the parts that may hold what it looks for.
    pub(super) fn pieces<'q>(&self, scan: Scan<'q>) -> Result<(Numbered<'q>, Vec<Piece>), StoreError> {
        let inner = self.lock();
        let numbered = scan.numbered(&inner.names);
        let listed = inner.segments.iter().enumerate();
        let listed = listed.filter(|(_, segment)| numbered.may_be_in(segment));
        let mut pieces: Vec<Piece> = listed
            .map(|(position, segment)| Piece { max_us: latest(segment), place: Ok(position) })
            .collect();
        let rows = inner.tail.iter().copied().enumerate();
        let found = inner.matching(&numbered, inner.tail_first, rows).map_err(self.failed());
        let found = self.or_nothing(found)?;
        if let Some((max_us, _)) = found.first() {
            pieces.push(Piece { max_us: *max_us, place: Err(found) });
        }
        Ok((numbered, pieces))
    }

    /// A scan in the numbers of this slice.
    pub(super) fn numbered<'q>(&self, scan: Scan<'q>) -> Numbered<'q> {
        scan.numbered(&self.lock().names)
    }

    /// Hands the entries of all traces whose id has this lower half to a function, each with its row.
    pub(super) fn entries_of(
        &self,
        trace_low: u64,
        mut take: impl FnMut(i64, &Entry),
    ) -> Result<(), StoreError> {
        let inner = self.lock();
        for segment in inner.segments_with(trace_low) {
            let columns = inner.columns(segment.id).map_err(self.failed())?;
            entries_of(&columns, trace_low).for_each(|(row, entry)| take(segment.first + row, &entry));
        }
        let tail = (inner.tail_first..).zip(&inner.tail);
        tail.filter(|(_, entry)| entry.trace_low == trace_low).for_each(|(row, entry)| take(row, entry));
        Ok(())
    }

    /// Whether a row is what a scan looks for, by reading as little of it as that takes.
    pub(super) fn check_row(&self, scan: &Numbered<'_>, row: i64, entry: &Entry) -> Result<bool, StoreError> {
        self.lock().check_row(scan, row, entry).map_err(self.failed())
    }

    /// What a scan looks for in a part, the latest first.
    pub(super) fn search(&self, scan: &Numbered<'_>, piece: Piece) -> Result<Vec<Found>, StoreError> {
        let position = match piece.place {
            Ok(position) => position,
            Err(found) => return Ok(found),
        };
        let inner = self.lock();
        let read = || -> rusqlite::Result<Vec<Found>> {
            let Some(segment) = inner.segments.get(position) else { return Ok(Vec::new()) };
            if let Some(term) = scan.term(&inner.terms)
                && !inner.has_term(segment.id, term)?
            {
                return Ok(Vec::new());
            }
            let columns = inner.columns(segment.id)?;
            inner.matching(scan, segment.first, entries(&columns).enumerate())
        };
        read().map_err(self.failed())
    }

    /// Its last rows.
    pub(super) fn sample(&self, most: i64) -> Result<Vec<ReportedSpan>, StoreError> {
        let inner = self.lock();
        let read = || -> rusqlite::Result<Vec<ReportedSpan>> {
            let end = inner.tail_first + inner.tail.len() as i64;
            let rows = (1.max(end - most)..end).rev();
            rows.filter_map(|row| inner.span(row).transpose()).collect()
        };
        read().map_err(self.failed())
    }

    /// The start of its latest span.
    pub(super) fn last_us(&self) -> u64 {
        let inner = self.lock();
        let tail = inner.tail.iter().map(|entry| entry.start_us).max();
        inner.segments.iter().map(|segment| segment.max_us).chain(tail).max().unwrap_or_default()
    }

    /// How many spans it has.
    pub(super) fn count(&self) -> u64 {
        let inner = self.lock();
        (inner.tail_first - 1).cast_unsigned() + inner.tail.len() as u64
    }

    /// Adds all services.
    pub(super) fn services(&self, out: &mut BTreeSet<String>) -> Result<(), StoreError> {
        seen::services(&self.lock().connection, out).map_err(self.failed())
    }

    /// Adds what is offered for choice.
    pub(super) fn texts(
        &self,
        kind: u8,
        service: &str,
        out: &mut BTreeSet<String>,
    ) -> Result<(), StoreError> {
        let inner = self.lock();
        seen::texts(&inner.connection, &inner.opener, kind, service, out).map_err(self.failed())
    }

    /// Asks its tables of metrics.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Connection, &CellOpener) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let inner = self.lock();
        read(&inner.connection, &inner.opener).map_err(self.failed())
    }

    /// What was read; nothing, with a warning, if the slice is damaged, so that others are still read.
    pub(super) fn or_nothing<T: Default>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        match read {
            Err(error) if error.is_local() => {
                if !self.is_named.swap(true, Ordering::Relaxed) {
                    name_unreadable(&error);
                }
                Ok(T::default())
            }
            other => other,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> impl FnOnce(rusqlite::Error) -> StoreError {
        StoreError::sqlite("read", &self.path)
    }
}

impl Inner {
    fn refresh(&mut self) -> rusqlite::Result<()> {
        // In one transaction, so that no row names what was read too early.
        let transaction = self.connection.unchecked_transaction()?;
        self.names.refresh(&transaction, &self.opener)?;
        let before = self.segments.len();
        {
            let sql = "SELECT id, first, last, min_us, max_us, services, traces FROM segments \
                       WHERE id > ?1 ORDER BY id";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut rows = statement.query([self.segments.last().map_or(0, |segment| segment.id)])?;
            while let Some(row) = rows.next()? {
                let position = u32::try_from(self.segments.len()).unwrap_or(u32::MAX);
                self.segments.push(Described::read(row)?);
                self.keys.extend(segment::numbers(row.get_ref(6)?.as_blob()?).map(|key| (key, position)));
            }
        }
        if self.segments.len() > before {
            // Mostly sorted runs already, which this kind of sorting makes use of.
            self.keys.sort();
            let covered = self.segments.last().map_or(0, |segment| segment.last);
            let gone = usize::try_from(covered + 1 - self.tail_first).unwrap_or_default();
            self.tail.drain(..gone.min(self.tail.len()));
            self.tail_first = covered + 1;
        }
        {
            let sql = format!("SELECT {} FROM spans WHERE id >= ?1 ORDER BY id", row::COLUMNS);
            let mut statement = transaction.prepare_cached(&sql)?;
            let mut rows = statement.query([self.tail_first + self.tail.len() as i64])?;
            while let Some(row) = rows.next()? {
                self.tail.push(entry_of(row, row::numbers(row)?)?);
            }
        }
        transaction.finish()
    }

    /// The rows of all traces whose id has this lower half.
    fn rows_of(&self, trace_low: u64) -> rusqlite::Result<Vec<i64>> {
        let mut rows = Vec::new();
        for segment in self.segments_with(trace_low) {
            let columns = self.columns(segment.id)?;
            rows.extend(rows_of(&columns, trace_low).map(|row| row + segment.first));
        }
        let tail = (self.tail_first..).zip(&self.tail);
        rows.extend(tail.filter(|(_, entry)| entry.trace_low == trace_low).map(|(row, _)| row));
        Ok(rows)
    }

    /// The segments that may hold traces whose id has this lower half.
    fn segments_with(&self, trace_low: u64) -> impl Iterator<Item = &Described> {
        let key = trace_key(trace_low);
        let start = self.keys.partition_point(|(known, _)| *known < key);
        let found = self.keys[start..].iter().take_while(move |(known, _)| *known == key);
        found.filter_map(|(_, position)| self.segments.get(*position as usize))
    }

    fn has_term(&self, segment: i64, term: u32) -> rusqlite::Result<bool> {
        let mut statement = self.connection.prepare_cached("SELECT data FROM terms WHERE id = ?1")?;
        statement.query_row([segment], |row| Ok(contains(row.get_ref(0)?.as_blob()?, term)))
    }

    fn columns(&self, segment: i64) -> rusqlite::Result<Arc<Vec<u8>>> {
        let mut recent = self.recent.borrow_mut();
        if let Some((_, columns)) = recent.iter().find(|(known, _)| *known == segment) {
            return Ok(Arc::clone(columns));
        }
        let mut statement = self.connection.prepare_cached("SELECT data FROM columns WHERE id = ?1")?;
        let columns: Arc<Vec<u8>> = Arc::new(statement.query_row([segment], |row| row.get(0))?);
        recent.truncate(RECENT - 1);
        recent.push_front((segment, Arc::clone(&columns)));
        Ok(columns)
    }

    fn span(&self, row: i64) -> rusqlite::Result<Option<ReportedSpan>> {
        let mut statement = self.connection.prepare_cached(BY_ROW)?;
        let mut rows = statement.query([row])?;
        let found = rows.next()?;
        found.map(|found| row::read(found, self.rows())).transpose()
    }

    fn rows(&self) -> RowReader<'_> {
        RowReader { connection: &self.connection, names: &self.names, opener: &self.opener }
    }

    /// Whether a row is what a scan looks for.
    fn check_row(&self, scan: &Numbered<'_>, row: i64, entry: &Entry) -> rusqlite::Result<bool> {
        match scan.scan.part {
            // Mostly it is only the tags that have to be looked at.
            Part::Term(key, value) if entry.numbers.service != UNNUMBERED => {
                let sql = "SELECT flags, data FROM spans WHERE id = ?1";
                let mut statement = self.connection.prepare_cached(sql)?;
                let mut rows = statement.query([row])?;
                let Some(found) = rows.next()? else { return Ok(false) };
                row::has_term(found, self.rows(), row, key, value)
            }
            _ => Ok(self.span(row)?.is_some_and(|span| scan.scan.holds(&span))),
        }
    }

    /// The entries that a scan looks for, the latest first.
    fn matching(
        &self,
        scan: &Numbered<'_>,
        first: i64,
        entries: impl Iterator<Item = (usize, Entry)>,
    ) -> rusqlite::Result<Vec<Found>> {
        let mut found = Vec::new();
        for (index, entry) in entries {
            let fits = match scan.test(&entry) {
                Answer::No => false,
                Answer::Yes => true,
                Answer::Ask => self.check_row(scan, first + index as i64, &entry)?,
            };
            if fits {
                found.push((if entry.start_us == 0 { TIMELESS } else { entry.start_us }, entry.trace_low));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }
}

/// All columns of one row, in the order of [`row::COLUMNS`].
const BY_ROW: &str = "SELECT id, trace_high, trace_low, span, parent, flags, service, remote, name, start_us, \
     duration_us, data FROM spans WHERE id = ?1";

fn latest(segment: &Described) -> u64 {
    if segment.min_us == 0 { TIMELESS } else { segment.max_us }
}

fn entry_of(row: &Row<'_>, numbers: Numbers) -> rusqlite::Result<Entry> {
    let number = |column: usize| -> rusqlite::Result<u64> {
        Ok(row.get::<_, Option<i64>>(column)?.unwrap_or_default().cast_unsigned())
    };
    Ok(Entry {
        start_us: number(9)?,
        trace_low: number(2)?,
        duration_us: segment::short(number(10)?),
        numbers,
    })
}

/// Warns of a slice that cannot be read.
pub(super) fn name_unreadable(error: &StoreError) {
    tracing::warn!(%error, cause = %error.source, "a slice is left out; `faultscope store check` lists all of them");
}

/// Whether an error says that a slice was removed while it was looked at.
pub(super) fn is_gone(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::NotFound || !error.path.exists()
}
