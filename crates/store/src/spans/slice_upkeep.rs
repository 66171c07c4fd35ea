//! Checks slices, and salvages what can be read of a damaged one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use faultscope_model::metrics::Point;
use faultscope_model::trace::ReportedSpan;
use rusqlite::types::ValueRef;

use super::SPANS_FOLDER;
use super::active::Active;
use super::catalogue::{Catalogue, slice_numbers};
use super::intern::NameList;
use super::row::{self, RowReader};
use super::schema;
use super::slice_writer::Batch;
use crate::error::{StoreError, StoreErrorKind};
use crate::sealed::{AtRest, CellOpener, ReadKey};
use crate::secrets::{Redactor, Sealer, restore_reported, unseal};
use crate::series_table::read_series;
use crate::sqlite::{connect_reader, verify_pages};
use crate::upkeep::{PartState, RepairAction, each_readable_row, set_aside};

/// The end of the name of a slice that was copied, but is not in its place yet.
const SALVAGED: &str = "salvaged";

/// Spans that are written together.
const AT_ONCE: usize = 2000;

/// The files of all slices in a folder, by number.
pub(crate) fn slice_files(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut numbers = slice_numbers(folder)?;
    numbers.sort_unstable();
    Ok(numbers.into_iter().map(|number| folder.join(format!("{number:06}.sqlite"))).collect())
}

/// Whether the list of slices can be read.
pub(crate) fn check_catalogue(folder: &Path) -> Result<PartState, StoreError> {
    Catalogue::read(folder).map(|_| PartState::Ok)
}

/// Whether a slice can be read, all of it. It is not changed; one that is written meanwhile is only opened.
pub(crate) fn check_slice(path: &Path, key: &ReadKey, is_written: bool) -> Result<PartState, StoreError> {
    let needs_migration = schema::needs_migration(path)?;
    if is_written {
        return Ok(PartState::InUse);
    }
    let connection = connect_reader(path)?;
    verify_pages(&connection, path)?;
    schema::terms_of(&connection, path, key)?;
    let opener = CellOpener::new(key.clone());
    let read = || -> rusqlite::Result<()> {
        let mut names = NameList::default();
        names.refresh(&connection, &opener)?;
        let reader = RowReader { connection: &connection, names: &names, opener: &opener };
        let mut statement = connection.prepare(&format!("SELECT {} FROM spans", row::COLUMNS))?;
        let mut rows = statement.query([])?;
        while let Some(found) = rows.next()? {
            row::read(found, reader)?;
        }
        let mut statement = connection.prepare("SELECT id, text FROM series")?;
        let mut rows = statement.query([])?;
        while let Some(found) = rows.next()? {
            read_series(&connection, &opener, found.get(0)?, found.get_ref(1)?)?;
        }
        Ok(())
    };
    read().map_err(StoreError::sqlite("read", path))?;
    Ok(if needs_migration { PartState::NeedsMigration } else { PartState::Ok })
}

/// Migrates a slice that nobody writes.
pub(crate) fn migrate_slice(path: &Path, key: &ReadKey) -> Result<(), StoreError> {
    schema::open_reader(path, key).map(drop)
}

/// Takes the lock of the folder in which a file of spans lies, so that nobody writes meanwhile.
pub(crate) fn lock_spans(path: &Path) -> Result<File, StoreError> {
    super::store::lock(path.parent().unwrap_or(Path::new(".")))
}

/// Puts salvaged slices in their places if that was interrupted, and removes half-made ones.
pub(crate) fn finish_salvage(state: &Path) -> Result<(), StoreError> {
    let folder = state.join(SPANS_FOLDER);
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let copy = entry.path();
        if copy.extension().is_none_or(|end| end != SALVAGED) {
            continue;
        }
        let _lock = lock_spans(&copy)?;
        let path = copy.with_extension("sqlite");
        // The damaged slice is moved only after the copy is complete.
        let done = if path.exists() { fs::remove_file(&copy) } else { fs::rename(&copy, &path) };
        done.map_err(StoreError::io("move", &copy))?;
    }
    Ok(())
}

