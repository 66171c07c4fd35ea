//! Stored reports of campaigns.

use faultscope_model::CampaignKind;
use faultscope_store::{Store, StoredCampaign};
use serde::Serialize;

use super::error::{Subject, ViewError};
use super::find::find_campaign;
use crate::debug::Document;
use crate::replay::ReplayReport;
use crate::resilience::ResilienceReport;

/// The report of a campaign; serialized as the report itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CampaignReport {
    /// Of a debug campaign.
    Debug(Box<Document>),
    /// Of a resilience campaign.
    Resilience(Box<ResilienceReport>),
    /// Of a replay.
    Replay(Box<ReplayReport>),
}

/// Finds a report by the beginning of its campaign's id, or the newest one.
pub fn find_report(store: &Store, wanted: &str) -> Result<CampaignReport, ViewError> {
    if wanted == "last" {
        for campaign in store.campaigns()? {
            if let Some(report) = CampaignReport::read(&campaign)? {
                return Ok(report);
            }
        }
        return Err(ViewError::Empty(Subject::Report));
    }
    let campaign = find_campaign(store, wanted)?;
    CampaignReport::read(&campaign)?.ok_or(ViewError::NoReport(campaign.meta.id))
}

/// The campaign that keeps a bundle: by its name, or `last` for the newest one of `debug`.
pub fn find_debug_campaign(store: &Store, wanted: &str) -> Result<StoredCampaign, ViewError> {
    if wanted != "last" {
        return find_campaign(store, wanted);
    }
    let is_debug = |campaign: &StoredCampaign| campaign.meta.kind == CampaignKind::Debug;
    store.campaigns()?.into_iter().find(is_debug).ok_or(ViewError::Empty(Subject::Report))
}

impl CampaignReport {
    /// Reads the report of a campaign; none while it runs, or if its kind has none.
    pub fn read(campaign: &StoredCampaign) -> Result<Option<Self>, ViewError> {
        Ok(match campaign.meta.kind {
            CampaignKind::Debug => Document::read(campaign)?.map(|document| Self::Debug(Box::new(document))),
            CampaignKind::Resilience => campaign.report()?.map(|report| Self::Resilience(Box::new(report))),
            CampaignKind::Replay => campaign.report()?.map(|report| Self::Replay(Box::new(report))),
            _ => None,
        })
    }
}
