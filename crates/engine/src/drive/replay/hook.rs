//! A program of the user that changes requests before they are sent, such as one that mints tokens anew.
//!
//! It is started once for each replay. For every request it gets a line of JSON and answers with a line of JSON: what
//! takes the place of the recorded parts. It runs on this machine with the rights of the user, not among the services.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use faultscope_model::recording::RecordedRequest;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

/// How long the program may take for one request.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The longest line that is read from it: the largest body that is recorded, as base64, with room for headers.
const MAX_LINE: u64 = 32 << 20;

/// Why a hook could not be used.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// It has no program.
    #[error("it is empty")]
    Empty,
    /// It cannot be started.
    #[error("it cannot be started")]
    Start(#[source] std::io::Error),
    /// It ended, or closed its output, before it had answered.
    #[error("it ended before it had answered")]
    Ended,
    /// It did not answer in time.
    #[error("it did not answer within {} s", MAX_WAIT.as_secs())]
    Late,
    /// Its answer is not what was asked for.
    #[error("its answer is not a line of JSON with `method`, `path`, `headers` or `body`")]
    Malformed(#[source] serde_json::Error),
    /// Its answer has a body that is no base64.
    #[error("the `body` of its answer is no base64")]
    NotBase64(#[source] base64::DecodeError),
}

/// A running hook.
#[derive(Debug)]
pub(super) struct Hook {
    /// One request at a time: the program answers in the order in which it is asked.
    pipes: Mutex<Pipes>,
    // Killed when it is dropped.
    _child: Child,
}

#[derive(Debug)]
struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What the program is told about a request.
#[derive(Serialize)]
struct Asked<'a> {
    service: &'a str,
    method: &'a str,
    path: &'a str,
    headers: &'a [(String, String)],
    /// In base64: not every body is text.
    body: String,
}

/// What takes the place of the recorded parts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Replaced {
    method: Option<String>,
    path: Option<String>,
    /// Only these headers are replaced; `null` removes one.
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    body: Option<String>,
}

impl Hook {
    pub(super) fn start(command: &[String]) -> Result<Self, HookError> {
        let (program, words) = command.split_first().ok_or(HookError::Empty)?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(HookError::Start)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(HookError::Ended);
        };
        let pipes = Mutex::new(Pipes { input, output: BufReader::new(output) });
        Ok(Self { pipes, _child: child })
    }

    /// The request as the program wants it.
    pub(super) async fn change(&self, request: RecordedRequest) -> Result<RecordedRequest, HookError> {
        let asked = Asked {
            service: request.callee.as_str(),
            method: &request.method,
            path: &request.path,
            headers: &request.headers,
            body: STANDARD.encode(&request.body),
        };
        let mut line = serde_json::to_vec(&asked).map_err(HookError::Malformed)?;
        line.push(b'\n');
        let mut pipes = self.pipes.lock().await;
        let asking = async {
            pipes.input.write_all(&line).await.map_err(|_| HookError::Ended)?;
            pipes.input.flush().await.map_err(|_| HookError::Ended)?;
            let mut answer = Vec::new();
            let mut bounded = (&mut pipes.output).take(MAX_LINE);
            bounded.read_until(b'\n', &mut answer).await.map_err(|_| HookError::Ended)?;
            if answer.is_empty() { Err(HookError::Ended) } else { Ok(answer) }
        };
        let answer = tokio::time::timeout(MAX_WAIT, asking).await.map_err(|_| HookError::Late)??;
        replace(request, serde_json::from_slice(&answer).map_err(HookError::Malformed)?)
    }
}

fn replace(mut request: RecordedRequest, replaced: Replaced) -> Result<RecordedRequest, HookError> {
    request.method = replaced.method.unwrap_or(request.method);
    request.path = replaced.path.unwrap_or(request.path);
    for (name, value) in replaced.headers {
        request.headers.retain(|(own, _)| !own.eq_ignore_ascii_case(&name));
        request.headers.extend(value.map(|value| (name, value)));
    }
    if let Some(body) = replaced.body {
        request.body = STANDARD.decode(body).map_err(HookError::NotBase64)?;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use faultscope_model::recording::Recording;
    use faultscope_model::span::{Payload, Span};

    use super::*;

    fn request() -> RecordedRequest {
        let json = serde_json::json!({
            "trace": "1", "id": "1", "caller": "test-1", "callee": "users", "port": 80, "wire": "http1",
            "method": "GET", "path": "/me", "start_us": 1, "duration_us": 1, "request_bytes": 2,
            "response_bytes": 0, "status": 200,
        });
        let mut span: Span = serde_json::from_value(json).unwrap();
        let headers = [("Authorization", "Bearer old"), ("X-Debug", "1"), ("Accept", "*/*")];
        span.payload = Some(Box::new(Payload {
            request_headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            request_body: b"{}".to_vec(),
            ..Payload::default()
        }));
        Recording::from_calls([span], |name| name.as_str() == "users").requests.remove(0)
    }

    fn shell(script: &str) -> Hook {
        Hook::start(&["sh", "-c", script].map(str::to_owned)).unwrap()
    }

    #[tokio::test]
    async fn only_what_the_program_names_is_replaced() {
        let answer = r#"{"headers":{"authorization":"Bearer new","x-debug":null},"path":"/you"}"#;
        let hook = shell(&format!("while read -r line; do echo '{answer}'; done"));
        for _ in 0..2 {
            let changed = hook.change(request()).await.unwrap();
            assert_eq!((changed.method.as_str(), changed.path.as_str()), ("GET", "/you"));
            let headers: Vec<String> =
                changed.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
            assert_eq!(headers, ["Accept: */*", "authorization: Bearer new"]);
            assert_eq!(changed.body, b"{}");
        }
    }

    #[tokio::test]
    async fn the_program_reads_the_request() {
        // The body of the request is the one that stands in the line, so it comes back as it is.
        let hook = shell(r#"read -r line; body=${line##*body\":\"}; echo "{\"body\":\"${body%%\"*}\"}""#);
        assert_eq!(hook.change(request()).await.unwrap(), request());
    }

    #[tokio::test]
    async fn a_program_that_does_not_answer_is_an_error() {
        assert!(matches!(Hook::start(&[]), Err(HookError::Empty)));
        assert!(matches!(Hook::start(&["/no/such/program".to_owned()]), Err(HookError::Start(_))));
        assert!(matches!(shell("exit 0").change(request()).await, Err(HookError::Ended)));
        assert!(matches!(shell("echo nonsense; cat").change(request()).await, Err(HookError::Malformed(_))));
        let body = shell(r#"echo '{"body":"*"}'; cat"#).change(request()).await;
        assert!(matches!(body, Err(HookError::NotBase64(_))));
    }
}
