//! Writes a campaign: the entries of its queue, and the one connection that commits them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use faultscope_model::span::Span;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{InstanceId, RunId, SlotId, TraceId, TrialId};
use rusqlite::{Connection, Statement};

use super::call_row::{self, CallWriter, payload_size};
use crate::error::StoreError;
use crate::numbered_names::Names;
use crate::sealed::{AtRest, Cell, CellOpener, CellSealer, Column, ReadKey};
use crate::secrets::{Redactor, Sealer};
use crate::writer::{Bounds, Commit, Weight};

/// How long spans are collected: nobody waits for them, and larger batches cost less per span.
const GATHER: Duration = Duration::from_millis(20);

/// The number of spans that make a batch; beyond it the cost per span no longer drops.
const ENOUGH: usize = 1000;

/// The most bytes one log may have; its end is kept.
pub(super) const MAX_LOG: usize = 256 << 10;

/// The most bytes of all logs of a campaign; later ones are left out.
const MAX_LOGS: u64 = 64 << 20;

/// The limits of the queue in front of the writer.
pub(super) fn bounds(items: usize, bytes: usize) -> Bounds {
    Bounds { items, bytes, gather: GATHER, enough: ENOUGH }
}

/// An entry of the queue.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all entries are spans: a box would only cost an allocation"
)]
pub(super) enum Entry {
    /// A span of a trial in a slot.
    Span(TrialId, SlotId, Span),
    /// Spans that an instance reported.
    Reported { trial: TrialId, slot: SlotId, instance: Option<InstanceId>, spans: Vec<ReportedSpan> },
    /// A run's record.
    Run { trial: TrialId, id: RunId, outcome: String, started_us: u64, duration_us: u64, json: String },
    /// Everything of a trial so far goes: its attempt was spoiled, and the next one has the same name.
    Forget(TrialId),
    /// What an instance printed; the head is ours, the text is not.
    Log { trial: TrialId, instance: String, head: String, text: String },
}

/// The weight of a call in the queue.
pub(super) fn weigh_call(span: &Span) -> Weight {
    Weight { items: 1, bytes: span.path.len() + span.payload.as_deref().map_or(0, payload_size) }
}

/// The weight of reported spans in the queue.
pub(super) fn weigh_reports(spans: &[ReportedSpan]) -> Weight {
    let text = |span: &ReportedSpan| -> usize {
        let tags = span.tags.iter().map(|(key, value)| key.len() + value.len());
        200 + tags.sum::<usize>() + span.annotations.iter().map(|(_, text)| text.len()).sum::<usize>()
    };
    Weight { items: spans.len(), bytes: spans.iter().map(text).sum() }
}

/// Commits entries to a campaign's database.
pub(super) struct CampaignWriter<'c> {
    connection: &'c Connection,
    path: PathBuf,
    redactor: Redactor,
    sealer: Sealer,
    at_rest: AtRest,
    /// None at first and after a lost batch: names written in it are gone, so the database is read again.
    known: Option<(DatabaseState, Statements<'c>)>,
}

impl<'c> CampaignWriter<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        path: &Path,
        redactor: Redactor,
        sealer: Sealer,
        at_rest: AtRest,
    ) -> Self {
        Self { connection, path: path.to_owned(), redactor, sealer, at_rest, known: None }
    }
}

impl Commit for CampaignWriter<'_> {
    type Entry = Entry;

    fn commit(&mut self, entries: &mut [Entry]) -> Result<(), StoreError> {
        let sealed = hide(entries, &self.redactor, &mut self.sealer);
        let (known, statements) = match &mut self.known {
            Some(known) => known,
            None => {
                let load = || {
                    let state = DatabaseState::load(self.connection, &self.at_rest)?;
                    Ok((state, Statements::new(self.connection)?))
                };
                self.known.insert(load().map_err(StoreError::sqlite("read", &self.path))?)
            }
        };
        known.write(statements, entries, &sealed).map_err(|error| {
            self.known = None;
            // On a full disk SQLite may have rolled back already.
            let _ = self.connection.execute_batch("ROLLBACK");
            StoreError::sqlite("write", &self.path)(error)
        })
    }

    fn recover(&mut self) {
        self.known = None;
        let _ = self.connection.execute_batch("ROLLBACK");
    }
}

