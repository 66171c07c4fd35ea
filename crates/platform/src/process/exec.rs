//! Runs a test's command in a slot, bounded in time and output, with nothing left behind.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use faultscope_model::InstanceId;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::agent_protocol::InitSpec;
use super::cgroup::Group;
use super::life::Life;
use super::slot::Slot;
use super::stage::Stage;
use super::tree::{End, Into, Tree};
use super::{NAME, bad_plan, trouble};
use crate::log::capture;
use crate::{Execution, Exit, Place, PlatformError, PlatformErrorKind, Rights};

/// Runs its arguments with the terminal as input, and in a session of its own where that is possible, so that keys like
/// Ctrl-C reach them.
const ON_A_TERMINAL: &str =
    r#"if command -v setsid >/dev/null; then exec setsid --ctty --wait "$@" <&1; else exec "$@" <&1; fi"#;

impl Slot {
    /// Runs a command and returns how it ended.
    pub(crate) async fn exec(
        self: &Arc<Self>,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let stage = self.stage();
        match &run.place {
            Place::Test => {
                let own = self.lives_folder().join(format!("{}.{}", InstanceId::test(), self.next_key()));
                let exit = self.exec_beside(&stage, run, &own, cancel).await;
                self.discard(own);
                exit
            }
            Place::Instance(instance) => {
                let down = || bad_plan(action(run), format!("{instance} does not run"));
                let life = stage.life(instance).filter(|life| !life.is_over()).ok_or_else(down)?;
                let spec = self.joined_spec(&stage, &life, run);
                let into = self.inside(&life);
                self.exec_as(&stage, run, &spec, into, cancel).await
            }
        }
    }

    /// Runs a command in an instance with a terminal.
    pub(crate) async fn attach(
        self: &Arc<Self>,
        run: &Execution,
        terminal: OwnedFd,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let Place::Instance(instance) = &run.place else {
            return Err(bad_plan(action(run), "a terminal needs an instance"));
        };
        let (stage, started) = (self.stage(), Instant::now());
        let down = || bad_plan(action(run), format!("{instance} does not run"));
        let life = stage.life(instance).filter(|life| !life.is_over()).ok_or_else(down)?;
        let mut spec = self.joined_spec(&stage, &life, run);
        // The first descriptor of a tree is the socket of its init, so that the terminal comes as the second and third.
        let words = ["sh", "-c", ON_A_TERMINAL, "sh"].map(str::to_owned);
        spec.command = words.into_iter().chain(std::mem::take(&mut spec.command)).collect();
        let started_tree = async {
            let outputs = (terminal.try_clone()?, terminal);
            Tree::start(&stage.agent, self.next_key(), self.inside(&life), &spec, outputs).await
        };
        let tree = started_tree.await.map_err(|e| trouble(action(run), e))?;
        let (end, stop) = watched(tree, run.within, cancel).await;
        if let Some((_, reason)) = end.refused {
            return Err(bad_plan(action(run), reason));
        }
        let End { code, signal, .. } = end;
        let (stdout, stderr) = (String::new(), String::new());
        let timed_out = stop == Stop::TimedOut;
        Ok(Exit { code, signal, timed_out, stdout, stderr, took: started.elapsed() })
    }

    /// Runs a command beside the instances and keeps the files it wrote in `own`.
    pub(crate) async fn exec_in(
        self: &Arc<Self>,
        stage: &Arc<Stage>,
        run: &Execution,
        own: PathBuf,
    ) -> Result<Exit, PlatformError> {
        self.exec_beside(stage, run, &own, &CancellationToken::new()).await
    }

    async fn exec_beside(
        self: &Arc<Self>,
        stage: &Arc<Stage>,
        run: &Execution,
        own: &Path,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        self.ensure_place(stage, &InstanceId::test()).await.map_err(|e| trouble(action(run), e))?;
        let spec = self.test_spec(stage, run, own).map_err(|e| bad_plan(action(run), e))?;
        let into = Into::Place(self.isolated.then_some("test-1"));
        self.exec_as(stage, run, &spec, into, cancel).await
    }

