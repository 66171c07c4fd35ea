//! Migrations of slices. Format 2 redacts what format 1 wrote in clear. Format 3 seals all values.

use std::collections::HashSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::hash::Terms;
use super::intern::NameList;
use super::row::{self, RowReader};
use super::schema::{TABLES_2, TABLES_3};
use super::seen;
use super::segment::Builder;
use crate::error::StoreError;
use crate::format::Migration;
use crate::numbered_names::name_cell;
use crate::sealed::{CellOpener, ReadKey, SEALS_TABLE};
use crate::secrets::Redactor;
use crate::series_table::series_cell;
use crate::sqlite::damaged_row;

/// Rows that are read at a time, since a slice may be large.
const AT_ONCE: usize = 1000;

/// Migrates a slice from format 1 to 2.
pub(super) fn slice_to_2(
    connection: &Connection,
    path: &Path,
    migration: &mut Migration,
) -> Result<(), StoreError> {
    let failed = || StoreError::sqlite("migrate", path);
    connection.execute_batch(TABLES_2).map_err(failed())?;
    let redactor = Redactor::default();
    let opener = CellOpener::new(ReadKey::default());
    let mut names = NameList::default();
    names.refresh(connection, &opener).map_err(failed())?;
    let reader = RowReader { connection, names: &names, opener: &opener };
    let mut last = 0;
    loop {
        let sql = format!("SELECT {} FROM spans WHERE id > ?1 ORDER BY id LIMIT {AT_ONCE}", row::COLUMNS);
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([last], |found| Ok((found.get(0)?, row::read(found, reader)?)))?;
            rows.collect()
        };
        let rows: Vec<(i64, _)> = read().map_err(failed())?;
        let Some((id, _)) = rows.last() else { return Ok(()) };
        last = *id;
        for (id, span) in rows {
            let Some((redacted, originals)) = redactor.redact_reported(&span) else { continue };
            let sealed = migration.originals.try_seal(&originals)?;
            let update = || -> rusqlite::Result<()> {
                let data = row::plain_data(&redacted)?;
                let name = Some(redacted.name.as_str()).filter(|name| !name.is_empty());
                let sql = "UPDATE spans SET name = coalesce(?3, name), data = ?2 WHERE id = ?1";
                let name = name.filter(|name| **name != *span.name);
                connection.prepare_cached(sql)?.execute((id, data, name))?;
                connection.prepare_cached("INSERT INTO secrets VALUES (?1, ?2)")?.execute((id, sealed))?;
                // Frequent texts are also among the names, and those of chosen tags in their list.
                for original in &originals {
                    let text = String::from_utf8_lossy(&original.bytes);
                    let sql = "UPDATE names SET text = '[redacted]' WHERE text = ?1";
                    connection.prepare_cached(sql)?.execute([&text])?;
                    connection.prepare_cached("DELETE FROM seen WHERE text = ?1")?.execute([&text])?;
                }
                Ok(())
            };
            update().map_err(failed())?;
        }
    }
}

/// Migrates a slice from format 2 to 3.
pub(super) fn slice_to_3(
    connection: &Connection,
    path: &Path,
    migration: &mut Migration,
) -> Result<(), StoreError> {
    seal_slice(connection, migration).map_err(StoreError::sqlite("migrate", path))
}

fn seal_slice(connection: &Connection, migration: &mut Migration) -> rusqlite::Result<()> {
    let tables = ["names", "seen", "series"];
    let rename = tables.map(|table| format!("ALTER TABLE {table} RENAME TO {table}_2;")).concat();
    connection.execute_batch(&format!("{rename} {SEALS_TABLE} {TABLES_3}"))?;
    let terms = Terms::new(migration.at_rest.key());
    let id = migration.at_rest.key().map(|key| key.id().as_slice());
    connection.execute("INSERT INTO sealing VALUES (?1)", [id])?;
    // Terms are made of values, so they come before the values are sealed.
    rehash_terms(connection, &terms)?;
    seal_names(connection, migration)?;
    seal_data(connection, migration)?;
    seal_lists(connection, migration, &terms)?;
    connection.execute_batch(&tables.map(|table| format!("DROP TABLE {table}_2;")).concat())
}

/// Makes the terms of all segments again.
fn rehash_terms(connection: &Connection, terms: &Terms) -> rusqlite::Result<()> {
    let opener = CellOpener::new(ReadKey::default());
    let mut names = NameList::default();
    names.refresh_from(connection, &opener, "names_2")?;
    let reader = RowReader { connection, names: &names, opener: &opener };
    let mut segments = connection.prepare("SELECT id, first, last FROM segments ORDER BY id")?;
    let segments = segments.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let segments: Vec<(i64, i64, i64)> = segments.collect::<rusqlite::Result<_>>()?;
    let sql = format!("SELECT {} FROM spans WHERE id BETWEEN ?1 AND ?2 ORDER BY id", row::COLUMNS);
    let mut statement = connection.prepare(&sql)?;
    let mut update = connection.prepare("UPDATE terms SET data = ?2 WHERE id = ?1")?;
    for (id, first, last) in segments {
        let mut builder = Builder::default();
        let mut rows = statement.query((first, last))?;
        while let Some(found) = rows.next()? {
            builder.add(found.get(0)?, &row::read(found, reader)?, row::numbers(found)?, terms);
        }
        if let Some(segment) = builder.finish() {
            update.execute((id, segment.terms))?;
        }
    }
    Ok(())
}

