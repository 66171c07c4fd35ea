//! Finds series in recorded calls: calls of one handling that overlap, and the order of their answers.

use std::collections::BTreeMap;

use super::Captured;
use crate::application::Application;
use crate::circumstance::Order;
use crate::ids::{ServiceName, SpanId};
use crate::operation::OperationPattern;
use crate::series::CallName;
use crate::span::{Span, Wire};
use crate::trace::{ReportedSpan, SpanKind};

/// Longer series have too many pairs to be searched.
const LONGEST: usize = 12;

/// A call that was made while a request was handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenCall {
    /// Which handling, so that calls of the same one are found.
    pub handling: u64,
    /// The service that handled the request.
    pub from: String,
    /// The request.
    pub handled: (String, String),
    /// The service that was called.
    pub callee: String,
    /// Method and path of the call.
    pub operation: (String, String),
    /// Microseconds since 1970.
    pub start_us: u64,
    /// Microseconds since 1970.
    pub end_us: u64,
}

/// Calls that the mesh saw.
pub fn calls_of_spans(spans: &[Span]) -> Vec<SeenCall> {
    let by_id: BTreeMap<SpanId, &Span> = spans.iter().map(|s| (s.id, s)).collect();
    let call = |span: &Span| {
        let handling = by_id.get(&span.parent?)?;
        let is_request = |s: &Span| matches!(s.wire, Wire::Http1 | Wire::Http2);
        (is_request(span) && is_request(handling)).then(|| SeenCall {
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

/// Calls that services reported: those of a client span within the span of a server, through any number of
/// spans of work inside the service. Where only callers report, the call that led to the service stands for
/// its handling.
pub fn calls_of_reports(spans: &[ReportedSpan]) -> Vec<SeenCall> {
    let server_of = |id: SpanId| spans.iter().find(|s| s.id == id && s.kind == Some(SpanKind::Server));
    let led_to = |id: SpanId, service: &Option<String>| {
        let leads = |s: &&ReportedSpan| s.id == id && s.kind == Some(SpanKind::Client);
        spans.iter().filter(leads).find(|s| s.remote.service == *service)
    };
    let inner_of = |id: SpanId| spans.iter().find(|s| s.id == id && s.kind.is_none());
    let call = |span: &ReportedSpan| {
        let mut parent = span.parent?;
        // Deeper than any real nesting: damaged data must not end in a circle.
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
        Some(SeenCall {
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

/// Adds the order of every series that was answered in another order than it was asked.
pub(super) fn add(application: &Application, calls: &[SeenCall], captured: &mut Captured) {
    let mut handlings: BTreeMap<u64, Vec<&SeenCall>> = BTreeMap::new();
    for call in calls {
        handlings.entry(call.handling).or_default().push(call);
    }
    let mut best: BTreeMap<(ServiceName, OperationPattern), (bool, u64, Vec<CallName>)> = BTreeMap::new();
    for list in handlings.values_mut() {
        list.sort_by_key(|call| (call.start_us, call.end_us));
        let Some(series) = overlapping(list) else { continue };
        let Some(named) = name(application, &series) else { continue };
        let (from, handled) = (&series[0].from, pattern(&series[0].handled));
        let (Ok(from), Some(handled)) = (from.parse::<ServiceName>(), handled) else { continue };
        let mut answered: Vec<(u64, &CallName)> =
            series.iter().zip(&named).map(|(call, name)| (call.end_us, name)).collect();
        answered.sort_by_key(|(end, _)| *end);
        let order: Vec<CallName> = answered.into_iter().map(|(_, name)| name.clone()).collect();
        let found = (order != named, series[0].start_us, order);
        // The last handling that was answered in another order tells most.
        let known = best.entry((from, handled)).or_insert_with(|| found.clone());
        if (found.0, found.1) > (known.0, known.1) {
            *known = found;
        }
    }
    for ((from, handling), (differs, _, order)) in best {
        if differs {
            captured.failing.sequence.push(Order { from, handling, order });
        } else {
            captured.notes.push(format!(
                "{} calls of {from} {handling} overlap, but were answered in the order in which they were made",
                order.len()
            ));
        }
    }
}

/// The first calls of a handling that are all under way before any of them is answered.
fn overlapping<'a>(calls: &[&'a SeenCall]) -> Option<Vec<&'a SeenCall>> {
    let mut start = 0;
    let mut longest: Vec<&SeenCall> = Vec::new();
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
    longest.truncate(LONGEST);
    (longest.len() > 1).then_some(longest)
}

/// Names the calls of a series; none when one of them is to something that is no service.
fn name(application: &Application, series: &[&SeenCall]) -> Option<Vec<CallName>> {
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

/// An operation without what is likely to be an id.
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
