//! A trace as a waterfall: each span below its parent with start and duration, and the critical path.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use faultscope_model::grpc::GrpcCode;
use faultscope_model::trace::ReportedSpan;
use faultscope_model::trace::{TraceTree, clock_corrections, critical_path, has_failed};
use faultscope_store::interop::zipkin_trace_id;
use serde::Serialize;

use super::labels::span_label;
use super::span_metrics::{MetricsJoin, SpanMetrics};

/// How many spans of the critical path are named.
const MAX_SLOWEST: usize = 3;

/// Tags that hold the status of a gRPC call, by the conventions of tracers for Zipkin and of OpenTelemetry. They come
/// first: such a call has HTTP status 200 however it ended.
const GRPC_TAGS: [&str; 4] =
    ["grpc.status_code", "rpc.grpc.status_code", "rpc.response.status_code", "rpc.status_code"];
/// Tags that hold the status of an HTTP call, by the conventions of Zipkin and of two versions of OpenTelemetry.
const HTTP_TAGS: [&str; 2] = ["http.status_code", "http.response.status_code"];

/// A trace by time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Waterfall {
    /// The trace id in Zipkin's notation.
    pub id: String,
    /// Number of spans.
    pub spans: usize,
    /// Number of failed spans.
    pub failed: usize,
    /// Microseconds from the first start to the last end.
    pub duration_us: u64,
    /// The ids of parents that nobody reported: where spans under them belong is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_parents: Vec<String>,
    /// The spans, parents before their children.
    pub rows: Vec<WaterfallRow>,
    /// The spans in which most of the time was spent, the longest first.
    pub slowest: Vec<Slowest>,
}

/// A row of a waterfall.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaterfallRow {
    /// The number of its ancestors.
    pub depth: usize,
    /// Whether it is the last child of its parent.
    pub is_last: bool,
    /// The span; none for a root that was not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<SpanFacts>,
}

/// The displayed facts of a span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpanFacts {
    /// Service and operation.
    pub label: String,
    /// The duration as reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Start and end in microseconds since the start of the trace, with corrected clocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_us: Option<(u64, u64)>,
    /// Whether its clock was corrected.
    pub is_shifted: bool,
    /// Whether it is on the critical path.
    pub is_critical: bool,
    /// The status of its call; empty if unknown.
    pub status: String,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Metrics of the instance that handled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<SpanMetrics>,
}

/// A span of the critical path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slowest {
    /// Service and operation.
    pub label: String,
    /// Microseconds during which the trace waited for this span only.
    pub held_us: u64,
    /// As a share of the whole, 0 to 1.
    pub share: f64,
}

/// Computes the waterfall; clocks of hosts are corrected unless `raw`.
pub fn draw_waterfall(spans: Vec<ReportedSpan>, raw: bool, metrics: &MetricsJoin) -> Waterfall {
    let tree = TraceTree::new(spans);
    let shifts = if raw { vec![0; tree.spans.len()] } else { clock_corrections(&tree) };
    let time_of = |place: usize| -> Option<(u64, u64)> {
        let span = tree.spans.get(place)?;
        let start = span.start_us?.saturating_add_signed(shifts.get(place).copied().unwrap_or_default());
        Some((start, start.saturating_add(span.duration_us.unwrap_or_default())))
    };
    let times = (0..tree.spans.len()).filter_map(time_of);
    let (start, end) = times.fold((u64::MAX, 0), |(start, end), (from, to)| (start.min(from), end.max(to)));
    let start = start.min(end);
    let mut held: BTreeMap<usize, u64> = BTreeMap::new();
    for step in critical_path(&tree, &shifts) {
        *held.entry(step.span).or_default() += step.end_us - step.start_us;
    }
    let facts_of = |place: usize| {
        let span = tree.spans.get(place)?;
        Some(SpanFacts {
            label: span_label(span),
            duration_us: span.duration_us,
            time_us: time_of(place).map(|(from, to)| (from - start, to - start)),
            is_shifted: shifts.get(place).is_some_and(|shift| *shift != 0),
            is_critical: held.contains_key(&place),
            status: status_of(span),
            error: has_failed(span).then(|| reason_of(span)),
            known: metrics.of_span(span),
        })
    };
    Waterfall {
        id: tree.spans.first().map_or_else(String::new, |span| zipkin_trace_id(span.trace)),
        spans: tree.spans.len(),
        failed: tree.spans.iter().filter(|span| has_failed(span)).count(),
        duration_us: end - start,
        missing_parents: tree.missing.iter().map(ToString::to_string).collect(),
        rows: rows(&tree, facts_of),
        slowest: slowest(&tree, &held, end - start),
    }
}

fn rows(tree: &TraceTree, facts_of: impl Fn(usize) -> Option<SpanFacts>) -> Vec<WaterfallRow> {
    let mut rows = Vec::with_capacity(tree.nodes.len());
    let mut stack: Vec<(usize, usize, bool)> = tree.root.map(|root| (root, 0, true)).into_iter().collect();
    while let Some((at, depth, is_last)) = stack.pop() {
        let Some(node) = tree.nodes.get(at) else { continue };
        rows.push(WaterfallRow { depth, is_last, span: node.span.and_then(&facts_of) });
        let last = node.children.len().saturating_sub(1);
        // A stack returns the last one first, so children are pushed in reverse.
        for (index, child) in node.children.iter().enumerate().rev() {
            stack.push((*child, depth + 1, index == last));
        }
    }
    rows
}

/// The status of a call in the words of its protocol; empty where nobody says.
fn status_of(span: &ReportedSpan) -> String {
    let tag = |tags: &[&str]| tags.iter().find_map(|tag| span.tag(tag)).map(str::to_owned);
    let grpc = tag(&GRPC_TAGS).map(|code| GrpcCode::parse(&code).map_or(code, |code| code.to_string()));
    grpc.or_else(|| tag(&HTTP_TAGS)).unwrap_or_default()
}

fn reason_of(span: &ReportedSpan) -> String {
    let reason = span.tag("error").filter(|text| !text.is_empty() && *text != "true");
    reason.unwrap_or("error").to_owned()
}

fn slowest(tree: &TraceTree, held: &BTreeMap<usize, u64>, whole: u64) -> Vec<Slowest> {
    let mut held: Vec<_> = held.iter().collect();
    held.sort_by_key(|(_, us)| Reverse(**us));
    let named = held.into_iter().take(MAX_SLOWEST).filter_map(|(place, held_us)| {
        let label = span_label(tree.spans.get(*place)?);
        Some(Slowest { label, held_us: *held_us, share: *held_us as f64 / whole.max(1) as f64 })
    });
    named.collect()
}