/// Writes what can be read of a slice to a new one, and moves the damaged one away. The lock of the folder is held.
pub(crate) fn salvage_slice(state: &Path, path: &Path, key: &ReadKey) -> Result<RepairAction, StoreError> {
    let copy = path.with_extension(SALVAGED);
    remove_database(&copy)?;
    let rows = match copy_slice(path, &copy, key) {
        Ok(rows) => rows,
        // Not even its tables can be read.
        Err(error) if error.kind == StoreErrorKind::Damaged => 0,
        Err(error) => {
            remove_database(&copy)?;
            return Err(error);
        }
    };
    if rows == 0 {
        remove_database(&copy)?;
        return set_aside(state, path).map(|moved_to| RepairAction::SetAside { moved_to });
    }
    let moved_to = set_aside(state, path)?;
    fs::rename(&copy, path).map_err(StoreError::io("move", &copy))?;
    Ok(RepairAction::Salvaged { rows, moved_to })
}

/// Writes all spans and points that can be read to a new slice; returns how many there were.
fn copy_slice(from: &Path, to: &Path, key: &ReadKey) -> Result<u64, StoreError> {
    let failed = || StoreError::sqlite("read", from);
    let connection = connect_reader(from)?;
    let opener = CellOpener::new(key.clone());
    let mut names = NameList::default();
    names.refresh(&connection, &opener).map_err(failed())?;
    let reader = RowReader { connection: &connection, names: &names, opener: &opener };
    let at_rest = AtRest::new(&key.to_options())?;
    let mut originals = Sealer::new(&key.to_options())?;
    let redactor = Redactor::default();
    let Some(mut copy) = Active::open(to.to_owned(), &at_rest, key)? else { return Ok(0) };
    let mut rows = 0;
    let mut spans: Vec<ReportedSpan> = Vec::new();
    let mut lost: Result<(), StoreError> = Ok(());
    let mut write = |spans: Vec<ReportedSpan>, points: Vec<Point>| {
        rows += (spans.len() + points.len()) as u64;
        let written =
            copy.commit(&[Batch { spans, points, ..Batch::default() }], &[], &redactor, &mut originals);
        if let Err(error) = written
            && lost.is_ok()
        {
            lost = Err(error);
        }
    };
    let columns = row::COLUMNS.trim_start_matches("id, ");
    let read = each_readable_row(&connection, "spans", columns, |found| {
        // A row that cannot be opened is left out, and so are the secrets of one that can.
        if let Ok(mut span) = row::read(found, reader) {
            restore_secrets(&connection, key, found.get(0)?, &mut span);
            spans.push(span);
        }
        if spans.len() >= AT_ONCE {
            write(std::mem::take(&mut spans), Vec::new());
        }
        Ok(())
    });
    read.map_err(failed())?;
    write(spans, Vec::new());
    let points = read_points(&connection, &opener);
    for chunk in points.chunks(AT_ONCE) {
        write(Vec::new(), chunk.to_vec());
    }
    lost?;
    copy.close()?;
    Ok(rows)
}

/// The points of all series that can be read.
fn read_points(connection: &rusqlite::Connection, opener: &CellOpener) -> Vec<Point> {
    let mut points = Vec::new();
    let _ = each_readable_row(connection, "series", "text", |row| {
        let number = row.get(0)?;
        let Ok(Some(series)) = read_series(connection, opener, number, row.get_ref(1)?) else {
            return Ok(());
        };
        let mut statement =
            connection.prepare_cached("SELECT at_us, value FROM points WHERE series = ?1 ORDER BY at_us")?;
        let mut rows = statement.query([number])?;
        while let Ok(Some(row)) = rows.next() {
            let (at_us, value) = (row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?);
            points.push(Point { series: series.clone(), at_us, value });
        }
        Ok(())
    });
    points
}

fn restore_secrets(connection: &rusqlite::Connection, key: &ReadKey, row: i64, span: &mut ReportedSpan) {
    let sql = "SELECT sealed FROM secrets WHERE span = ?1";
    let Ok(mut statement) = connection.prepare_cached(sql) else { return };
    let Ok(mut rows) = statement.query([row]) else { return };
    if let Ok(Some(found)) = rows.next()
        && let Ok(ValueRef::Blob(sealed)) = found.get_ref(0)
        && let Ok(key) = key.load()
        && let Ok(originals) = unseal(key, sealed)
    {
        restore_reported(span, originals);
    }
}

fn remove_database(path: &Path) -> Result<(), StoreError> {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
