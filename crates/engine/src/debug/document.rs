//! A stored debug campaign with everything that is known about it, for files and pages.

use faultscope_model::CampaignKind;
use faultscope_model::event::Event;
use faultscope_store::{StoreError, StoredCampaign};
use serde::{Deserialize, Serialize};

use super::report::DebugReport;
use super::table::{Course, course};

/// What a debug campaign found, and how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Version of the tool that wrote it.
    pub version: String,
    /// Microseconds since 1970 at its start.
    pub started_us: u64,
    /// What was typed.
    pub command_line: Vec<String>,
    /// Decides every random choice.
    pub seed: u64,
    /// What was found.
    pub report: DebugReport,
    /// How it went.
    pub course: Course,
}

impl Document {
    /// Reads it from the store; none when the campaign has no report of this kind.
    pub fn read(campaign: &StoredCampaign) -> Result<Option<Self>, StoreError> {
        if campaign.meta.kind != CampaignKind::Debug {
            return Ok(None);
        }
        let Some(report) = campaign.report::<DebugReport>()? else { return Ok(None) };
        let events = campaign.events::<Event>(0)?.events;
        Ok(Some(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_us: campaign.meta.started_us,
            command_line: campaign.meta.command_line.clone(),
            seed: campaign.meta.seed,
            course: course(&events, &report.rounds),
            report,
        }))
    }
}
