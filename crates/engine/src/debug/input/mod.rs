//! Makes the input of the failing test as small as it can be while the test still fails in the same way.

mod parts;

use std::collections::{BTreeMap, BTreeSet};

use faultscope_model::application::{TestBody, TestCase};
use faultscope_model::event::Event;
use faultscope_model::input::{Input, InputFormat, Stage};
use faultscope_model::outcome::Signature;
use faultscope_model::units::count;
use faultscope_model::{Circumstance, DeltaSet, Outcome, TrialRole};
use faultscope_search::{Bayes, BayesOptions, Fixed, Problem, Proof, Search};
use serde::{Deserialize, Serialize};

use crate::bounded_file::read_text_bounded;
use crate::driver::{Driver, Ended, SearchAsks};
use crate::error::EngineError;
use crate::session::Session;
use parts::Parts;

/// Further rounds over all stages hardly make an input smaller; after these it stays as it is.
const MAX_ROUNDS: u32 = 4;
/// The most bytes of an input file, which is held in memory as a tree.
const MAX_INPUT: u64 = 64 << 20;
/// Characters of the answer that reports hold; the file has all of it.
const SHOWN: usize = 2_000;
/// Lines of it that are shown.
const SHOWN_LINES: usize = 20;
/// Characters of a line that are shown.
const SHOWN_WIDTH: usize = 200;

/// What became of the input of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputReport {
    /// The test.
    pub test: String,
    /// Where the input came from: a file, or the steps of the test itself.
    pub from: String,
    /// How it ended.
    pub ending: InputEnding,
    /// Bytes before.
    pub bytes_before: usize,
    /// Bytes after.
    pub bytes: usize,
    /// What each stage left, in the order of the stages.
    pub stages: Vec<StageReport>,
    /// How many trials it took.
    pub trials: u32,
    /// The name under which the smallest input is kept with the campaign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The smallest input, its beginning where it is long.
    pub text: String,
}

impl InputReport {
    /// For people: `Minimal input: 52 of 310 bytes of orders.json, 14 trials`.
    pub fn describe(&self) -> String {
        let how = match &self.ending {
            InputEnding::Refused { reason } => {
                return format!("The input of `{}` ({}) cannot be reduced: {reason}", self.test, self.from);
            }
            InputEnding::Minimal => "Minimal input",
            InputEnding::MinimalDespiteUnresolved => "Minimal input (some smaller ones could not be judged)",
            InputEnding::Stopped => "Smallest input so far",
        };
        format!(
            "{how}: {} of {} of {}, {}",
            self.bytes,
            count(self.bytes_before, "byte"),
            self.from,
            count(self.trials, "trial")
        )
    }

    /// The beginning of the smallest input, as much of it as fits on a screen.
    pub fn shown(&self) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        let cut = |line: &&str| line.chars().take(SHOWN_WIDTH).collect::<String>();
        let mut shown: Vec<String> = lines.iter().take(SHOWN_LINES).map(cut).collect();
        let more = self.text.len() < self.bytes || lines.len() > SHOWN_LINES;
        if more || shown.iter().zip(&lines).any(|(shown, line)| shown.len() < line.len()) {
            shown.push("...".into());
        }
        shown.join("\n")
    }
}

/// How a reduction of an input ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum InputEnding {
    /// No part of any stage can be left out alone.
    Minimal,
    /// It fails, but some smaller ones could not be judged.
    MinimalDespiteUnresolved,
    /// It was stopped; what it has fails.
    Stopped,
    /// It cannot be reduced.
    Refused {
        /// Why.
        reason: String,
    },
}

/// What one stage left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    /// The stage.
    pub stage: String,
    /// Parts before it.
    pub before: usize,
    /// Parts after it.
    pub after: usize,
}

