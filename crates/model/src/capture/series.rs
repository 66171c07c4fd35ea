//! Finds series in recorded calls: overlapping calls of one handling, and the order of their responses.

use std::collections::BTreeMap;

use super::Captured;
use crate::application::Application;
use crate::circumstance::Order;
use crate::ids::{ServiceName, SpanId};
use crate::operation::OperationPattern;
use crate::series::CallName;
use crate::span::{Span, Wire};
use crate::trace::{ReportedSpan, SpanKind};

/// A series of n calls yields n(n-1)/2 deltas; with 12 that is 66, more than all other deltas of most applications.
const MAX_SERIES: usize = 12;

/// A call made while a request was handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedCall {
    /// Identifies the handling, so that its calls can be grouped.
    pub handling: u64,
    /// The service that handled the request.
    pub from: String,
    /// Method and path of the handled request.
    pub handled: (String, String),
    /// The service that was called.
    pub callee: String,
    /// Method and path of the call itself.
    pub operation: (String, String),
    /// Microseconds since 1970.
    pub start_us: u64,
    /// Microseconds since 1970.
    pub end_us: u64,
}

/// The nested calls among those that the mesh recorded.
pub fn nested_calls_of_spans(spans: &[Span]) -> Vec<NestedCall> {
    let by_id: BTreeMap<SpanId, &Span> = spans.iter().map(|s| (s.id, s)).collect();
    let call = |span: &Span| {
        let handling = by_id.get(&span.parent?)?;
        let is_request = |s: &Span| matches!(s.wire, Wire::Http1 | Wire::Http2);
        (is_request(span) && is_request(handling)).then(|| NestedCall {
            handling: handling.id.0,
            from: handling.callee.to_string(),
            handled: (handling.method.clone(), handling.path.clone()),
            callee: span.callee.to_string(),
            operation: (span.method.clone(), span.path.clone()),
            start_us: span.start_us,
            end_us: span.start_us.saturating_add(span.duration_us),
        })
    };
    spans.iter().filter_map(call).collect()
}

/// The nested calls among those that services reported: client spans below a server span, with any number of
/// internal spans between. Where only callers report, the call that led to the service stands for the handling.
pub fn nested_calls_of_reports(spans: &[ReportedSpan]) -> Vec<NestedCall> {
    let server_of = |id: SpanId| spans.iter().find(|s| s.id == id && s.kind == Some(SpanKind::Server));
    let led_to = |id: SpanId, service: &Option<String>| {
        let leads = |s: &&ReportedSpan| s.id == id && s.kind == Some(SpanKind::Client);
        spans.iter().filter(leads).find(|s| s.remote.service == *service)
    };
    let inner_of = |id: SpanId| spans.iter().find(|s| s.id == id && s.kind.is_none());
    let call = |span: &ReportedSpan| {
        let mut parent = span.parent?;
        // Deeper than any real nesting; a cycle in damaged data must not loop forever.
        let handling = (0..64).find_map(|_| {
            let found = server_of(parent).or_else(|| led_to(parent, &span.local.service));
            if found.is_none() {
                parent = inner_of(parent)?.parent?;
            }
            found
        })?;
        let answered = |s: &&ReportedSpan| {
            s.kind == Some(SpanKind::Server) && (s.parent == Some(span.id) || (s.id == span.id && s.shared))
        };
        let callee = spans.iter().find(answered).and_then(|s| s.local.service.clone());
        Some(NestedCall {
            handling: handling.id.0,
            from: span.local.service.clone()?,
            handled: operation_of(handling)?,
            callee: callee.or_else(|| span.remote.service.clone())?,
            operation: operation_of(span)?,
            start_us: span.start_us?,
            end_us: span.start_us?.saturating_add(span.duration_us.unwrap_or_default()),
        })
    };
    spans.iter().filter(|s| s.kind == Some(SpanKind::Client)).filter_map(call).collect()
}

fn operation_of(span: &ReportedSpan) -> Option<(String, String)> {
    let tag = |names: &[&str]| names.iter().find_map(|name| span.tag(name)).map(ToOwned::to_owned);
    let (first, second) = span.name.split_once(' ').unwrap_or(("", ""));
    let method = tag(&["http.request.method", "http.method"]);
    let method = method.or_else(|| (!first.is_empty()).then(|| first.to_owned()))?;
    let path = tag(&["url.path", "http.path", "http.target", "http.route", "url.full", "http.url"]);
    let path = path.or_else(|| second.starts_with('/').then(|| second.to_owned()))?;
    let path = match path.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]).to_owned(),
        None => path,
    };
    Some((method.to_uppercase(), path))
}

/// Orders in which concurrent calls were answered, as far as every handling of the same request had the same one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedOrders {
    /// Series that were answered in another order than they were called, always in the same one.
    pub orders: Vec<Order>,
    /// Handlings whose series were answered now in this order, now in that one: none can be imposed on all.
    pub ambiguous: Vec<(ServiceName, OperationPattern)>,
}

