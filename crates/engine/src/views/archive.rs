//! The `.faultscope` folder beside an application file, opened for reading.

use std::path::{Path, PathBuf};

use faultscope_store::spans::SpanReader;
use faultscope_store::{Reader, Store, StoreError, StoreErrorKind, StoredCampaign};

use super::error::{Subject, ViewError};

/// How many campaigns are searched for metrics, the newest first. Each is a database to open; older ones are found by
/// naming their run.
const MAX_CAMPAIGNS: usize = 50;

/// A `.faultscope` folder: stored campaigns, and what services sent to it.
#[derive(Debug)]
pub struct Archive {
    state: PathBuf,
    spans: SpanReader,
}

impl Archive {
    /// Opens a `.faultscope` folder; if there is none, the error names what was requested.
    pub fn open(state: &Path, wanted: Subject) -> Result<Self, ViewError> {
        if !state.is_dir() {
            return Err(ViewError::NoStore { wanted, place: state.to_owned() });
        }
        Ok(Self { state: state.to_owned(), spans: SpanReader::open(state, true) })
    }

    /// Its campaigns. Opened on demand, since opening creates their folder.
    pub fn store(&self) -> Result<Store, ViewError> {
        Ok(Store::open(&self.state)?)
    }

    /// Its spans and points: what services sent, and traces of campaigns.
    pub fn spans(&self) -> &SpanReader {
        &self.spans
    }

    /// The newest campaigns with their readers, opened one after another.
    pub(crate) fn newest(
        &self,
    ) -> Result<impl Iterator<Item = Result<(StoredCampaign, Reader), ViewError>>, ViewError> {
        let campaigns = self.store()?.campaigns()?.into_iter().take(MAX_CAMPAIGNS);
        Ok(campaigns.filter_map(|campaign| match campaign.reader() {
            Ok(reader) => Some(Ok((campaign, reader))),
            // Another process may remove a campaign at any moment; a missing one has nothing to show.
            Err(error) if error.kind == StoreErrorKind::NotFound => None,
            Err(error) => leave_out(&campaign, error).err().map(|error| Err(error.into())),
        }))
    }
}

/// Names a campaign that cannot be read and goes on without it; an error if that concerns more than this campaign.
pub(super) fn leave_out(campaign: &StoredCampaign, error: StoreError) -> Result<(), StoreError> {
    if !error.is_local() {
        return Err(error);
    }
    let id = &campaign.meta.id;
    tracing::warn!(campaign = %id, cause = %error.source, "{error}: it is left out; `faultscope store check` lists all");
    Ok(())
}
