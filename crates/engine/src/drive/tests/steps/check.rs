//! Compares an answer with what a step expects. Its messages become part of failure signatures, which bundles of older
//! versions contain, so they keep their words.

use std::collections::BTreeMap;

use faultscope_model::application::{Exclusion, Expectation};
use faultscope_model::grpc::GrpcCode;
use serde_json::Value;

use super::values::{Keys, Message, Values};
use crate::html::readable_text;

/// The most characters of a body in a message.
const SHOWN_OF_BODY: usize = 200;

/// An answer to a step.
pub(super) struct Answer {
    pub(super) status: AnswerStatus,
    /// By lower-case name.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

impl Answer {
    /// How keys of its JSON are named.
    pub(super) fn keys(&self) -> Keys {
        match self.status {
            AnswerStatus::Http(_) => Keys::Exact,
            AnswerStatus::Grpc { .. } => Keys::Protobuf,
        }
    }
}

/// How an answer says whether the request succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerStatus {
    Http(u16),
    Grpc {
        code: GrpcCode,
        /// What the callee says about the code.
        message: String,
    },
}

impl Answer {
    /// The body as JSON; an empty one has no values.
    fn json(&self) -> Result<Value, String> {
        if self.body.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&self.body).map_err(|e| format!("the body is not JSON: {e}"))
    }
}

/// What is wrong with a status or code.
pub(super) fn check_status(expect: &Expectation, status: &AnswerStatus) -> Option<String> {
    match status {
        AnswerStatus::Http(status) => check_http_status(expect, *status),
        AnswerStatus::Grpc { code, message } => {
            let problem = check_code(expect, *code)?;
            Some(if message.is_empty() { problem } else { format!("{problem}: {message}") })
        }
    }
}

/// If neither `code` nor `not` names any, only `OK` is accepted.
fn check_code(expect: &Expectation, code: GrpcCode) -> Option<String> {
    let excluded = expect.not.as_ref().map(|not| &not.code).filter(|not| !not.is_empty());
    if !expect.code.is_empty() && !expect.code.contains(code) {
        return Some(format!("code {code} != {}", expect.code));
    }
    match excluded {
        Some(excluded) if excluded.contains(code) => Some(format!("code {code} is excluded by `not`")),
        None if expect.code.is_empty() && code != GrpcCode(0) => Some(format!("code {code}")),
        _ => None,
    }
}

/// If neither `status` nor `not` names any, those below 400 are accepted.
fn check_http_status(expect: &Expectation, status: u16) -> Option<String> {
    let excluded = expect.not.as_ref().map(|not| &not.status).filter(|not| !not.is_empty());
    if !expect.status.is_empty() && !expect.status.contains(status) {
        return Some(format!("status {status} != {}", expect.status));
    }
    match excluded {
        Some(excluded) if excluded.contains(status) => Some(format!("status {status} is excluded by `not`")),
        None if expect.status.is_empty() && status >= 400 => Some(format!("status {status}")),
        _ => None,
    }
}

/// Checks everything but the status.
pub(super) fn check_answer(
    expect: &Expectation,
    answer: &Answer,
    values: &Values<'_>,
) -> Result<(), Message> {
    if let (Some(pattern), AnswerStatus::Grpc { message, .. }) = (&expect.message, &answer.status)
        && !values.regex(pattern)?.is_match(message)
    {
        return Err(
            values.message(|fill| format!("the message `{message}` does not match `{}`", fill(pattern)))
        );
    }
    if let Some(pattern) = &expect.body
        && !values.regex(pattern)?.is_match(&answer.body)
    {
        let start = first_line(&answer.body);
        return Err(values.message(|fill| format!("the body does not match `{}`: {start}", fill(pattern))));
    }
    for (name, pattern) in &expect.headers {
        let value = answer.headers.get(&values.fill(name).to_ascii_lowercase());
        let value = value
            .ok_or_else(|| values.message(|fill| format!("the answer has no header `{}`", fill(name))))?;
        if !values.whole_regex(pattern)?.is_match(value) {
            return Err(values.message(|fill| {
                format!("header {}: `{value}` does not match `{}`", fill(name), fill(pattern))
            }));
        }
    }
    if !expect.json.is_empty() || !expect.absent.is_empty() {
        let json = answer.json()?;
        for (path, pattern) in &expect.json {
            let found = values.look_up(&json, path, answer.keys());
            let found =
                found.ok_or_else(|| values.message(|fill| format!("the answer has no `{}`", fill(path))))?;
            let text = text_of(found);
            if !values.whole_regex(pattern)?.is_match(&text) {
                return Err(values
                    .message(|fill| format!("{}: `{text}` does not match `{}`", fill(path), fill(pattern))));
            }
        }
        for path in &expect.absent {
            if let Some(found) = values.look_up(&json, path, answer.keys()) {
                let text = text_of(found);
                return Err(values.message(|fill| {
                    format!("the answer has `{}`, which must be absent: `{text}`", fill(path))
                }));
            }
        }
    }
    match &expect.not {
        Some(not) => check_exclusion(not, answer, values),
        None => Ok(()),
    }
}

