//! Progress of a campaign on stderr: nothing in the first moment, a line that moves on a terminal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::Session;
use faultscope_model::TrialId;
use faultscope_model::event::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use crate::args::Global;
use crate::printer::Printer;

/// Work that ends within this time shows nothing.
const PATIENCE: Duration = Duration::from_millis(250);

/// Shows a session's events until it is finished.
pub(crate) struct Progress {
    task: Option<JoinHandle<()>>,
    bar: ProgressBar,
}

#[derive(Debug, Default)]
struct State {
    finished: usize,
    cancelled: usize,
    running: BTreeMap<TrialId, String>,
}

impl Progress {
    pub(crate) fn start(session: &Arc<Session>, global: &Global, printer: &Printer) -> Self {
        let shown = !global.quiet && !printer.json;
        let target =
            if shown { ProgressDrawTarget::stderr_with_hz(20) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        let mut events = session.events().subscribe();
        let task = tokio::spawn({
            let bar = bar.clone();
            async move {
                let mut state = State::default();
                let start = tokio::time::Instant::now();
                loop {
                    let event = match events.recv().await {
                        Ok(event) => event,
                        Err(RecvError::Lagged(_)) => continue,
                        Err(RecvError::Closed) => return,
                    };
                    if let Event::Note { text } = &*event {
                        bar.println(text);
                    }
                    if let Event::TrialInvalid { trial, reason, next_try } = &*event {
                        bar.println(format!("{trial} was spoiled ({reason}); try {next_try} begins"));
                    }
                    state.apply(&event);
                    if start.elapsed() >= PATIENCE {
                        bar.set_message(state.line());
                        bar.tick();
                    }
                    if matches!(&*event, Event::CampaignFinished { .. }) {
                        return;
                    }
                }
            }
        });
        Self { task: Some(task), bar }
    }

    /// Takes the line away.
    pub(crate) async fn finish(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
        self.bar.finish_and_clear();
    }
}

impl State {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::TrialStarted { trial, .. } => {
                self.running.insert(*trial, "starting".into());
            }
            Event::InstanceReady { trial, ready, all, .. } => {
                self.running.insert(*trial, format!("{ready} of {all} instances ready"));
            }
            Event::TestStarted { trial, test } => {
                self.running.insert(*trial, format!("testing: {test}"));
            }
            Event::TrialFinished { trial, .. } => {
                self.running.remove(trial);
                self.finished += 1;
            }
            Event::TrialCancelled { trial } => {
                self.running.remove(trial);
                self.cancelled += 1;
            }
            _ => {}
        }
    }

    fn line(&self) -> String {
        let mut parts = Vec::new();
        if self.finished + self.cancelled > 0 {
            parts.push(format!("{} trials done", self.finished));
        }
        if self.cancelled > 0 {
            parts.push(format!("{} cancelled", self.cancelled));
        }
        match self.running.len() {
            0 => {}
            1 => parts.extend(self.running.values().cloned()),
            n => parts.push(format!("{n} running")),
        }
        parts.join("   ")
    }
}
