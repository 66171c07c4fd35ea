//! What happens when there is an incident: a command or a web hook. A trigger is plain data, so that whoever starts
//! clones or investigations takes the same.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;

use super::anomaly::Incident;
use crate::host_command::{HostCommand, HostError};

/// A receiver that takes longer would delay the next alarm.
const WEBHOOK_WITHIN: Duration = Duration::from_secs(10);
/// A command that takes longer is killed.
const COMMAND_WITHIN: Duration = Duration::from_secs(300);
/// Bytes of a command's output that are kept.
const MAX_OUTPUT: u64 = 64 << 10;
/// Bytes of a receiver's answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// Bytes of JSON in the environment of a command: Linux takes 128 KiB for one variable.
const MAX_VARIABLE: usize = 96 << 10;

/// Why something is started: an incident, in the form that commands and receivers get.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trigger {
    /// The format of this JSON.
    pub version: u32,
    /// The service of the first anomaly.
    pub service: String,
    /// Traces of all anomalies, each once.
    pub traces: Vec<String>,
    /// The sentences.
    pub sentences: Vec<String>,
    /// The incident.
    pub incident: Incident,
}

/// What a trigger starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A line for a shell, in a folder.
    Command {
        /// The line.
        line: String,
        /// Its working directory.
        folder: PathBuf,
    },
    /// Sends the trigger as JSON.
    Webhook(Uri),
}

/// Why an action failed.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// The command cannot be started, or its output cannot be read.
    #[error("the command cannot be run")]
    Command(#[source] io::Error),
    /// The command ended with another code than 0.
    #[error("the command ended with {status}{}", if stderr.is_empty() { String::new() } else { format!(": {stderr}") })]
    Failed {
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The last line it printed to stderr.
        stderr: String,
    },
    /// It took too long.
    #[error("it did not end within {}", faultscope_model::units::show_duration(*.0))]
    Late(Duration),
    /// The receiver cannot be reached.
    #[error("{0} cannot be reached")]
    Unreachable(Uri, #[source] io::Error),
    /// The receiver answers with an error.
    #[error("{0} answers with status {1}")]
    Refused(Uri, u16),
}

impl Trigger {
    /// The trigger of an incident.
    pub fn new(incident: Incident) -> Self {
        let mut traces: Vec<String> = Vec::new();
        for trace in incident.anomalies.iter().flat_map(|anomaly| &anomaly.traces) {
            if !traces.contains(trace) {
                traces.push(trace.clone());
            }
        }
        let service = incident.anomalies.first().map(|anomaly| anomaly.series.service.clone());
        let sentences = incident.anomalies.iter().map(ToString::to_string).collect();
        Self { version: 1, service: service.unwrap_or_default(), traces, sentences, incident }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let json = serde_json::to_string(self).unwrap_or_default();
        let mut variables = BTreeMap::from([
            ("FAULTSCOPE_SERVICE".to_owned(), self.service.replace('\0', "")),
            ("FAULTSCOPE_TRACES".to_owned(), self.traces.join(",")),
            (
                "FAULTSCOPE_SENTENCE".to_owned(),
                self.sentences.first().cloned().unwrap_or_default().replace('\0', ""),
            ),
        ]);
        if json.len() <= MAX_VARIABLE {
            variables.insert("FAULTSCOPE_INCIDENT".to_owned(), json);
        }
        variables
    }
}

impl Action {
    /// Runs the action.
    pub async fn run(&self, trigger: &Trigger) -> Result<(), ActionError> {
        match self {
            Self::Command { line, folder } => run_command(line, folder, trigger).await,
            Self::Webhook(url) => match tokio::time::timeout(WEBHOOK_WITHIN, send(url, trigger)).await {
                Ok(sent) => sent,
                Err(_) => Err(ActionError::Late(WEBHOOK_WITHIN)),
            },
        }
    }
}

/// Parses the address of a receiver. It must be on this machine unless others are allowed: what it gets names services
/// and traces.
pub fn parse_webhook(text: &str, allow_remote: bool) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|_| format!("`{text}` is not a URL"))?;
    if url.scheme_str() != Some("http") {
        return Err("a web hook begins with http://".to_owned());
    }
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if host.is_empty() || !is_local && !allow_remote {
        return Err(format!("`{host}` is not on this machine"));
    }
    Ok(url)
}

async fn run_command(line: &str, folder: &std::path::Path, trigger: &Trigger) -> Result<(), ActionError> {
    let words = ["-c".to_owned(), line.to_owned()];
    let env = trigger.environment();
    let command = HostCommand {
        program: "sh",
        words: &words,
        env: &env,
        folder,
        within: COMMAND_WITHIN,
        max_output: MAX_OUTPUT,
    };
    let output = command.run().await.map_err(|error| match error {
        HostError::Start(e) | HostError::Unreadable(e) => ActionError::Command(e),
        HostError::Late => ActionError::Late(COMMAND_WITHIN),
    })?;
    if output.status.success() {
        tracing::info!(stdout = output.stdout, "the command of an alarm has ended");
        return Ok(());
    }
    let stderr = output.stderr.lines().last().unwrap_or_default().to_owned();
    Err(ActionError::Failed { status: output.status, stderr })
}

async fn send(url: &Uri, trigger: &Trigger) -> Result<(), ActionError> {
    let unreachable = |error: io::Error| ActionError::Unreachable(url.clone(), error);
    let status = exchange(url, trigger).await.map_err(unreachable)?;
    if (200..300).contains(&status) { Ok(()) } else { Err(ActionError::Refused(url.clone(), status)) }
}

async fn exchange(url: &Uri, trigger: &Trigger) -> io::Result<u16> {
    let host = url.host().unwrap_or_default();
    let port = url.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let body = serde_json::to_vec(trigger)?;
    let request = Request::post(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, url.authority().map_or(host, |authority| authority.as_str()))
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(body)))
        .map_err(io::Error::other)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        // Read to its end, so that the receiver does not see a broken connection.
        let _ = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        Ok::<u16, io::Error>(status)
    };
    tokio::pin!(connection, exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        ended = &mut connection => {
            ended.map_err(io::Error::other)?;
            exchange.await
        }
    }
}
