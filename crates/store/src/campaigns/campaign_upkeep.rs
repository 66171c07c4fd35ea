//! Checks campaigns, and salvages what can be read of a damaged one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;

use faultscope_model::{TraceId, TrialId};
use rusqlite::Connection;

use super::call_row::{COLUMNS, CallReader, read_span};
use super::campaign_writer::Segment;
use super::event_log;
use super::folder::{REPORT, StoredCampaign};
use super::metrics_database::{self, migrate_samples};
use super::reader::read_trial;
use super::schema::{self, DATABASE};
use super::upgrade::upgrade_campaign;
use crate::error::{StoreError, StoreErrorKind};
use crate::format::{is_unvacuumed, steps_from};
use crate::lock::LOCK;
use crate::numbered_names::NameTable;
use crate::sealed::{CellOpener, Column, ReadKey};
use crate::sqlite::{connect_reader, connect_writer, verify_pages, version};
use crate::upkeep::{PartState, RepairAction, copy_table, set_aside};

/// The end of the name of a database that was copied, but is not in its place yet.
const SALVAGED: &str = "salvaged";

/// Whether a campaign can be read, all of it. It is not changed.
pub(crate) fn check_campaign(folder: &Path, key: &ReadKey) -> Result<PartState, StoreError> {
    let campaign = StoredCampaign::read(folder.to_owned(), key)?;
    let mut needs_migration = campaign.is_older();
    needs_migration |= check_database(&folder.join(DATABASE), key)?;
    needs_migration |= metrics_database::check(folder, key)?;
    event_log::read::<serde_json::Value>(folder, 0, key)?;
    campaign.read_report::<serde_json::Value>()?;
    Ok(if needs_migration { PartState::NeedsMigration } else { PartState::Ok })
}

/// Whether a database needs a migration; an error if it cannot be read.
fn check_database(path: &Path, key: &ReadKey) -> Result<bool, StoreError> {
    if !path.exists() {
        return Err(StoreError::damaged(path, "there is no such file"));
    }
    let connection = connect_reader(path)?;
    let found = version(&connection, path)?;
    if found == 0 {
        return Err(StoreError::damaged(path, "it holds no campaign"));
    }
    let is_older = !steps_from(path, found, super::migrate::DATABASE_STEPS)?.is_empty();
    verify_pages(&connection, path)?;
    let opener = CellOpener::new(key.clone());
    let read = || -> rusqlite::Result<()> {
        let names = NameTable::load(&connection)?;
        let reader = CallReader { connection: &connection, names: &names, opener: &opener };
        let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM spans"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            read_span(row, reader)?;
        }
        for (table, column, kind) in [
            ("runs", "json", Column::Run),
            ("logs", "text", Column::Log),
            ("reported", "json", Column::Report),
        ] {
            // Format 1 had no reported spans.
            let Ok(mut statement) = connection.prepare(&format!("SELECT trial, {column} FROM {table}"))
            else {
                continue;
            };
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let cell = super::campaign_writer::trial_cell(kind, read_trial(row.get(0)?)?);
                opener.open_text(&connection, cell, row.get_ref(1)?)?;
            }
        }
        Ok(())
    };
    read().map_err(StoreError::sqlite("read", path))?;
    Ok(is_older || is_unvacuumed(&connection, path)?)
}

/// Migrates a campaign that nobody writes.
pub(crate) fn migrate_campaign(folder: &Path, key: &ReadKey) -> Result<(), StoreError> {
    upgrade_campaign(folder, key)?;
    schema::open_reader(&folder.join(DATABASE), key)?;
    migrate_samples(folder, key)
}

