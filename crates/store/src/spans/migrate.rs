//! Migrations of slices. Format 2 redacts what format 1 wrote in clear.

use std::path::Path;

use rusqlite::Connection;

use super::intern::NameList;
use super::row;
use super::schema::TABLES_2;
use crate::error::StoreError;
use crate::secrets::{Redactor, Sealer};
use crate::sqlite::damaged_row;

/// Migrates a slice from format 1 to 2.
pub(super) fn slice_to_2(
    connection: &Connection,
    path: &Path,
    sealer: &mut Sealer,
) -> Result<(), StoreError> {
    let failed = || StoreError::sqlite("migrate", path);
    connection.execute_batch(TABLES_2).map_err(failed())?;
    let redactor = Redactor::default();
    let mut names = NameList::default();
    names.refresh(connection).map_err(failed())?;
    let mut last = 0;
    // A few rows at a time, since a slice may be large.
    loop {
        let sql = format!("SELECT {} FROM spans WHERE id > ?1 ORDER BY id LIMIT 1000", row::COLUMNS);
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([last], |found| {
                Ok((found.get(0)?, row::read(found, &names).map_err(damaged_row)?))
            })?;
            rows.collect()
        };
        let rows: Vec<(i64, _)> = read().map_err(failed())?;
        let Some((id, _)) = rows.last() else { return Ok(()) };
        last = *id;
        for (id, span) in rows {
            let Some((redacted, originals)) = redactor.redact_reported(&span) else { continue };
            let sealed = sealer.try_seal(&originals)?;
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
