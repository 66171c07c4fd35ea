//! Copies what can be read of a damaged table.

use rusqlite::types::Value;
use rusqlite::{Connection, Row};

/// How far behind an unreadable row the next readable one is looked for.
const MAX_STEP: i64 = 1 << 32;

/// Passes the rows of a table that can be read to a function, in the order of their numbers. The first column that the
/// function gets is the number of the row.
pub(crate) fn each_readable_row(
    connection: &Connection,
    table: &str,
    columns: &str,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let sql = format!("SELECT rowid, {columns} FROM {table} WHERE rowid >= ?1 ORDER BY rowid");
    let Ok(mut statement) = connection.prepare(&sql) else { return Ok(()) };
    let mut from = 1;
    let mut step = 1;
    // A damaged page ends a scan. The next one begins behind it, at a distance that doubles until it succeeds.
    while step <= MAX_STEP {
        let Ok(mut rows) = statement.query([from]) else { return Ok(()) };
        loop {
            match rows.next() {
                Ok(Some(row)) => {
                    let Ok(number) = row.get::<_, i64>(0) else { break };
                    take(row)?;
                    from = number.saturating_add(1);
                    step = 1;
                }
                Ok(None) => return Ok(()),
                Err(_) => break,
            }
        }
        from = from.saturating_add(step);
        step *= 2;
    }
    Ok(())
}

/// Copies the rows of a table that can be read into a table of another database; returns how many there were.
pub(crate) fn copy_table(
    from: &Connection,
    to: &Connection,
    table: &str,
    is_numbered: bool,
) -> rusqlite::Result<u64> {
    let mut columns = to.prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
    let columns: Vec<String> = columns.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let marks = vec!["?"; columns.len()].join(", ");
    let list = columns.join(", ");
    let mut insert = to.prepare(&format!("INSERT OR IGNORE INTO {table} ({list}) VALUES ({marks})"))?;
    let mut copied = 0;
    let mut copy = |row: &Row<'_>, first: usize| -> rusqlite::Result<()> {
        for place in 0..columns.len() {
            insert.raw_bind_parameter(place + 1, row.get::<_, Value>(first + place)?)?;
        }
        copied += insert.raw_execute()? as u64;
        Ok(())
    };
    if is_numbered {
        each_readable_row(from, table, &list, |row| copy(row, 1))?;
        return Ok(copied);
    }
    // Without numbers there is nothing to go on from: what lies behind the damage is lost.
    let Ok(mut statement) = from.prepare(&format!("SELECT {list} FROM {table}")) else { return Ok(0) };
    let Ok(mut rows) = statement.query([]) else { return Ok(0) };
    while let Ok(Some(row)) = rows.next() {
        copy(row, 0)?;
    }
    drop(rows);
    Ok(copied)
}
