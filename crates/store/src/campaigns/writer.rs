//! The one writer of a campaign: a thread that takes batches from the queue and commits each as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultscope_model::{TraceId, TrialId};
use rusqlite::{Connection, Statement};

use super::call_row;
use super::queue::{Entry, Queue};
use crate::error::StoreError;
use crate::numbered_names::Names;
use crate::secrets::{Redactor, Sealer};

/// The most bytes one log may have; its end is kept.
const MOST_LOG: usize = 256 << 10;

/// The most bytes all logs of a campaign may have; later ones are left out.
const MOST_LOGS: u64 = 64 << 20;

/// Writes until the queue is closed and empty.
pub(crate) fn run(
    connection: &Connection,
    path: &Path,
    queue: &Arc<Queue>,
    redactor: &Redactor,
    mut sealer: Sealer,
) {
    let mut failure = None;
    let mut batch = Vec::new();
    let mut state = State::new(connection, path.to_owned());
    let mut statements = None;
    while queue.take(&mut batch) {
        let spans = batch.iter().filter(|entry| matches!(entry, Entry::Span(..))).count();
        let sealed = hide(&mut batch, redactor, &mut sealer);
        let written = match &mut state {
            Ok(state) => state.commit(connection, &mut statements, &batch, &sealed),
            Err(error) => Err(error.again()),
        };
        if let Err(error) = written {
            tracing::warn!(%error, cause = %error.source, spans, "spans could not be stored");
            queue.lose(spans as u64);
            failure.get_or_insert(error);
            // Names of the batch are gone with it, so what is known must be read again.
            statements = None;
            state = State::new(connection, path.to_owned());
        }
        for entry in batch.drain(..) {
            if let Entry::Flush(answer) = entry {
                // Whoever waited may have gone, which is their business.
                let _ = answer.send(failure.take().map_or(Ok(()), Err));
            }
        }
    }
}

/// Takes secrets out of everything that is about to be written; gives the sealed ones of each call and of
/// each reported span, in their order.
fn hide(batch: &mut [Entry], redactor: &Redactor, sealer: &mut Sealer) -> Sealed {
    let mut sealed = Sealed::default();
    let calls = batch.iter_mut().filter_map(|entry| match entry {
        Entry::Span(_, _, span) => Some(span),
        _ => None,
    });
    let taken = redactor.take(&mut calls.collect::<Vec<_>>());
    sealed.calls.extend(taken.iter().map(|originals| sealer.seal(originals)));
    for entry in batch {
        match entry {
            Entry::Reported { spans, .. } => {
                for span in spans {
                    let originals = redactor.take_reported(span).map(|(redacted, originals)| {
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
            Entry::Span(..) | Entry::Flush(_) => {}
        }
    }
    sealed
}

/// Sealed secrets; none where there are none, or where they are forgotten.
#[derive(Default)]
struct Sealed {
    calls: Vec<Option<Vec<u8>>>,
    reported: Vec<Option<Vec<u8>>>,
}

/// What the writer knows of the database.
struct State {
    path: PathBuf,
    names: Names,
    next_row: i64,
    log_bytes: u64,
}

struct Statements<'c> {
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

impl State {
    fn new(connection: &Connection, path: PathBuf) -> Result<Self, StoreError> {
        let load = || -> rusqlite::Result<(Names, i64, i64)> {
            let last =
                connection.query_row("SELECT coalesce(max(id), 0) FROM spans", [], |row| row.get(0))?;
            let logs =
                connection
                    .query_row("SELECT coalesce(sum(length(text)), 0) FROM logs", [], |row| row.get(0))?;
            Ok((Names::load(connection)?, last, logs))
        };
        let (names, last, logs) = load().map_err(StoreError::sqlite("read", &path))?;
        Ok(Self { path, names, next_row: last + 1, log_bytes: logs.cast_unsigned() })
    }

    /// Writes a batch in one transaction; on an error nothing of it is kept.
    fn commit<'c>(
        &mut self,
        connection: &'c Connection,
        statements: &mut Option<Statements<'c>>,
        batch: &[Entry],
        sealed: &Sealed,
    ) -> Result<(), StoreError> {
        if batch.iter().all(|entry| matches!(entry, Entry::Flush(_))) {
            return Ok(());
        }
        let statements = match statements {
            Some(statements) => statements,
            None => statements
                .insert(Statements::new(connection).map_err(StoreError::sqlite("write", &self.path))?),
        };
        self.write(statements, batch, sealed).map_err(|error| {
            // A full disk may have rolled back by itself already.
            let _ = connection.execute_batch("ROLLBACK");
            StoreError::sqlite("write", &self.path)(error)
        })
    }

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
                    let Statements { span: insert, name, .. } = statements;
                    call_row::write_span(insert, name, &mut self.names, row, (*trial, *slot), span)?;
                    if let Some(Some(sealed)) = calls.next() {
                        statements.secret.execute((row, sealed))?;
                    }
                    self.next_row += 1;
                    let position = segments.iter().position(|segment| segment.trial == *trial);
                    let position = position.unwrap_or_else(|| {
                        segments.push(Segment { trial: *trial, first: row, last: row, traces: Vec::new() });
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
                        let place = (trial.0.cast_signed(), slot.0, &instance);
                        let ids = (high.cast_signed(), low.cast_signed());
                        statements
                            .reported
                            .execute((place.0, place.1, place.2, ids.0, ids.1, json, sealed))?;
                    }
                }
                Entry::Run { trial, id, outcome, started_us, duration_us, json } => {
                    let (started, duration) = (started_us.cast_signed(), duration_us.cast_signed());
                    let trial = trial.0.cast_signed();
                    statements.run.execute((id.as_str(), trial, outcome, started, duration, json))?;
                }
                Entry::Log { trial, instance, text } => {
                    let text = tail(text, MOST_LOG);
                    if self.log_bytes + text.len() as u64 <= MOST_LOGS {
                        self.log_bytes += text.len() as u64;
                        statements.log.execute((trial.0.cast_signed(), instance, text))?;
                    }
                }
                Entry::Flush(_) => {}
            }
        }
        for mut segment in segments {
            let Segment { trial, first, last, .. } = segment;
            statements.segment.execute((trial.0.cast_signed(), first, last, segment.trace_bytes()))?;
        }
        statements.commit.execute([])?;
        Ok(())
    }
}

