//! Traces of campaigns: calls that the mesh recorded and spans that instances reported, in the form of ingested
//! spans, so that both join.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use faultscope_model::trace::{INSTANCE_TAG, ReportedSpan, group_by_trace, report_call};
use faultscope_model::{CampaignId, Span, TraceId};

use super::folder::{Store, name_unreadable};
use super::reader::Reader;
use super::reported_spans::StoredReport;
use crate::error::{StoreError, StoreErrorKind};
use crate::sealed::ReadKey;

/// How many campaigns are searched, the newest first.
const MAX_CAMPAIGNS: usize = 50;

/// How many calls of one campaign are searched, the latest first.
const MAX_SPANS: usize = 20_000;

/// How many bytes of the payloads of calls, and of reported spans, are read of one campaign.
const MAX_BYTES: usize = 24 << 20;

/// The campaigns of a `.faultscope` folder.
#[derive(Debug)]
pub(crate) struct CampaignTraces {
    state: PathBuf,
    key: ReadKey,
    open: Mutex<BTreeMap<CampaignId, Arc<Reader>>>,
    /// Campaigns that cannot be read; each is named once.
    unreadable: Mutex<BTreeSet<CampaignId>>,
}

/// Calls and reported spans of one trace, or of one run, in the form that a tracer reports.
pub fn joined(calls: &[Span], reports: Vec<StoredReport>) -> Vec<ReportedSpan> {
    let reported = reports.into_iter().map(|StoredReport { instance, mut span, .. }| {
        if let Some(instance) = instance {
            span.tags.push((INSTANCE_TAG.to_owned(), instance.to_string()));
        }
        span
    });
    calls.iter().filter(|call| call.is_traffic()).map(report_call).chain(reported).collect()
}

impl CampaignTraces {
    pub(crate) fn new(state: &Path) -> Self {
        let key = ReadKey::default();
        Self { state: state.to_owned(), key, open: Mutex::default(), unreadable: Mutex::default() }
    }

    pub(crate) fn with_key(self, key: ReadKey) -> Self {
        Self { key, ..self }
    }

    /// All spans of a trace.
    pub(crate) fn trace(&self, id: TraceId) -> Result<Vec<ReportedSpan>, StoreError> {
        let mut spans = Vec::new();
        for (campaign, reader) in self.readers(0)? {
            let read = || Ok(joined(&reader.spans_of_trace(id)?, reader.reported_of_trace(id)?));
            spans.extend(self.or_nothing(&campaign, read())?);
        }
        Ok(spans)
    }

    /// Passes on the traces of recent campaigns that began before a moment, each in the order of arrival. One campaign
    /// at a time is in memory.
    pub(crate) fn visit_traces(
        &self,
        until_us: u64,
        visit: &mut dyn FnMut(Vec<ReportedSpan>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for (campaign, reader) in self.readers(until_us)? {
            let (calls, reports) = self.or_nothing(&campaign, reader.latest(MAX_SPANS, MAX_BYTES))?;
            let joined = joined(&calls, reports);
            drop(calls);
            group_by_trace(joined, true).into_iter().try_for_each(&mut *visit)?;
        }
        Ok(())
    }

    /// Readers of campaigns that began before a moment, the newest first.
    fn readers(&self, until_us: u64) -> Result<Vec<(CampaignId, Arc<Reader>)>, StoreError> {
        // A folder with only ingested spans has no campaigns, and reading must not create the folder for them.
        if !self.state.join("campaigns").is_dir() {
            return Ok(Vec::new());
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = Store::open(&self.state)?.with_read_key(self.key.clone()).campaigns()?;
        open.retain(|id, _| listed.iter().any(|campaign| campaign.meta.id == *id));
        let mut readers = Vec::new();
        let in_time = |started_us: u64| until_us == 0 || started_us <= until_us;
        for campaign in listed.iter().filter(|c| in_time(c.meta.started_us)).take(MAX_CAMPAIGNS) {
            if let Some(reader) = open.get(&campaign.meta.id) {
                readers.push((campaign.meta.id.clone(), Arc::clone(reader)));
                continue;
            }
            match campaign.reader() {
                Ok(reader) => {
                    let reader = Arc::new(reader);
                    open.insert(campaign.meta.id.clone(), Arc::clone(&reader));
                    readers.push((campaign.meta.id.clone(), reader));
                }
                // Just being created or removed.
                Err(error) if error.kind == StoreErrorKind::NotFound => {}
                Err(error) => self.or_nothing(&campaign.meta.id, Err(error))?,
            }
        }
        Ok(readers)
    }

    /// What was read of a campaign; nothing, with a warning, if it cannot be read, so that others still are.
    fn or_nothing<T: Default>(&self, id: &CampaignId, read: Result<T, StoreError>) -> Result<T, StoreError> {
        match read {
            Err(error) if error.is_local() => {
                let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
                if unreadable.insert(id.clone()) {
                    name_unreadable(&error);
                }
                Ok(T::default())
            }
            other => other,
        }
    }
}
