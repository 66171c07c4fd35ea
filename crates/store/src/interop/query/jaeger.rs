//! Parses Jaeger's searches: the older `/api/traces` and the newer `/api/v3/traces`.

use faultscope_model::trace::TraceQuery;

use super::zipkin::MAX_TRACES;
use super::{Parameters, QueryError, go_duration_us, rfc3339_us};

/// The most tags of a search.
const MAX_TAGS: usize = 100;

/// The default lookback of the older API.
const V1_LOOKBACK_US: u64 = 48 * 60 * 60 * 1_000_000;

/// Parses the parameters of `/api/traces`: microseconds, Go durations, `tag=key:value`, `tags={…}`.
pub fn jaeger_v1(parameters: &Parameters, now_us: u64) -> Result<TraceQuery, QueryError> {
    let service = parameters.get("service").ok_or_else(|| QueryError::new("service", "is missing"))?;
    let end_us = parameters.positive("end")?.unwrap_or(now_us);
    let start_us = parameters.positive("start")?.unwrap_or(end_us.saturating_sub(V1_LOOKBACK_US));
    let mut terms = Vec::new();
    for tag in parameters.all("tag").take(MAX_TAGS) {
        let (key, value) =
            tag.split_once(':').ok_or_else(|| QueryError::new("tag", "is not of the form key:value"))?;
        terms.push(term(key, value));
    }
    for tags in parameters.all("tags").filter(|tags| !tags.is_empty()) {
        read_object("tags", tags, &mut terms)?;
    }
    Ok(TraceQuery {
        service: Some(service.to_owned()),
        remote_service: None,
        name: parameters.get("operation").map(str::to_owned),
        terms,
        least_us: duration(parameters, &["minDuration"])?,
        most_us: duration(parameters, &["maxDuration"])?,
        end_us,
        lookback_us: window(start_us, end_us, "start")?,
        limit: limit(parameters, &["limit"], 20)?,
    })
}

/// Parses the parameters of `/api/v3/traces`: times of RFC 3339, Go durations, attributes as JSON.
///
/// Names come as `query.serviceName`, or in their older form `query.service_name`.
pub fn jaeger_v3(parameters: &Parameters) -> Result<TraceQuery, QueryError> {
    let text = |names: &[&str]| names.iter().find_map(|name| parameters.get(name));
    let moment = |names: &[&'static str]| {
        let name = names.first().copied().unwrap_or_default();
        let text = text(names).ok_or_else(|| QueryError::new(name, "is missing"))?;
        rfc3339_us(text).ok_or_else(|| QueryError::new(name, "is not a moment of RFC 3339"))
    };
    let start_us = moment(&["query.startTimeMin", "query.start_time_min"])?;
    let end_us = moment(&["query.startTimeMax", "query.start_time_max"])?;
    let mut terms = Vec::new();
    if let Some(attributes) = text(&["query.attributes"]) {
        read_object("query.attributes", attributes, &mut terms)?;
    }
    let depth = ["query.searchDepth", "query.search_depth", "query.numTraces", "query.num_traces"];
    Ok(TraceQuery {
        service: text(&["query.serviceName", "query.service_name"]).map(str::to_owned),
        remote_service: None,
        name: text(&["query.operationName", "query.operation_name"]).map(str::to_owned),
        terms,
        least_us: duration(parameters, &["query.durationMin", "query.duration_min"])?,
        most_us: duration(parameters, &["query.durationMax", "query.duration_max"])?,
        end_us,
        lookback_us: window(start_us, end_us, "query.startTimeMin")?,
        limit: limit(parameters, &depth, 100)?,
    })
}

/// Jaeger searches for failures by `error=true`; the values that reporters write differ.
fn term(key: &str, value: &str) -> (String, Option<String>) {
    let any = key == "error" && value == "true";
    (key.to_owned(), Some(value.to_owned()).filter(|_| !any))
}

fn read_object(name: &str, text: &str, terms: &mut Vec<(String, Option<String>)>) -> Result<(), QueryError> {
    let refuse = || QueryError::new(name, "is not an object with texts as values");
    let map: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).map_err(|_| refuse())?;
    for (key, value) in map {
        let value = match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Bool(_) | serde_json::Value::Number(_) => value.to_string(),
            _ => return Err(refuse()),
        };
        if terms.len() >= MAX_TAGS {
            return Err(QueryError::new(name, "asks for too many"));
        }
        terms.push(term(&key, &value));
    }
    Ok(())
}

fn duration(parameters: &Parameters, names: &[&str]) -> Result<Option<u64>, QueryError> {
    let found = names.iter().find_map(|name| parameters.get(name).map(|text| (name, text)));
    let Some((name, text)) = found else { return Ok(None) };
    match go_duration_us(text) {
        Some(us) => Ok(Some(us).filter(|us| *us > 0)),
        None => Err(QueryError::new(name, "is not a duration such as 1.5s or 300ms")),
    }
}

fn window(start_us: u64, end_us: u64, name: &str) -> Result<u64, QueryError> {
    end_us.checked_sub(start_us).ok_or_else(|| QueryError::new(name, "is after the end"))
}

fn limit(parameters: &Parameters, names: &[&str], default: usize) -> Result<usize, QueryError> {
    for name in names {
        if let Some(n) = parameters.positive(name)? {
            return Ok(usize::try_from(n).unwrap_or(MAX_TRACES).min(MAX_TRACES));
        }
    }
    Ok(default)
}
