//! Reads batches from what is stored.

use faultscope_model::Run;
use faultscope_model::trace::TraceQuery;

use super::batch::{Batch, ObservedCall};
use crate::views::{Archive, ViewError, find_run};

/// Traces that are read at once: they are in memory together.
const MAX_TRACES: usize = 20_000;

/// All that was recorded of a run, by any of its names.
pub fn read_run(archive: &Archive, wanted: &str) -> Result<(Run, Batch), ViewError> {
    let found = find_run(&archive.store()?, wanted)?;
    let trial = found.run.trial;
    let calls = found.reader.spans_of(trial)?.iter().filter_map(ObservedCall::from_call).collect();
    let samples = found.reader.samples_of(Some(trial))?;
    Ok((found.run, Batch { calls, samples, is_cut: false }))
}

/// What was stored between two times in microseconds since 1970, the first one excluded: what services sent, and what
/// campaigns recorded.
pub fn read_between(archive: &Archive, after_us: u64, until_us: u64) -> Result<Batch, ViewError> {
    let query = TraceQuery {
        end_us: until_us,
        lookback_us: until_us.saturating_sub(after_us),
        limit: MAX_TRACES,
        ..TraceQuery::default()
    };
    let inside = |at_us: u64| after_us < at_us && at_us <= until_us;
    let traces = archive
        .spans()
        .search(&query, |_, spans| spans.iter().any(|span| span.start_us.is_some_and(inside)))?;
    let is_cut = traces.len() >= MAX_TRACES;
    let calls = traces.iter().flatten().filter_map(ObservedCall::from_report);
    let calls = calls.filter(|call| inside(call.at_us)).collect();
    let mut samples = Vec::new();
    for campaign in archive.newest()? {
        let (_, reader) = campaign?;
        samples.extend(reader.samples_between(None, (after_us.saturating_add(1), until_us))?);
    }
    Ok(Batch { calls, samples, is_cut })
}
