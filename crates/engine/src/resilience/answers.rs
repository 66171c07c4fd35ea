//! Requests that arrived twice and were answered differently: another transaction, a second booking.
//!
//! The test need not notice that, and a caller that retries would believe the second answer.

use faultscope_model::perturbation::{Kind, Perturbation, TargetId};
use faultscope_model::{RunId, Span};
use serde_json::Value;

use super::tally::Finding;

/// Methods that only read: their answers may differ for many reasons.
const READING: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// The most fields that are named.
const MAX_FIELDS: usize = 8;

/// How deep a body is compared.
const MAX_DEPTH: usize = 32;

/// Parts of the names of fields that hold a time or a duration, which no two answers share.
const TIMES: [&str; 9] =
    ["time", "date", "elapsed", "duration", "latency", "took", "expire", "uptime", "created"];

/// The calls of a run that were duplicated and answered differently. Only where nothing but duplicates was asked for,
/// because a restart between the two would explain it.
pub(super) fn different_answers(asked: &[Perturbation], spans: &[Span], run: &RunId) -> Vec<Finding> {
    if asked.iter().any(|perturbation| perturbation.kind != Kind::Duplicate) {
        return Vec::new();
    }
    let find = |target: &TargetId| spans.iter().find(|span| span.target.as_ref() == Some(target));
    let differs = |perturbation: &Perturbation| {
        let (first, second) = (find(&perturbation.target)?, find(&perturbation.target.again())?);
        let (status, fields) = compare(first, second)?;
        let target = perturbation.target.clone();
        Some(Finding::AnswerDiffers { target, status, fields, run: run.clone() })
    };
    asked.iter().filter_map(differs).collect()
}

fn compare(first: &Span, second: &Span) -> Option<([u16; 2], Vec<String>)> {
    let status = [first.status?, second.status?];
    if READING.contains(&first.method.as_str()) || status[0] >= 400 {
        return None;
    }
    if status[1] >= 500 {
        return Some((status, Vec::new()));
    }
    // A conflict or a 404 says that the request was done before.
    if status[1] >= 400 {
        return None;
    }
    if first.grpc_status.is_some_and(|code| code != 0) || second.grpc_status.is_some_and(|code| code != 0) {
        return None;
    }
    let body = |span: &Span| {
        let payload = span.payload.as_deref()?;
        match payload.decoded.as_deref().and_then(|bodies| bodies.response.as_ref()) {
            Some(decoded) => Some(decoded.to_json()),
            None => serde_json::from_slice::<Value>(&payload.response_body).ok(),
        }
    };
    let mut fields = Vec::new();
    list_differences(&body(first)?, &body(second)?, "", 0, &mut fields);
    fields.truncate(MAX_FIELDS);
    (!fields.is_empty()).then_some((status, fields))
}

fn list_differences(first: &Value, second: &Value, path: &str, depth: usize, fields: &mut Vec<String>) {
    if first == second || depth > MAX_DEPTH || fields.len() > MAX_FIELDS {
        return;
    }
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (first, second) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            for name in names.filter(|name| !is_time_name(name)) {
                let value =
                    |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or(Value::Null);
                list_differences(&value(one), &value(other), &below(name), depth + 1, fields);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (one, other)) in one.iter().zip(other).enumerate() {
                list_differences(one, other, &below(&place.to_string()), depth + 1, fields);
            }
        }
        _ if is_time(first) && is_time(second) => {}
        _ => fields.push(if path.is_empty() { "the whole body".to_owned() } else { path.to_owned() }),
    }
}

fn is_time_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    TIMES.iter().any(|part| lower.contains(part)) || lower.ends_with("_at") || name.ends_with("At")
}

/// Whether a value is a time: `2026-11-17T22:00`, or seconds, milliseconds or so since 1970.
fn is_time(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            let shape = b"dddd-dd-ddTdd:dd";
            let fits = |(byte, shape): (u8, u8)| match shape {
                b'd' => byte.is_ascii_digit(),
                b'T' => byte == b'T' || byte == b' ',
                other => byte == other,
            };
            text.len() >= shape.len() && text.bytes().zip(*shape).all(fits)
        }
        Value::Number(number) => number.as_f64().is_some_and(|number| {
            // The years 2017 to 2065, in seconds, milliseconds, microseconds and nanoseconds.
            [1.0, 1e3, 1e6, 1e9].iter().any(|unit| (1.5e9 * unit..3e9 * unit).contains(&number))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use faultscope_model::span::Payload;
    use serde_json::json;

    use super::*;
    use crate::sample;

    fn differences(first: Value, second: Value) -> Vec<String> {
        let mut fields = Vec::new();
        list_differences(&first, &second, "", 0, &mut fields);
        fields.sort();
        fields
    }

    #[test]
    fn times_are_no_difference() {
        let answer = |id: u32, second: u32| {
            json!({ "payment": { "id": id, "at": format!("2026-11-17T22:00:{second}") }, "took": second,
                    "ok": true, "now": 1_794_952_800_000_u64 + u64::from(second), "items": [1, id] })
        };
        assert_eq!(differences(answer(1, 10), answer(1, 11)), [""; 0]);
        assert_eq!(differences(answer(1, 10), answer(2, 11)), ["items.1", "payment.id"]);
        assert_eq!(differences(json!({ "a": 1 }), json!({ "b": 1 })), ["a", "b"]);
        assert_eq!(differences(json!("x"), json!("y")), ["the whole body"]);
    }

    #[test]
    fn only_duplicates_of_writing_requests_are_compared() {
        let pay: Perturbation = "duplicate shop POST /pay".parse().unwrap();
        let span = |target: TargetId, method: &str, status, body: &str| {
            let payload = Payload { response_body: body.as_bytes().to_vec(), ..Payload::default() };
            let (target, method) = (Some(target), method.to_owned());
            Span { target, method, status: Some(status), payload: Some(Box::new(payload)), ..sample::span() }
        };
        let found = |asked: &[Perturbation], method: &str, second: u16| {
            let first = span(pay.target.clone(), method, 200, r#"{"id":1}"#);
            let again = span(pay.target.again(), method, second, r#"{"id":2}"#);
            different_answers(asked, &[first, again], &"ab12.1".parse().unwrap())
        };
        let one = [pay.clone()];
        let [Finding::AnswerDiffers { status, fields, .. }] = &found(&one, "POST", 200)[..] else {
            panic!("nothing was found")
        };
        assert_eq!((status, fields.as_slice()), (&[200, 200], &["id".to_owned()][..]));
        assert_eq!(found(&one, "POST", 500).len(), 1, "an error instead of the first answer");
        assert!(found(&one, "POST", 409).is_empty(), "a conflict says that it was done before");
        assert!(found(&one, "GET", 200).is_empty());
        let restart: Perturbation = "restart shop POST /pay".parse().unwrap();
        assert!(found(&[pay.clone(), restart], "POST", 200).is_empty());
    }
}
