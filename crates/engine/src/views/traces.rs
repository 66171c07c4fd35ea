//! Traces: the list of those that a search finds, and one with everything that is known of it.

use std::collections::BTreeSet;

use faultscope_model::trace::{ReportedSpan, TraceQuery};
use faultscope_store::interop::query::matches;
use faultscope_store::interop::trace::{failed, merge, start_us};
use faultscope_store::interop::{zipkin, zipkin_trace_id};
use serde::Serialize;

use super::archive::Archive;
use super::error::ViewError;
use super::find::find_trace;
use super::labels::span_label;
use super::span_metrics::{MetricsJoin, MetricsWanted, Missing, SpanMetrics};
use super::waterfall::{Waterfall, draw_waterfall};

/// The traces that a search found, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct TraceList {
    /// One line for each.
    pub traces: Vec<TraceLine>,
    /// Whether spans were ever sent here: a search that finds nothing may have been too narrow.
    #[serde(skip)]
    pub any_sent: bool,
}

/// A trace in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceLine {
    /// Its id, as Zipkin writes it.
    pub id: String,
    /// Microseconds since 1970 at its start, where any span has one.
    pub start_us: Option<u64>,
    /// Microseconds from its first start to its last end.
    pub duration_us: u64,
    /// Its first span in a few words.
    pub root: String,
    /// The number of spans, their pieces joined.
    pub spans: usize,
    /// The number of services that took part.
    pub services: usize,
    /// The number of reports of something that failed.
    pub errors: usize,
}

/// A trace with everything that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceView {
    /// Its spans, in the order of their arrival.
    pub spans: Vec<ReportedSpan>,
    /// What was known of the instance that handled each span.
    pub known: Vec<Option<SpanMetrics>>,
    /// The trace by time.
    pub waterfall: Waterfall,
    /// Metrics that were asked for in vain.
    pub missing: Missing,
}

/// Lists the traces that a search finds.
pub fn list_traces(archive: &Archive, query: &TraceQuery) -> Result<TraceList, ViewError> {
    let found = search_traces(archive, query)?;
    let any_sent = !found.is_empty() || archive.spans().count()? > 0;
    Ok(TraceList { traces: found.iter().map(|spans| TraceLine::new(spans)).collect(), any_sent })
}

/// The spans of the traces that a search finds.
pub fn search_traces(archive: &Archive, query: &TraceQuery) -> Result<Vec<Vec<ReportedSpan>>, ViewError> {
    Ok(archive.spans().search(query, matches)?)
}

/// A trace by its id, its first letters, or `last`; with raw times, or with the clocks of hosts corrected.
pub fn show_trace(
    archive: &Archive,
    wanted: &str,
    raw: bool,
    metrics: &MetricsWanted,
) -> Result<TraceView, ViewError> {
    let spans = find_trace(archive, wanted)?;
    let join = MetricsJoin::read_for_trace(archive, &spans, metrics)?;
    let known: Vec<_> = spans.iter().map(|span| join.of_span(span)).collect();
    let missing = join.missing(known.iter().flatten());
    let waterfall = draw_waterfall(spans.clone(), raw, &join);
    Ok(TraceView { spans, known, waterfall, missing })
}

impl TraceView {
    /// The spans as Zipkin writes them; those of known instances also have `metrics`.
    pub fn to_zipkin(&self) -> serde_json::Result<Vec<u8>> {
        let json = zipkin::to_json(&self.spans);
        if self.known.iter().all(Option::is_none) {
            return Ok(json);
        }
        let mut spans: Vec<serde_json::Value> = serde_json::from_slice(&json)?;
        for (span, known) in spans.iter_mut().zip(&self.known) {
            if let Some(known) = known {
                span["metrics"] = serde_json::to_value(known)?;
            }
        }
        serde_json::to_vec(&spans)
    }
}

impl TraceLine {
    fn new(spans: &[ReportedSpan]) -> Self {
        let root = spans.iter().find(|span| span.parent.is_none() && !span.shared);
        let root = root.or_else(|| spans.iter().min_by_key(|span| span.start_us.unwrap_or(u64::MAX)));
        let ends = spans
            .iter()
            .filter_map(|span| Some(span.start_us?.saturating_add(span.duration_us.unwrap_or_default())));
        let starts = spans.iter().filter_map(|span| span.start_us);
        let services: BTreeSet<_> = spans.iter().filter_map(|span| span.local.service.as_deref()).collect();
        Self {
            id: spans.first().map_or_else(String::new, |span| zipkin_trace_id(span.trace)),
            start_us: start_us(spans),
            duration_us: ends.max().unwrap_or_default().saturating_sub(starts.min().unwrap_or_default()),
            root: root.map(span_label).unwrap_or_default(),
            spans: merge(spans.to_vec()).len(),
            services: services.len(),
            errors: spans.iter().filter(|span| failed(span)).count(),
        }
    }
}
