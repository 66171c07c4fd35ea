//! Values that differ from one execution to the next: an order's number, a session, a token.
//!
//! A recorded answer and the answer to the same request in a replay are read side by side. Where they differ, later
//! requests that hold the recorded value get the replayed one. Long values are unmistakable and are replaced wherever
//! they stand; a short one, such as the number 17, only where a value with such a name is meant.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Answer, RecordedRequest};

/// Shorter values are too common to be replaced wherever they stand.
const MIN_UNMISTAKABLE: usize = 8;

/// The most values that are remembered; a hostile answer may have any number of them.
const MAX_VALUES: usize = 100_000;

/// Longer values are documents.
const MAX_LENGTH: usize = 8 << 10;

/// Recorded values with the ones that take their place.
#[derive(Debug, Clone, Default)]
pub struct ValueMap {
    values: BTreeMap<String, Mapped>,
}

#[derive(Debug, Clone)]
struct Mapped {
    replayed: String,
    /// The name of the field or header that it was found in, in lower case.
    name: String,
}

impl ValueMap {
    /// Reads an answer beside the one that was recorded.
    pub fn learn(&mut self, recorded: &Answer, replayed: &Answer) {
        let json = |answer: &Answer| serde_json::from_slice::<Value>(&answer.body).ok();
        if let (Some(recorded), Some(replayed)) = (json(recorded), json(replayed)) {
            self.learn_json("", &recorded, &replayed);
        }
        for (name, value) in &recorded.headers {
            let same = |(other, _): &&(String, String)| other.eq_ignore_ascii_case(name);
            match name.to_ascii_lowercase().as_str() {
                "set-cookie" => {
                    let Some((cookie, value)) = cookie_of(value) else { continue };
                    let others = replayed.headers.iter().filter(same);
                    let found =
                        others.filter_map(|(_, other)| cookie_of(other)).find(|(other, _)| *other == cookie);
                    if let Some((_, other)) = found {
                        self.add(cookie, value, other);
                    }
                }
                "location" => {
                    let Some((_, other)) = replayed.headers.iter().find(same) else { continue };
                    for (part, other) in
                        value.split(['/', '?', '&', '=']).zip(other.split(['/', '?', '&', '=']))
                    {
                        self.add("id", part, other);
                    }
                }
                "date" | "content-length" | "age" => {}
                name => {
                    if let Some((_, other)) = replayed.headers.iter().find(same) {
                        self.add(name, value, other);
                    }
                }
            }
        }
    }

    fn learn_json(&mut self, name: &str, recorded: &Value, replayed: &Value) {
        match (recorded, replayed) {
            (Value::Object(recorded), Value::Object(replayed)) => {
                for (key, value) in recorded {
                    if let Some(other) = replayed.get(key) {
                        self.learn_json(key, value, other);
                    }
                }
            }
            (Value::Array(recorded), Value::Array(replayed)) => {
                for (value, other) in recorded.iter().zip(replayed) {
                    self.learn_json(name, value, other);
                }
            }
            (Value::String(recorded), Value::String(replayed)) => self.add(name, recorded, replayed),
            (Value::Number(recorded), Value::Number(replayed)) => {
                self.add(name, &recorded.to_string(), &replayed.to_string());
            }
            _ => {}
        }
    }

    /// Makes a value take the place of a recorded one, which was found in a field or header of this name.
    pub fn add(&mut self, name: &str, recorded: &str, replayed: &str) {
        let is_usable = |text: &str| !text.is_empty() && text.len() <= MAX_LENGTH;
        if recorded != replayed
            && is_usable(recorded)
            && is_usable(replayed)
            && self.values.len() < MAX_VALUES
        {
            // The first place counts: a later one may be a copy that has changed since.
            let mapped = Mapped { replayed: replayed.to_owned(), name: name.to_ascii_lowercase() };
            self.values.entry(recorded.to_owned()).or_insert(mapped);
        }
    }

    /// A recorded request with the values of this execution.
    pub fn apply(&self, request: &RecordedRequest) -> RecordedRequest {
        let mut request = request.clone();
        if self.values.is_empty() {
            return request;
        }
        request.path = self.in_path(&request.path);
        for (name, value) in &mut request.headers {
            *value = self.in_text(&name.to_ascii_lowercase(), value);
        }
        if let Ok(mut json) = serde_json::from_slice::<Value>(&request.body) {
            if self.in_json("", &mut json) {
                request.body = json.to_string().into_bytes();
            }
        } else if let Ok(text) = std::str::from_utf8(&request.body) {
            request.body = self.in_text("", text).into_bytes();
        }
        request
    }

    /// Segments of a path name things; the values of a query have names.
    fn in_path(&self, path: &str) -> String {
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let segment =
            |text: &str| self.values.get(text).map_or_else(|| text.to_owned(), |m| m.replayed.clone());
        let mut out: String = path.split('/').map(segment).collect::<Vec<_>>().join("/");
        if let Some(query) = query {
            let pair = |pair: &str| match pair.split_once('=') {
                Some((name, value)) => format!("{name}={}", self.in_text(&name.to_ascii_lowercase(), value)),
                None => pair.to_owned(),
            };
            out.push('?');
            out.push_str(&query.split('&').map(pair).collect::<Vec<_>>().join("&"));
        }
        out
    }

