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
    format: u32,
    /// Whether retention must not remove it.
    #[serde(default)]
    pub(crate) keep: bool,
    #[serde(flatten)]
    pub(crate) meta: CampaignMeta,
}

impl CampaignFile {
    pub(crate) const NAME: &'static str = "campaign.json";

    pub(crate) fn new(meta: CampaignMeta) -> Self {
        Self { format: FORMAT, keep: false, meta }
    }

    /// Reads the file of a campaign's folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(Self::NAME);
        let value = read_versioned(&path, &files::read_text(&path)?, CAMPAIGN_STEPS)?;
        let mut file: Self =
            serde_json::from_value(value).map_err(|error| StoreError::damaged(&path, error.to_string()))?;
        file.format = FORMAT;
        Ok(file)
    }

    /// Writes the file into a campaign's folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(Self::NAME);
        let text = serde_json::to_string_pretty(self)
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