/// Copies the names; those that are values only are sealed.
fn seal_names(connection: &Connection, migration: &mut Migration) -> rusqlite::Result<()> {
    let mut plain: HashSet<i64> = HashSet::new();
    let mut statement = connection.prepare("SELECT service, remote, name, data FROM spans")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for column in 0..3 {
            if let ValueRef::Integer(number) = row.get_ref(column)? {
                plain.insert(number);
            }
        }
        if let ValueRef::Blob(data) = row.get_ref(3)? {
            let keys = row::key_numbers(data, |number| {
                plain.insert(number.cast_signed());
            });
            keys.map_err(damaged_row)?;
        }
    }
    let mut insert = connection.prepare("INSERT INTO names VALUES (?1, ?2)")?;
    let mut statement = connection.prepare("SELECT id, text FROM names_2 ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (number, text): (i64, String) = (row.get(0)?, row.get(1)?);
        if plain.contains(&number) {
            insert.execute((number, text))?;
        } else {
            insert.execute((number, migration.cells.seal_text(connection, name_cell(number), &text)?))?;
        }
    }
    Ok(())
}

fn seal_data(connection: &Connection, migration: &mut Migration) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare(&format!("SELECT id, data FROM spans WHERE id > ?1 ORDER BY id LIMIT {AT_ONCE}"))?;
    let mut update = connection.prepare("UPDATE spans SET data = ?2 WHERE id = ?1")?;
    let mut last = 0;
    loop {
        let rows = statement.query_map([last], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(i64, Option<Vec<u8>>)> = rows.collect::<rusqlite::Result<_>>()?;
        let Some((id, _)) = rows.last() else { return Ok(()) };
        last = *id;
        for (id, data) in rows {
            if let Some(data) = data {
                update.execute((id, migration.cells.seal(connection, row::data_cell(id), &data)?))?;
            }
        }
    }
}

/// Copies what is offered for choice, and the series.
fn seal_lists(connection: &Connection, migration: &mut Migration, terms: &Terms) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT OR IGNORE INTO seen VALUES (?1, ?2, ?3, ?4)")?;
    let mut statement = connection.prepare("SELECT service, kind, text FROM seen_2")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (service, kind, text): (String, u8, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        match terms.suggestion(&service, &text).filter(|_| kind == seen::TAG) {
            Some(digest) => {
                let sealed = migration.cells.seal(connection, seen::SUGGESTION, text.as_bytes())?;
                insert.execute((service, kind, digest, sealed))?;
            }
            None => drop(insert.execute((service, kind, text, None::<&[u8]>))?),
        }
    }
    seal_series(connection, migration, "series_2")
}