fn check_exclusion(not: &Exclusion, answer: &Answer, values: &Values<'_>) -> Result<(), Message> {
    if let (Some(pattern), AnswerStatus::Grpc { message, .. }) = (&not.message, &answer.status)
        && values.regex(pattern)?.is_match(message)
    {
        return Err(values.message(|fill| {
            format!("the message `{message}` matches `{}`, which `not` excludes", fill(pattern))
        }));
    }
    if let Some(pattern) = &not.body
        && values.regex(pattern)?.is_match(&answer.body)
    {
        let start = first_line(&answer.body);
        return Err(values
            .message(|fill| format!("the body matches `{}`, which `not` excludes: {start}", fill(pattern))));
    }
    for (name, pattern) in &not.headers {
        if let Some(value) = answer.headers.get(&values.fill(name).to_ascii_lowercase())
            && values.whole_regex(pattern)?.is_match(value)
        {
            return Err(values.message(|fill| {
                format!("header {}: `{value}` matches `{}`, which `not` excludes", fill(name), fill(pattern))
            }));
        }
    }
    if not.json.is_empty() {
        return Ok(());
    }
    let json = answer.json()?;
    for (path, pattern) in &not.json {
        let Some(found) = values.look_up(&json, path, answer.keys()) else { continue };
        let text = text_of(found);
        if values.whole_regex(pattern)?.is_match(&text) {
            return Err(values.message(|fill| {
                format!("{}: `{text}` matches `{}`, which `not` excludes", fill(path), fill(pattern))
            }));
        }
    }
    Ok(())
}

/// A JSON value as patterns see it and as it is saved.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn first_line(text: &str) -> String {
    readable_text(text).lines().next().unwrap_or_default().chars().take(SHOWN_OF_BODY).collect()
}

