//! The tool's side of a process tree: the reports of its init, and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::agent::AgentProcess;
use super::agent_protocol::{InitSpec, Report, Request};

/// Reports are short; a longer one does not come from our init.
const LONGEST_REPORT: u64 = 64 << 10;

/// Where a tree is started.
#[derive(Debug, Clone)]
pub(crate) enum Into<'a> {
    /// In a place, or beside the agent where there are no places.
    Place(Option<&'a str>),
    /// Inside a running tree and its control groups.
    Tree { into: u64, groups: Vec<PathBuf> },
}

/// The progress of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Running,
    Gone(End),
}

/// How a tree ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Why it never ran, and whether the plan is to blame.
    pub(crate) refused: Option<(bool, String)>,
    /// It ended together with its agent.
    pub(crate) agent_lost: bool,
}

/// A process tree.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) key: u64,
    agent: Arc<AgentProcess>,
    phase: watch::Receiver<Phase>,
}

impl Tree {
    /// Starts a tree; its output goes to the two descriptors.
    pub(crate) async fn start(
        agent: &Arc<AgentProcess>,
        key: u64,
        into: Into<'_>,
        spec: &InitSpec,
        outputs: (OwnedFd, OwnedFd),
    ) -> io::Result<Self> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut ours = UnixStream::from_std(ours)?;
        let end = agent.link.end_of(key);
        let name = spec.name.clone();
        let request = match into {
            Into::Place(place) => Request::Spawn { key, place: place.map(str::to_owned), name },
            Into::Tree { into, groups } => Request::Join { key, into, name, groups },
        };
        agent.link.request(request, &[theirs.as_fd(), outputs.0.as_fd(), outputs.1.as_fd()]).await?;
        drop((theirs, outputs));
        let text = serde_json::to_vec(spec)?;
        let (says, phase) = watch::channel(Phase::Starting);
        tokio::spawn(async move {
            // If this fails it has ended already, which is noticed below.
            let _ = ours.write_all(&text).await;
            let _ = ours.shutdown().await;
            let mut last = End::default();
            let mut lines = BufReader::new(ours.take(LONGEST_REPORT)).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    Ok(Report::Started) => drop(says.send(Phase::Running)),
                    Ok(Report::Failed { bad_plan, reason }) => last.refused = Some((bad_plan, reason)),
                    Ok(Report::Exited { code, signal }) => (last.code, last.signal) = (code, signal),
                    Err(_) => break,
                }
            }
            match end.await {
                Ok(end) => {
                    last.agent_lost = end.agent_lost;
                    if last.code.is_none() && last.signal.is_none() {
                        last.signal = end.signal;
                    }
                }
                Err(_) => last.agent_lost = true,
            }
            let _ = says.send(Phase::Gone(last));
        });
        Ok(Self { key, agent: Arc::clone(agent), phase })
    }

    /// Returns when its program is running, or how it ended before that.
    pub(crate) async fn started(&self) -> Result<(), End> {
        match self.reached(|phase| *phase != Phase::Starting).await {
            Phase::Gone(end) if end.refused.is_some() || end.agent_lost => Err(end),
            // It ran, if only for a moment.
            _ => Ok(()),
        }
    }

    /// Returns when all of it is gone.
    pub(crate) async fn gone(&self) -> End {
        match self.reached(|phase| matches!(phase, Phase::Gone(_))).await {
            Phase::Gone(end) => end,
            _ => End::default(),
        }
    }

    /// Sends a signal to its program through its init.
    pub(crate) async fn signal(&self, signal: Signal) -> io::Result<()> {
        self.agent
            .link
            .request(Request::Signal { key: self.key, signal: signal.as_raw() }, &[])
            .await
            .map(drop)
    }

    /// Ends all of it at once, and returns when it is gone.
    pub(crate) async fn kill(&self) -> End {
        // An agent that does not answer any more has taken the tree with it.
        let _ = self.agent.link.request(Request::Kill { key: self.key }, &[]).await;
        self.gone().await
    }

    async fn reached(&self, far: impl FnMut(&Phase) -> bool) -> Phase {
        let mut phase = self.phase.clone();
        let lost = || Phase::Gone(End { agent_lost: true, ..End::default() });
        phase.wait_for(far).await.map_or_else(|_| lost(), |phase| phase.clone())
    }
}
