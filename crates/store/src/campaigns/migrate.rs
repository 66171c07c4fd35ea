//! Migrations between formats. Format 2 redacts what format 1 wrote in clear, and keeps the secrets sealed.
//! Format 3 has types where format 2 had sentences. In format 4 runs name what they were given. Format 5 seals all
//! values.

use std::path::Path;

use faultscope_model::SpanId;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::Value as Json;

use super::call_row::{self, COLUMNS, CallReader, read_span};
use super::facts::{facts_to_format_3, facts_to_format_4};
use super::schema::{TABLES_2, TABLES_5};
use crate::FORMAT;
use crate::error::StoreError;
use crate::format::{DatabaseStep, FileStep, Migration};
use crate::numbered_names::NameTable;
use crate::sealed::{Cell, CellOpener, Column, ReadKey, SEALS_TABLE};
use crate::secrets::Redactor;

/// Migrations of `campaign.json`; the first one leads from version 1 to 2.
pub(crate) const CAMPAIGN_STEPS: &[FileStep] = &[|_| Ok(()), |_| Ok(()), |_| Ok(()), |_| Ok(())];

/// Migrations of `report.json`.
pub(crate) const REPORT_STEPS: &[FileStep] = &[
    |_| Ok(()),
    |report| {
        facts_to_format_3(report);
        Ok(())
    },
    |_| Ok(()),
    |_| Ok(()),
];

/// Migrations of `store.sqlite`.
pub(crate) const DATABASE_STEPS: &[DatabaseStep] =
    &[campaign_to_2, campaign_to_3, campaign_to_4, campaign_to_5];

const _: () = assert!(CAMPAIGN_STEPS.len() + 1 == FORMAT as usize, "every format needs its step");
const _: () = assert!(REPORT_STEPS.len() + 1 == FORMAT as usize, "every format needs its step");
const _: () = assert!(DATABASE_STEPS.len() + 1 == FORMAT as usize, "every format needs its step");

/// Migrates the database of a campaign from format 1 to 2.
pub(crate) fn campaign_to_2(
    connection: &Connection,
    path: &Path,
    migration: &mut Migration,
) -> Result<(), StoreError> {
    let failed = || StoreError::sqlite("migrate", path);
    connection.execute_batch(TABLES_2).map_err(failed())?;
    let redactor = Redactor::default();
    let names = NameTable::load(connection).map_err(failed())?;
    let opener = CellOpener::new(ReadKey::default());
    let mut last = 0;
    // A few rows at a time, since a campaign may be larger than memory.
    loop {
        let sql = format!("SELECT {COLUMNS}, id FROM spans WHERE id > ?1 ORDER BY id LIMIT 1000");
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([last], |row| {
                let span = read_span(row, CallReader { connection, names: &names, opener: &opener })?;
                Ok((row.get::<_, i64>(26)?, span))
            })?;
            rows.collect()
        };
        let mut rows = read().map_err(failed())?;
        let Some((id, _)) = rows.last() else { break };
        last = *id;
        let mut spans: Vec<_> = rows.iter_mut().map(|(_, span)| span).collect();
        let originals = redactor.redact_calls(&mut spans);
        for ((id, span), originals) in rows.iter().zip(originals) {
            if originals.is_empty() {
                continue;
            }
            let sealed = migration.originals.try_seal(&originals)?;
            let payload = span.payload.as_deref().map(call_row::payload_to_bytes);
            let update = || -> rusqlite::Result<()> {
                let sql = "UPDATE spans SET path = ?2, payload = ?3 WHERE id = ?1";
                connection.prepare_cached(sql)?.execute((id, &span.path, payload))?;
                connection.prepare_cached("INSERT INTO secrets VALUES (?1, ?2)")?.execute((id, sealed))?;
                Ok(())
            };
            update().map_err(failed())?;
        }
    }
    texts(connection, &redactor, "logs", "text").map_err(failed())?;
    texts(connection, &redactor, "runs", "json").map_err(failed())
}

