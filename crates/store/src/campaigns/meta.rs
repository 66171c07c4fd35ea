//! The content of `campaign.json`, and how campaign ids are made.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use faultscope_model::{CampaignId, CampaignKind};
use serde::{Deserialize, Serialize};

use super::migrate::CAMPAIGN_STEPS;
use crate::FORMAT;
use crate::error::{StoreError, StoreErrorKind};
use crate::files;
use crate::format::read_versioned;
use crate::sealed::{AtRest, ReadKey, open_text, seal_text};

/// What identifies and describes a campaign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignMeta {
    /// Also the name of its folder.
    pub id: CampaignId,
    /// The command that it belongs to.
    pub kind: CampaignKind,
    /// The name of the application.
    pub application: String,
    /// The start in microseconds since 1970.
    pub started_us: u64,
    /// The command line that started it.
    pub command_line: Vec<String>,
    /// The source of every random choice in it.
    pub seed: u64,
}

/// `campaign.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CampaignFile {
    /// As found on the disk. Nothing in this file has changed since format 1, so it is written back with the format
    /// that it has: the last step of a migration is to write the present one.
    format: u32,
    /// Whether retention must not remove it.
    #[serde(default)]
    pub(crate) keep: bool,
    /// The sealed command line; the plain one is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<String>,
    #[serde(flatten)]
    pub(crate) meta: CampaignMeta,
}

impl CampaignFile {
    pub(crate) const NAME: &'static str = "campaign.json";

    pub(crate) fn new(meta: CampaignMeta) -> Self {
        Self { format: FORMAT, keep: false, sealed: None, meta }
    }

    /// Whether an older version wrote it, so that other files of the campaign may not be sealed.
    pub(crate) fn is_older(&self) -> bool {
        self.format < FORMAT
    }

    /// Reads the file of a campaign's folder. Without the key the command line is empty: everything else that lists
    /// of campaigns show is plain.
    pub(crate) fn read(folder: &Path, key: &ReadKey) -> Result<Self, StoreError> {
        let path = folder.join(Self::NAME);
        let value = read_versioned(&path, &files::read_text(&path)?, CAMPAIGN_STEPS)?;
        let mut file: Self =
            serde_json::from_value(value).map_err(|error| StoreError::damaged(&path, error.to_string()))?;
        if let Some(sealed) = &file.sealed
            && let Ok(plain) = open_text(key, Self::NAME, sealed)
        {
            file.meta.command_line = serde_json::from_slice(&plain).unwrap_or_default();
        }
        Ok(file)
    }

    /// Seals the command line, unless it is to stay plain.
    pub(crate) fn seal_command_line(&mut self, folder: &Path, at_rest: &AtRest) -> Result<(), StoreError> {
        let path = folder.join(Self::NAME);
        if let Some(key) = at_rest.key() {
            let plain = serde_json::to_vec(&self.meta.command_line).unwrap_or_default();
            self.sealed = Some(seal_text(key, Self::NAME, &plain).map_err(StoreError::io("seal", &path))?);
        }
        Ok(())
    }

    /// Says that all files of the campaign have the present format.
    pub(crate) fn finish_upgrade(&mut self) {
        self.format = FORMAT;
    }

    /// Writes the file into a campaign's folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(Self::NAME);
        let mut shown = self.clone();
        if shown.sealed.is_some() {
            shown.meta.command_line.clear();
        }
        let text = serde_json::to_string_pretty(&shown)
            .map_err(|error| StoreError::new(StoreErrorKind::Other, "write", &path, error.to_string()))?;
        files::write_text(&path, &(text + "\n"))
    }
}

/// Makes a unique id: four random digits that are easy to type, then time and process.
pub fn new_campaign_id(started_us: u64) -> CampaignId {
    let random = RandomState::new().hash_one((started_us, std::process::id())) & 0xffff;
    let text = format!("{random:04x}-{:x}-{:x}", started_us, std::process::id());
    // Hexadecimal digits and dashes are always a valid id.
    text.parse().unwrap_or_else(|_| unreachable!("`{text}` is made of plain characters"))
}
