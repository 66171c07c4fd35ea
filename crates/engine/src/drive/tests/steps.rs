//! Runs the HTTP steps of a test through the mesh, as the caller `test`.

use std::collections::BTreeMap;

use bytes::Bytes;
use faultscope_mesh::MeshSlot;
use faultscope_model::Application;
use faultscope_model::application::{Expansion, Expectation, Step, StepBody, fill_placeholders};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use regex::Regex;
use serde_json::Value;

use super::STEP_WITHIN;
use crate::html::readable_text;

/// The largest response that is read.
const ANSWER_LIMIT: usize = 4 << 20;
/// The most characters of a response in messages.
const SHOWN: usize = 2_000;

/// Sends steps through the slot's mesh. Its messages become part of failure signatures, which bundles of older
/// versions contain, so they keep their words.
pub(super) struct Client<'a> {
    pub(super) application: &'a Application,
    pub(super) mesh: &'a MeshSlot,
    pub(super) expansion: &'a Expansion,
}

/// A step whose response was not as expected.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// From 1.
    pub(super) number: u32,
    /// What was wrong.
    pub(super) message: String,
    /// The body of the response, shortened.
    pub(super) answer: String,
    /// The status of the response, if that was wrong.
    pub(super) status: Option<u16>,
}

struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Client<'_> {
    /// Runs all steps; returns the last response.
    pub(super) async fn run(&self, steps: &[Step]) -> Result<String, Broken> {
        let mut saved: BTreeMap<String, String> = BTreeMap::new();
        let mut last = String::new();
        for step in steps {
            // Named as in the file: a reduced input must not look like another failure.
            let number = step.number;
            let broken = |message: String, answer: &str| Broken {
                number,
                message,
                answer: shorten(answer),
                status: None,
            };
            let name = self.fill(&step.name, &saved);
            let sent = tokio::time::timeout(STEP_WITHIN, self.send(step, &saved)).await;
            let answer = match sent {
                Ok(Ok(answer)) => answer,
                Ok(Err(problem)) => return Err(broken(format!("{name}: {problem}"), "")),
                Err(_) => return Err(broken(format!("{name}: no answer in time"), "")),
            };
            if let Some(problem) = check_status(&step.expect, answer.status) {
                let broken = broken(format!("{name}: {problem}"), &answer.body);
                return Err(Broken { status: Some(answer.status), ..broken });
            }
            if let Err(problem) = check(&step.expect, &answer, &saved) {
                return Err(broken(format!("{name}: {problem}"), &answer.body));
            }
            let json: Option<Value> = serde_json::from_str(&answer.body).ok();
            for (key, path) in &step.save {
                let found = json.as_ref().and_then(|json| look_up(json, path));
                let Some(found) = found else {
                    return Err(broken(format!("{name}: the answer has no `{path}` to save"), &answer.body));
                };
                saved.insert(key.clone(), text_of(found));
            }
            last = shorten(&answer.body);
        }
        Ok(last)
    }

    fn fill(&self, text: &str, saved: &BTreeMap<String, String>) -> String {
        fill_placeholders(text, |name| saved.get(name).cloned().or_else(|| self.expansion.value(name)))
    }

    async fn send(&self, step: &Step, saved: &BTreeMap<String, String>) -> Result<Answer, String> {
        let fill = |text: &str| self.fill(text, saved);
        let url = fill(&step.url);
        let uri: Uri = url.parse().map_err(|e| format!("`{url}` is not a URL: {e}"))?;
        let host = uri.host().unwrap_or_default();
        let port = uri.port_u16().unwrap_or(80);
        let (callee, own_port) = self.application.callee(host, port).map_err(|e| e.to_string())?;
        let authority = if port == 80 { host.to_owned() } else { format!("{host}:{port}") };
        let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
        let mut request = Request::builder().method(step.method.as_str()).uri(path).header("host", authority);
        let body = match &step.body {
            None => String::new(),
            Some(StepBody::Text(text)) => fill(text),
            Some(StepBody::Json(json)) => {
                if !step.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                    request = request.header("content-type", "application/json");
                }
                fill_json(json, &fill).to_string()
            }
        };
        for (name, value) in &step.headers {
            request = request.header(name.as_str(), fill(value));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| e.to_string())?;
        let stream = self.mesh.connect(&callee, own_port).map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        // The connection lives as long as this step: both are polled here, and dropped together.
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|e| explain(&e))?;
            let status = response.status().as_u16();
            let headers = response
                .headers()
                .iter()
                .map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                })
                .collect();
            let body = Limited::new(response.into_body(), ANSWER_LIMIT).collect().await;
            let body = body.map_err(|e| format!("the answer broke off: {e}"))?.to_bytes();
            Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
        };
        tokio::pin!(connection, exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            ended = &mut connection => match ended {
                Err(e) => Err(explain(&e)),
                Ok(()) => exchange.await,
            },
        }
    }
}

fn explain(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return "the connection was closed before an answer".into();
    }
    let mut text = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        text = format!("{text}: {cause}");
    }
    text
}

