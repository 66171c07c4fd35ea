//! Turns a recording into a test of the application file.

use std::fmt::Write;

use faultscope_analysis::compare::compare_answers;
use faultscope_model::recording::{Answer, RecordedRequest, Recording, ValueMap};
use faultscope_model::secrets::SecretNames;
use faultscope_model::span::Wire;
use serde_json::{Map, Value, json};

/// The most fields of an answer that a step expects: a test that repeats whole answers breaks with every change.
const MAX_EXPECTED: usize = 12;

/// The most values of an answer that are looked for in later requests.
const MAX_SAVED: usize = 200;

/// Headers that a step needs to mean the same.
const KEPT_HEADERS: [&str; 4] = ["accept", "accept-language", "content-type", "x-requested-with"];

/// The recording as an entry of `tests:`. Fields that differ between `answers`, other answers to the same requests, are
/// not expected. Secrets are left out, and named in comments.
pub fn write_test(name: &str, recording: &Recording, answers: &[Vec<Answer>], names: &SecretNames) -> String {
    let mut out = format!("tests:\n  - name: {}\n    steps:\n", quote(name));
    let mut values = ValueMap::default();
    for (index, request) in recording.requests.iter().enumerate() {
        let later = &recording.requests[index + 1..];
        let Some(mut step) = step_of(&values.apply(&escaped(request)), names, &mut out) else { continue };
        let mut expect = Map::new();
        if let Some(status) = request.answer.status {
            expect.insert("status".into(), json!(status));
        }
        let leaves =
            serde_json::from_slice(&request.answer.body).map(|body| leaves_of(&body)).unwrap_or_default();
        let others = answers.iter().filter_map(|replay| replay.get(index));
        let noisy: Vec<String> = others
            .flat_map(|other| compare_answers(&request.answer, other).differences)
            .map(|difference| difference.place.to_string())
            .collect();
        let mut saved = Map::new();
        let mut expected = Map::new();
        for leaf in leaves.iter().take(MAX_SAVED) {
            let variable = variable_name(&leaf.name, index);
            let mut one = ValueMap::default();
            one.add(&leaf.name, &leaf.text, &format!("${{{variable}}}"));
            if !saved.contains_key(&variable) && later.iter().any(|request| one.apply(request) != *request) {
                values.add(&leaf.name, &leaf.text, &format!("${{{variable}}}"));
                saved.insert(variable, json!(leaf.path));
            } else if expected.len() < MAX_EXPECTED
                && !noisy.contains(&leaf.shown)
                && !names.is_secret_field(&leaf.name, leaf.text.as_bytes())
            {
                expected.insert(leaf.path.clone(), leaf.expected());
            }
        }
        if !expected.is_empty() {
            expect.insert("json".into(), Value::Object(expected));
        }
        step.insert("expect".into(), Value::Object(expect));
        if !saved.is_empty() {
            step.insert("save".into(), Value::Object(saved));
        }
        // JSON is YAML, and needs no thought about what must be quoted.
        let _ = writeln!(out, "      - {}", Value::Object(step));
    }
    out
}

/// The request of a step; none if steps cannot express it.
fn step_of(request: &RecordedRequest, names: &SecretNames, out: &mut String) -> Option<Map<String, Value>> {
    let operation = request.operation();
    let method = request.method.to_ascii_lowercase();
    let is_known = ["get", "post", "put", "delete", "patch", "head"].contains(&method.as_str());
    if request.wire != Wire::Http1 || !is_known {
        let _ = writeln!(
            out,
            "      # left out: {operation}: steps know get, post, put, delete, patch and head of HTTP/1.1"
        );
        return None;
    }
    let mut step = Map::new();
    step.insert(method, json!(format!("http://{}:{}{}", request.callee, request.port, request.path)));
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        let lower = name.to_ascii_lowercase();
        if names.is_secret_header(name, value.as_bytes()) {
            if !value.contains("${") {
                let _ = writeln!(out, "      # fill in the header {lower} of {operation}: it is a secret");
                continue;
            }
        } else if !KEPT_HEADERS.contains(&lower.as_str()) {
            continue;
        }
        headers.insert(lower, json!(value));
    }
    match serde_json::from_slice::<Value>(&request.body) {
        Ok(mut body) => {
            let mut hidden = Vec::new();
            hide_secrets("", &mut body, names, &mut hidden);
            for field in hidden {
                let _ = writeln!(out, "      # fill in the field {field} of {operation}: it is a secret");
            }
            headers.retain(|name, value| name != "content-type" || value != "application/json");
            step.insert("json".into(), body);
        }
        Err(_) if request.body.is_empty() => {}
        Err(_) => match std::str::from_utf8(&request.body) {
            Ok(text) => {
                let shown = faultscope_model::secrets::redact_str(text, names);
                step.insert("body".into(), json!(shown.as_deref().unwrap_or(text)));
            }
            Err(_) => {
                let _ = writeln!(out, "      # left out: {operation}: its body is no text");
                return None;
            }
        },
    }
    if !headers.is_empty() {
        step.insert("headers".into(), Value::Object(headers));
    }
    Some(step)
}

