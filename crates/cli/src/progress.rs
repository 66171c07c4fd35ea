//! Progress of a campaign on stderr: nothing in the first moment, then a line that updates on a terminal, or plain
//! lines without one.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::Session;
use faultscope_model::event::{Event, SearchStands, Stage};
use faultscope_model::terminal::{neutralize_line, neutralize_lines};
use faultscope_model::units::{count, show_duration};
use faultscope_model::{CampaignKind, TrialId};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::args::Global;
use crate::printer::Printer;

/// Work that ends within this time shows nothing.
const PATIENCE: Duration = Duration::from_millis(250);

/// Without a terminal a search without progress prints a line this often.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// Displays the events of a session until it is finished.
pub(crate) struct Progress {
    task: Option<JoinHandle<()>>,
    bar: ProgressBar,
}

/// What the display needs to know from past events; the event log would give the same.
#[derive(Debug, Default)]
struct State {
    finished: usize,
    cancelled: usize,
    running: BTreeMap<TrialId, String>,
    /// The total time of finished trials, and their number.
    took: (Duration, u32),
    search: Option<SearchStands>,
    /// Repetitions of an answer that have finished, and how many it takes.
    confirming: Option<(usize, usize)>,
    /// What a resilience campaign tries: the test, the stage and how many sets there are.
    stage: Option<(String, Stage, usize)>,
    /// What a search looks for.
    unit: &'static str,
}