/// Migrates the database of a campaign from format 2 to 3.
fn campaign_to_3(connection: &Connection, path: &Path, _: &mut Migration) -> Result<(), StoreError> {
    change_runs(connection, facts_to_format_3).map_err(StoreError::sqlite("migrate", path))
}

/// A campaign's database from format 3 to 4.
fn campaign_to_4(connection: &Connection, path: &Path, _: &mut Migration) -> Result<(), StoreError> {
    change_runs(connection, facts_to_format_4).map_err(StoreError::sqlite("migrate", path))
}

/// Migrates the database of a campaign from format 4 to 5.
pub(super) fn campaign_to_5(
    connection: &Connection,
    path: &Path,
    migration: &mut Migration,
) -> Result<(), StoreError> {
    seal_database(connection, migration).map_err(StoreError::sqlite("migrate", path))
}

fn seal_database(connection: &Connection, migration: &mut Migration) -> rusqlite::Result<()> {
    let tables = ["runs", "logs", "reported"];
    let rename = tables.map(|table| format!("ALTER TABLE {table} RENAME TO {table}_4;")).concat();
    // The index has the name of the new one.
    let drop_index = "DROP INDEX IF EXISTS reported_by_trace;";
    connection.execute_batch(&format!("{drop_index} {rename} {TABLES_5} {SEALS_TABLE}"))?;
    seal_calls(connection, migration)?;
    for (table, column, kind, index) in [
        ("runs", "id, trial, outcome, started_us, duration_us, json", Column::Run, 5),
        ("logs", "trial, instance, text", Column::Log, 2),
        ("reported", "id, trial, slot, instance, trace_high, trace_low, json, sealed", Column::Report, 6),
    ] {
        let n_columns = column.split(", ").count();
        let marks = vec!["?"; n_columns].join(", ");
        let mut insert = connection.prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
        let sql = format!("SELECT {column}, trial FROM {table}_4 ORDER BY rowid");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for place in 0..n_columns {
                if place != index {
                    insert.raw_bind_parameter(place + 1, row.get::<_, Value>(place)?)?;
                }
            }
            let text: String = row.get(index)?;
            let cell = Cell { column: kind, row: row.get(n_columns)? };
            insert.raw_bind_parameter(index + 1, migration.cells.seal_text(connection, cell, &text)?)?;
            insert.raw_execute()?;
        }
    }
    connection.execute_batch(&tables.map(|table| format!("DROP TABLE {table}_4;")).concat())
}

/// Seals the paths and payloads of calls.
fn seal_calls(connection: &Connection, migration: &mut Migration) -> rusqlite::Result<()> {
    let sql = "SELECT id, span, path, payload FROM spans WHERE id > ?1 ORDER BY id LIMIT 1000";
    let mut statement = connection.prepare(sql)?;
    let mut update = connection.prepare("UPDATE spans SET path = x'', payload = ?2 WHERE id = ?1")?;
    let mut last = 0;
    let mut plain = Vec::new();
    loop {
        let rows =
            statement.query_map([last], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let rows: Vec<(i64, i64, String, Option<Vec<u8>>)> = rows.collect::<rusqlite::Result<_>>()?;
        let Some((id, ..)) = rows.last() else { return Ok(()) };
        last = *id;
        for (id, span, path, payload) in rows {
            plain.clear();
            call_row::path_and_payload_into(&mut plain, &path, None);
            plain.extend(payload.unwrap_or_default());
            let cell = call_row::call_cell(SpanId(span.cast_unsigned()));
            update.execute((id, migration.cells.seal(connection, cell, &plain)?))?;
        }
    }
}

/// Changes the JSON of every run.
fn change_runs(connection: &Connection, change: fn(&mut Json)) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT rowid FROM runs")?;
    let rows = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut read = connection.prepare("SELECT json FROM runs WHERE rowid = ?1")?;
    let mut write = connection.prepare("UPDATE runs SET json = ?2 WHERE rowid = ?1")?;
    for row in rows {
        let json: String = read.query_row([row], |row| row.get(0))?;
        // A run that cannot be read is passed over by every reader, and stays as it is.
        let Ok(mut run) = serde_json::from_str(&json) else { continue };
        change(&mut run);
        write.execute((row, run.to_string()))?;
    }
    Ok(())
}