/// What is wrong with a status; without an expectation any below 400 is accepted.
fn check_status(expect: &Expectation, status: u16) -> Option<String> {
    match expect.status {
        Some(wanted) if wanted != status => Some(format!("status {status} != {wanted}")),
        None if status >= 400 => Some(format!("status {status}")),
        _ => None,
    }
}

/// Checks everything but the status.
fn check(expect: &Expectation, answer: &Answer, saved: &BTreeMap<String, String>) -> Result<(), String> {
    if let Some(pattern) = &expect.body
        && !regex(pattern, saved)?.is_match(&answer.body)
    {
        return Err(format!("the body does not match `{pattern}`: {}", first_line(&answer.body)));
    }
    for (name, pattern) in &expect.headers {
        let value = answer.headers.get(&name.to_ascii_lowercase());
        let value = value.ok_or_else(|| format!("the answer has no header `{name}`"))?;
        if !whole(pattern, saved)?.is_match(value) {
            return Err(format!("header {name}: `{value}` does not match `{pattern}`"));
        }
    }
    if expect.json.is_empty() {
        return Ok(());
    }
    let json: Value = serde_json::from_str(&answer.body).map_err(|e| format!("the body is not JSON: {e}"))?;
    for (path, pattern) in &expect.json {
        let found = look_up(&json, path).ok_or_else(|| format!("the answer has no `{path}`"))?;
        let text = text_of(found);
        if !whole(pattern, saved)?.is_match(&text) {
            return Err(format!("{path}: `{text}` does not match `{pattern}`"));
        }
    }
    Ok(())
}

fn regex(pattern: &str, saved: &BTreeMap<String, String>) -> Result<Regex, String> {
    Regex::new(&fill_escaped(pattern, saved)).map_err(|e| e.to_string())
}

fn whole(pattern: &str, saved: &BTreeMap<String, String>) -> Result<Regex, String> {
    Regex::new(&format!("^(?:{})$", fill_escaped(pattern, saved))).map_err(|e| e.to_string())
}

fn fill_escaped(pattern: &str, saved: &BTreeMap<String, String>) -> String {
    fill_placeholders(pattern, |name| saved.get(name).map(|value| regex::escape(value)))
}

fn fill_json(json: &Value, fill: &impl Fn(&str) -> String) -> Value {
    match json {
        Value::String(text) => Value::String(fill(text)),
        Value::Array(items) => items.iter().map(|item| fill_json(item, fill)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), fill_json(value, fill))).collect(),
        other => other.clone(),
    }
}

/// The value at a dotted path; numbers are indexes into a list.
fn look_up<'a>(json: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|step| !step.is_empty()).try_fold(json, |here, step| match here {
        Value::Object(map) => map.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

fn first_line(text: &str) -> String {
    readable_text(text).lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let headers = BTreeMap::from([("x-kind".to_owned(), "blue".to_owned())]);
        Answer { status, headers, body: body.to_owned() }
    }

    #[track_caller]
    fn expect(text: &str, answer: Answer, problem: Option<&str>) {
        let expectation: Expectation = serde_json::from_str(text).unwrap();
        let saved = BTreeMap::from([("id".to_owned(), "a.b".to_owned())]);
        let got =
            check_status(&expectation, answer.status).or_else(|| check(&expectation, &answer, &saved).err());
        assert_eq!(got.as_deref(), problem);
    }

    #[test]
    fn expectations() {
        expect("{}", answer(200, ""), None);
        expect("{}", answer(404, ""), Some("status 404"));
        expect(r#"{"status":404}"#, answer(404, ""), None);
        expect(r#"{"status":200}"#, answer(500, ""), Some("status 500 != 200"));
        expect(r#"{"body":"b+"}"#, answer(200, "abbc"), None);
        expect(r#"{"json":{"a.1.b":"[0-9]+"}}"#, answer(200, r#"{"a":[0,{"b":17}]}"#), None);
        expect(r#"{"json":{"a":"x"}}"#, answer(200, r#"{"a":"xx"}"#), Some("a: `xx` does not match `x`"));
        expect(r#"{"json":{"q":"x"}}"#, answer(200, "{}"), Some("the answer has no `q`"));
        expect(
            r#"{"json":{"a":"${id}"}}"#,
            answer(200, r#"{"a":"aXb"}"#),
            Some("a: `aXb` does not match `${id}`"),
        );
        expect(r#"{"headers":{"X-Kind":"blue"}}"#, answer(200, ""), None);
    }

    #[test]
    fn filling_reaches_into_json() {
        let json: Value = serde_json::json!({"a": ["${x}", 1], "b": {"c": "-${x}-"}});
        let seven = |name: &str| (name == "x").then(|| "7".to_owned());
        assert_eq!(
            fill_json(&json, &|t| fill_placeholders(t, seven)),
            serde_json::json!({"a": ["7", 1], "b": {"c": "-7-"}})
        );
    }
}