    async fn exec_as(
        self: &Arc<Self>,
        stage: &Arc<Stage>,
        run: &Execution,
        spec: &InitSpec,
        into: Into<'_>,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let started = Instant::now();
        let key = self.next_key();
        let result = async {
            let (out_read, out_write) = pipe_with(PipeFlags::CLOEXEC)?;
            let (err_read, err_write) = pipe_with(PipeFlags::CLOEXEC)?;
            let tree = Tree::start(&stage.agent, key, into, spec, (out_write, err_write)).await?;
            let stdout = tokio::spawn(capture(Receiver::from_owned_fd(out_read)?, run.output_limit));
            let stderr = tokio::spawn(capture(Receiver::from_owned_fd(err_read)?, run.output_limit));
            let (end, stop) = watched(tree, run.within, cancel).await;
            let (stdout, stderr) =
                (stdout.await.map_err(io::Error::other)?, stderr.await.map_err(io::Error::other)?);
            Ok::<_, io::Error>((end, stop, stdout, stderr))
        };
        let (end, stop, stdout, stderr) = result.await.map_err(|e| trouble(action(run), e))?;
        match (stop, end) {
            (Stop::Cancelled, _) => Err(PlatformError::new(PlatformErrorKind::Cancelled, NAME, action(run))),
            (_, End { refused: Some((true, reason)), .. }) => Err(bad_plan(action(run), reason)),
            (_, End { refused: Some((false, reason)), .. }) => Err(trouble(action(run), reason)),
            (_, End { agent_lost: true, .. }) => Err(trouble(action(run), "the slot's agent is gone")),
            (stop, End { code, signal, .. }) => {
                let timed_out = stop == Stop::TimedOut;
                Ok(Exit { code, signal, timed_out, stdout, stderr, took: started.elapsed() })
            }
        }
    }

    /// Where commands inside an instance are started.
    fn inside(&self, life: &Life) -> Into<'static> {
        if !self.isolated {
            return Into::Place(None);
        }
        let groups = life.group.as_ref().map(Group::join_files).unwrap_or_default();
        Into::Tree { into: life.tree.key, groups }
    }

    /// Runs the command of a probe in an instance.
    pub(crate) async fn run_inside(
        self: &Arc<Self>,
        stage: &Arc<Stage>,
        life: &Life,
        command: &[String],
    ) -> io::Result<bool> {
        let run = Execution {
            command: command.to_vec(),
            env: life.plan.env.clone(),
            directory: life.plan.directory.clone(),
            within: life.plan.ready.within,
            output_limit: 0,
            place: Place::Instance(life.plan.id.clone()),
            rights: Rights::Service,
        };
        let spec = self.joined_spec(stage, life, &run);
        let into = self.inside(life);
        let null = || std::fs::File::options().write(true).open("/dev/null");
        let outputs = (null()?.into(), null()?.into());
        let tree = Tree::start(&stage.agent, self.next_key(), into, &spec, outputs).await?;
        let (end, _) = watched(tree, run.within, &CancellationToken::new()).await;
        match end.refused {
            Some((_, reason)) => Err(io::Error::other(reason)),
            None => Ok(end.code == Some(0)),
        }
    }
}

fn action(run: &Execution) -> String {
    format!("run {}", run.command.first().map_or("nothing", String::as_str))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    ByItself,
    TimedOut,
    Cancelled,
}

/// Waits for a tree to end, or ends it; also if this future is dropped.
async fn watched(tree: Tree, within: Duration, cancel: &CancellationToken) -> (End, Stop) {
    let tree = Arc::new(tree);
    let guard = Unattended(Some(Arc::clone(&tree)));
    let ended = tokio::select! {
        biased;
        end = tree.gone() => (end, Stop::ByItself),
        () = cancel.cancelled() => (tree.kill().await, Stop::Cancelled),
        () = tokio::time::sleep(within) => (tree.kill().await, Stop::TimedOut),
    };
    guard.attended();
    ended
}

struct Unattended(Option<Arc<Tree>>);

impl Unattended {
    fn attended(mut self) {
        self.0 = None;
    }
}

impl Drop for Unattended {
    fn drop(&mut self) {
        if let Some(tree) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { tree.kill().await });
        }
    }
}
