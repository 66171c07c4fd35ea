//! Traces: the list that a search finds, and one trace with everything that is known about it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

use faultscope_model::ServiceName;
use faultscope_model::trace::{
    ReportedSpan, TraceQuery, TraceTree, has_failed, is_mesh_call, trace_start_us,
};
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
    /// The number of spans that are named as a parent and were never reported.
    #[serde(skip_serializing_if = "is_zero")]
    pub missing_parents: usize,
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
    if query.service.is_none() && query.name.is_none() {
        return Ok(archive.spans().search(query, matches)?);
    }
    let anyone = TraceQuery { service: None, name: None, ..query.clone() };
    let is_wanted = |spans: &[ReportedSpan]| {
        matches(&anyone, spans) && (matches(query, spans) || spans.iter().any(|span| is_called(query, span)))
    };
    let search = |candidates: &TraceQuery| archive.spans().search(candidates, |_, spans| is_wanted(spans));
    let Some(service) = &query.service else {
        // No index knows the other names of an operation, so the latest traces are looked through.
        let mut found =
            archive.spans().search(&TraceQuery { limit: MAX_SEARCHED, ..anyone.clone() }, matches)?;
        found.retain(|spans| is_wanted(spans));
        found.truncate(query.limit);
        return Ok(found);
    };
    if !query.terms.is_empty() {
        // A tag is rarer than a service.
        return Ok(search(&anyone)?);
    }
    // Both indexes of services are asked: a service that reports nothing is known from its callers.
    let any_span = TraceQuery { remote_service: None, least_us: None, most_us: None, ..anyone.clone() };
    let mut found = search(&TraceQuery { service: Some(service.clone()), ..any_span.clone() })?;
    let id_of = |spans: &[ReportedSpan]| spans.first().map(|span| span.trace);
    let ids: HashSet<_> = found.iter().map(|spans| id_of(spans)).collect();
    let called = search(&TraceQuery { remote_service: Some(service.clone()), ..any_span })?;
    found.extend(called.into_iter().filter(|spans| !ids.contains(&id_of(spans))));
    found.sort_by_key(|spans| Reverse(trace_start_us(spans)));
    found.truncate(query.limit);
    Ok(found)
}

/// Traces that are looked through for an operation, the latest ones: they are in memory at once.
const MAX_SEARCHED: usize = 10_000;

/// Whether a span is of the service that was asked for, as the one who calls or the one who is called, and of the
/// operation: by its name, by method and path, or by the path alone.
fn is_called(query: &TraceQuery, span: &ReportedSpan) -> bool {
    let is_same =
        |asked: &str, found: Option<&str>| found.is_some_and(|found| asked.eq_ignore_ascii_case(found));
    let is_of = |service: &str| {
        is_same(service, span.local.service.as_deref()) || is_same(service, span.remote.service.as_deref())
    };
    query.service.as_deref().is_none_or(is_of)
        && query
            .name
            .as_deref()
            .is_none_or(|asked| operations_of(span).iter().any(|name| is_same(asked, Some(name))))
}

/// The names by which people know what a span did.
fn operations_of(span: &ReportedSpan) -> Vec<String> {
    let mut names = vec![span.name.clone()];
    if let (Some(method), Some(path)) = (span.tag("http.method"), span.tag("http.path")) {
        let path = path.split('?').next().unwrap_or_default();
        names.extend([format!("{method} {path}"), path.to_owned(), path.trim_start_matches('/').to_owned()]);
    }
    names
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
    /// The spans as Zipkin writes them; those of known instances also have `metrics`, and those whose parent was never
    /// reported `parentMissing`.
    pub fn to_zipkin(&self) -> serde_json::Result<Vec<u8>> {
        let json = zipkin::to_json(&self.spans);
        let missing = &self.waterfall.missing_parents;
        if self.known.iter().all(Option::is_none) && missing.is_empty() {
            return Ok(json);
        }
        let mut spans: Vec<serde_json::Value> = serde_json::from_slice(&json)?;
        for (span, known) in spans.iter_mut().zip(&self.known) {
            if let Some(known) = known {
                span["metrics"] = serde_json::to_value(known)?;
            }
            if span["parentId"].as_str().is_some_and(|parent| missing.iter().any(|id| id == parent)) {
                span["parentMissing"] = true.into();
            }
        }
        serde_json::to_vec(&spans)
    }
}

impl TraceLine {
    fn new(spans: &[ReportedSpan]) -> Self {
        let tree = TraceTree::new(spans.to_vec());
        let ends = spans
            .iter()
            .filter_map(|span| Some(span.start_us?.saturating_add(span.duration_us.unwrap_or_default())));
        let starts = spans.iter().filter_map(|span| span.start_us);
        // A service behind a recorded call need not report anything itself.
        let called = spans.iter().filter(|span| is_mesh_call(span)).map(|span| &span.remote);
        let sides = spans.iter().map(|span| &span.local).chain(called);
        let services: BTreeSet<&str> = sides
            .filter_map(|side| side.service.as_deref())
            .filter(|service| *service != ServiceName::TEST)
            .collect();
        Self {
            id: spans.first().map_or_else(String::new, |span| zipkin_trace_id(span.trace)),
            start_us: trace_start_us(spans),
            duration_us: ends.max().unwrap_or_default().saturating_sub(starts.min().unwrap_or_default()),
            root: tree.first_span().map(span_label).unwrap_or_default(),
            missing_parents: tree.missing.len(),
            spans: tree.spans.len(),
            services: services.len(),
            errors: spans.iter().filter(|span| has_failed(span)).count(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
