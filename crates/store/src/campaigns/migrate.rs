//! Migrations between formats. Format 2 redacts what format 1 wrote in clear, and keeps the secrets sealed.
//! Format 3 has types where format 2 had sentences.

use std::path::Path;

use rusqlite::Connection;

use super::call_row::{self, COLUMNS, read_span};
use super::facts::facts_to_format_3;
use super::schema::TABLES_2;
use crate::FORMAT;
use crate::error::StoreError;
use crate::format::{DatabaseStep, FileStep};
use crate::numbered_names::NameTable;
use crate::secrets::{Redactor, Sealer};
use crate::sqlite::damaged_row;

/// Migrations of `campaign.json`; the first one leads from version 1 to 2.
pub(crate) const CAMPAIGN_STEPS: &[FileStep] = &[|_| Ok(()), |_| Ok(())];

/// Migrations of `report.json`.
pub(crate) const REPORT_STEPS: &[FileStep] = &[
    |_| Ok(()),
    |report| {
        facts_to_format_3(report);
        Ok(())
    },
];

/// Migrations of `store.sqlite`.
pub(crate) const DATABASE_STEPS: &[DatabaseStep] = &[campaign_to_2, campaign_to_3];

const _: () = assert!(CAMPAIGN_STEPS.len() + 1 == FORMAT as usize, "every format needs its step");
const _: () = assert!(REPORT_STEPS.len() + 1 == FORMAT as usize, "every format needs its step");
const _: () = assert!(DATABASE_STEPS.len() + 1 == FORMAT as usize, "every format needs its step");

/// Migrates the database of a campaign from format 1 to 2.
pub(crate) fn campaign_to_2(
    connection: &Connection,
    path: &Path,
    sealer: &mut Sealer,
) -> Result<(), StoreError> {
    let failed = || StoreError::sqlite("migrate", path);
    connection.execute_batch(TABLES_2).map_err(failed())?;
    let redactor = Redactor::default();
    let names = NameTable::load(connection).map_err(failed())?;
    let mut last = 0;
    // A few rows at a time, since a campaign may be larger than memory.
    loop {
        let sql = format!("SELECT {COLUMNS}, id FROM spans WHERE id > ?1 ORDER BY id LIMIT 1000");
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([last], |row| {
                let span = read_span(row, &names).map_err(damaged_row)?;
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
            let sealed = sealer.try_seal(&originals)?;
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
fn campaign_to_3(connection: &Connection, path: &Path, _sealer: &mut Sealer) -> Result<(), StoreError> {
    let failed = || StoreError::sqlite("migrate", path);
    let read = || -> rusqlite::Result<Vec<(i64, String)>> {
        let mut statement = connection.prepare("SELECT rowid, json FROM runs")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    };
    for (row, json) in read().map_err(failed())? {
        // A run that cannot be parsed is skipped by every reader, and stays as it is.
        let Ok(mut run) = serde_json::from_str(&json) else { continue };
        facts_to_format_3(&mut run);
        let update = "UPDATE runs SET json = ?2 WHERE rowid = ?1";
        connection.execute(update, (row, run.to_string())).map_err(failed())?;
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
