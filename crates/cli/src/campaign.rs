//! What every command that runs trials does around them: platform, session, progress, interruption, and closing
//! everything whatever happened.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::{EngineError, Session, SessionOptions};
use faultscope_model::{CampaignId, CampaignKind};
use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

use crate::args::{Global, RecordArg, Target};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project::Project;

/// The options of a campaign.
#[derive(Debug)]
pub(crate) struct Opening<'a> {
    purpose: CampaignKind,
    target: &'a Target,
    seed: u64,
    record: Option<RecordArg>,
    slots: u16,
    sentinel_every: u32,
    resume: Option<CampaignId>,
    /// The limit of the longest test; a trial gets more time around it.
    longest_test: Duration,
    up_at_least: Duration,
}

/// The time limit of a trial beside its tests: starts, `setup`, exporters, clearing the slot.
const AROUND_TESTS: Duration = Duration::from_secs(120);

impl<'a> Opening<'a> {
    /// A campaign with one slot.
    pub(crate) fn new(purpose: CampaignKind, target: &'a Target, seed: u64) -> Self {
        Self {
            purpose,
            target,
            seed,
            record: None,
            slots: 1,
            sentinel_every: 0,
            resume: None,
            longest_test: Duration::ZERO,
            up_at_least: Duration::ZERO,
        }
    }

    pub(crate) fn record(self, record: Option<RecordArg>) -> Self {
        Self { record, ..self }
    }

    pub(crate) fn slots(self, slots: u16) -> Self {
        Self { slots, ..self }
    }

    pub(crate) fn sentinel_every(self, trials: u32) -> Self {
        Self { sentinel_every: trials, ..self }
    }

    pub(crate) fn resume(self, resume: Option<CampaignId>) -> Self {
        Self { resume, ..self }
    }

    pub(crate) fn longest_test(self, within: Duration) -> Self {
        Self { longest_test: within, ..self }
    }

    pub(crate) fn up_at_least(self, up_at_least: Duration) -> Self {
        Self { up_at_least, ..self }
    }

    fn options(&self, project: &Project) -> Result<SessionOptions, CommandError> {
        let mut options = project.session(self.purpose, self.seed, self.record)?;
        options.slots = self.slots;
        options.sentinel_every = self.sentinel_every;
        options.up_at_least = self.up_at_least;
        options.resume.clone_from(&self.resume);
        options.trial_within = options.trial_within.max(self.longest_test + AROUND_TESTS);
        Ok(options)
    }
}

/// A campaign that a command is running.
pub(crate) struct RunningCampaign {
    pub(crate) session: Arc<Session>,
    progress: Option<Progress>,
}

impl RunningCampaign {
    /// Opens platform and session, and starts the progress display.
    pub(crate) async fn open(
        project: &Project,
        opening: Opening<'_>,
        global: &Global,
        printer: &Printer,
    ) -> Result<Self, CommandError> {
        let platform = project.platform(opening.target).await?;
        project.warn_of_hardcoded_hosts(&*platform, printer);
        project.warn_of_extra_rights(printer);
        let options = opening.options(project)?;
        let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
        let progress = Some(Progress::start(&session, global, printer));
        Ok(Self { session, progress })
    }

    /// Runs the campaign, then closes everything; an error of the work is reported before one of closing.
    pub(crate) async fn run<T>(
        mut self,
        work: impl AsyncFnOnce(&Arc<Session>) -> Result<T, EngineError>,
        summarize: impl FnOnce(&T) -> String,
    ) -> Result<T, CommandError> {
        let done = work(&self.session).await;
        self.end_progress().await;
        let summary = done.as_ref().map_or_else(ToString::to_string, summarize);
        let closed = self.close(&summary).await;
        let done = done?;
        closed?;
        Ok(done)
    }

    /// Removes the progress line.
    pub(crate) async fn end_progress(&mut self) {
        if let Some(progress) = self.progress.take() {
            progress.finish().await;
        }
    }

    /// Ends everything that the campaign started.
    pub(crate) async fn close(mut self, summary: &dyn Display) -> Result<(), CommandError> {
        self.end_progress().await;
        close(self.session, &summary.to_string()).await
    }
}

/// Closes a session that nothing else uses any more.
pub(crate) async fn close(session: Arc<Session>, summary: &str) -> Result<(), CommandError> {
    match Arc::try_unwrap(session) {
        Ok(session) => Ok(session.close(summary).await?),
        Err(_) => Err(EngineError::Internal("the session is still in use".into()).into()),
    }
}

/// A token that Ctrl-C, SIGTERM and SIGHUP cancel; a second Ctrl-C exits at once.
pub(crate) fn interrupted() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let signal = async |kind: SignalKind| match tokio::signal::unix::signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = signal(SignalKind::terminate()) => {}
            // The terminal was closed.
            () = signal(SignalKind::hangup()) => {}
        }
        stop.cancel();
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(Exit::Interrupted as i32);
        }
    });
    token
}