#[cfg(test)]
mod tests {
    use faultscope_model::SlotId;
    use faultscope_model::application::Expansion;

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let headers = BTreeMap::from([("x-kind".to_owned(), "blue".to_owned())]);
        Answer { status: AnswerStatus::Http(status), headers, body: body.to_owned() }
    }

    fn called(code: u16, message: &str) -> Answer {
        Answer {
            status: AnswerStatus::Grpc { code: GrpcCode(code), message: message.into() },
            ..answer(200, "{}")
        }
    }

    fn check(expect: &str, answer: &Answer) -> Option<Message> {
        let expect: Expectation = serde_json::from_str(expect).unwrap();
        let expansion = Expansion { program: "fs".into(), slot: SlotId(0) };
        let mut values = Values::new(&expansion);
        values.save("id", "a.b".into());
        values.save("kind", "Kind".into());
        let status = check_status(&expect, &answer.status).map(Message::from);
        status.or_else(|| check_answer(&expect, answer, &values).err())
    }

    #[track_caller]
    fn expect(text: &str, answer: Answer, problem: Option<&str>) {
        assert_eq!(check(text, &answer).map(|message| message.shown).as_deref(), problem);
    }

    #[test]
    fn expectations() {
        expect("{}", answer(200, ""), None);
        expect("{}", answer(404, ""), Some("status 404"));
        expect(r#"{"status":404}"#, answer(404, ""), None);
        expect(r#"{"status":200}"#, answer(500, ""), Some("status 500 != 200"));
        expect(r#"{"status":[200,"3xx"]}"#, answer(500, ""), Some("status 500 != 200 or 3xx"));
        expect(r#"{"status":"4xx"}"#, answer(404, ""), None);
        expect(r#"{"body":"b+"}"#, answer(200, "abbc"), None);
        expect(r#"{"json":{"a.1.b":"[0-9]+"}}"#, answer(200, r#"{"a":[0,{"b":17}]}"#), None);
        expect(r#"{"json":{"a":"x"}}"#, answer(200, r#"{"a":"xx"}"#), Some("a: `xx` does not match `x`"));
        expect(r#"{"json":{"q":"x"}}"#, answer(200, "{}"), Some("the answer has no `q`"));
        expect(r#"{"headers":{"X-Kind":"blue"}}"#, answer(200, ""), None);
        expect(r#"{"headers":{"X-${kind}":"blue"}}"#, answer(200, ""), None);
        expect(r#"{"json":{"map.${id}":"1"}}"#, answer(200, r#"{"map":{"a.b":1}}"#), None);
    }

    #[test]
    fn exclusions() {
        let body = r#"{"error":null,"left":3}"#;
        expect(r#"{"not":{"status":500}}"#, answer(404, ""), None);
        expect(r#"{"not":{"status":"5xx"}}"#, answer(503, ""), Some("status 503 is excluded by `not`"));
        expect(
            r#"{"status":"2xx","not":{"status":204}}"#,
            answer(204, ""),
            Some("status 204 is excluded by `not`"),
        );
        expect(r#"{"not":{"body":"err"}}"#, answer(500, ""), Some("status 500"));
        expect(r#"{"not":{"body":"fail"}}"#, answer(200, body), None);
        expect(
            r#"{"not":{"body":"err"}}"#,
            answer(200, "an error"),
            Some("the body matches `err`, which `not` excludes: an error"),
        );
        expect(
            r#"{"not":{"json":{"left":"[0-9]"}}}"#,
            answer(200, body),
            Some("left: `3` matches `[0-9]`, which `not` excludes"),
        );
        expect(r#"{"not":{"json":{"right":".*"}}}"#, answer(200, body), None);
        expect(r#"{"not":{"json":{"right":".*"}}}"#, answer(204, ""), None);
        expect(
            r#"{"not":{"headers":{"X-Kind":"bl.*"}}}"#,
            answer(200, ""),
            Some("header X-Kind: `blue` matches `bl.*`, which `not` excludes"),
        );
        expect(r#"{"not":{"headers":{"X-Other":".*"}}}"#, answer(200, ""), None);
        expect(
            r#"{"absent":["right","error"]}"#,
            answer(200, body),
            Some("the answer has `error`, which must be absent: `null`"),
        );
        expect(r#"{"absent":["error.code"]}"#, answer(200, body), None);
        let html = check(r#"{"absent":["error"]}"#, &answer(200, "<html>")).unwrap();
        assert!(html.shown.starts_with("the body is not JSON"), "{html:?}");
    }

    #[test]
    fn codes_of_grpc() {
        expect("{}", called(0, ""), None);
        expect("{}", called(14, "no route"), Some("code UNAVAILABLE: no route"));
        expect(r#"{"code":"NOT_FOUND"}"#, called(5, ""), None);
        expect(
            r#"{"code":["OK","NOT_FOUND"]}"#,
            called(13, "boom"),
            Some("code INTERNAL != OK or NOT_FOUND: boom"),
        );
        expect(r#"{"not":{"code":"INTERNAL"}}"#, called(5, ""), None);
        expect(r#"{"not":{"code":"INTERNAL"}}"#, called(13, ""), Some("code INTERNAL is excluded by `not`"));
        expect(r#"{"code":"NOT_FOUND","message":"cart"}"#, called(5, "no cart 7"), None);
        expect(
            r#"{"code":"NOT_FOUND","message":"order"}"#,
            called(5, "no cart"),
            Some("the message `no cart` does not match `order`"),
        );
        expect(r#"{"metadata":{"x-kind":"blue"}}"#, called(0, ""), None);
    }

    #[test]
    fn people_see_values_and_signatures_do_not() {
        let wrong = answer(200, r#"{"a":"aXb"}"#);
        let message = check(r#"{"json":{"a":"${id}"}}"#, &wrong).unwrap();
        assert_eq!(message.shown, "a: `aXb` does not match `a.b`");
        assert_eq!(message.unfilled, "a: `aXb` does not match `${id}`");
        let message = check(r#"{"json":{"${id}":"1"}}"#, &wrong).unwrap();
        assert_eq!(message.shown, "the answer has no `a.b`");
        assert_eq!(message.unfilled, "the answer has no `${id}`");
    }
}
