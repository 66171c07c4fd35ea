//! The tables of a slice, how its database is opened, and how an older one is brought up.

use std::path::Path;

use rusqlite::Connection;

use super::hash::Terms;
use crate::error::{StoreError, StoreErrorKind};
use crate::format::{DatabaseStep, is_unvacuumed, migrate_database, steps_from};
use crate::lock::LOCK;
use crate::sealed::{AtRest, ReadKey, SEALS_TABLE};
use crate::sqlite::{connect_reader, connect_writer, version};

/// The version of a slice's tables.
pub(super) const SLICE_FORMAT: u32 = 3;

/// Steps from each version to the next; the first one leads from version 1 to 2.
const SLICE_STEPS: &[DatabaseStep] = &[super::migrate::slice_to_2, super::migrate::slice_to_3];

/// Slices of this version and later ones can be read as they are where they cannot be migrated.
const READABLE: u64 = 2;

const _: () = assert!(SLICE_STEPS.len() + 1 == SLICE_FORMAT as usize, "every format needs its step");

/// No index: trace ids are random, so each span would touch another page, and that alone costs as much as
/// the rows. Instead, about a thousand rows at a time are described by a segment: its bounds, its services
/// with their longest span, and its trace keys; what searches look at stands densely in `columns`, and the
/// hashes of its tags and annotations in `terms`. Rows behind the last segment are few and read as they are.
///
/// `service`, `remote` and `name` are numbers of `names`, or texts where a name was too long or too many were
/// there. `seen` lists what is offered for choice: names, remote services and tag values for each service.
///
/// `sealing` has one row: the id of the key that seals the values of this slice and their terms, or NULL if they
/// are plain. A sealed value is a blob where a plain one is a text; in `seen` it stands beside its digest.
const TABLES: &str = "
CREATE TABLE spans (
  id INTEGER PRIMARY KEY,
  trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL,
  span INTEGER NOT NULL, parent INTEGER, flags INTEGER NOT NULL,
  service, remote, name, start_us INTEGER, duration_us INTEGER, data BLOB
);
CREATE TABLE segments (
  id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL,
  min_us INTEGER NOT NULL, max_us INTEGER NOT NULL, services BLOB NOT NULL, traces BLOB NOT NULL
) STRICT;
CREATE TABLE columns (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE terms (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE points (
  series INTEGER NOT NULL, at_us INTEGER NOT NULL, value REAL NOT NULL, PRIMARY KEY (series, at_us)
) STRICT, WITHOUT ROWID;
";

/// What format 2 brought: the sealed secrets of each row of `spans`.
pub(super) const TABLES_2: &str =
    "CREATE TABLE secrets (span INTEGER PRIMARY KEY, sealed BLOB NOT NULL) STRICT;";

/// Tables whose values format 3 seals.
pub(super) const TABLES_3: &str = "
CREATE TABLE sealing (key BLOB) STRICT;
CREATE TABLE names (id INTEGER PRIMARY KEY, text ANY NOT NULL) STRICT;
CREATE TABLE seen (service TEXT NOT NULL, kind INTEGER NOT NULL, text TEXT NOT NULL, sealed BLOB,
  PRIMARY KEY (service, kind, text)) STRICT, WITHOUT ROWID;
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL, service TEXT NOT NULL, text ANY NOT NULL) STRICT;
";

/// The tables of format 2 that [`TABLES_3`] replaces.
#[cfg(test)]
pub(super) const REPLACED_BY_3: &str = "
CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE seen (service TEXT NOT NULL, kind INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (service, kind, text)) STRICT, WITHOUT ROWID;
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL, service TEXT NOT NULL, text TEXT NOT NULL) STRICT;
";

/// The tables of format 2, for tests of its migration.
#[cfg(test)]
pub(super) fn tables_of_format_2() -> String {
    format!("BEGIN; {TABLES} {TABLES_2} {REPLACED_BY_3} PRAGMA user_version = 2; COMMIT;")
}

/// Opens the one connection that writes a slice, and makes its tables where they are missing. Returns none if the
/// slice is sealed in another way than what is to be written.
pub(super) fn open_writer(
    path: &Path,
    at_rest: &AtRest,
    key: &ReadKey,
) -> Result<Option<Connection>, StoreError> {
    let connection = connect_writer(path)?;
    match version(&connection, path)? {
        0 => {
            let create = || -> rusqlite::Result<()> {
                connection.execute_batch(&format!(
                    "BEGIN; {TABLES} {TABLES_2} {TABLES_3} {SEALS_TABLE} PRAGMA user_version = {SLICE_FORMAT};"
                ))?;
                let id = at_rest.key().map(|key| key.id().as_slice());
                connection.execute("INSERT INTO sealing VALUES (?1)", [id])?;
                connection.execute_batch("COMMIT")
            };
            create().map_err(StoreError::sqlite("create", path))?;
        }
        _ => migrate_database(&connection, path, SLICE_STEPS, key)?,
    }
    let sealing = sealing(&connection).map_err(StoreError::sqlite("read", path))?;
    let is_same = sealing.as_deref() == at_rest.key().map(|key| key.id().as_slice());
    Ok(is_same.then_some(connection))
}

