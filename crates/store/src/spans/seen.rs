//! Names for autocompletion: services, their span names, the services they call, values of chosen tags.

use std::collections::BTreeSet;

use rusqlite::Connection;

use crate::sealed::{Cell, CellOpener, Column};

/// A service; the text is empty.
pub(super) const SERVICE: u8 = 0;
/// The name of a span of the service.
pub(super) const NAME: u8 = 1;
/// A service on the other side of a span.
pub(super) const REMOTE: u8 = 2;
/// The value of a tag; its key takes the place of the service. A sealed value stands beside its digest.
pub(super) const TAG: u8 = 3;

/// The place of a sealed value.
pub(super) const SUGGESTION: Cell = Cell { column: Column::Suggestion, row: 0 };

/// Adds all services.
pub(super) fn services(connection: &Connection, out: &mut BTreeSet<String>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT service FROM seen WHERE kind = ?1")?;
    let mut rows = statement.query([SERVICE])?;
    while let Some(row) = rows.next()? {
        out.insert(row.get(0)?);
    }
    Ok(())
}

/// Adds the texts of one kind for a service.
pub(super) fn texts(
    connection: &Connection,
    opener: &CellOpener,
    kind: u8,
    service: &str,
    out: &mut BTreeSet<String>,
) -> rusqlite::Result<()> {
    let before = out.len();
    // Zipkin's clients query in lower case; OpenTelemetry's services may have capitals.
    for sql in [
        "SELECT text, sealed FROM seen WHERE service = ?1 AND kind = ?2",
        "SELECT text, sealed FROM seen WHERE service = ?1 COLLATE NOCASE AND kind = ?2",
    ] {
        // A slice of an older format on a read-only disk has no such column.
        let mut statement = connection
            .prepare_cached(sql)
            .or_else(|_| connection.prepare_cached(&sql.replace("text, sealed", "text, NULL")))?;
        let mut rows = statement.query((service, kind))?;
        while let Some(row) = rows.next()? {
            match row.get_ref(1)? {
                rusqlite::types::ValueRef::Null => out.insert(row.get(0)?),
                sealed => out.insert(opener.open_text(connection, SUGGESTION, sealed)?),
            };
        }
        if out.len() > before {
            break;
        }
    }
    Ok(())
}