fn hide_secrets(name: &str, value: &mut Value, names: &SecretNames, hidden: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(key, field)| hide_secrets(key, field, names, hidden));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_secrets(name, item, names, hidden)),
        Value::String(text) if !text.contains("${") && names.is_secret_field(name, text.as_bytes()) => {
            *text = faultscope_model::secrets::REDACTED.to_owned();
            hidden.push(name.to_owned());
        }
        _ => {}
    }
}

/// `${` stands for a saved value in steps.
fn escaped(request: &RecordedRequest) -> RecordedRequest {
    let mut request = request.clone();
    let escape = |text: &str| text.replace("${", "$${");
    request.path = escape(&request.path);
    request.headers.iter_mut().for_each(|(_, value)| *value = escape(value));
    if let Ok(text) = std::str::from_utf8(&request.body) {
        request.body = escape(text).into_bytes();
    }
    request
}

/// A value in a JSON body.
struct Leaf {
    /// The key that it has, or that the list around it has.
    name: String,
    /// As steps write it: `items.0.id`.
    path: String,
    /// As differences write it: `$.items[0].id`.
    shown: String,
    text: String,
    is_text: bool,
}

impl Leaf {
    /// What a step expects: a regular expression for a text, anything else for itself.
    fn expected(&self) -> Value {
        if self.is_text {
            return json!(regex::escape(&self.text));
        }
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

fn leaves_of(body: &Value) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    collect_leaves(body, "", String::new(), "$".to_owned(), &mut leaves);
    leaves
}

fn collect_leaves(value: &Value, name: &str, path: String, shown: String, leaves: &mut Vec<Leaf>) {
    if leaves.len() >= MAX_SAVED {
        return;
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => {
            // A key with a dot cannot be named in a path.
            for (key, field) in fields.iter().filter(|(key, _)| !key.contains('.') && !key.is_empty()) {
                collect_leaves(field, key, below(key), format!("{shown}.{key}"), leaves);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_leaves(item, name, below(&index.to_string()), format!("{shown}[{index}]"), leaves);
            }
        }
        Value::Null => {}
        value => {
            if path.is_empty() {
                return;
            }
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            leaves.push(Leaf { name: name.to_owned(), path, shown, text, is_text: value.is_string() });
        }
    }
}

/// A name for a saved value, unlike those of other steps.
fn variable_name(field: &str, step: usize) -> String {
    let letters: String =
        field.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect();
    let letters = if letters.is_empty() { "value".to_owned() } else { letters };
    if step == 0 { letters } else { format!("{letters}_{}", step + 1) }
}

fn quote(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use faultscope_model::{SpanId, TraceId};

    use super::*;

    fn request(
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        answer: &str,
    ) -> RecordedRequest {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        RecordedRequest {
            trace: TraceId(1),
            span: SpanId(1),
            callee: "order".parse().unwrap(),
            port: 8080,
            wire: Wire::Http1,
            method: method.into(),
            path: path.into(),
            headers: headers.iter().map(header).collect(),
            body: body.into(),
            start_us: 0,
            duration_us: 0,
            answer: Answer {
                status: Some(200),
                body: answer.into(),
                bytes: answer.len() as u64,
                ..Answer::default()
            },
        }
    }

    #[test]
    fn a_trace_becomes_steps_with_saved_values_and_without_secrets() {
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", "Bearer 5up3rS3cret-77"),
            ("User-Agent", "x"),
        ];
        let recording = Recording {
            requests: vec![
                request(
                    "POST",
                    "/orders",
                    &headers,
                    r#"{"item":7,"password":"hunter2-x"}"#,
                    r#"{"id":17,"state":"new","took":3}"#,
                ),
                request("GET", "/orders/17", &[], "", r#"{"id":17,"items":[{"n":1}],"a.b":1}"#),
            ],
            left_out: Vec::new(),
            outgoing: Vec::new(),
        };
        let mut again = recording.requests[0].answer.clone();
        again.body = br#"{"id":17,"state":"new","took":4}"#.to_vec();
        let answers = vec![vec![again, recording.requests[1].answer.clone()]];
        let text = write_test("an order", &recording, &answers, &SecretNames::default());
        assert_eq!(
            text,
            r##"tests:
  - name: "an order"
    steps:
      # fill in the header authorization of order POST /orders: it is a secret
      # fill in the field password of order POST /orders: it is a secret
      - {"expect":{"json":{"state":"new"},"status":200},"json":{"item":7,"password":"[redacted]"},"post":"http://order:8080/orders","save":{"id":"id"}}
      - {"expect":{"json":{"id":17,"items.0.n":1},"status":200},"get":"http://order:8080/orders/${id}"}
"##
        );
    }
}
