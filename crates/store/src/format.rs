//! Format versions: newer ones are rejected, older ones are migrated step by step.

use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use crate::error::{StoreError, StoreErrorKind};
use crate::secrets::{Sealer, SecretOptions};
use crate::sqlite::version;

/// Migrates a JSON file from one version to the next.
pub(crate) type FileStep = fn(&mut Value) -> Result<(), String>;

/// Migrates a database from one version to the next, within a transaction.
pub(crate) type DatabaseStep = fn(&Connection, &Path, &mut Sealer) -> Result<(), StoreError>;

/// Reads a JSON file that has a `"format"` and migrates it to the current version.
pub(crate) fn read_versioned(path: &Path, text: &str, steps: &[FileStep]) -> Result<Value, StoreError> {
    let mut value: Value =
        serde_json::from_str(text).map_err(|error| StoreError::damaged(path, error.to_string()))?;
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
/// it at once the second finds nothing to do.
pub(crate) fn migrate_database(
    connection: &Connection,
    path: &Path,
    steps: &[DatabaseStep],
) -> Result<(), StoreError> {
    if steps_from(path, version(connection, path)?, steps)?.is_empty() {
        return Ok(());
    }
    let run = |sql: &str| connection.execute_batch(sql).map_err(StoreError::sqlite("migrate", path));
    // Replaced secrets must not stay behind in free pages.
    run("PRAGMA secure_delete = ON; BEGIN IMMEDIATE")?;
    let take = || -> Result<(), StoreError> {
        let found = version(connection, path)?;
        let todo = steps_from(path, found, steps)?;
        let mut sealer = Sealer::new(&SecretOptions::default())?;
        for step in todo {
            step(connection, path, &mut sealer)?;
        }
        run(&format!("PRAGMA user_version = {}", 1 + steps.len()))
    };
    match take() {
        Ok(()) => run("COMMIT")?,
        Err(error) => {
            let _ = run("ROLLBACK");
            return Err(error);
        }
    }
    // Readers may block the checkpoint; then the log stays beside the file until they are gone.
    let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
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