    fn in_json(&self, name: &str, value: &mut Value) -> bool {
        match value {
            // No short-circuit: every value counts.
            Value::Object(fields) => {
                fields.iter_mut().fold(false, |any, (key, field)| self.in_json(key, field) | any)
            }
            Value::Array(items) => items.iter_mut().fold(false, |any, item| self.in_json(name, item) | any),
            Value::String(text) => {
                let replaced = self.in_text(&name.to_ascii_lowercase(), text);
                let is_other = replaced != *text;
                *text = replaced;
                is_other
            }
            Value::Number(number) => {
                let Some(mapped) = self.values.get(&number.to_string()) else { return false };
                if !mapped.is_meant_by(&name.to_ascii_lowercase()) {
                    return false;
                }
                match mapped.replayed.parse() {
                    Ok(replayed) => {
                        *value = Value::Number(replayed);
                        true
                    }
                    Err(_) => false,
                }
            }
            _ => false,
        }
    }

    /// A text that is a value, or holds long ones.
    fn in_text(&self, name: &str, text: &str) -> String {
        if let Some(mapped) = self.values.get(text)
            && (text.len() >= MIN_UNMISTAKABLE || mapped.is_meant_by(name))
        {
            return mapped.replayed.clone();
        }
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-_.~+/%".contains(letter);
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let length = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(length);
            match self.values.get(word).filter(|_| word.len() >= MIN_UNMISTAKABLE) {
                Some(mapped) => out.push_str(&mapped.replayed),
                None => out.push_str(word),
            }
            let gap = behind.find(is_part).unwrap_or(behind.len());
            out.push_str(&behind[..gap]);
            rest = &behind[gap..];
        }
        out
    }
}

impl Mapped {
    /// Whether a field of this name means the same thing: `id` of an order is `orderId` elsewhere.
    fn is_meant_by(&self, name: &str) -> bool {
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        name == self.name || name.ends_with(&self.name) || self.name.ends_with(name)
    }
}

/// Name and value of a `Set-Cookie` header.
fn cookie_of(header: &str) -> Option<(&str, &str)> {
    let (name, value) = header.split(';').next()?.split_once('=')?;
    Some((name.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SpanId, TraceId};
    use crate::span::Wire;

    fn answer(headers: &[(&str, &str)], body: &str) -> Answer {
        let header = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Answer { headers: headers.iter().map(header).collect(), body: body.into(), ..Answer::default() }
    }

    fn request(path: &str, header: (&str, &str), body: &str) -> RecordedRequest {
        RecordedRequest {
            trace: TraceId(1),
            span: SpanId(1),
            callee: "order".parse().unwrap(),
            port: 80,
            wire: Wire::Http1,
            method: "GET".into(),
            path: path.into(),
            headers: vec![(header.0.into(), header.1.into())],
            body: body.into(),
            start_us: 0,
            duration_us: 0,
            answer: Answer::default(),
        }
    }

    #[test]
    fn values_of_answers_reach_later_requests() {
        let mut map = ValueMap::default();
        map.learn(
            &answer(
                &[("Set-Cookie", "sid=recorded-1; Path=/")],
                r#"{"id": 17, "token": "recorded-token-1", "n": 3}"#,
            ),
            &answer(
                &[("set-cookie", "sid=replayed-9; Path=/")],
                r#"{"id": 1, "token": "replayed-token-9", "n": 3}"#,
            ),
        );
        let sent = map.apply(&request(
            "/orders/17?user=17&orderId=17",
            ("Authorization", "Bearer recorded-token-1"),
            r#"{"order_id": 17, "quantity": 17, "note": "for recorded-token-1"}"#,
        ));
        assert_eq!(sent.path, "/orders/1?user=17&orderId=1");
        assert_eq!(sent.headers[0].1, "Bearer replayed-token-9");
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(body, serde_json::json!({"order_id": 1, "quantity": 17, "note": "for replayed-token-9"}));
        let sent = map.apply(&request("/", ("Cookie", "a=b; sid=recorded-1"), "plain"));
        assert_eq!(
            (sent.headers[0].1.as_str(), sent.body.as_slice()),
            ("a=b; sid=replayed-9", &b"plain"[..])
        );
    }

    #[test]
    fn a_location_names_what_was_made() {
        let mut map = ValueMap::default();
        map.learn(
            &answer(&[("Location", "/carts/81/items")], ""),
            &answer(&[("location", "/carts/2/items")], ""),
        );
        assert_eq!(map.apply(&request("/carts/81/items", ("a", "b"), "")).path, "/carts/2/items");
    }

    #[test]
    fn a_request_without_known_values_keeps_its_bytes() {
        let mut map = ValueMap::default();
        map.learn(&answer(&[], r#"{"id": "abcdefgh1"}"#), &answer(&[], r#"{"id": "abcdefgh2"}"#));
        let odd = request("/a//b?x&y=", ("A", " b  c "), "{ \"k\" :1.0 }");
        assert_eq!(map.apply(&odd), odd);
    }
}
