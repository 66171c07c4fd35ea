//! Runs a command on this machine, outside of any slot: what a bundle restores.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Why a command has no result.
#[derive(Debug)]
pub(crate) enum HostError {
    /// It cannot be started.
    Start(io::Error),
    /// Its output cannot be read.
    Unreadable(io::Error),
    /// It took too long and was killed.
    Late,
}

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct HostOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A command to run.
#[derive(Debug)]
pub(crate) struct HostCommand<'a> {
    pub(crate) program: &'a str,
    pub(crate) words: &'a [String],
    /// Added to the environment of this process.
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) folder: &'a Path,
    pub(crate) within: Duration,
    /// Bytes of each output that are kept. One more is read, so that a caller notices more.
    pub(crate) max_output: u64,
}

/// A process group that is killed with its owner: test runners start compilers and interpreters.
struct Group(Option<rustix::process::Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

impl HostCommand<'_> {
    /// Runs it to its end. Dropping the future kills it and all that it started in its group.
    pub(crate) async fn run(&self) -> Result<HostOutput, HostError> {
        let mut child = Command::new(self.program)
            .args(self.words)
            .envs(self.env)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(HostError::Start)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        let _group = Group(pid.and_then(rustix::process::Pid::from_raw));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = tokio::time::timeout(self.within, async {
            tokio::join!(read(stdout, self.max_output), read(stderr, self.max_output), child.wait())
        });
        match ended.await {
            Ok((Ok(stdout), Ok(stderr), Ok(status))) => Ok(HostOutput { status, stdout, stderr }),
            Ok((Err(e), ..) | (_, Err(e), _) | (.., Err(e))) => Err(HostError::Unreadable(e)),
            Err(_) => Err(HostError::Late),
        }
    }
}

/// Reads up to a limit and discards the rest, so that the writer is not blocked.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: u64) -> io::Result<String> {
    let Some(mut from) = from else {
        return Ok(String::new());
    };
    let mut bytes = Vec::new();
    (&mut from).take(limit + 1).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
