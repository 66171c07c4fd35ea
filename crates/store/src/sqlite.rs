//! How databases are opened, whatever their tables are.

use std::path::{Path, PathBuf};
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
    let open = |flags: OpenFlags, name: &Path| -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(name, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.pragma_update(None, "query_only", true)?;
        // Nothing is read before: only this shows whether the database can be.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        Ok(connection)
    };
    // A reader needs to write the index of the log beside the database. Where it may not, as on a read-only file
    // system, nobody else writes either, and the database is read as it stands.
    let opened = open(OpenFlags::SQLITE_OPEN_READ_WRITE, path)
        .or_else(|error| {
            if is_unwritable(&error) { open(OpenFlags::SQLITE_OPEN_READ_ONLY, path) } else { Err(error) }
        })
        .or_else(|error| match immutable_name(path) {
            Some(name) if is_unwritable(&error) => {
                open(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI, &name)
            }
            _ => Err(error),
        });
    opened.map_err(StoreError::sqlite("open", path))
}

fn is_unwritable(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode;
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)
    )
}

/// The database as a file that nobody changes; none if there is a log beside it that would be passed over.
fn immutable_name(path: &Path) -> Option<PathBuf> {
    let log = path.with_extension("sqlite-wal");
    if std::fs::metadata(log).is_ok_and(|log| log.len() > 0) {
        return None;
    }
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                name.push(char::from(*byte))
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(PathBuf::from(name + "?immutable=1"))
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

/// Verifies that all pages of a database hang together; what their rows hold is not looked at.
pub(crate) fn verify_pages(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(StoreError::sqlite("read", path))?;
    if found == "ok" { Ok(()) } else { Err(StoreError::damaged(path, found)) }
}
