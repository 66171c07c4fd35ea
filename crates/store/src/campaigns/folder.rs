//! The `.faultscope` folder: all campaigns beside one application file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultscope_model::CampaignId;
use serde::de::DeserializeOwned;

use super::campaign::{Campaign, CampaignOptions};
use super::event_log::{self, Events};
use super::meta::{CampaignFile, CampaignMeta};
use super::migrate::REPORT_STEPS;
use super::reader::Reader;
use super::retention::{Candidate, Retention, choose, is_clock_doubtful};
use super::upgrade::upgrade_campaign;
use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::format::migrate_value;
use crate::lock::is_held;
use crate::sealed::{ReadKey, open_text};
use crate::secrets::KeyPlace;

/// The report in a campaign's folder.
pub(crate) const REPORT: &str = "report.json";

/// The prefix of folders that are being removed.
const REMOVED: &str = ".removed-";

/// The most candidates that the error for an ambiguous prefix lists.
const MAX_CANDIDATES: usize = 10;

/// The folder with all campaigns of an application. Several processes may use it at once.
#[derive(Debug, Clone)]
pub struct Store {
    campaigns: PathBuf,
    key: ReadKey,
}

/// A stored campaign, which may still be written.
#[derive(Debug, Clone)]
pub struct StoredCampaign {
    /// Kind, application, start, command line.
    pub meta: CampaignMeta,
    /// Whether retention must not remove it.
    pub keep: bool,
    folder: PathBuf,
    key: ReadKey,
    /// Whether its files may not be sealed yet.
    is_older: bool,
}

