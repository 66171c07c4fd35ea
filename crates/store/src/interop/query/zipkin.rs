//! Parses Zipkin's searches: `/api/v2/traces`, `/api/v2/dependencies`, `/api/v2/traceMany`.

use faultscope_model::TraceId;
use faultscope_model::trace::TraceQuery;

use super::{Parameters, QueryError};
use crate::interop::draft::read_trace_id;

/// The default lookback.
pub const DEFAULT_LOOKBACK_MS: u64 = 24 * 60 * 60 * 1_000;

/// The default number of traces.
const DEFAULT_LIMIT: usize = 10;

/// The largest number of traces.
pub(super) const MAX_TRACES: usize = 10_000;

/// The most terms of an annotation query.
const MAX_TERMS: usize = 100;

/// Parses the parameters of `/api/v2/traces`. The default end is now.
pub fn zipkin_traces(parameters: &Parameters, now_us: u64) -> Result<TraceQuery, QueryError> {
    let name = |name| parameters.get(name).map(str::to_lowercase);
    let least_us = parameters.positive("minDuration")?;
    let most_us = parameters.positive("maxDuration")?;
    match (least_us, most_us) {
        (None, Some(_)) => return Err(QueryError::new("maxDuration", "is only valid with minDuration")),
        (Some(least), Some(most)) if most < least => {
            return Err(QueryError::new("maxDuration", "must not be below minDuration"));
        }
        _ => {}
    }
    let (end_us, lookback_us) = window(parameters, now_us)?;
    let limit = parameters.positive("limit")?;
    Ok(TraceQuery {
        service: name("serviceName"),
        remote_service: name("remoteServiceName"),
        // What Zipkin's UI sends for "any".
        name: name("spanName").filter(|name| name != "all"),
        terms: parameters.get("annotationQuery").map(annotation_query).unwrap_or_default(),
        least_us,
        most_us,
        end_us,
        lookback_us,
        limit: limit.map_or(DEFAULT_LIMIT, |n| usize::try_from(n).unwrap_or(MAX_TRACES)).min(MAX_TRACES),
    })
}

/// Parses the parameters of `/api/v2/dependencies`: the end and the lookback, in microseconds.
pub fn zipkin_dependencies(parameters: &Parameters) -> Result<(u64, u64), QueryError> {
    if parameters.get("endTs").is_none() {
        return Err(QueryError::new("endTs", "is missing"));
    }
    window(parameters, 0)
}

/// Parses the ids of `/api/v2/traceMany`: at least two, without duplicates.
pub fn zipkin_trace_ids(parameters: &Parameters) -> Result<Vec<TraceId>, QueryError> {
    let refuse = |reason: &str| QueryError::new("traceIds", reason);
    let text = parameters.get("traceIds").ok_or_else(|| refuse("is missing"))?;
    let mut ids = Vec::new();
    for part in text.split(',').take(MAX_TRACES) {
        let id = read_trace_id(part.trim()).map_err(|reason| refuse(&format!("an id {reason}")))?;
        ids.push(id);
    }
    if ids.len() < 2 {
        return Err(refuse("has fewer than two ids"));
    }
    let mut sorted = ids.clone();
    sorted.sort();
    sorted.dedup();
    if sorted.len() != ids.len() {
        return Err(refuse("has an id twice"));
    }
    Ok(ids)
}

/// Parses an annotation query such as `http.method=GET and error`.
///
/// With `=` a tag must have that value; without, or with nothing after it, there must be an annotation or a tag of
/// that name. Of two values for one tag the last counts, and a value takes precedence over none.
pub fn annotation_query(text: &str) -> Vec<(String, Option<String>)> {
    let mut terms: Vec<(String, Option<String>)> = Vec::new();
    for term in text.splitn(MAX_TERMS, " and ") {
        let (key, value) = match term.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim()).filter(|value| !value.is_empty())),
            None => (term.trim(), None),
        };
        let known = terms.iter_mut().find(|(known, _)| known == key);
        match known {
            _ if key.is_empty() => {}
            Some((_, known)) if term.contains('=') => *known = value.map(str::to_owned),
            Some(_) => {}
            None => terms.push((key.to_owned(), value.map(str::to_owned))),
        }
    }
    terms
}

/// The end and the lookback in microseconds; Zipkin's parameters are in milliseconds.
fn window(parameters: &Parameters, now_us: u64) -> Result<(u64, u64), QueryError> {
    let end_us = parameters.positive("endTs")?.map_or(now_us, |ms| ms.saturating_mul(1_000));
    let lookback_ms = parameters.positive("lookback")?.unwrap_or(DEFAULT_LOOKBACK_MS);
    Ok((end_us, lookback_ms.saturating_mul(1_000)))
}
