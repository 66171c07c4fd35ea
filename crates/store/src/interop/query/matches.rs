//! Decides whether a trace matches a query.

use std::borrow::Cow;

use faultscope_model::trace::{ReportedSpan, TraceQuery, trace_start_us};

use crate::interop::draft::lower;

/// Whether the trace matches the query by Zipkin's rules.
///
/// The trace must start within the query's time window. If a service is given, only its own spans
/// count; each condition may be met by another of them. Names are compared in lower case.
pub fn matches(query: &TraceQuery, spans: &[ReportedSpan]) -> bool {
    let Some(start) = trace_start_us(spans) else { return false };
    if !in_time(query, start) {
        return false;
    }
    let mut service = query.service.is_none();
    let mut remote = query.remote_service.is_none();
    let mut name = query.name.is_none();
    let mut duration = query.least_us.is_none() && query.most_us.is_none();
    let mut terms = vec![false; query.terms.len()];
    for span in spans.iter().filter(|span| is_of_service(query, span)) {
        service = true;
        remote |=
            query.remote_service.as_deref().is_some_and(|asked| same(asked, span.remote.service.as_deref()));
        name |= query.name.as_deref().is_some_and(|asked| same(asked, Some(&span.name)));
        duration |= lasts(query, span);
        for (met, term) in terms.iter_mut().zip(&query.terms) {
            *met |= has(span, term);
        }
    }
    service && remote && name && duration && terms.into_iter().all(|met| met)
}

/// Whether one span of the trace meets all conditions, by Jaeger's rules.
pub fn matches_one_span(query: &TraceQuery, spans: &[ReportedSpan]) -> bool {
    spans.iter().any(|span| {
        span.start_us.is_some_and(|start| in_time(query, start))
            && is_of_service(query, span)
            && query.remote_service.as_deref().is_none_or(|asked| same(asked, span.remote.service.as_deref()))
            && query.name.as_deref().is_none_or(|asked| same(asked, Some(&span.name)))
            && ((query.least_us.is_none() && query.most_us.is_none()) || lasts(query, span))
            && query.terms.iter().all(|term| has(span, term))
    })
}

fn in_time(query: &TraceQuery, start_us: u64) -> bool {
    (query.end_us.saturating_sub(query.lookback_us)..=query.end_us).contains(&start_us)
}

fn is_of_service(query: &TraceQuery, span: &ReportedSpan) -> bool {
    query.service.as_deref().is_none_or(|asked| same(asked, span.local.service.as_deref()))
}

fn lasts(query: &TraceQuery, span: &ReportedSpan) -> bool {
    span.duration_us.is_some_and(|us| {
        query.least_us.is_none_or(|least| us >= least) && query.most_us.is_none_or(|most| us <= most)
    })
}

fn has(span: &ReportedSpan, (key, value): &(String, Option<String>)) -> bool {
    match value {
        Some(value) => span.tag(key) == Some(value),
        None => {
            span.tag(key).is_some()
                || span.annotations.iter().any(|(_, annotation)| annotation == key)
                // OpenTelemetry spans may report a failure by their status alone.
                || (key == "error" && span.failed)
        }
    }
}

/// Services and names of Zipkin's reporters are in lower case, those of OpenTelemetry as they are.
fn same(asked: &str, found: Option<&str>) -> bool {
    found.is_some_and(|found| {
        asked == found
            || asked.eq_ignore_ascii_case(found)
            || (!found.is_ascii() && lower(Cow::Borrowed(asked)) == lower(Cow::Borrowed(found)))
    })
}