/// Redacts everything that is about to be written; returns the sealed secrets of each call and of each
/// reported span, in order.
fn hide(batch: &mut [Entry], redactor: &Redactor, sealer: &mut Sealer) -> Sealed {
    let mut sealed = Sealed::default();
    let calls = batch.iter_mut().filter_map(|entry| match entry {
        Entry::Span(_, _, span) => Some(span),
        _ => None,
    });
    let taken = redactor.redact_calls(&mut calls.collect::<Vec<_>>());
    sealed.calls.extend(taken.iter().map(|originals| sealer.seal(originals)));
    for entry in batch {
        match entry {
            Entry::Reported { spans, .. } => {
                for span in spans {
                    let originals = redactor.redact_reported(span).map(|(redacted, originals)| {
                        *span = redacted;
                        originals
                    });
                    sealed.reported.push(originals.and_then(|originals| sealer.seal(&originals)));
                }
            }
            Entry::Run { json, .. } => {
                if let Some(redacted) = redactor.json_text(json) {
                    *json = redacted;
                }
            }
            Entry::Log { text, .. } => redactor.redact(text),
            Entry::Span(..) | Entry::Forget(_) => {}
        }
    }
    sealed
}

/// Sealed secrets; none where nothing was redacted, or where secrets are discarded.
#[derive(Default)]
struct Sealed {
    calls: Vec<Option<Vec<u8>>>,
    reported: Vec<Option<Vec<u8>>>,
}

/// The writer's copy of what the database contains.
struct DatabaseState {
    /// It begins an epoch of its own, since the state is made again after a failed transaction.
    calls: CallWriter,
    next_row: i64,
    log_bytes: u64,
}

struct Statements<'c> {
    connection: &'c Connection,
    span: Statement<'c>,
    name: Statement<'c>,
    segment: Statement<'c>,
    run: Statement<'c>,
    log: Statement<'c>,
    secret: Statement<'c>,
    reported: Statement<'c>,
    begin: Statement<'c>,
    commit: Statement<'c>,
}

impl<'c> Statements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            span: connection.prepare(call_row::INSERT)?,
            name: connection.prepare("INSERT INTO names VALUES (?1, ?2)")?,
            segment: connection.prepare("INSERT INTO segments VALUES (?1, ?2, ?3, ?4)")?,
            run: connection.prepare("INSERT OR REPLACE INTO runs VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?,
            log: connection.prepare("INSERT INTO logs VALUES (?1, ?2, ?3)")?,
            secret: connection.prepare("INSERT INTO secrets VALUES (?1, ?2)")?,
            reported: connection.prepare("INSERT INTO reported VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7)")?,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
        })
    }
}

impl DatabaseState {
    fn load(connection: &Connection, at_rest: &AtRest) -> rusqlite::Result<Self> {
        // Names of campaigns are never values, so no key is needed for them.
        let names = Names::load(connection, &CellOpener::new(ReadKey::default()))?;
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(Self {
            calls: CallWriter::new(names, CellSealer::new(at_rest)),
            next_row: one("SELECT coalesce(max(id), 0) FROM spans")? + 1,
            log_bytes: count_log_bytes(connection)?,
        })
    }

