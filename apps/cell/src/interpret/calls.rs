//! Calls to other services.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use tokio::time::{Duration, sleep};

use super::Failure;
use crate::client::{CallError, Outgoing};
use crate::expression::{EvaluationError, display};
use crate::route;
use crate::scope::Scope;
use crate::spec::{Call, OnError};
use crate::template::Template;

/// The default time limit of one attempt.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn call(call: &Call, scope: &mut Scope) -> Result<(), Failure> {
    let outgoing = outgoing(call, scope)?;
    let patience = call.timeout.as_ref().map_or(Ok(PATIENCE), |timeout| timeout.evaluate(scope))?;
    let retries = call.retries.as_ref().map_or(Ok(0), |retries| retries.evaluate(scope))?;
    let backoff = call.backoff.as_ref().map_or(Ok(Duration::ZERO), |backoff| backoff.evaluate(scope))?;
    let mut attempt = 0;
    let result = loop {
        let answer = scope.cell.client.send(&call.service, outgoing.clone(), patience).await;
        let result = judge(call, &outgoing, answer);
        if result.is_ok() || attempt >= retries {
            break result;
        }
        attempt += 1;
        sleep(backoff).await;
    };
    match (result, &call.on_error) {
        (Ok((status, body)), _) => {
            scope.bind(call.status_as.as_ref(), Value::from(status.as_u16()));
            scope.bind(call.r#as.as_ref(), body);
            Ok(())
        }
        (Err(failure), OnError::Fail) => Err(failure),
        (Err(failure), OnError::Status(status)) => Err(Failure { status: *status, ..failure }),
        (Err(failure), OnError::Ignore) => {
            scope.bind(call.status_as.as_ref(), Value::from(failure.status));
            scope.bind(call.r#as.as_ref(), Value::Null);
            Ok(())
        }
        (Err(failure), OnError::Default(value)) => {
            let value = value.evaluate(scope)?;
            scope.bind(call.status_as.as_ref(), Value::from(failure.status));
            scope.bind(call.r#as.as_ref(), value);
            Ok(())
        }
    }
}

fn outgoing(call: &Call, scope: &Scope) -> Result<Outgoing, Failure> {
    let mut path = encode_path(&call.path.evaluate_text(scope)?);
    let mut separator = if path.contains('?') { '&' } else { '?' };
    for (name, template) in &call.query {
        let value = template.evaluate(scope)?;
        if !value.is_null() {
            path.push(separator);
            path.push_str(&format!("{}={}", route::encode(name), route::encode(&display(&value))));
            separator = '&';
        }
    }
    let mut headers = scope.outgoing_headers();
    headers.extend(self::headers(&call.headers, scope)?);
    let body = match &call.body {
        Some(body) => {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Bytes::from(body.evaluate(scope)?.to_string())
        }
        None => Bytes::new(),
    };
    let method = call.method.as_deref().unwrap_or("GET").parse();
    let method: Method = method.map_err(|_| EvaluationError("not a method".to_owned()))?;
    Ok(Outgoing { method, path, headers, body })
}

fn judge(
    call: &Call,
    outgoing: &Outgoing,
    answer: Result<(StatusCode, Bytes), CallError>,
) -> Result<(StatusCode, Value), Failure> {
    let place = || format!("{} {} {}", call.service, outgoing.method, outgoing.path);
    let (status, body) = answer.map_err(|error| match error {
        CallError::TimedOut(_) => Failure::new("timeout", 504, format!("{}: {error}", place())),
        other => Failure::new("call", 502, format!("{}: {other}", place())),
    })?;
    // What is not JSON stays text, so that a cell can also call other servers.
    let value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body)))
    };
    if status.as_u16() >= 400 && !call.accept.contains(&status.as_u16()) {
        return Err(Failure::new("call", 502, format!("{}: {}", place(), error_text(&value, status))));
    }
    Ok((status, value))
}

/// The error message of a failed callee, with its status.
pub(super) fn error_text(body: &Value, status: StatusCode) -> String {
    match body.get("error").and_then(Value::as_str) {
        Some(text) => format!("{} {text}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// Headers from templates; null ones are left out.
pub(super) fn headers(templates: &BTreeMap<String, Template>, scope: &Scope) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, template) in templates {
        let value = template.evaluate(scope)?;
        if value.is_null() {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_str(&display(&value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(EvaluationError("a header has characters that cannot be sent".to_owned()).into());
        };
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Escapes invalid characters of a path and query; separators and escapes stay.
fn encode_path(text: &str) -> String {
    let mut path = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        path.push('/');
    }
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/?&=%:@!$'()*+,;".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

impl Scope {
    /// The trace headers of the request, if this service propagates them.
    pub(super) fn outgoing_headers(&self) -> HeaderMap {
        if self.cell.propagate { self.incoming.trace_headers() } else { HeaderMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::encode_path;

    #[test]
    fn paths_can_be_sent() {
        assert_eq!(encode_path("a b/ü?x=1&y=%20"), "/a%20b/%C3%BC?x=1&y=%20");
        assert_eq!(encode_path("/{x}"), "/%7Bx%7D");
    }
}
