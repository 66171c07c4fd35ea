//! Runs a test's command in a slot, bounded in time and output, with nothing left behind.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, ExecConfig, HostConfig};
use faultscope_model::InstanceId;
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engine::{Ended, Engine, Output, as_io, fault, labels};
use super::life::Life;
use super::sidecar::no_log;
use super::slot::Slot;
use super::{NAME, bad_plan, image, trouble};
use crate::log::capture;
use crate::{Execution, Exit, Place, PlatformError, PlatformErrorKind};

/// The buffer between the engine's stream and the reader that bounds it.
const PIPE: usize = 64 << 10;

impl Slot {
    /// Runs a command and returns how it ended.
    pub(super) async fn exec(
        self: &Arc<Self>,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        if cancel.is_cancelled() {
            return Err(cancelled(run));
        }
        match &run.place {
            Place::Test => self.exec_beside(run, cancel).await,
            Place::Instance(instance) => self.exec_inside(instance, run, cancel).await,
        }
    }

    /// Runs a command in a container of its own that shares the sidecar's network.
    async fn exec_beside(
        self: &Arc<Self>,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let body = self.test_container(run)?;
        let name = format!("faultscope-{}-test-{}", self.spec.label, self.next_key());
        let (making, engine) = (self.making().await, self.engine.clone());
        let made = tokio::spawn(async move {
            let _making = making;
            let container = Unattended(Some(engine.clone()), engine.create(&name, body).await?);
            let output = engine.attach(&container.1).await?;
            engine.start(&container.1).await?;
            Ok::<_, bollard::errors::Error>((container, output))
        });
        let made = made.await.map_err(|e| trouble(action(run), e))?;
        let (mut container, output) = made.map_err(|e| fault(action(run), e))?;
        let started = Instant::now();
        let printed = tokio::spawn(captured(output, run.output_limit));
        let (ended, stop) = tokio::select! {
            biased;
            ended = self.engine.ended(&container.1) => (ended, Stop::ByItself),
            () = cancel.cancelled() => (None, Stop::Cancelled),
            () = tokio::time::sleep(run.within) => (None, Stop::TimedOut),
        };
        let took = started.elapsed();
        let removed = self.engine.remove(&container.1).await;
        container.0 = None;
        removed.map_err(|e| fault(action(run), e))?;
        let (stdout, stderr) = printed.await.map_err(|e| trouble(action(run), e))?;
        let (code, signal) = match (stop, ended) {
            (Stop::Cancelled, _) => return Err(cancelled(run)),
            (Stop::TimedOut, _) => (None, Some(9)),
            (Stop::ByItself, Some(Ended { code, signal, .. })) => (code, signal),
            (Stop::ByItself, None) => return Err(trouble(action(run), "its container is gone")),
        };
        Ok(Exit { code, signal, timed_out: stop == Stop::TimedOut, stdout, stderr, took })
    }

    fn test_container(&self, run: &Execution) -> Result<ContainerCreateBody, PlatformError> {
        let Some((program, arguments)) = run.command.split_first() else {
            return Err(bad_plan(action(run), "there is no command"));
        };
        let of_plan = self.test_image.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let chosen = self.options.test_image.clone().or(of_plan);
        let is_own = *program == self.spec.program.to_string_lossy();
        let (image, mut mounts) = match chosen {
            Some(image) if !is_own => (image, self.application_mounts(&[])),
            _ => (image::name(), self.own_mounts(&[])),
        };
        mounts.push(image::bind(&self.hosts_file(), Path::new("/etc/hosts"), true));
        // Test runners write their reports there.
        mounts.push(image::bind(&self.spec.state, &self.spec.state, false));
        let mut env = run.env.clone();
        env.entry("FAULTSCOPE_INSTANCE".into()).or_insert_with(|| InstanceId::test().to_string());
        let host = HostConfig {
            mounts: Some(mounts),
            network_mode: Some(format!("container:{}", self.sidecar().container)),
            log_config: Some(no_log()),
            ..Default::default()
        };
        let directory = self.spec.application.join(&run.directory);
        Ok(ContainerCreateBody {
            image: Some(image),
            entrypoint: Some(vec![program.clone()]),
            cmd: Some(arguments.to_vec()),
            env: Some(env.iter().map(|(name, value)| format!("{name}={value}")).collect()),
            working_dir: Some(directory.to_string_lossy().into_owned()),
            labels: Some(labels(&self.spec.label, Some("test-1"))),
            host_config: Some(host),
            ..Default::default()
        })
    }

    async fn exec_inside(
        &self,
        instance: &InstanceId,
        run: &Execution,
        cancel: &CancellationToken,
    ) -> Result<Exit, PlatformError> {
        let down = || bad_plan(action(run), format!("{instance} does not run"));
        let life = self.life(instance).filter(|life| !life.is_over()).ok_or_else(down)?;
        let started = Instant::now();
        let env = run.env.iter().map(|(name, value)| format!("{name}={value}"));
        let config = ExecConfig { env: Some(env.collect()), ..command(&run.command) };
        let begun = self.engine.exec(&life.container, config).await;
        let (id, output) = begun.map_err(|e| fault(action(run), e))?;
        let printed = captured(output, run.output_limit);
        let exit = |code, timed_out, (stdout, stderr)| Exit {
            code,
            signal: None,
            timed_out,
            stdout,
            stderr,
            took: started.elapsed(),
        };
        tokio::select! {
            biased;
            printed = printed => {
                let code = self.engine.exec_code(&id).await.map_err(|e| fault(action(run), e))?;
                Ok(exit(code, false, printed))
            }
            () = cancel.cancelled() => Err(cancelled(run)),
            () = tokio::time::sleep(run.within) => Ok(exit(None, true, Default::default())),
        }
    }

    /// Runs the command of a probe in an instance.
    pub(super) async fn run_inside(&self, life: &Life, words: &[String]) -> io::Result<bool> {
        let (id, mut output) = self.engine.exec(&life.container, command(words)).await.map_err(as_io)?;
        while output.next().await.is_some() {}
        Ok(self.engine.exec_code(&id).await.map_err(as_io)? == Some(0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    ByItself,
    TimedOut,
    Cancelled,
}

/// A test's container; removed even if the future that waits for it is dropped.
struct Unattended(Option<Engine>, String);

impl Drop for Unattended {
    fn drop(&mut self) {
        if let (Some(engine), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            let container = std::mem::take(&mut self.1);
            runtime.spawn(async move { engine.remove(&container).await });
        }
    }
}

fn action(run: &Execution) -> String {
    format!("run {}", run.command.first().map_or("nothing", String::as_str))
}

fn cancelled(run: &Execution) -> PlatformError {
    PlatformError::new(PlatformErrorKind::Cancelled, NAME, action(run))
}

fn command(words: &[String]) -> ExecConfig {
    ExecConfig {
        cmd: Some(words.to_vec()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..Default::default()
    }
}

/// Both outputs of a container, bounded.
async fn captured(mut output: Output, limit: usize) -> (String, String) {
    let (mut stdout, out) = tokio::io::duplex(PIPE);
    let (mut stderr, err) = tokio::io::duplex(PIPE);
    let sorted = async move {
        while let Some(Ok(piece)) = output.next().await {
            // The other ends are read to the end, so writing cannot fail.
            let _ = match piece {
                LogOutput::StdErr { message } => stderr.write_all(&message).await,
                other => stdout.write_all(&other.into_bytes()).await,
            };
        }
    };
    let ((), stdout, stderr) = tokio::join!(sorted, capture(out, limit), capture(err, limit));
    (stdout, stderr)
}
