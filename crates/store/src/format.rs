//! Format versions: newer ones are rejected, older ones are migrated step by step.

use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use crate::error::{StoreError, StoreErrorKind};
use crate::sealed::{AtRest, CellSealer, ReadKey};
use crate::secrets::{Sealer, SecretOptions};
use crate::sqlite::version;

/// Migrates a JSON file from one version to the next.
pub(crate) type FileStep = fn(&mut Value) -> Result<(), String>;

/// Migrates a database from one version to the next, within a transaction.
pub(crate) type DatabaseStep = fn(&Connection, &Path, &mut Migration) -> Result<(), StoreError>;

/// What steps seal with.
#[derive(Debug)]
pub(crate) struct Migration {
    /// Seals secrets that are redacted.
    pub(crate) originals: Sealer,
    /// What was written before payloads were sealed is sealed by its migration, whatever is recorded since.
    pub(crate) at_rest: AtRest,
    /// Seals the cells of this database.
    pub(crate) cells: CellSealer,
}

impl Migration {
    pub(crate) fn new(key: &ReadKey) -> Result<Self, StoreError> {
        let options: SecretOptions = key.to_options();
        let at_rest = AtRest::new(&options)?;
        let cells = CellSealer::new(&at_rest);
        Ok(Self { originals: Sealer::new(&options)?, at_rest, cells })
    }
}

/// Marks a database whose rows are migrated, but whose free pages may still hold what was there before.
pub(crate) const UNVACUUMED: i64 = 0x5641_4355;

/// Reads a JSON file that has a `"format"` and migrates it to the current version.
pub(crate) fn read_versioned(path: &Path, text: &str, steps: &[FileStep]) -> Result<Value, StoreError> {
    let value = serde_json::from_str(text).map_err(|error| StoreError::damaged(path, error.to_string()))?;
    migrate_value(path, value, steps)
}

/// Migrates the content of a JSON file that has a `"format"` to the current version.
pub(crate) fn migrate_value(path: &Path, mut value: Value, steps: &[FileStep]) -> Result<Value, StoreError> {
    let found = value.get("format").and_then(Value::as_u64);
    let found = found.ok_or_else(|| StoreError::damaged(path, "it has no `format` version"))?;
    for step in steps_from(path, found, steps)? {
        step(&mut value).map_err(|reason| StoreError::damaged(path, reason))?;
    }
    Ok(value)
}

/// The migrations from a version to the current one.
pub(crate) fn steps_from<'s, S>(path: &Path, found: u64, steps: &'s [S]) -> Result<&'s [S], StoreError> {
    let present = 1 + steps.len() as u64;
    if found > present {
        let reason =
            format!("it has format {found}, this version of faultscope reads up to {present}; update it");
        return Err(StoreError::new(StoreErrorKind::Newer, "read", path, reason));
    }
    let done = usize::try_from(found).ok().and_then(|found| found.checked_sub(1));
    let done = done.ok_or_else(|| StoreError::damaged(path, "format versions start at 1"))?;
    Ok(&steps[done..])
}

/// Runs all migrations in one transaction: a crash leaves the database as it was, and of two processes that open
/// it at once the second finds nothing to do. Then the file is rewritten, so that nothing of what was there before
/// stays in it; if that is interrupted, whoever opens the database next does it.
pub(crate) fn migrate_database(
    connection: &Connection,
    path: &Path,
    steps: &[DatabaseStep],
    key: &ReadKey,
) -> Result<(), StoreError> {
    if steps_from(path, version(connection, path)?, steps)?.is_empty() {
        return vacuum_migrated(connection, path);
    }
    let run = |sql: &str| connection.execute_batch(sql).map_err(StoreError::sqlite("migrate", path));
    // Replaced secrets must not stay behind in free pages.
    run("PRAGMA secure_delete = ON; BEGIN IMMEDIATE")?;
    let migrate = || -> Result<(), StoreError> {
        let found = version(connection, path)?;
        let todo = steps_from(path, found, steps)?;
        let mut migration = Migration::new(key)?;
        for step in todo {
            step(connection, path, &mut migration)?;
        }
        run(&format!("PRAGMA user_version = {}; PRAGMA application_id = {UNVACUUMED}", 1 + steps.len()))
    };
    match migrate() {
        Ok(()) => run("COMMIT")?,
        Err(error) => {
            let _ = run("ROLLBACK");
            return Err(error);
        }
    }
    vacuum_migrated(connection, path)
}

/// Whether [`vacuum_migrated`] has something to do.
pub(crate) fn is_unvacuumed(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let id = connection.pragma_query_value(None, "application_id", |row| row.get::<_, i64>(0));
    id.map(|id| id == UNVACUUMED).map_err(StoreError::sqlite("open", path))
}

/// Rewrites the file of a migrated database.
pub(crate) fn vacuum_migrated(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    if !is_unvacuumed(connection, path)? {
        return Ok(());
    }
    let run = |sql: &str| connection.execute_batch(sql).map_err(StoreError::sqlite("migrate", path));
    // The copy that is made on the way may be too large for memory; it holds only what is sealed by now.
    match run("PRAGMA temp_store = file; VACUUM; PRAGMA temp_store = memory") {
        // Another process does the same, or reads; the mark stays for whoever opens it next.
        Err(error) if error.kind == StoreErrorKind::InUse => return Ok(()),
        other => other?,
    }
    let is_written = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
    // A reader may block the checkpoint. The mark stays until all of the old file is overwritten.
    if is_written.is_ok_and(|busy| busy == 0) {
        run("PRAGMA application_id = 0")?;
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_files_are_brought_up_and_newer_ones_refused() {
        let steps: &[FileStep] = &[
            |value| {
                value["second"] = 2.into();
                Ok(())
            },
            |value| value["second"].as_u64().map(|_| ()).ok_or_else(|| "no second".to_owned()),
        ];
        let read = |text: &str| read_versioned(Path::new("x.json"), text, steps);
        assert_eq!(read(r#"{"format": 1}"#).unwrap()["second"], 2);
        assert!(read(r#"{"format": 3}"#).unwrap().get("second").is_none());
        assert_eq!(read(r#"{"format": 2}"#).unwrap_err().kind, StoreErrorKind::Damaged);
        assert_eq!(read(r#"{"format": 4}"#).unwrap_err().kind, StoreErrorKind::Newer);
        for bad in ["", "{}", "[]", r#"{"format": 0}"#, r#"{"format": "1"}"#, r#"{"format": -1}"#] {
            assert_eq!(read(bad).unwrap_err().kind, StoreErrorKind::Damaged, "{bad}");
        }
    }
}
