//! Repairs the parts of a store that need it.

use std::path::Path;

use super::{PartKind, PartState, Repair, RepairAction, StorePart, check_store, set_aside};
use crate::campaigns::{migrate_campaign, repair_campaign};
use crate::error::StoreError;
use crate::sealed::ReadKey;
use crate::secrets::KeyPlace;
use crate::spans::{finish_salvage, lock_spans, migrate_slice, salvage_slice};

/// Repairs every part that is damaged or of an older format; returns what was done to each.
pub fn repair_store(state: &Path, place: Option<KeyPlace>) -> Result<Vec<Repair>, StoreError> {
    let key = ReadKey::new(place.clone());
    // What a killed repair had salvaged already is put in its place.
    finish_salvage(state)?;
    let mut repairs = Vec::new();
    for part in check_store(state, place)? {
        let action = match &part.state {
            PartState::Ok | PartState::InUse => continue,
            PartState::NeedsMigration => migrate(&part, &key),
            PartState::Damaged { .. } => repair(state, &part, &key),
            PartState::Newer { .. } => {
                Ok(RepairAction::LeftAlone { reason: "a newer version of faultscope reads it".to_owned() })
            }
            PartState::Sealed { .. } => {
                let reason = "it can be read with the key that sealed it".to_owned();
                Ok(RepairAction::LeftAlone { reason })
            }
        };
        let failed =
            |error: StoreError| RepairAction::LeftAlone { reason: format!("{error}: {}", error.source) };
        let action = action.unwrap_or_else(failed);
        repairs.push(Repair { part, action });
    }
    Ok(repairs)
}

fn migrate(part: &StorePart, key: &ReadKey) -> Result<RepairAction, StoreError> {
    match part.kind {
        PartKind::Campaign => migrate_campaign(&part.path, key)?,
        PartKind::Slice => migrate_slice(&part.path, key)?,
        PartKind::Catalogue => {}
    }
    Ok(RepairAction::Migrated)
}

fn repair(state: &Path, part: &StorePart, key: &ReadKey) -> Result<RepairAction, StoreError> {
    match part.kind {
        PartKind::Campaign => repair_campaign(state, &part.path, key),
        PartKind::Slice => {
            let _lock = lock_spans(&part.path)?;
            salvage_slice(state, &part.path, key)
        }
        // The next writer makes another one from the files of the slices.
        PartKind::Catalogue => {
            let _lock = lock_spans(&part.path)?;
            set_aside(state, &part.path).map(|moved_to| RepairAction::SetAside { moved_to })
        }
    }
}