impl Progress {
    pub(crate) fn start(session: &Arc<Session>, global: &Global, printer: &Printer) -> Self {
        let shown = !global.quiet && !printer.json;
        let moves = std::io::stderr().is_terminal();
        let target =
            if shown { ProgressDrawTarget::stderr_with_hz(20) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {elapsed}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        bar.set_style(style);
        let unit = if session.purpose() == CampaignKind::Resilience { "perturbation" } else { "delta" };
        let mut events = session.events().subscribe();
        let task = tokio::spawn({
            let (bar, printer) = (bar.clone(), printer.clone());
            async move {
                let mut state = State { unit, ..State::default() };
                let start = Instant::now();
                let mut plain = Plain { last: None, confirming: None, at: start };
                loop {
                    let event = match events.recv().await {
                        Ok(event) => event,
                        Err(RecvError::Lagged(_)) => continue,
                        Err(RecvError::Closed) => return,
                    };
                    // A bar that is not on a terminal prints nothing, also not between its lines.
                    let say = |text: &str| match moves {
                        true => bar.println(neutralize_lines(text)),
                        false if shown => printer.talk(neutralize_lines(text)),
                        false => {}
                    };
                    match &*event {
                        Event::Note { text } => say(text),
                        // The report follows at once, and has it.
                        Event::Summary { text } if moves => say(text),
                        _ => {}
                    }
                    if let Event::SinglesDone { trials, most } = &*event {
                        let then = match most {
                            1 => String::new(),
                            most => format!("; now up to {most} together"),
                        };
                        say(&format!(
                            "all single perturbations done after {}{then}",
                            count(*trials, "trial")
                        ));
                    }
                    if let Event::TrialInvalid { trial, reason, next_try } = &*event {
                        say(&format!("{trial} is invalid ({reason}); starting attempt {next_try}"));
                    }
                    state.apply(&event);
                    if shown && !moves && plain.wants(&state) {
                        printer.talk(format!("{:>6}  {}", show_duration(start.elapsed()), state.line()));
                    }
                    if start.elapsed() >= PATIENCE {
                        bar.set_message(neutralize_line(&state.line()).into_owned());
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

    /// Removes the line.
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

/// Decides when a plain line is printed.
struct Plain {
    last: Option<SearchStands>,
    confirming: Option<(usize, usize)>,
    at: Instant,
}

impl Plain {
    /// Whether the search made progress, or nothing was printed for long.
    fn wants(&mut self, state: &State) -> bool {
        if let Some((done, _)) = state.confirming {
            // Its beginning is news; then it takes as long as it takes.
            let wants = self.confirming.is_none() || self.at.elapsed() >= PLAIN_EVERY;
            if wants && self.confirming.is_none_or(|(before, _)| before != done) {
                (self.confirming, self.at) = (state.confirming, Instant::now());
                return true;
            }
            return false;
        }
        self.confirming = None;
        let Some(now) = state.search else { return false };
        let further = self.last.is_none_or(|last| (last.left, last.causes) != (now.left, now.causes));
        let waited = self.last != Some(now) && self.at.elapsed() >= PLAIN_EVERY;
        if further || waited {
            (self.last, self.at) = (Some(now), Instant::now());
        }
        further || waited
    }
}

impl State {
    fn apply(&mut self, event: &Event) {
        match event {
            Event::TrialStarted { trial, .. } => {
                self.running.insert(*trial, "starting".into());
            }
            Event::InstanceReady { trial, ready, all, .. } => {
                self.running.insert(*trial, format!("{ready} of {} ready", count(*all, "instance")));
            }
            Event::TestStarted { trial, test } => {
                self.running.insert(*trial, format!("testing: {test}"));
            }
            Event::TrialFinished { trial, took, .. } => {
                self.running.remove(trial);
                self.finished += 1;
                self.took = (self.took.0 + *took, self.took.1 + 1);
            }
            Event::TrialCancelled { trial } => {
                self.running.remove(trial);
                self.cancelled += 1;
            }
            Event::SearchStands(stands) => (self.search, self.confirming) = (Some(*stands), None),
            Event::Confirming { done, planned } => self.confirming = Some((*done, *planned)),
            Event::StageStarted { test, stage, n_to_try } => {
                (self.stage, self.search) = (Some((test.clone(), *stage, *n_to_try)), None);
            }
            _ => {}
        }
    }

    fn line(&self) -> String {
        if let Some((done, planned)) = self.confirming.filter(|(done, planned)| done < planned) {
            let mut parts = vec![format!("confirming the cause   {done} of {planned} repetitions done")];
            let slots = self.search.map_or(1, |search| search.slots);
            let left = (planned - done) as f64;
            parts
                .extend(self.time_for(left, slots).map(|time| format!("about {} left", show_duration(time))));
            return parts.join("   ");
        }
        if let Some(search) = &self.search {
            return self.searching(search);
        }
        let mut parts = Vec::new();
        if self.finished + self.cancelled > 0 {
            parts.push(format!("{} done", count(self.finished, "trial")));
        }
        if self.cancelled > 0 {
            parts.push(format!("{} cancelled", self.cancelled));
        }
        match self.running.len() {
            0 => {}
            1 => parts.extend(self.running.iter().map(|(trial, doing)| match trial.is_chosen() {
                true => doing.clone(),
                false => format!("{trial}: {doing}"),
            })),
            n => parts.push(format!("{n} running")),
        }
        parts.join("   ")
    }

    fn searching(&self, search: &SearchStands) -> String {
        let SearchStands { round, left, unproven, causes, finished, cancelled, reused, busy, slots, .. } =
            *search;
        let mut parts = match &self.stage {
            Some((test, stage, n_to_try)) => vec![describe_stage(test, *stage, *n_to_try, search)],
            None => vec![format!("round {round}")],
        };
        if causes > 0 {
            parts.push(format!("{} found", count(causes, "cause")));
        }
        if left > 0 && self.stage.is_none() {
            parts.push(format!("{} left", count(left, self.unit)));
        }
        if left > 0 && unproven > 0 && unproven < left && self.stage.is_none() {
            parts.push(format!("{unproven} to prove"));
        }
        let mut trials = format!("{} done", count(finished, "trial"));
        if cancelled > 0 {
            trials += &format!(", {cancelled} cancelled");
        }
        if reused > 0 {
            trials += &format!(", {reused} reused");
        }
        parts.push(trials);
        parts.push(format!("{busy} of {} busy", count(slots, "slot")));
        if let Some(time) = self.time_left(search) {
            parts.push(format!("about {} left", show_duration(time)));
        }
        parts.join("   ")
    }

    /// The estimated time that is left, at the pace of the trials so far.
    fn time_left(&self, search: &SearchStands) -> Option<Duration> {
        self.time_for(search.remaining, search.slots)
    }

    /// What some trials will take on some slots, at the pace of the trials so far.
    fn time_for(&self, remaining: f64, slots: usize) -> Option<Duration> {
        let (took, trials) = self.took;
        if trials == 0 || remaining < 0.5 {
            return None;
        }
        let at_once = (slots as f64).min(remaining).max(1.0);
        let seconds = (took.as_secs_f64() / f64::from(trials) * remaining / at_once).round().max(1.0);
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// What a resilience campaign tries, and how far it is.
fn describe_stage(test: &str, stage: Stage, n_to_try: usize, search: &SearchStands) -> String {
    let done = n_to_try.saturating_sub(search.unproven);
    match stage {
        Stage::Neutral => format!("{test}: duplicates, restarts and the like, {} left", search.left),
        Stage::Single => format!("{test}: errors and lost answers one by one, {done} of {n_to_try}"),
        Stage::Together(most) => format!("{test}: up to {most} together, {done} of {n_to_try}"),
        Stage::Outages => format!("{test}: outages during the test, {done} of {n_to_try}"),
        Stage::Retries => format!("{test}: errors that a retry should get past, {} left", search.left),
        Stage::Confirming => format!("{test}: confirming {}", count(n_to_try, "defect")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(left: usize, causes: usize, remaining: f64) -> Event {
        Event::SearchStands(SearchStands {
            round: 2,
            left,
            unproven: 1,
            causes,
            finished: 3,
            cancelled: 1,
            reused: 0,
            busy: 2,
            slots: 4,
            remaining,
            belief: 0.5,
        })
    }

    fn finished(trial: u32) -> Event {
        Event::TrialFinished {
            trial: TrialId::chosen(trial),
            run: "a.1".parse().unwrap(),
            outcome: faultscope_model::Outcome::Pass,
            took: Duration::from_secs(6),
        }
    }

    #[test]
    fn a_search_shows_progress_and_remaining_time() {
        let mut state = State { unit: "delta", ..State::default() };
        for event in [finished(1), finished(2), stands(12, 0, 8.0)] {
            state.apply(&event);
        }
        assert_eq!(
            state.line(),
            "round 2   12 deltas left   1 to prove   3 trials done, 1 cancelled   2 of 4 slots busy   \
             about 12.0s left"
        );
    }

    #[test]
    fn plain_lines_come_when_the_search_gets_further() {
        let mut state = State::default();
        let mut plain = Plain { last: None, confirming: None, at: Instant::now() };
        assert!(!plain.wants(&state), "nothing is searched yet");
        state.apply(&stands(12, 0, 8.0));
        assert!(plain.wants(&state));
        state.apply(&stands(12, 0, 7.0));
        assert!(!plain.wants(&state));
        state.apply(&stands(0, 1, 0.0));
        assert!(plain.wants(&state));
    }
}