/// What all trials of a reduction share.
pub(super) struct Reduction<'a> {
    /// The failing test alone: the others do not read its input.
    pub(super) test: &'a TestCase,
    pub(super) circumstance: &'a Circumstance,
    /// The names of the deltas that are there.
    pub(super) deltas: BTreeSet<String>,
    pub(super) wanted: &'a Signature,
    /// How often the failure shows.
    pub(super) rate: f64,
}

/// Where an input comes from, its format where it is a file, and itself or why it cannot be reduced.
struct Source {
    from: String,
    format: Option<InputFormat>,
    input: Result<Input, String>,
}

/// What is known and counted over all stages.
#[derive(Debug, Default)]
struct Progress {
    /// What inputs showed, by their text.
    known: BTreeMap<String, Outcome>,
    trials: u32,
    unresolved: bool,
}

impl Reduction<'_> {
    /// Reduces the input of the test; no report when it has no input.
    pub(super) async fn reduce(
        &self,
        driver: &mut Driver,
    ) -> Result<(Option<InputReport>, Ended), EngineError> {
        let session = driver.session().clone();
        let Some(Source { from, format, input }) = self.read(&session) else {
            return Ok((None, Ended::Done));
        };
        let input = match input {
            Ok(input) => input,
            Err(reason) => {
                let report = self.report(from, InputEnding::Refused { reason }, 0, None);
                return Ok((Some(report), Ended::Done));
            }
        };
        let before = input.render().len();
        let mut progress = Progress::default();
        let mut stages: Vec<StageReport> = Vec::new();
        let mut smallest = input;
        let mut ended = Ended::Done;
        for round in 1..=MAX_ROUNDS {
            let text = format!("making the input of `{}` smaller, round {round}", self.test.name);
            session.events().emit(Event::Note { text });
            let at_first = smallest.render();
            for stage in smallest.stages() {
                let units = smallest.units(stage).count;
                (smallest, ended) = self.reduce_stage(driver, smallest, stage, &mut progress).await?;
                note_stage(&mut stages, stage, units, smallest.units(stage).count);
                if ended != Ended::Done {
                    break;
                }
            }
            // What one stage leaves out can make more of an earlier stage needless.
            if ended != Ended::Done || smallest.render() == at_first {
                break;
            }
        }
        let ending = match (ended, progress.unresolved) {
            (Ended::Stopped | Ended::OutOfBudget, _) => InputEnding::Stopped,
            (Ended::Done, true) => InputEnding::MinimalDespiteUnresolved,
            (Ended::Done, false) => InputEnding::Minimal,
        };
        let text = smallest.render();
        let file = keep(&session, format, &text)?;
        let bytes = text.len();
        let mut shown = text;
        session.campaign().redactor().redact(&mut shown);
        let report = self.report(from, ending, before, Some((shown, bytes, file)));
        Ok((Some(InputReport { stages, trials: progress.trials, ..report }), ended))
    }

    /// The input of the test; none when it has none.
    fn read(&self, session: &Session) -> Option<Source> {
        match (&self.test.body, &self.test.input) {
            (TestBody::Steps(steps), _) => Some(Source {
                from: "the steps of the test".to_owned(),
                format: None,
                input: Input::from_steps(steps).map_err(|e| e.to_string()),
            }),
            (_, Some(given)) => {
                let path = session.options.root.join(&given.file);
                let read = read_text_bounded(&path, MAX_INPUT).map_err(|e| e.to_string());
                Some(Source {
                    from: given.file.clone(),
                    format: Some(given.format),
                    input: read.and_then(|text| Input::read(given.format, &text).map_err(|e| e.to_string())),
                })
            }
            _ => None,
        }
    }

    /// Leaves out what can be left out at one stage; says whether it came to its end.
    async fn reduce_stage(
        &self,
        driver: &mut Driver,
        mut input: Input,
        stage: Stage,
        progress: &mut Progress,
    ) -> Result<(Input, Ended), EngineError> {
        let seed = driver.session().options.seed;
        loop {
            let units = input.units(stage);
            if units.count == 0 {
                return Ok((input, Ended::Done));
            }
            // Often nothing of a stage matters at all, which one trial shows.
            let mut nothing = Fixed::new(vec![DeltaSet::new()]);
            let ended = self.search_parts(driver, &input, stage, &mut nothing, progress).await?;
            if ended != Ended::Done {
                return Ok((input, ended));
            }
            let without = nothing.outcomes().first().map(|(_, _, outcome)| outcome.clone());
            if matches!(without, Some(Outcome::Fail { .. })) {
                return Ok((input.keep(stage, &DeltaSet::new()), Ended::Done));
            }
            if units.count == 1 && units.group == 1 {
                return Ok((input, Ended::Done));
            }
            let closing = units.clone();
            let problem = Problem::new(units.count).with_closure(move |set| Some(closing.close(set)));
            let options = BayesOptions { seed, rate: self.rate, ..BayesOptions::default() };
            let mut search = Bayes::new(problem, options);
            if let Some(outcome) = without {
                search.recall(&DeltaSet::new(), &outcome);
            }
            let ended = self.search_parts(driver, &input, stage, &mut search, progress).await?;
            let standing = search.standing();
            let best = if standing.best.is_empty() { (0..units.count).collect() } else { standing.best };
            progress.unresolved |= standing.proof == Proof::MinimalDespiteUnresolved;
            let before = units.count;
            input = input.keep(stage, &units.close(&best));
            let is_finer = input.units(stage).count < before || input.units(stage).group < units.group;
            if ended != Ended::Done || units.group == 1 || !is_finer {
                return Ok((input, ended));
            }
        }
    }

    async fn search_parts(
        &self,
        driver: &mut Driver,
        input: &Input,
        stage: Stage,
        search: &mut dyn Search,
        progress: &mut Progress,
    ) -> Result<Ended, EngineError> {
        let mut parts = Parts { reduction: self, input, stage, progress };
        driver.run(&mut SearchAsks::new(search, &mut parts, TrialRole::Input)).await
    }

    /// The test with another input.
    fn test_with(&self, input: &Input) -> TestCase {
        let mut test = self.test.clone();
        match (input.steps(), &mut test.input) {
            (Some(steps), _) => test.body = TestBody::Steps(steps.to_vec()),
            (None, Some(given)) => given.instead = Some(input.render().into()),
            (None, None) => {}
        }
        test
    }

    fn report(
        &self,
        from: String,
        ending: InputEnding,
        bytes_before: usize,
        found: Option<(String, usize, &str)>,
    ) -> InputReport {
        let (text, bytes, kept) = found
            .map_or((String::new(), 0, None), |(text, bytes, kept)| (text, bytes, Some(kept.to_owned())));
        InputReport {
            test: self.test.name.clone(),
            from,
            ending,
            bytes_before,
            bytes,
            stages: Vec::new(),
            trials: 0,
            kept,
            text: text.chars().take(SHOWN).collect(),
        }
    }
}

/// Keeps the smallest input with the campaign, sealed: it has what the user's file has, secrets too.
fn keep(session: &Session, format: Option<InputFormat>, text: &str) -> Result<&'static str, EngineError> {
    let name = match format {
        None => "input.yaml",
        Some(InputFormat::Json) => "input.json",
        Some(InputFormat::Text) => "input.txt",
        Some(InputFormat::Http) => "input.http",
    };
    session.campaign().attach(name, text.as_bytes())?;
    Ok(name)
}

/// Counts a stage; in a later round only what it left changes.
fn note_stage(stages: &mut Vec<StageReport>, stage: Stage, before: usize, after: usize) {
    let name = stage.to_string();
    match stages.iter_mut().find(|s| s.stage == name) {
        Some(known) => known.after = after,
        None if before > 0 => stages.push(StageReport { stage: name, before, after }),
        None => {}
    }
}
