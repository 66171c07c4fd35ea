//! Calls that were recorded elsewhere, stored as a run of this store.

use faultscope_model::event::Event;
use faultscope_model::units::count;
use faultscope_model::{CampaignKind, Run, Span, TrialId, TrialRole};
use faultscope_store::Store;

use super::{RecordOptions, SLOT, begun_run, open_campaign, put_run};
use crate::error::EngineError;
use crate::session::{EventBus, now_us, run_id};

/// Calls and bytes that may wait for the store before the next one is read: it must not drop any.
const MAX_WAITING: usize = 2_000;
const MAX_WAITING_BYTES: u64 = 16 << 20;

/// Stores calls as the run of a campaign of their own. Nothing of them stays if one cannot be read.
pub async fn import_calls<E>(
    options: &RecordOptions,
    mut next: impl FnMut() -> Result<Option<Span>, E>,
) -> Result<Result<Run, E>, EngineError> {
    let trial = TrialId::new(TrialRole::Search, 1);
    let campaign = std::sync::Arc::new(open_campaign(options, now_us())?);
    let events = EventBus::new(campaign.clone());
    events.emit(Event::CampaignStarted {
        campaign: campaign.id().clone(),
        purpose: CampaignKind::Record,
        slots: 1,
        seed: options.seed,
    });
    let sink = campaign.sink();
    let (mut calls, mut first_us, mut end_us) = (0_u64, u64::MAX, 0);
    let (mut waiting, mut waiting_bytes) = (0, 0);
    let failed = loop {
        let call = match next() {
            Ok(Some(call)) => call,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        calls += 1;
        first_us = first_us.min(call.start_us);
        end_us = end_us.max(call.start_us.saturating_add(call.duration_us));
        waiting += 1;
        waiting_bytes += call.request_bytes.saturating_add(call.response_bytes);
        sink.record(trial, SLOT, call);
        if waiting >= MAX_WAITING || waiting_bytes >= MAX_WAITING_BYTES {
            campaign.flush().await?;
            (waiting, waiting_bytes) = (0, 0);
        }
    };
    campaign.flush().await?;
    if let Some(error) = failed {
        let id = campaign.id().clone();
        drop((sink, events, campaign));
        Store::open(&options.state)?.remove(&id)?;
        return Ok(Err(error));
    }
    let mut run = begun_run(run_id(campaign.id(), trial)?, trial, first_us.min(now_us()), options.seed);
    (run.evidence.spans, run.evidence.spans_dropped) = (calls, campaign.dropped());
    run.cost.total = std::time::Duration::from_micros(end_us.saturating_sub(run.started_us));
    put_run(&campaign, &run).await?;
    events.emit(Event::CampaignFinished { summary: count(calls, "call") });
    campaign.flush().await?;
    Ok(Ok(run))
}
