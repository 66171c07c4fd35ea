//! The tables of a slice, how its database is opened, and how an older one is brought up.

use std::path::Path;

use rusqlite::Connection;

use crate::error::{StoreError, StoreErrorKind};
use crate::format::{DatabaseStep, migrate_database, steps_from};
use crate::lock::LOCK;
use crate::sqlite::{connect_reader, connect_writer, version};

/// The version of a slice's tables.
pub(super) const SLICE_FORMAT: u32 = 2;

/// Steps from each version to the next; the first one leads from version 1 to 2.
const SLICE_STEPS: &[DatabaseStep] = &[super::migrate::slice_to_2];

const _: () = assert!(SLICE_STEPS.len() + 1 == SLICE_FORMAT as usize, "every format needs its step");

/// No index: trace ids are random, so each span would touch another page, and that alone costs as much as
/// the rows. Instead, about a thousand rows at a time are described by a segment: its bounds, its services
/// with their longest span, and its trace keys; what searches look at stands densely in `columns`, and the
/// hashes of its tags and annotations in `terms`. Rows behind the last segment are few and read as they are.
///
/// `service`, `remote` and `name` are numbers of `names`, or texts where a name was too long or too many were
/// there. `seen` lists what is offered for choice: names, remote services and tag values for each service.
const TABLES: &str = "
CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
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
CREATE TABLE seen (service TEXT NOT NULL, kind INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (service, kind, text)) STRICT, WITHOUT ROWID;
CREATE TABLE series (id INTEGER PRIMARY KEY, name TEXT NOT NULL, service TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE points (
  series INTEGER NOT NULL, at_us INTEGER NOT NULL, value REAL NOT NULL, PRIMARY KEY (series, at_us)
) STRICT, WITHOUT ROWID;
";

/// What format 2 brought: the sealed secrets of each row of `spans`.
pub(super) const TABLES_2: &str =
    "CREATE TABLE secrets (span INTEGER PRIMARY KEY, sealed BLOB NOT NULL) STRICT;";

/// Opens the one connection that writes a slice, and makes its tables where they are missing.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect_writer(path)?;
    match version(&connection, path)? {
        0 => {
            let create = format!("BEGIN; {TABLES} {TABLES_2} PRAGMA user_version = {SLICE_FORMAT}; COMMIT;");
            connection.execute_batch(&create).map_err(StoreError::sqlite("create", path))?;
        }
        _ => migrate_database(&connection, path, SLICE_STEPS)?,
    }
    Ok(connection)
}

/// Opens a connection that only reads. None when the slice was just being made and has no tables yet.
pub(super) fn open_reader(path: &Path) -> Result<Option<Connection>, StoreError> {
    let connection = connect_reader(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        return Ok(None);
    }
    if !steps_from(path, found, SLICE_STEPS)?.is_empty() {
        // Closed slices have no writer, so whoever opens them first brings them up; but not while an older
        // version of the tool writes beside them.
        if path.parent().is_some_and(another_writes) {
            let reason = "an older version of faultscope writes beside it; end that one first";
            return Err(StoreError::new(StoreErrorKind::InUse, "migrate", path, reason));
        }
        drop(connection);
        migrate_database(&connect_writer(path)?, path, SLICE_STEPS)?;
        return Ok(Some(connect_reader(path)?));
    }
    Ok(Some(connection))
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
        let connection = open_writer(&path).unwrap();
        let broken: &[DatabaseStep] = &[super::super::migrate::slice_to_2, |c, path, _| {
            c.execute_batch("ALTER TABLE spans ADD COLUMN second; SELECT nonsense")
                .map_err(StoreError::sqlite("migrate", path))
        }];
        assert!(migrate_database(&connection, &path, broken).is_err());
        assert_eq!(version(&connection, &path).unwrap(), 2, "a step that fails leaves everything as it was");
        let second = connection.prepare("SELECT second FROM spans").map(|_| ());
        assert!(second.is_err());
        let whole: &[DatabaseStep] = &[super::super::migrate::slice_to_2, |c, path, _| {
            c.execute_batch("ALTER TABLE spans ADD COLUMN second")
                .map_err(StoreError::sqlite("migrate", path))
        }];
        migrate_database(&connection, &path, whole).unwrap();
        assert_eq!(version(&connection, &path).unwrap(), 3);
        migrate_database(&connection, &path, whole).unwrap();
        drop(connection);
        assert_eq!(open_writer(&path).unwrap_err().kind, StoreErrorKind::Newer);
        assert_eq!(open_reader(&path).unwrap_err().kind, StoreErrorKind::Newer);
    }
}
