//! The tool's side of an agent process: starts it, talks to it, ends it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::agent_protocol::{MAX_BYTES, Message, Request};
use super::launch::{MODE_NETNS, MODE_PLAIN};
use super::link::{self, Link};
use super::readable::watched;
use super::reap;

/// How long an agent may take to start, and a plain one to end what it started.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running agent.
#[derive(Debug)]
pub(crate) struct AgentProcess {
    pub(crate) link: Link,
    ending: tokio::sync::Mutex<Option<Ending>>,
}

#[derive(Debug)]
struct Ending {
    /// The process that the tool started and waits for.
    child: Option<Child>,
    exited: AsyncFd<OwnedFd>,
    /// The process whose end ends everything in the slot.
    inner: OwnedFd,
    isolated: bool,
}

impl AgentProcess {
    /// Starts an agent and waits until it accepts requests. What it starts stays in the groups of the slot.
    pub(crate) async fn start(
        program: &Path,
        label: &str,
        isolated: bool,
        groups: &[PathBuf],
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let ours = watched(ours)?;
        let mut command = Command::new(program);
        let mode = if isolated { MODE_NETNS } else { MODE_PLAIN };
        command.args(["launch", "agent", label, mode]).arg(std::process::id().to_string()).args(groups);
        command.env("FAULTSCOPE_LABEL", label).env(reap::OWNER, reap::this_owner());
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawn(command).await?;
        let exited = watched(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?)?;
        let mut starting =
            Ending { inner: exited.get_ref().try_clone()?, child: Some(child), exited, isolated };
        let greeting = async {
            let mut buffer = vec![0; MAX_BYTES];
            loop {
                let Some((length, _)) = link::receive(&ours, &mut buffer).await? else {
                    return Err(io::Error::other("the slot's agent ended at once"));
                };
                match serde_json::from_slice(&buffer[..length])? {
                    Message::Hello { pid } => {
                        let pid = Pid::from_raw(pid)
                            .ok_or_else(|| io::Error::other("an agent without a process"))?;
                        starting.inner = pidfd_open(pid, PidfdFlags::empty())?;
                    }
                    Message::Ready => return Ok(()),
                    Message::Refused { reason } => return Err(io::Error::other(reason)),
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, greeting)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the slot's agent does not come up"))??;
        Ok(Self { link: Link::new(ours), ending: tokio::sync::Mutex::new(Some(starting)) })
    }

    /// Whether the agent and the process that holds the slot are running.
    pub(crate) async fn is_alive(&self) -> bool {
        let held = self.ending.lock().await;
        // A process handle becomes readable when the process ends.
        let runs = |process: &OwnedFd| {
            let mut polled = [PollFd::new(process, PollFlags::IN)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut polled, Some(&at_once)).is_ok_and(|ended| ended == 0)
        };
        held.as_ref().is_some_and(|ending| runs(&ending.inner) && runs(ending.exited.get_ref()))
    }

    /// Ends the agent and everything it started; returns when all of it is gone.
    pub(crate) async fn end(&self) -> io::Result<()> {
        let mut held = self.ending.lock().await;
        let Some(ending) = held.as_mut() else {
            return Ok(());
        };
        if ending.isolated {
            signal(&ending.inner, Signal::KILL)?;
        } else {
            // It must end its descendants first. The answer is the end of its socket.
            let _ = tokio::time::timeout(PATIENCE, self.link.request(Request::Leave, &[])).await;
        }
        self.link.shut();
        self.link.close();
        let waited = tokio::time::timeout(PATIENCE, ending.exited.readable()).await;
        if waited.is_err() {
            signal(ending.exited.get_ref(), Signal::KILL)?;
            let _ = ending.exited.readable().await?;
        }
        if let Some(mut child) = ending.child.take() {
            child.wait()?;
        }
        *held = None;
        Ok(())
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let _ = signal(&self.inner, Signal::KILL);
        // Reached only for an agent that was never ended: after a panic or an abandoned start.
        std::thread::spawn(move || child.wait());
    }
}

fn signal(process: impl AsFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(process, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

type Job = (Command, oneshot::Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as the tool: the kernel's parent-death signal fires
/// when the *thread* that started a process ends, and runtime threads come and go.
async fn spawn(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        let work = move || {
            for (mut command, reply) in queue {
                let _ = reply.send(command.spawn());
            }
        };
        let started = std::thread::Builder::new().name("faultscope-spawner".into()).spawn(work);
        if let Err(error) = started {
            tracing::error!(%error, "no thread for starting processes");
        }
        jobs
    });
    let (reply, child) = oneshot::channel();
    let vanished = || io::Error::other("the thread that starts processes is gone");
    spawner.send((command, reply)).map_err(|_| vanished())?;
    child.await.map_err(|_| vanished())?
}