/// Redacts a column of texts; JSON stays JSON.
fn texts(connection: &Connection, redactor: &Redactor, table: &str, column: &str) -> rusqlite::Result<()> {
    let mut changed = Vec::new();
    let mut statement = connection.prepare(&format!("SELECT rowid, {column} FROM {table}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let text: String = row.get(1)?;
        let redacted = if column == "json" { redactor.json_text(&text) } else { redactor.text(&text) };
        changed.extend(redacted.map(|text| (row.get::<_, i64>(0), text)));
    }
    for (row, text) in changed {
        connection.execute(&format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1"), (row?, text))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::campaigns::schema::{DATABASE, REPLACED_BY_5, TABLES, open_reader};
    use crate::format::migrate_database;
    use crate::sqlite::{connect_writer, version};

    /// Names the folder to the process that is killed.
    const FOLDER: &str = "FAULTSCOPE_TEST_MIGRATION";
    const RUNS: i64 = 200;

    /// Not a test: what the killed process runs. Its last step never ends well.
    #[test]
    #[ignore = "run by another test as a process of its own"]
    fn child() {
        let folder = std::env::var_os(FOLDER).expect("another test starts this one and names a folder");
        let path = Path::new(&folder).join(DATABASE);
        let connection = connect_writer(&path).unwrap();
        // So that half of the work is on the disk already.
        connection.pragma_update(None, "cache_size", 1).unwrap();
        migrate_database(
            &connection,
            &path,
            &[campaign_to_2, campaign_to_3, |_, _, _| std::process::abort()],
            &ReadKey::default(),
        )
        .unwrap();
    }

    #[test]
    fn a_migration_that_was_killed_is_done_by_the_next_reader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(DATABASE);
        let old = connect_writer(&path).unwrap();
        old.execute_batch(&format!("{TABLES} {REPLACED_BY_5} {TABLES_2} PRAGMA user_version = 2;")).unwrap();
        for trial in 1..=RUNS {
            let outcome = serde_json::json!({ "kind": "unresolved", "reason": "x".repeat(2000) });
            let run = serde_json::json!({
                "trial": trial, "circumstance": { "nodes": 1 }, "outcome": outcome, "deltas": [trial],
            });
            let row = (format!("ab12.{trial}"), trial, run.to_string());
            old.execute("INSERT INTO runs VALUES (?1, ?2, 'unresolved', 0, 0, ?3)", row).unwrap();
        }
        drop(old);
        let test = concat!(module_path!(), "::child");
        let test = test.split_once("::").map_or(test, |(_, within)| within);
        let killed = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", test, "--test-threads", "1"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(killed.code(), None, "a signal ended it");
        let left = std::fs::metadata(path.with_extension("sqlite-wal")).unwrap().len();
        assert!(left > 100_000, "it was killed in the middle: {left} bytes are in the log");

        let key = ReadKey::default();
        let connection = open_reader(&path, &key).unwrap();
        assert_eq!(version(&connection, &path).unwrap(), u64::from(FORMAT));
        let opener = CellOpener::new(key);
        let mut runs = connection.prepare("SELECT trial, json FROM runs").unwrap();
        let runs = runs.query_map([], |row| {
            let cell = Cell { column: Column::Run, row: row.get(0)? };
            opener.open_text(&connection, cell, row.get_ref(1)?)
        });
        let runs: Vec<Json> =
            runs.unwrap().map(|json| serde_json::from_str(&json.unwrap()).unwrap()).collect();
        assert_eq!(runs.len() as i64, RUNS);
        for run in runs {
            assert_eq!(run["outcome"]["reason"]["kind"], "described");
            assert_eq!(run["treatment"]["kind"], "numbered");
        }
    }
}