/// Replaces damaged files of a campaign by what can be read of them. If that is not possible, the campaign is moved as a
/// whole.
pub(crate) fn repair_campaign(
    state: &Path,
    folder: &Path,
    key: &ReadKey,
) -> Result<RepairAction, StoreError> {
    let lock_path = folder.join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
    let lock = lock.map_err(StoreError::io("open", &lock_path))?;
    lock.try_lock().map_err(|error| StoreError::io("lock", &lock_path)(error.into()))?;
    let is_damaged = |error: &StoreError| error.kind == StoreErrorKind::Damaged;
    let Ok(campaign) = StoredCampaign::read(folder.to_owned(), key) else {
        // Nothing says what it was.
        return set_aside(state, folder).map(|moved_to| RepairAction::SetAside { moved_to });
    };
    let mut salvaged = None;
    let database = folder.join(DATABASE);
    if check_database(&database, key).is_err_and(|error| is_damaged(&error)) {
        let copied = copy_campaign(&database, key);
        match copied {
            Ok(rows) if rows > 0 => salvaged = Some((rows, replace(state, &database)?)),
            _ => return set_aside(state, folder).map(|moved_to| RepairAction::SetAside { moved_to }),
        }
    }
    if metrics_database::check(folder, key).is_err_and(|error| is_damaged(&error)) {
        let path = folder.join(metrics_database::DATABASE);
        let (rows, moved_to) = match metrics_database::salvage(&path, &path.with_extension(SALVAGED)) {
            Ok(rows) if rows > 0 => (rows, replace(state, &path)?),
            _ => (0, set_aside(state, &path)?),
        };
        let (so_far, first) = salvaged.unwrap_or((0, moved_to));
        salvaged = Some((so_far + rows, first));
    }
    if campaign.read_report::<serde_json::Value>().is_err_and(|error| is_damaged(&error)) {
        let moved_to = set_aside(state, &folder.join(REPORT))?;
        salvaged.get_or_insert((0, moved_to));
    }
    match salvaged {
        Some((rows, moved_to)) => Ok(RepairAction::Salvaged { rows, moved_to }),
        None => set_aside(state, folder).map(|moved_to| RepairAction::SetAside { moved_to }),
    }
}

/// Moves a damaged database away and puts its copy in its place.
fn replace(state: &Path, path: &Path) -> Result<std::path::PathBuf, StoreError> {
    let copy = path.with_extension(SALVAGED);
    let moved_to = set_aside(state, path)?;
    fs::rename(&copy, path).map_err(StoreError::io("move", &copy))?;
    Ok(moved_to)
}

/// Copies what can be read of a campaign's database beside it; returns how many rows of evidence there were.
fn copy_campaign(path: &Path, key: &ReadKey) -> Result<u64, StoreError> {
    let copy = path.with_extension(SALVAGED);
    let _ = fs::remove_file(&copy);
    let from = connect_reader(path)?;
    let found = version(&from, path)?;
    if found != u64::from(crate::FORMAT) {
        return Err(StoreError::damaged(path, "it is damaged and of an older format"));
    }
    let to = schema::open_writer(&copy, key)?;
    let copy_rows = || -> rusqlite::Result<u64> {
        to.execute_batch("BEGIN")?;
        let mut rows = 0;
        for (table, is_evidence) in [
            ("names", false),
            ("seals", false),
            ("secrets", false),
            ("spans", true),
            ("runs", true),
            ("logs", true),
            ("reported", true),
        ] {
            let copied = copy_table(&from, &to, table, true)?;
            rows += if is_evidence { copied } else { 0 };
        }
        rows -= remove_unreadable_calls(&to, key)?;
        describe_calls(&to)?;
        to.execute_batch("COMMIT")?;
        Ok(rows)
    };
    let rows = copy_rows().map_err(StoreError::sqlite("copy", path))?;
    drop(to);
    // Closed with its log written back, so that the file alone can be moved.
    let check = connect_writer(&copy)?;
    let _ = check.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    Ok(rows)
}

/// Removes calls whose names or payloads were lost; returns how many.
fn remove_unreadable_calls(connection: &Connection, key: &ReadKey) -> rusqlite::Result<u64> {
    let names = NameTable::load(connection)?;
    let opener = CellOpener::new(key.clone());
    let reader = CallReader { connection, names: &names, opener: &opener };
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS}, id FROM spans"))?;
    let mut rows = statement.query([])?;
    let mut lost: Vec<i64> = Vec::new();
    while let Some(row) = rows.next()? {
        if read_span(row, reader).is_err() {
            lost.push(row.get(26)?);
        }
    }
    drop(rows);
    for row in &lost {
        connection.execute("DELETE FROM spans WHERE id = ?1", [row])?;
    }
    Ok(lost.len() as u64)
}

/// Makes the segments of all calls again.
fn describe_calls(connection: &Connection) -> rusqlite::Result<()> {
    let mut segments: BTreeMap<TrialId, Segment> = BTreeMap::new();
    let mut statement =
        connection.prepare("SELECT id, trial, trace_high, trace_low FROM spans ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let trial = read_trial(row.get(1)?)?;
        let number = |column: usize| row.get::<_, i64>(column).map(|n| u128::from(n.cast_unsigned()));
        let trace = TraceId((number(2)? << 64) | number(3)?);
        let id = row.get(0)?;
        segments.entry(trial).or_insert_with(|| Segment::new(trial, id)).add(id, trace);
    }
    let mut insert = connection.prepare("INSERT INTO segments VALUES (?1, ?2, ?3, ?4)")?;
    for mut segment in segments.into_values() {
        insert.execute((
            segment.trial.key().cast_signed(),
            segment.first,
            segment.last,
            segment.trace_bytes(),
        ))?;
    }
    Ok(())
}
