//! Reads runs and spans back from the store.

use faultscope_model::log::InstanceLog;
use faultscope_model::span::adopt_orphans;
use faultscope_model::{Run, Span, TrialId};
use faultscope_store::{Edge, Reader, StoreError};

use crate::error::EngineError;
use crate::session::Session;

/// The runs of a campaign by trial; records of a later version are left out.
pub fn runs(reader: &Reader) -> Result<Vec<Run>, StoreError> {
    let read = |stored: faultscope_store::StoredRun| match serde_json::from_str(&stored.json) {
        Ok(run) => Some(run),
        Err(error) => {
            tracing::warn!(run = %stored.id, %error, "a stored run cannot be read");
            None
        }
    };
    Ok(reader.runs()?.into_iter().filter_map(read).collect())
}

impl Session {
    /// The calls of a trial, in the order of their start, each under the call it was made in.
    pub async fn spans_of(&self, trial: TrialId) -> Result<Vec<Span>, EngineError> {
        let mut spans = self.read(move |reader| reader.spans_of(trial)).await?;
        spans.retain(Span::is_traffic);
        adopt_orphans(&mut spans);
        Ok(spans)
    }

    /// What the instances of a trial printed.
    pub(crate) async fn logs_of(&self, trial: TrialId) -> Result<Vec<InstanceLog>, EngineError> {
        self.read(move |reader| reader.logs_of(trial)).await
    }

    /// The calls between services in a trial.
    pub async fn edges_of(&self, trial: TrialId) -> Result<Vec<Edge>, EngineError> {
        self.read(move |reader| reader.edges(Some(trial))).await
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.campaign.flush().await?;
        let reader = self.campaign.reader()?;
        // Readers block on the disk.
        let task = tokio::task::spawn_blocking(move || query(&reader));
        let answer =
            task.await.map_err(|e| EngineError::Internal(format!("reading the store panicked: {e}")))?;
        Ok(answer?)
    }
}
