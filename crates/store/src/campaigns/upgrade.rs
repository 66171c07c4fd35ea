//! Migrates the folder of a campaign that an older version wrote.
//!
//! Each step can be repeated, and `campaign.json` is written last: a migration that was killed is done again by the
//! next reader.

use std::fs::{self, File};
use std::path::Path;

use super::attachment::seal_attachments;
use super::descriptors_file::seal_descriptors;
use super::event_log::seal_log;
use super::folder::REPORT;
use super::meta::CampaignFile;
use super::metrics_database::migrate_samples;
use super::migrate::REPORT_STEPS;
use super::schema::{DATABASE, migrate};
use crate::error::{StoreError, StoreErrorKind};
use crate::format::migrate_value;
use crate::lock::is_held;
use crate::sealed::{AtRest, ReadKey, seal_text};
use crate::{FORMAT, files};

/// Migrates a campaign that nobody writes. On a read-only disk it stays as it is, and is read like that.
pub(super) fn upgrade_campaign(folder: &Path, key: &ReadKey) -> Result<(), StoreError> {
    match upgrade_locked(folder, key) {
        Err(error) if error.kind == StoreErrorKind::NotPermitted => {
            tracing::debug!(%error, "a campaign of an older version stays as it is");
            Ok(())
        }
        other => other,
    }
}

fn upgrade_locked(folder: &Path, key: &ReadKey) -> Result<(), StoreError> {
    if is_held(folder) {
        let reason = "an older version of faultscope is writing it; wait until it has ended";
        return Err(StoreError::new(StoreErrorKind::InUse, "migrate", folder, reason));
    }
    upgrade_files(folder, key)
}

/// Migrates the files of a campaign that no other process writes.
pub(super) fn upgrade_files(folder: &Path, key: &ReadKey) -> Result<(), StoreError> {
    // Of two processes one migrates, and the other waits for it. The folder itself is locked: nothing is left behind.
    let lock = File::open(folder).map_err(StoreError::io("open", folder))?;
    lock.lock().map_err(StoreError::io("lock", folder))?;
    if !CampaignFile::read(folder, key)?.is_older() {
        return Ok(());
    }
    let at_rest = AtRest::new(&key.to_options())?;
    let database = folder.join(DATABASE);
    if database.exists() {
        migrate(&database, key)?;
    }
    migrate_samples(folder, key)?;
    if let Some(key) = at_rest.key() {
        seal_log(folder, key)?;
        seal_descriptors(folder, key)?;
        seal_report(folder, key)?;
        seal_attachments(folder, key)?;
    }
    remove_temporary_files(folder);
    let mut file = CampaignFile::read(folder, key)?;
    file.seal_command_line(folder, &at_rest)?;
    file.finish_upgrade();
    file.write(folder)
}

fn seal_report(folder: &Path, key: &crate::secrets::Key) -> Result<(), StoreError> {
    let path = folder.join(REPORT);
    let text = match files::read_text(&path) {
        Ok(text) => text,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let damaged = |error: serde_json::Error| StoreError::damaged(&path, error.to_string());
    let value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
    if value.get("sealed").is_some() {
        return Ok(());
    }
    let value = migrate_value(&path, value, REPORT_STEPS)?;
    let plain = serde_json::to_vec(&value["report"]).map_err(damaged)?;
    let sealed = seal_text(key, REPORT, &plain).map_err(StoreError::io("seal", &path))?;
    let file = serde_json::json!({ "format": FORMAT, "sealed": sealed });
    files::write_text(&path, &format!("{file}\n"))
}

/// Removes what a killed process was writing: its name has the id of that process.
fn remove_temporary_files(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_temporary = path.extension().is_some_and(|end| end.to_string_lossy().starts_with("tmp"));
        if is_temporary {
            let _ = fs::remove_file(path);
        }
    }
}
