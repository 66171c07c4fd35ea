//! The tables of a campaign's database, and how connections to it are opened.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::FORMAT;
use crate::error::{StoreError, StoreErrorKind};
use crate::folder::is_live;
use crate::format::{DATABASE_STEPS, bring_up, steps_from};

/// Integers wherever possible, and no index on spans: writing them must cost next to nothing, and an index
/// by trace id alone nearly doubled that cost, since trace ids are random and each touches another page.
///
/// `caller`, `callee`, `method` and `error` are numbers of `names`, or texts where a name was too long or
/// too many were there. Spans are found by `segments` instead: for each trial of each batch the range of
/// its rows and, sorted, the last 32 bits of their trace ids.
const TABLES: &str = "
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
CREATE TABLE runs (
  id TEXT PRIMARY KEY, trial INTEGER NOT NULL, outcome TEXT NOT NULL,
  started_us INTEGER NOT NULL, duration_us INTEGER NOT NULL, json TEXT NOT NULL
) STRICT;
CREATE TABLE logs (trial INTEGER NOT NULL, instance TEXT NOT NULL, text TEXT NOT NULL) STRICT;
";

/// What format 2 brought: the sealed secrets of each row of `spans`, and what services reported themselves.
pub(crate) const TABLES_2: &str = "
CREATE TABLE secrets (span INTEGER PRIMARY KEY, sealed BLOB NOT NULL) STRICT;
CREATE TABLE reported (
  id INTEGER PRIMARY KEY, trial INTEGER NOT NULL, slot INTEGER NOT NULL, instance TEXT,
  trace_high INTEGER NOT NULL, trace_low INTEGER NOT NULL, json TEXT NOT NULL, sealed BLOB
) STRICT;
CREATE INDEX reported_by_trace ON reported (trace_low);
";

/// The name of the database in a campaign's folder.
pub(crate) const DATABASE: &str = "store.sqlite";

/// Opens the one connection that writes.
pub(crate) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect_writer(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        let create = format!("BEGIN; {TABLES} {TABLES_2} PRAGMA user_version = {FORMAT}; COMMIT;");
        connection.execute_batch(&create).map_err(StoreError::sqlite("create", path))?;
    } else {
        bring_up(&connection, path, DATABASE_STEPS)?;
    }
    Ok(connection)
}

/// Opens a database for one who appends, whatever its tables are.
pub(crate) fn connect_writer(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        // Without WAL readers would block the writer. NORMAL leaves out the fsync at each commit: what is
        // committed outlives the process, though not a power cut.
        // Everything is appended, so large pages only save work: a third with payloads.
        connection.pragma_update(None, "page_size", 16_384)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "wal_autocheckpoint", 1000)?;
        connection.pragma_update(None, "cache_size", -16_000)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        Ok(connection)
    };
    open().map_err(StoreError::sqlite("open", path))
}

/// Opens a connection that only reads, also while another process writes.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect_reader(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        return Err(StoreError::damaged(path, "it holds no campaign"));
    }
    if steps_from(path, found, DATABASE_STEPS)?.is_empty() {
        return Ok(connection);
    }
    // Campaigns are written once, so whoever reads one first brings it up.
    if path.parent().is_some_and(is_live) {
        let reason = "an older version of faultscope is writing it; wait until it has ended";
        return Err(StoreError::new(StoreErrorKind::InUse, "migrate", path, reason));
    }
    drop(connection);
    bring_up(&connect_writer(path)?, path, DATABASE_STEPS)?;
    connect_reader(path)
}

/// Opens a database for one who only reads, whatever its tables are.
pub(crate) fn connect_reader(path: &Path) -> Result<Connection, StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        // A reader needs to write the index of the log beside the database, but where it may not, the
        // database as it stands must do.
        let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_WRITE;
        let connection = Connection::open_with_flags(path, flags).or_else(|_| {
            let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_READ_ONLY;
            Connection::open_with_flags(path, flags)
        })?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(StoreError::sqlite("open", path))
}

/// The format version of a database; 0 when it has no tables yet.
pub(crate) fn version(connection: &Connection, path: &Path) -> Result<u64, StoreError> {
    let version: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(StoreError::sqlite("open", path))?;
    u64::try_from(version).map_err(|_| StoreError::damaged(path, "its format version is negative"))
}
