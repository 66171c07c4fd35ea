//! The tables of a campaign's database, and how it is opened.

use std::path::Path;

use rusqlite::Connection;

use super::migrate::DATABASE_STEPS;
use crate::FORMAT;
use crate::error::{StoreError, StoreErrorKind};
use crate::format::{is_unvacuumed, migrate_database, steps_from};
use crate::lock::is_held;
use crate::sealed::{ReadKey, SEALS_TABLE};
use crate::sqlite::{connect_reader, connect_writer, version};

/// Integers wherever possible, and no index on spans: writing them must cost next to nothing, and an index
/// by trace id alone nearly doubled that cost, since trace ids are random and each touches another page.
///
/// `caller`, `callee`, `method` and `error` are numbers of `names`, or texts if the name is too long or
/// there are too many. Spans are found by `segments` instead: for each trial of each batch the range of
/// its rows and, sorted, the last 32 bits of their trace ids.
pub(super) const TABLES: &str = "
CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;
CREATE TABLE spans (
  id INTEGER PRIMARY KEY,
  trial INTEGER NOT NULL, slot INTEGER NOT NULL,
  trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL,
  span INTEGER NOT NULL, parent INTEGER, parentage INTEGER NOT NULL,
  caller NOT NULL, caller_ordinal INTEGER NOT NULL, caller_node INTEGER NOT NULL,
  callee NOT NULL, callee_instance, callee_ordinal INTEGER, callee_node INTEGER NOT NULL,
  port INTEGER NOT NULL, wire INTEGER NOT NULL, method NOT NULL, path TEXT NOT NULL,
  start_us INTEGER NOT NULL, duration_us INTEGER NOT NULL, first_byte_us INTEGER,
  request_bytes INTEGER NOT NULL, response_bytes INTEGER NOT NULL,
  status INTEGER, grpc_status INTEGER, error, rules BLOB, payload BLOB
);
CREATE TABLE segments (
  trial INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, traces BLOB NOT NULL
) STRICT;
";

/// The tables that format 2 added: the sealed secrets of each row of `spans`, and what services reported.
pub(crate) const TABLES_2: &str = "
CREATE TABLE secrets (span INTEGER PRIMARY KEY, sealed BLOB NOT NULL) STRICT;
CREATE TABLE reported (
  id INTEGER PRIMARY KEY, trial INTEGER NOT NULL, slot INTEGER NOT NULL, instance TEXT,
  trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL, json TEXT NOT NULL, sealed BLOB
) STRICT;
CREATE INDEX reported_by_trace ON reported (trace_low);
";

/// The tables whose texts format 5 seals: a text is plain, a blob is sealed. In `spans` the path is a blob if it is
/// sealed with the payload.
pub(super) const TABLES_5: &str = "
CREATE TABLE runs (
  id TEXT PRIMARY KEY, trial INTEGER NOT NULL, outcome TEXT NOT NULL,
  started_us INTEGER NOT NULL, duration_us INTEGER NOT NULL, json ANY NOT NULL
) STRICT;
CREATE TABLE logs (trial INTEGER NOT NULL, instance TEXT NOT NULL, text ANY NOT NULL) STRICT;
CREATE TABLE reported (
  id INTEGER PRIMARY KEY, trial INTEGER NOT NULL, slot INTEGER NOT NULL, instance TEXT,
  trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL, json ANY NOT NULL, sealed BLOB
) STRICT;
CREATE INDEX reported_by_trace ON reported (trace_low);
";

/// The tables of format 1 that [`TABLES_5`] replaces, for tests of migrations.
#[cfg(test)]
pub(super) const REPLACED_BY_5: &str = "
CREATE TABLE runs (
  id TEXT PRIMARY KEY, trial INTEGER NOT NULL, outcome TEXT NOT NULL,
  started_us INTEGER NOT NULL, duration_us INTEGER NOT NULL, json TEXT NOT NULL
) STRICT;
CREATE TABLE logs (trial INTEGER NOT NULL, instance TEXT NOT NULL, text TEXT NOT NULL) STRICT;
";

/// The name of the database in a campaign's folder.
pub(crate) const DATABASE: &str = "store.sqlite";

/// Databases of this version and later ones can be read as they are where they cannot be migrated.
const READABLE: u64 = 4;

/// Opens the one connection that writes.
pub(crate) fn open_writer(path: &Path, key: &ReadKey) -> Result<Connection, StoreError> {
    let connection = connect_writer(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        let secrets = "CREATE TABLE secrets (span INTEGER PRIMARY KEY, sealed BLOB NOT NULL) STRICT;";
        let create = format!(
            "BEGIN; {TABLES} {secrets} {TABLES_5} {SEALS_TABLE} PRAGMA user_version = {FORMAT}; COMMIT;"
        );
        connection.execute_batch(&create).map_err(StoreError::sqlite("create", path))?;
    } else {
        migrate_database(&connection, path, DATABASE_STEPS, key)?;
    }
    Ok(connection)
}

/// Opens a connection that only reads, also while another process writes.
pub(crate) fn open_reader(path: &Path, key: &ReadKey) -> Result<Connection, StoreError> {
    let connection = connect_reader(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        return Err(StoreError::damaged(path, "it holds no campaign"));
    }
    if steps_from(path, found, DATABASE_STEPS)?.is_empty() && !is_unvacuumed(&connection, path)? {
        return Ok(connection);
    }
    // Campaigns are written once, so whoever reads an old one first migrates it.
    if path.parent().is_some_and(is_held) {
        let reason = "an older version of faultscope is writing it; wait until it has ended";
        return Err(StoreError::new(StoreErrorKind::InUse, "migrate", path, reason));
    }
    match connect_writer(path).and_then(|writer| migrate_database(&writer, path, DATABASE_STEPS, key)) {
        Ok(()) => {
            drop(connection);
            connect_reader(path)
        }
        // On a read-only disk nothing can be migrated, and it need not be.
        Err(error) if error.kind == StoreErrorKind::NotPermitted && found >= READABLE => Ok(connection),
        Err(error) => Err(error),
    }
}

/// Migrates the database of a campaign that nobody else uses, if that is needed.
pub(crate) fn migrate(path: &Path, key: &ReadKey) -> Result<(), StoreError> {
    open_writer(path, key).map(drop)
}