impl Store {
    /// Opens a `.faultscope` folder, creating it if it is missing.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let campaigns = path.join("campaigns");
        for folder in [path, &campaigns] {
            if folder.is_dir() {
                // Also on a read-only disk.
                continue;
            }
            match files::make_private_folder(folder) {
                Ok(()) if folder == path => {
                    // Recorded calls do not belong in anyone's repository.
                    let ignore = path.join(".gitignore");
                    fs::write(&ignore, "*\n").map_err(StoreError::io("write", &ignore))?;
                }
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(StoreError::new(
                        StoreErrorKind::Damaged,
                        "open",
                        folder,
                        "it is not a folder",
                    ));
                }
                Err(error) => return Err(StoreError::io("create", folder)(error)),
            }
        }
        let store = Self { campaigns, key: ReadKey::default() };
        store.finish_removals();
        Ok(store)
    }

    /// The same with another key for reading than the user's.
    pub fn with_key(self, place: KeyPlace) -> Self {
        self.with_read_key(ReadKey::new(Some(place)))
    }

    pub(crate) fn with_read_key(self, key: ReadKey) -> Self {
        Self { key, ..self }
    }

    /// Starts a campaign.
    pub fn campaign(&self, meta: CampaignMeta) -> Result<Campaign, StoreError> {
        self.campaign_with(meta, CampaignOptions::default())
    }

    /// Starts a campaign with other limits.
    pub fn campaign_with(
        &self,
        meta: CampaignMeta,
        options: CampaignOptions,
    ) -> Result<Campaign, StoreError> {
        let folder = self.campaigns.join(meta.id.as_str());
        files::make_private_folder(&folder).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                StoreError::new(StoreErrorKind::InUse, "create", &folder, "there is a campaign of this name")
            }
            _ => StoreError::io("create", &folder)(error),
        })?;
        Campaign::create(folder.clone(), meta, options).inspect_err(|_| drop(fs::remove_dir_all(&folder)))
    }

    /// Continues a campaign that no process writes any more.
    pub fn resume(&self, id: &CampaignId, options: CampaignOptions) -> Result<Campaign, StoreError> {
        Campaign::reopen(self.campaigns.join(id.as_str()), options)
    }

    /// All campaigns, newest first. Unreadable ones are skipped with a warning in the log.
    pub fn campaigns(&self) -> Result<Vec<StoredCampaign>, StoreError> {
        let entries = fs::read_dir(&self.campaigns).map_err(StoreError::io("read", &self.campaigns))?;
        let mut campaigns = Vec::new();
        for entry in entries {
            let folder = entry.map_err(StoreError::io("read", &self.campaigns))?.path();
            if name_of(&folder).starts_with('.') {
                continue;
            }
            match StoredCampaign::read(folder, &self.key) {
                Ok(campaign) => campaigns.push(campaign),
                // Just being created or removed by another process.
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => name_unreadable(&error),
            }
        }
        campaigns.sort_by(|a, b| {
            let key = |campaign: &StoredCampaign| (campaign.meta.started_us, campaign.meta.id.clone());
            key(b).cmp(&key(a))
        });
        Ok(campaigns)
    }

    /// The campaign whose id starts with a prefix; it must be unique unless it is the whole id.
    pub fn find_campaign(&self, prefix: &str) -> Result<StoredCampaign, StoreError> {
        let refuse =
            |kind, reason: String| Err(StoreError::new(kind, "find a campaign in", &self.campaigns, reason));
        if prefix.is_empty() || prefix.starts_with('.') || prefix.contains(['/', '\\']) {
            return refuse(
                StoreErrorKind::Invalid,
                format!("`{prefix}` is not the start of a campaign's id"),
            );
        }
        let exact = self.campaigns.join(prefix);
        if exact.is_dir() {
            return StoredCampaign::read(exact, &self.key);
        }
        let entries = fs::read_dir(&self.campaigns).map_err(StoreError::io("read", &self.campaigns))?;
        let mut found: Vec<String> = entries
            .flatten()
            .map(|entry| name_of(&entry.path()))
            .filter(|name| name.starts_with(prefix))
            .collect();
        found.sort();
        match found.as_slice() {
            [] => refuse(StoreErrorKind::NotFound, format!("no campaign starts with `{prefix}`")),
            // Unlike the list, this reports damage: the campaign was asked for.
            [name] => StoredCampaign::read(self.campaigns.join(name), &self.key),
            names => {
                let shown =
                    names.iter().take(MAX_CANDIDATES).map(|name| format!("`{name}`")).collect::<Vec<_>>();
                let more = names.len().saturating_sub(MAX_CANDIDATES);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let reason = format!("`{prefix}` may be {}{more}", shown.join(", "));
                refuse(StoreErrorKind::Ambiguous, reason)
            }
        }
    }

    /// Pins a campaign, so that retention does not remove it, or unpins it.
    pub fn keep(&self, id: &CampaignId, keep: bool) -> Result<(), StoreError> {
        let folder = self.campaigns.join(id.as_str());
        let mut file = CampaignFile::read(&folder, &self.key)?;
        file.keep = keep;
        file.write(&folder)
    }

    /// Removes a campaign, pinned or not, unless it is being written.
    pub fn remove(&self, id: &CampaignId) -> Result<(), StoreError> {
        let folder = self.campaigns.join(id.as_str());
        if !folder.is_dir() {
            return Err(StoreError::new(
                StoreErrorKind::NotFound,
                "remove",
                &folder,
                "there is no such campaign",
            ));
        }
        if is_held(&folder) {
            return Err(StoreError::new(StoreErrorKind::InUse, "remove", &folder, "it is being written"));
        }
        // Renamed first, so that nobody finds half a campaign.
        let removed = self.campaigns.join(format!("{REMOVED}{id}"));
        fs::rename(&folder, &removed).map_err(StoreError::io("remove", &folder))?;
        fs::remove_dir_all(&removed).map_err(StoreError::io("remove", &removed))
    }

    /// Removes the oldest campaigns beyond the limits and returns their ids. Pinned ones and those being written
    /// stay.
    pub fn retain(&self, mut retention: Retention) -> Result<Vec<CampaignId>, StoreError> {
        let campaigns = self.campaigns()?;
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let candidate = |campaign: &StoredCampaign| Candidate {
            bytes: campaign.size(),
            age: now.saturating_sub(Duration::from_micros(campaign.meta.started_us)),
            kept: campaign.keep || campaign.is_live(),
        };
        let candidates: Vec<Candidate> = campaigns.iter().map(candidate).collect();
        if retention.most_age.is_some() && is_clock_doubtful(&candidates) {
            tracing::warn!(
                "the clock is months after the newest campaign, so it may be wrong: nothing is removed for its age"
            );
            retention.most_age = None;
        }
        let mut removed = Vec::new();
        for position in choose(retention, &candidates) {
            let id = &campaigns[position].meta.id;
            match self.remove(id) {
                Ok(()) => removed.push(id.clone()),
                // Another process was faster.
                Err(error) if matches!(error.kind, StoreErrorKind::NotFound | StoreErrorKind::InUse) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }

    /// Removes what a killed process left behind.
    fn finish_removals(&self) {
        for entry in fs::read_dir(&self.campaigns).into_iter().flatten().flatten() {
            if name_of(&entry.path()).starts_with(REMOVED) {
                // Another process may be doing the same.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

impl StoredCampaign {
    pub(crate) fn read(folder: PathBuf, key: &ReadKey) -> Result<Self, StoreError> {
        let file = CampaignFile::read(&folder, key)?;
        let is_older = file.is_older();
        Ok(Self { meta: file.meta, keep: file.keep, folder, key: key.clone(), is_older })
    }

    /// Migrates it, if an older version wrote it; done by whoever reads it first.
    pub(crate) fn upgrade(&self) -> Result<(), StoreError> {
        if self.is_older { upgrade_campaign(&self.folder, &self.key) } else { Ok(()) }
    }

    /// The folder of the campaign.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The key of its sealed files.
    pub(super) fn key(&self) -> &ReadKey {
        &self.key
    }

    /// A reader of its spans, runs and logs.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        self.upgrade()?;
        Reader::open(&self.folder, &self.key)
    }

    /// Its events from an offset on: `0` for all, `next` of an earlier result for those since.
    pub fn events<E: DeserializeOwned>(&self, from: u64) -> Result<Events<E>, StoreError> {
        self.upgrade()?;
        event_log::read(&self.folder, from, &self.key)
    }

    /// Its report, if there is one already.
    pub fn report<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        self.upgrade()?;
        self.read_report()
    }

    /// Whether an older version wrote it.
    pub(crate) fn is_older(&self) -> bool {
        self.is_older
    }

    /// As [`Self::report`], without a migration.
    pub(crate) fn read_report<T: DeserializeOwned>(&self) -> Result<Option<T>, StoreError> {
        let path = self.folder.join(REPORT);
        let text = match files::read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = |error: serde_json::Error| StoreError::damaged(&path, error.to_string());
        let mut value: serde_json::Value = serde_json::from_str(&text).map_err(damaged)?;
        if let Some(sealed) = value["sealed"].as_str() {
            let plain =
                open_text(&self.key, REPORT, sealed).map_err(|error| StoreError::unseal(&path, &error))?;
            value["report"] = serde_json::from_slice(&plain).map_err(damaged)?;
        }
        let mut value = migrate_value(&path, value, REPORT_STEPS)?;
        let report = serde_json::from_value(value["report"].take());
        report.map(Some).map_err(|error| StoreError::damaged(&path, error.to_string()))
    }

    /// Whether a process is writing it.
    pub fn is_live(&self) -> bool {
        is_held(&self.folder)
    }

    /// The size of its files in bytes.
    pub fn size(&self) -> u64 {
        files::folder_size(&self.folder)
    }
}

/// Warns of a campaign that cannot be read.
pub(crate) fn name_unreadable(error: &StoreError) {
    tracing::warn!(
        %error, cause = %error.source, "a campaign is left out; `faultscope store check` lists all of them"
    );
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
