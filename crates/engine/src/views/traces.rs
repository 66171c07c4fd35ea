//! Traces: the list that a search finds, and one trace with everything that is known about it.

use std::collections::BTreeSet;

use faultscope_model::trace::{ReportedSpan, TraceQuery, has_failed, merge_pieces, trace_start_us};
use faultscope_store::interop::query::matches;
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
    /// One row per trace.
    pub traces: Vec<TraceLine>,
    /// Whether any spans were ever sent: a search that finds nothing may have been too narrow.
    #[serde(skip)]
    pub any_sent: bool,
}

/// A row in the list of traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceLine {
    /// In Zipkin's notation.
    pub id: String,
    /// The start in microseconds since 1970, if any span has one.
    pub start_us: Option<u64>,
    /// From the first start to the last end.
    pub duration_us: u64,
    /// The label of the first span.
    pub root: String,
    /// Number of spans.
    pub spans: usize,
    /// Number of services.
    pub services: usize,
    /// Number of failed spans as reported.
    pub errors: usize,
}

/// A trace with everything that is known about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceView {
    /// Its spans, in the order of arrival.
    pub spans: Vec<ReportedSpan>,
    /// Metrics of the instance that handled each span.
    pub known: Vec<Option<SpanMetrics>>,
    /// The trace as a waterfall.
    pub waterfall: Waterfall,
    /// Requested metrics that were not found.
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

/// Shows a trace by its id, its beginning, or `last`; with raw times, or with corrected clocks.
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
    /// The spans in Zipkin's format; those of known instances also have `metrics`.
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
            start_us: trace_start_us(spans),
            duration_us: ends.max().unwrap_or_default().saturating_sub(starts.min().unwrap_or_default()),
            root: root.map(span_label).unwrap_or_default(),
            spans: merge_pieces(spans.to_vec()).len(),
            services: services.len(),
            errors: spans.iter().filter(|span| has_failed(span)).count(),
        }
    }
}