/// The rows of one trial in a batch; other trials may have rows between them.
struct Segment {
    trial: TrialId,
    first: i64,
    last: i64,
    traces: Vec<u32>,
}

impl Segment {
    fn add(&mut self, row: i64, trace: TraceId) {
        self.last = row;
        let key = trace_key(trace);
        // Spans of a trace come close together, so most repetitions end here.
        if self.traces.last() != Some(&key) {
            self.traces.push(key);
        }
    }

    fn trace_bytes(&mut self) -> Vec<u8> {
        self.traces.sort_unstable();
        self.traces.dedup();
        self.traces.iter().flat_map(|key| key.to_le_bytes()).collect()
    }
}

/// The part of a trace id that segments remember; rows are compared in full.
pub(crate) fn trace_key(trace: TraceId) -> u32 {
    trace.0 as u32
}

/// The end of a text, not cutting a character.
fn tail(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use crate::campaigns::schema::open_writer;
    use super::*;
    use crate::error::StoreErrorKind;

    /// A disk that is full for the first batch and has room again for the second.
    #[test]
    fn a_full_disk_loses_a_batch_and_not_the_campaign() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.sqlite");
        let connection = open_writer(&path).unwrap();
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let write = |text: &str| {
            let queue = Arc::new(Queue::new(10, 1000));
            let log =
                |text: &str| Entry::Log { trial: TrialId(1), instance: "a-1".into(), text: text.to_owned() };
            let (sender, receiver) = oneshot::channel();
            queue.push(log(text));
            queue.push(Entry::Flush(sender));
            queue.close();
            let sealer = Sealer::new(&crate::secrets::SecretOptions::default()).unwrap();
            run(&connection, &path, &queue, &Redactor::default(), sealer);
            receiver.blocking_recv().unwrap().map_err(|error| error.kind)
        };
        connection.pragma_update(None, "max_page_count", pages).unwrap();
        assert_eq!(write(&"x".repeat(100_000)), Err(StoreErrorKind::DiskFull));
        connection.pragma_update(None, "max_page_count", pages + 1000).unwrap();
        assert_eq!(write("y"), Ok(()));
        let logs: i64 = connection.query_row("SELECT count(*) FROM logs", [], |row| row.get(0)).unwrap();
        assert_eq!(logs, 1);
    }

    #[test]
    fn the_end_of_a_log_is_kept() {
        assert_eq!(tail("abc", 5), "abc");
        assert_eq!(tail("abcdef", 2), "ef");
        assert_eq!(tail("aé", 1), "");
    }
}