/// The id of the key that seals a slice; none if it is plain.
fn sealing(connection: &Connection) -> rusqlite::Result<Option<Vec<u8>>> {
    let found = connection.query_row("SELECT key FROM sealing", [], |row| row.get(0));
    match found {
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(None),
        other => other,
    }
}

/// What the terms of a slice are hashed with; an error if the key for that is not here.
pub(super) fn terms_of(connection: &Connection, path: &Path, key: &ReadKey) -> Result<Terms, StoreError> {
    if version(connection, path)? < 3 {
        return Ok(Terms::Plain);
    }
    let id = sealing(connection).map_err(StoreError::sqlite("read", path))?;
    let Some(id) = id else { return Ok(Terms::Plain) };
    let key = key.load_by_id(&id).map_err(|error| StoreError::unseal(path, &error))?;
    Ok(Terms::new(Some(key)))
}

/// Opens a connection that only reads. None when the slice was just being made and has no tables yet.
pub(super) fn open_reader(path: &Path, key: &ReadKey) -> Result<Option<Connection>, StoreError> {
    let connection = connect_reader(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        return Ok(None);
    }
    if steps_from(path, found, SLICE_STEPS)?.is_empty() && !is_unvacuumed(&connection, path)? {
        return Ok(Some(connection));
    }
    // Closed slices have no writer, so whoever opens them first brings them up; but not while an older
    // version of the tool writes beside them.
    if path.parent().is_some_and(another_writes) {
        let reason = "an older version of faultscope writes beside it; end that one first";
        return Err(StoreError::new(StoreErrorKind::InUse, "migrate", path, reason));
    }
    let migrated = connect_writer(path).and_then(|writer| migrate_database(&writer, path, SLICE_STEPS, key));
    match migrated {
        Ok(()) => {
            drop(connection);
            connect_reader(path).map(Some)
        }
        // On a read-only disk nothing can be migrated, and it need not be.
        Err(error) if error.kind == StoreErrorKind::NotPermitted && found >= READABLE => Ok(Some(connection)),
        Err(error) => Err(error),
    }
}

/// The format of a slice, and whether it is the current one; for a look that changes nothing.
pub(super) fn needs_migration(path: &Path) -> Result<bool, StoreError> {
    let connection = connect_reader(path)?;
    let found = version(&connection, path)?;
    Ok(found != 0 && (!steps_from(path, found, SLICE_STEPS)?.is_empty() || is_unvacuumed(&connection, path)?))
}

/// Whether another process holds the writer's lock of a folder.
fn another_writes(folder: &Path) -> bool {
    let lock = folder.join(LOCK);
    let own = std::process::id().to_string();
    let is_own = || std::fs::read_to_string(&lock).is_ok_and(|note| note.trim() == own);
    crate::lock::is_held(folder) && !is_own()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_slice_is_brought_up_and_a_newer_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slice.sqlite");
        let (at_rest, key) = (AtRest::Plain, ReadKey::default());
        let connection = open_writer(&path, &at_rest, &key).unwrap().unwrap();
        let (to_2, to_3): (DatabaseStep, DatabaseStep) =
            (super::super::migrate::slice_to_2, super::super::migrate::slice_to_3);
        let broken: &[DatabaseStep] = &[to_2, to_3, |c, path, _| {
            c.execute_batch("ALTER TABLE spans ADD COLUMN second; SELECT nonsense")
                .map_err(StoreError::sqlite("migrate", path))
        }];
        assert!(migrate_database(&connection, &path, broken, &key).is_err());
        assert_eq!(version(&connection, &path).unwrap(), 3, "a step that fails leaves everything as it was");
        let second = connection.prepare("SELECT second FROM spans").map(|_| ());
        assert!(second.is_err());
        let whole: &[DatabaseStep] = &[to_2, to_3, |c, path, _| {
            c.execute_batch("ALTER TABLE spans ADD COLUMN second")
                .map_err(StoreError::sqlite("migrate", path))
        }];
        migrate_database(&connection, &path, whole, &key).unwrap();
        assert_eq!(version(&connection, &path).unwrap(), 4);
        migrate_database(&connection, &path, whole, &key).unwrap();
        drop(connection);
        assert_eq!(open_writer(&path, &at_rest, &key).unwrap_err().kind, StoreErrorKind::Newer);
        assert_eq!(open_reader(&path, &key).unwrap_err().kind, StoreErrorKind::Newer);
    }
}