    /// Writes a batch in one transaction.
    fn write(
        &mut self,
        statements: &mut Statements<'_>,
        batch: &[Entry],
        sealed: &Sealed,
    ) -> rusqlite::Result<()> {
        let (mut calls, mut reports) = (sealed.calls.iter(), sealed.reported.iter());
        // Rows of each trial; a batch touches as many trials as there are slots.
        let mut segments: Vec<Segment> = Vec::new();
        statements.begin.execute([])?;
        for entry in batch {
            match entry {
                Entry::Span(trial, slot, span) => {
                    let row = self.next_row;
                    let Statements { connection, span: insert, name, .. } = statements;
                    let place = (*trial, *slot);
                    call_row::write_span(connection, insert, name, &mut self.calls, row, place, span)?;
                    if let Some(Some(sealed)) = calls.next() {
                        statements.secret.execute((row, sealed))?;
                    }
                    self.next_row += 1;
                    let position = segments.iter().position(|segment| segment.trial == *trial);
                    let position = position.unwrap_or_else(|| {
                        segments.push(Segment::new(*trial, row));
                        segments.len() - 1
                    });
                    segments[position].add(row, span.trace);
                }
                Entry::Reported { trial, slot, instance, spans } => {
                    let instance = instance.as_ref().map(ToString::to_string);
                    for span in spans {
                        let json = serde_json::to_string(span).unwrap_or_default();
                        let (high, low) = (((span.trace.0 >> 64) as u64), span.trace.0 as u64);
                        let sealed = reports.next().and_then(Option::as_ref);
                        let place = (trial.key().cast_signed(), slot.0, &instance);
                        let ids = (high.cast_signed(), low.cast_signed());
                        let cell = trial_cell(Column::Report, *trial);
                        let json = self.calls.cells.seal_text(statements.connection, cell, &json)?;
                        statements
                            .reported
                            .execute((place.0, place.1, place.2, ids.0, ids.1, json, sealed))?;
                    }
                }
                Entry::Run { trial, id, outcome, started_us, duration_us, json } => {
                    let (started, duration) = (started_us.cast_signed(), duration_us.cast_signed());
                    let cell = trial_cell(Column::Run, *trial);
                    let json = self.calls.cells.seal_text(statements.connection, cell, json)?;
                    let trial = trial.key().cast_signed();
                    statements.run.execute((id.as_str(), trial, outcome, started, duration, json))?;
                }
                Entry::Forget(trial) => {
                    let fresh = segments.extract_if(.., |segment| segment.trial == *trial);
                    let fresh: Vec<_> = fresh.map(|segment| (segment.first, segment.last)).collect();
                    forget(statements.connection, *trial, fresh)?;
                    self.log_bytes = count_log_bytes(statements.connection)?;
                }
                Entry::Log { trial, instance, head, text } => {
                    let text = format!("{head}\n{}", tail(text, MAX_LOG));
                    if self.log_bytes + text.len() as u64 <= MAX_LOGS {
                        self.log_bytes += text.len() as u64;
                        let cell = trial_cell(Column::Log, *trial);
                        let text = self.calls.cells.seal_text(statements.connection, cell, &text)?;
                        statements.log.execute((trial.key().cast_signed(), instance, text))?;
                    }
                }
            }
        }
        for mut segment in segments {
            let Segment { trial, first, last, .. } = segment;
            statements.segment.execute((trial.key().cast_signed(), first, last, segment.trace_bytes()))?;
        }
        statements.commit.execute([])?;
        Ok(())
    }
}

/// The place of a text of a trial.
pub(super) fn trial_cell(column: Column, trial: TrialId) -> Cell {
    Cell { column, row: trial.key().cast_signed() }
}

