//! How databases are opened, whatever their tables are.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::StoreError;

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

pub(crate) fn damaged_row(reason: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Null, reason.into())
}
