//! How `faultscope clone` asks a running `faultscope up`: a Unix socket in the tool's folder, one request and one answer,
//! each a line of JSON.
//!
//! The folder of sockets and the sockets are only open to the user who runs `up`.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use faultscope_model::CampaignId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::desk::{CloneDesk, CloneReport};
use super::error::CloneError;
use super::manifest::CloneTrigger;

/// The folder of sockets in the tool's folder.
const SOCKETS: &str = "up";
/// Requests are short; an answer has a manifest in it.
const MAX_REQUEST: u64 = 64 << 10;
const MAX_ANSWER: u64 = 64 << 20;
/// A client sends its request at once.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// Hooks take up to ten minutes, and data has to be copied.
const ANSWER_WITHIN: Duration = Duration::from_secs(1800);
/// The pause after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(100);
/// Clients at the same time.
const MAX_CLIENTS: usize = 16;

/// Answers clients of a running `up`.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    path: PathBuf,
}

/// What a client may ask.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ControlRequest {
    /// Take a clone now.
    Clone { name: Option<String> },
}

/// What `up` answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlAnswer {
    /// The clone was taken.
    Taken(Box<CloneReport>),
    /// It was not.
    Refused {
        /// Why.
        reason: String,
    },
}

impl ControlServer {
    /// Listens for clients of a campaign.
    pub fn open(state: &Path, campaign: &CampaignId) -> Result<Self, CloneError> {
        let folder = state.join(SOCKETS);
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other.map_err(CloneError::file("make", &folder))?,
        }
        remove_dead_sockets(&folder);
        let path = folder.join(format!("{campaign}.sock"));
        let bind = || -> io::Result<UnixListener> {
            let listener = with_short_path(&folder, &path, |path| UnixListener::bind(path))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = bind().map_err(CloneError::file("listen on", &path))?;
        Ok(Self { listener, path })
    }

    /// Answers clients, one task each, until it is dropped.
    pub async fn serve(self, desk: CloneDesk, reports: mpsc::Sender<Result<CloneReport, CloneError>>) {
        let mut clients = JoinSet::new();
        loop {
            tokio::select! {
                Ok((stream, _)) = self.listener.accept(), if clients.len() < MAX_CLIENTS => {
                    clients.spawn(answer(stream, desk.clone(), reports.clone()));
                }
                Some(_) = clients.join_next() => {}
                // This process has no descriptor for another connection.
                else => tokio::time::sleep(RETRY).await,
            }
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Asks the `up` of a folder for a clone; a campaign chooses among several.
pub async fn ask_for_clone(
    state: &Path,
    campaign: Option<&str>,
    name: Option<String>,
) -> Result<CloneReport, CloneError> {
    let folder = state.join(SOCKETS);
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let of = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if campaign.is_some_and(|wanted| !of.starts_with(wanted)) {
            continue;
        }
        // A socket of a killed tool refuses.
        let connected = with_short_path(&folder, &path, |path| {
            let stream = std::os::unix::net::UnixStream::connect(path)?;
            stream.set_nonblocking(true)?;
            UnixStream::from_std(stream)
        });
        found.extend(connected.ok().map(|stream| (of, stream)));
    }
    if found.len() > 1 {
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let campaigns = found.into_iter().map(|(of, _)| of).collect::<Vec<_>>().join(", ");
        return Err(CloneError::SeveralUp { campaigns });
    }
    let (_, stream) = found.pop().ok_or(CloneError::NotUp)?;
    let asked = tokio::time::timeout(ANSWER_WITHIN, ask(stream, &ControlRequest::Clone { name })).await;
    let late = || CloneError::Refused { reason: "it does not answer".into() };
    match asked.map_err(|_| late())?.map_err(CloneError::file("talk to", folder))? {
        ControlAnswer::Taken(report) => Ok(*report),
        ControlAnswer::Refused { reason } => Err(CloneError::Refused { reason }),
    }
}

async fn ask(mut stream: UnixStream, request: &ControlRequest) -> io::Result<ControlAnswer> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut answer).await?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended"));
    }
    Ok(serde_json::from_str(&answer)?)
}

async fn answer(stream: UnixStream, desk: CloneDesk, reports: mpsc::Sender<Result<CloneReport, CloneError>>) {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(read.take(MAX_REQUEST));
    let reading = tokio::time::timeout(REQUEST_WITHIN, reader.read_line(&mut line)).await;
    let request = match reading {
        Ok(Ok(length)) if length > 0 => serde_json::from_str(&line),
        // Nothing was asked.
        _ => return,
    };
    let answer = match request {
        Err(error) => ControlAnswer::Refused { reason: format!("it does not understand: {error}") },
        Ok(ControlRequest::Clone { name }) => match desk.order(CloneTrigger::Hand, name).await {
            Ok(report) => {
                let _ = reports.send(Ok(report.clone())).await;
                ControlAnswer::Taken(Box::new(report))
            }
            Err(error) => ControlAnswer::Refused { reason: explain(&error) },
        },
    };
    if let Ok(mut line) = serde_json::to_vec(&answer) {
        line.push(b'\n');
        let _ = write.write_all(&line).await;
    }
}

fn explain(error: &CloneError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// The path of a socket has at most 107 bytes, which folders of users exceed. Through a descriptor it is short.
fn with_short_path<T>(
    folder: &Path,
    path: &Path,
    use_path: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let open = fs::File::open(folder)?;
    let name = path.file_name().unwrap_or_default();
    use_path(&Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(name))
}

fn remove_dead_sockets(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let connected = with_short_path(folder, &path, |path| std::os::unix::net::UnixStream::connect(path));
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(path);
        }
    }
}