/// Copies the table of series from another one.
pub(crate) fn seal_series(
    connection: &Connection,
    migration: &mut Migration,
    from: &str,
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT INTO series VALUES (?1, ?2, ?3, ?4)")?;
    let mut statement = connection.prepare(&format!("SELECT id, name, service, text FROM {from}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let text: String = row.get(3)?;
        let sealed = migration.cells.seal_text(connection, series_cell(number), &text)?;
        insert.execute((number, row.get::<_, String>(1)?, row.get::<_, String>(2)?, sealed))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use faultscope_model::metrics::{Point, TimeSeries};
    use faultscope_model::trace::{ReportedSpan, TraceQuery};
    use faultscope_model::{SpanId, TraceId};

    use super::*;
    use crate::format::UNVACUUMED;
    use crate::interop::query::matches;
    use crate::secrets::{KeyPlace, SecretOptions};
    use crate::spans::schema::tables_of_format_2;
    use crate::spans::{SpanReader, SpanStore, SpanStoreOptions};

    /// A store of format 2 with a slice of this many spans.
    fn store_of_format_2(state: &Path, key: &KeyPlace, n_spans: u64) -> Vec<ReportedSpan> {
        let secrets = SecretOptions { plain: true, key: Some(key.clone()), ..SecretOptions::default() };
        let options =
            SpanStoreOptions { secrets, tag_values: vec!["user".into()], ..SpanStoreOptions::default() };
        let store = SpanStore::open(state, options).unwrap();
        let span = |n: u64| {
            let mut span = ReportedSpan::new(TraceId(u128::from(n / 5 + 1)), SpanId(n + 1));
            span.local.service = Some("front".into());
            span.name = "get".into();
            span.start_us = Some(1_700_000_000_000_000 + n);
            span.tags.push(("user".into(), format!("QVALUE-{}", n % 7)));
            span.tags.push(("http.method".into(), "QVALUE-often".into()));
            span.annotations.push((1_700_000_000_000_000, format!("QVALUE-note-{n}")));
            span
        };
        let spans: Vec<_> = (0..n_spans).map(span).collect();
        store.put(spans.clone()).unwrap().committed_blocking().unwrap();
        let series = TimeSeries {
            name: "requests".into(),
            service: "front".into(),
            about: vec![("tenant".into(), "QVALUE-label".into())],
            ..TimeSeries::default()
        };
        let point = Point { series, at_us: 5, value: 1.0 };
        store.put_points(vec![point]).unwrap().committed_blocking().unwrap();
        drop(store);
        // The plain tables of today, copied into those of format 2.
        let path = state.join("spans/000001.sqlite");
        let old = path.with_extension("old");
        std::fs::rename(&path, &old).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(&tables_of_format_2()).unwrap();
        connection.execute("ATTACH ?1 AS today", [old.to_string_lossy()]).unwrap();
        for table in ["spans", "segments", "columns", "terms", "points", "names", "series", "secrets"] {
            connection.execute_batch(&format!("INSERT INTO {table} SELECT * FROM today.{table}")).unwrap();
        }
        connection.execute_batch("INSERT INTO seen SELECT service, kind, text FROM today.seen").unwrap();
        // What was deleted without care stays in free pages.
        connection
            .execute_batch(
                "CREATE TABLE gone (text TEXT); \
                 INSERT INTO gone SELECT 'QVALUE-deleted-' || hex(randomblob(400)) FROM spans; \
                 DELETE FROM gone; DROP TABLE gone; DETACH today;",
            )
            .unwrap();
        drop(connection);
        std::fs::remove_file(old).unwrap();
        spans
    }

    fn has_values(folder: &Path) -> bool {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
            if path.is_dir() {
                has_values(&path)
            } else {
                std::fs::read(path).unwrap().windows(7).any(|window| window == b"QVALUE-")
            }
        })
    }

    #[test]
    fn a_slice_of_format_2_is_sealed_and_still_searched() {
        let folder = tempfile::tempdir().unwrap();
        let (state, key) = (folder.path().join("state"), KeyPlace::at(folder.path().join("secrets.key")));
        let spans = store_of_format_2(&state, &key, 3000);
        assert!(has_values(&state));
        let reader = SpanReader::open(&state, true).with_key(key.clone());
        assert_eq!(reader.trace(TraceId(3)).unwrap(), spans[10..15]);
        let with_third = (0..600_u64).filter(|trace| (0..5).any(|n| (trace * 5 + n) % 7 == 3)).count();
        for (key, value, expected) in [
            ("user", Some("QVALUE-3"), with_third),
            ("QVALUE-note-77", None, 1),
            ("user", None, 600),
            ("user", Some("QVALUE-9"), 0),
        ] {
            let query = TraceQuery {
                end_us: u64::MAX >> 1,
                lookback_us: u64::MAX >> 1,
                limit: 5000,
                terms: vec![(key.to_owned(), value.map(str::to_owned))],
                ..TraceQuery::default()
            };
            assert_eq!(reader.search(&query, matches).unwrap().len(), expected, "{key} {value:?}");
        }
        assert_eq!(reader.tag_values("user").unwrap().len(), 7);
        assert_eq!(reader.series().unwrap()[0].series.about[0].1, "QVALUE-label");
        drop(reader);
        assert!(!has_values(&state), "nothing plain is left, not even in free pages");
    }

    /// A migration is one transaction and a rewrite of the file: whatever is left of it, the next reader ends it.
    #[test]
    fn an_interrupted_migration_is_ended_by_the_next_reader() {
        let folder = tempfile::tempdir().unwrap();
        let (state, key) = (folder.path().join("state"), KeyPlace::at(folder.path().join("secrets.key")));
        let spans = store_of_format_2(&state, &key, 500);
        let path = state.join("spans/000001.sqlite");
        let reading = ReadKey::new(Some(key.clone()));
        {
            // Killed between the transaction and the rewrite: the mark is there, the free pages too.
            let connection = crate::sqlite::connect_writer(&path).unwrap();
            connection.execute_batch("BEGIN").unwrap();
            seal_slice(&connection, &mut Migration::new(&reading).unwrap()).unwrap();
            let mark = format!("PRAGMA user_version = 3; PRAGMA application_id = {UNVACUUMED}; COMMIT");
            connection.execute_batch(&mark).unwrap();
        }
        assert!(has_values(&state), "deleted values are still there");
        let reader = SpanReader::open(&state, true).with_key(key);
        assert_eq!(reader.trace(TraceId(3)).unwrap(), spans[10..15]);
        drop(reader);
        assert!(!has_values(&state));
    }
}