/// Finds the orders of answers that a replay has to impose to see the same again.
pub fn recorded_orders(application: &Application, spans: &[Span]) -> RecordedOrders {
    let mut found = RecordedOrders::default();
    for ((from, handling), series) in series_by_handling(application, &nested_calls_of_spans(spans)) {
        let Some(first) = series.first() else { continue };
        if series.iter().any(|other| other.answered != first.answered) {
            found.ambiguous.push((from, handling));
        } else if first.overtakes {
            found.orders.push(Order { from, handling, order: first.answered.clone() });
        }
    }
    found
}

/// Adds the order of every series that was answered in another order than it was called.
pub(super) fn add(application: &Application, calls: &[NestedCall], captured: &mut Captured) {
    for ((from, handling), series) in series_by_handling(application, calls) {
        // The latest handling with another order, since it is closest to the failure.
        let Some(best) = series.into_iter().max_by_key(|series| (series.overtakes, series.start_us)) else {
            continue;
        };
        if best.overtakes {
            captured.failing.sequence.push(Order { from, handling, order: best.answered });
        } else {
            captured.notes.push(format!(
                "{} calls of {from} {handling} overlap, but were answered in the order in which they were made",
                best.answered.len()
            ));
        }
    }
}

/// The overlapping calls of one handling.
struct Series {
    /// The calls in the order of their answers.
    answered: Vec<CallName>,
    /// Whether that is another order than the one in which they were made.
    overtakes: bool,
    start_us: u64,
}

/// The series of all handlings, by the service and the request that it handles.
fn series_by_handling(
    application: &Application,
    calls: &[NestedCall],
) -> BTreeMap<(ServiceName, OperationPattern), Vec<Series>> {
    let mut handlings: BTreeMap<u64, Vec<&NestedCall>> = BTreeMap::new();
    for call in calls {
        handlings.entry(call.handling).or_default().push(call);
    }
    let mut found: BTreeMap<(ServiceName, OperationPattern), Vec<Series>> = BTreeMap::new();
    for list in handlings.values_mut() {
        list.sort_by_key(|call| (call.start_us, call.end_us));
        let Some(series) = overlapping(list) else { continue };
        let Some(named) = name(application, &series) else { continue };
        let (from, handled) = (&series[0].from, pattern(&series[0].handled));
        let (Ok(from), Some(handled)) = (from.parse::<ServiceName>(), handled) else { continue };
        let mut ends: Vec<(u64, &CallName)> =
            series.iter().zip(&named).map(|(call, name)| (call.end_us, name)).collect();
        ends.sort_by_key(|(end, _)| *end);
        let answered: Vec<CallName> = ends.into_iter().map(|(_, name)| name.clone()).collect();
        let overtakes = answered != named;
        let start_us = series[0].start_us;
        found.entry((from, handled)).or_default().push(Series { answered, overtakes, start_us });
    }
    found
}

/// The first calls of a handling that were all in flight before any of them was answered.
fn overlapping<'a>(calls: &[&'a NestedCall]) -> Option<Vec<&'a NestedCall>> {
    let mut start = 0;
    let mut longest: Vec<&NestedCall> = Vec::new();
    while start < calls.len() {
        let mut first_end = calls[start].end_us;
        let mut end = start + 1;
        while end < calls.len() && calls[end].start_us < first_end {
            first_end = first_end.min(calls[end].end_us);
            end += 1;
        }
        if end - start > longest.len() {
            longest = calls[start..end].to_vec();
        }
        start = end;
    }
    longest.truncate(MAX_SERIES);
    (longest.len() > 1).then_some(longest)
}

/// Names the calls of a series; none if one of them goes to an unknown service.
fn name(application: &Application, series: &[&NestedCall]) -> Option<Vec<CallName>> {
    let mut named: Vec<CallName> = Vec::new();
    for call in series {
        let callee: ServiceName = call.callee.parse().ok()?;
        if !application.services.contains_key(&callee)
            || !application.services.contains_key(call.from.as_str())
        {
            return None;
        }
        let operation = pattern(&call.operation)?;
        let before = named.iter().filter(|n| n.callee == callee && n.operation == operation).count();
        named.push(CallName { callee, operation, ordinal: u32::try_from(before + 1).ok()? });
    }
    Some(named)
}

/// An operation with segments that look like ids replaced by `{id}`.
fn pattern((method, path): &(String, String)) -> Option<OperationPattern> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_id = |segment: &str| {
        let digits = segment.bytes().filter(u8::is_ascii_digit).count();
        let hex = segment.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        digits > 0 && (digits == segment.len() || (hex && segment.len() >= 8) || segment.len() > 24)
    };
    let segments: Vec<&str> = path.split('/').map(|s| if is_id(s) { "{id}" } else { s }).collect();
    format!("{method} {}", segments.join("/")).parse().ok()
}