/// Removes the calls, reports and logs of a trial, `fresh` being the rows that no stored segment knows yet.
fn forget(connection: &Connection, trial: TrialId, fresh: Vec<(i64, i64)>) -> rusqlite::Result<()> {
    let trial = trial.key().cast_signed();
    let mut ranges = fresh;
    {
        let mut stored = connection.prepare_cached("SELECT first, last FROM segments WHERE trial = ?1")?;
        let stored = stored.query_map([trial], |row| Ok((row.get(0)?, row.get(1)?)))?;
        ranges.extend(stored.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    for (first, last) in ranges {
        for sql in [
            "DELETE FROM secrets WHERE span BETWEEN ?1 AND ?2 AND span IN \
             (SELECT id FROM spans WHERE id BETWEEN ?1 AND ?2 AND trial = ?3)",
            "DELETE FROM spans WHERE id BETWEEN ?1 AND ?2 AND trial = ?3",
        ] {
            connection.prepare_cached(sql)?.execute((first, last, trial))?;
        }
    }
    for table in ["segments", "reported", "logs"] {
        connection.prepare_cached(&format!("DELETE FROM {table} WHERE trial = ?1"))?.execute([trial])?;
    }
    Ok(())
}

fn count_log_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(sum(length(CAST(text AS BLOB))), 0) FROM logs";
    connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// The rows of one trial in a batch; other trials may have rows between them.
pub(super) struct Segment {
    pub(super) trial: TrialId,
    pub(super) first: i64,
    pub(super) last: i64,
    traces: Vec<u32>,
}

impl Segment {
    pub(super) fn new(trial: TrialId, row: i64) -> Self {
        Self { trial, first: row, last: row, traces: Vec::new() }
    }

    pub(super) fn add(&mut self, row: i64, trace: TraceId) {
        self.last = row;
        let key = trace_key(trace);
        // Spans of a trace arrive close together, so most repetitions are caught here.
        if self.traces.last() != Some(&key) {
            self.traces.push(key);
        }
    }

    pub(super) fn trace_bytes(&mut self) -> Vec<u8> {
        self.traces.sort_unstable();
        self.traces.dedup();
        self.traces.iter().flat_map(|key| key.to_le_bytes()).collect()
    }
}

/// The part of a trace id that segments store; readers compare whole ids.
pub(crate) fn trace_key(trace: TraceId) -> u32 {
    trace.0 as u32
}

/// The end of a text, cut at a character boundary.
fn tail(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaigns::schema::open_writer;
    use crate::error::StoreErrorKind;
    use crate::writer::{Queue, write_batches};

    fn log_entry(text: String) -> Entry {
        Entry::Log { trial: TrialId::chosen(1), instance: "a-1".into(), head: String::new(), text }
    }

    /// A disk that is full for the first batch and has room again for the second.
    #[test]
    fn a_full_disk_loses_a_batch_and_not_the_campaign() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sqlite");
        let connection = open_writer(&path, &ReadKey::default()).unwrap();
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let write = |text: &str| {
            let queue = Queue::new(folder.path(), bounds(10, 1000));
            queue.push(log_entry(text.to_owned())).unwrap();
            let ack = queue.flush().unwrap();
            queue.close();
            let sealer = Sealer::new(&crate::secrets::SecretOptions::default()).unwrap();
            let redactor = Redactor::default();
            write_batches(&queue, CampaignWriter::new(&connection, &path, redactor, sealer, AtRest::Plain));
            ack.committed_blocking().map_err(|error| error.kind)
        };
        connection.pragma_update(None, "max_page_count", pages).unwrap();
        assert_eq!(write(&"x".repeat(100_000)), Err(StoreErrorKind::DiskFull));
        connection.pragma_update(None, "max_page_count", pages + 1000).unwrap();
        assert_eq!(write("y"), Ok(()));
        let logs: i64 = connection.query_row("SELECT count(*) FROM logs", [], |row| row.get(0)).unwrap();
        assert_eq!(logs, 1);
    }

    /// As above, with one writer that goes on and assigns row numbers and names again.
    #[test]
    fn a_writer_goes_on_after_a_lost_batch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sqlite");
        let connection = open_writer(&path, &ReadKey::default()).unwrap();
        let sealer = Sealer::new(&crate::secrets::SecretOptions::default()).unwrap();
        let mut writer = CampaignWriter::new(&connection, &path, Redactor::default(), sealer, AtRest::Plain);
        let log = |text: String| [log_entry(text)];
        writer.commit(&mut log("x".to_owned())).unwrap();
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        connection.pragma_update(None, "max_page_count", pages).unwrap();
        let full = writer.commit(&mut log("y".repeat(100_000))).unwrap_err();
        assert_eq!(full.kind, StoreErrorKind::DiskFull);
        connection.pragma_update(None, "max_page_count", pages + 1000).unwrap();
        writer.commit(&mut log("z".to_owned())).unwrap();
        let logs: i64 = connection.query_row("SELECT count(*) FROM logs", [], |row| row.get(0)).unwrap();
        assert_eq!(logs, 2);
    }

    #[test]
    fn the_end_of_a_log_is_kept() {
        assert_eq!(tail("abc", 5), "abc");
        assert_eq!(tail("abcdef", 2), "ef");
        assert_eq!(tail("aé", 1), "");
    }
}
