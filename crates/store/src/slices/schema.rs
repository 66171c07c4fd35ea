//! The tables of a slice, how its database is opened, and how an older one is brought up.

use std::path::Path;

use rusqlite::Connection;

use crate::error::StoreError;
use crate::format::{DatabaseStep, steps_from};
use crate::schema::{connect_reader, connect_writer, version};

/// The version of a slice's tables.
pub(super) const SLICE_FORMAT: u32 = 1;

/// Steps from each version to the next; the first one leads from version 1 to 2.
const SLICE_STEPS: &[DatabaseStep] = &[];

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

/// Opens the one connection that writes a slice, and makes its tables where they are missing.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect_writer(path)?;
    match version(&connection, path)? {
        0 => {
            let create = format!("BEGIN; {TABLES} PRAGMA user_version = {SLICE_FORMAT}; COMMIT;");
            connection.execute_batch(&create).map_err(StoreError::sqlite("create", path))?;
        }
        found => migrate(&connection, path, found, SLICE_STEPS)?,
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
        // Closed slices have no writer, so whoever opens them first brings them up.
        drop(connection);
        migrate(&connect_writer(path)?, path, found, SLICE_STEPS)?;
        return Ok(Some(connect_reader(path)?));
    }
    Ok(Some(connection))
}

/// Takes the steps from a version to the present one, each with its number in one transaction.
fn migrate(
    connection: &Connection,
    path: &Path,
    found: u64,
    steps: &[DatabaseStep],
) -> Result<(), StoreError> {
    let todo = steps_from(path, found, steps)?;
    for (done, step) in (found..).zip(todo) {
        let take = || -> rusqlite::Result<()> {
            let transaction = connection.unchecked_transaction()?;
            step(&transaction)?;
            transaction.pragma_update(None, "user_version", done.cast_signed() + 1)?;
            transaction.commit()
        };
        take().map_err(StoreError::sqlite("migrate", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;

    #[test]
    fn an_older_slice_is_brought_up_step_by_step_and_a_newer_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slice.sqlite");
        let connection = open_writer(&path).unwrap();
        let steps: &[DatabaseStep] = &[
            |c| c.execute_batch("ALTER TABLE spans ADD COLUMN second"),
            |c| c.execute_batch("UPDATE spans SET second = 2"),
        ];
        migrate(&connection, &path, 1, steps).unwrap();
        assert_eq!(version(&connection, &path).unwrap(), 3);
        assert!(migrate(&connection, &path, 3, steps).is_ok());
        drop(connection);
        assert_eq!(open_writer(&path).unwrap_err().kind, StoreErrorKind::Newer);
        assert_eq!(open_reader(&path).unwrap_err().kind, StoreErrorKind::Newer);
    }
}
