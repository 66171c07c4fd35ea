//! `mutate score`: which mutants do the application's own tests notice?

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use faultscope_engine::testing::run_trials;
use faultscope_engine::{Tests, TrialRequest, read_text_bounded};
use faultscope_model::digest::Digest;
use faultscope_model::units::count;
use faultscope_model::{CampaignKind, Outcome, Run};
use faultscope_mutate::{Operator, choose_by_seed};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::apply::{apply_to, copy_to};
use super::args::ScoreArgs;
use super::journal::Journal;
use super::listing::{ListedMutant, Listing};
use super::sources::relative;
use crate::args::{Global, Target};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::commands::test::choose;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::{FILE_NAME, Project};
use crate::render::table::Table;

/// A line of the log is about 200 bytes, and a list of mutants is bounded by the files that are read.
const MAX_LOG: u64 = 64 << 20;

/// What the tests showed of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// A test failed.
    Killed,
    /// All tests passed.
    Survived,
    /// The application did not start, or could not be judged.
    Invalid,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Survived => "survived",
            Self::Invalid => "invalid",
        }
    }
}

/// The verdict on one mutant, as it is kept for `--resume`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Scored {
    mutant: String,
    /// Of the difference, the tests and the circumstance: an older verdict on something else does not count.
    question: Digest,
    verdict: Verdict,
    /// The failing test, or why nothing could be judged.
    reason: String,
}

/// The JSON output of `mutate score`.
#[derive(Debug, Serialize)]
struct Score<'m> {
    seed: u64,
    killed: usize,
    survived: usize,
    invalid: usize,
    /// Mutants that were selected and not tried.
    left: usize,
    stopped: bool,
    mutants: Vec<ScoredMutant<'m>>,
}

#[derive(Debug, Serialize)]
struct ScoredMutant<'m> {
    mutant: &'m str,
    operator: Operator,
    services: &'m [String],
    path: &'m str,
    line: usize,
    verdict: Verdict,
    reason: String,
}

pub(super) async fn run(args: ScoreArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::open(&args.target, printer)?;
    let mut listing = Listing::read(&project, printer);
    listing.select(&args.selection)?;
    let n_places = listing.mutants.len();
    let chosen = choose_within(listing.mutants, args.budget, args.under.seed);
    if chosen.is_empty() {
        return Err(
            CommandError::usage("there is no mutant to score").hint("`faultscope mutate ls` lists them")
        );
    }
    let state = project.root.join(".faultscope");
    let log = ScoreLog::open(&state.join("mutation-score.jsonl"), args.resume)?;
    let folder = tempfile::Builder::new()
        .prefix("faultscope-mutants-")
        .tempdir()
        .map_err(|e| CommandError::new(Exit::Environment, "cannot make a folder for the copy").because(e))?;
    let copy = copy_to(&project.root, folder.path())?;
    let file = application_file(&project, &copy)?;
    let target = Target::for_file(file, args.target.platform, args.target.isolation);
    let trial = Trial { args: &args, target, global, printer, stop: interrupted() };
    printer.talk(format!("{} of {}, seed {}", count(chosen.len(), "mutant"), n_places, args.under.seed));
    match trial.run().await? {
        Some(Judged { verdict: Verdict::Survived, .. }) => {}
        Some(Judged { verdict, reason }) => {
            let message = format!("the tests do not pass without a mutant: {} ({reason})", verdict.word());
            return Err(CommandError::new(Exit::FailsAlready, message).hint("`faultscope test` shows why"));
        }
        None => return Ok(Exit::Interrupted),
    }
    let scored = trial.score_all(&copy, &chosen, log).await?;
    let verdicts = |wanted: Verdict| scored.iter().filter(|one| one.verdict == wanted).count();
    let stopped = scored.len() < chosen.len();
    let score = Score {
        seed: args.under.seed,
        killed: verdicts(Verdict::Killed),
        survived: verdicts(Verdict::Survived),
        invalid: verdicts(Verdict::Invalid),
        left: n_places - scored.len(),
        stopped,
        mutants: scored,
    };
    if printer.json {
        printer.result(&score)?;
    } else {
        show(&score, printer);
    }
    Ok(match (stopped, score.survived) {
        (true, _) => Exit::Interrupted,
        (false, 0) => Exit::Done,
        (false, _) => Exit::Found,
    })
}

fn choose_within(listed: Vec<ListedMutant>, budget: Option<usize>, seed: u64) -> Vec<ListedMutant> {
    let Some(budget) = budget else { return listed };
    let mutants = listed.iter().map(|listed| listed.mutant.clone()).collect();
    let ids: Vec<String> =
        choose_by_seed(mutants, budget, seed).into_iter().map(|mutant| mutant.id.to_string()).collect();
    listed.into_iter().filter(|listed| ids.iter().any(|id| id == listed.mutant.id.as_str())).collect()
}

/// The application file in the copy.
fn application_file(project: &Project, copy: &Path) -> Result<PathBuf, CommandError> {
    let own = project.files.first().and_then(|file| std::fs::canonicalize(file).ok());
    let path = own.and_then(|file| relative(&project.root, &file));
    match path {
        Some(path) => Ok(copy.join(path)),
        None if project.files.is_empty() => {
            Err(CommandError::usage("a comparison of two deployments has no mutants"))
        }
        None => Err(CommandError::usage("the application file lies outside of the application's folder")
            .hint(format!("put {FILE_NAME} into the folder that is copied"))),
    }
}

/// What one run of the tests showed.
struct Judged {
    verdict: Verdict,
    reason: String,
}

/// Runs the tests in the copy, as `faultscope test` does.
struct Trial<'a> {
    args: &'a ScoreArgs,
    target: Target,
    global: &'a Global,
    printer: &'a Printer,
    stop: CancellationToken,
}

impl Trial<'_> {
    async fn score_all<'m>(
        &self,
        copy: &Path,
        chosen: &'m [ListedMutant],
        mut log: ScoreLog,
    ) -> Result<Vec<ScoredMutant<'m>>, CommandError> {
        let mut scored = Vec::new();
        for (n, listed) in chosen.iter().enumerate() {
            let mutant = &listed.mutant;
            let question =
                Digest::hash_json(&(&mutant.patch, &self.args.tests, format!("{:?}", self.args.under)));
            let judged = match log.verdict(mutant.id.as_str(), question) {
                Some(known) => Judged { verdict: known.verdict, reason: known.reason },
                None => {
                    let Some(judged) = self.judge(copy, listed).await? else { break };
                    log.keep(Scored {
                        mutant: mutant.id.to_string(),
                        question,
                        verdict: judged.verdict,
                        reason: judged.reason.clone(),
                    })?;
                    judged
                }
            };
            self.printer.talk(format!(
                "{}/{} {} {} {}:{}",
                n + 1,
                chosen.len(),
                judged.verdict.word(),
                mutant.id,
                mutant.path,
                mutant.line
            ));
            scored.push(ScoredMutant {
                mutant: mutant.id.as_str(),
                operator: mutant.operator,
                services: &listed.services,
                path: &mutant.path,
                line: mutant.line,
                verdict: judged.verdict,
                reason: judged.reason,
            });
        }
        Ok(scored)
    }

    /// Applies a mutant to the copy, runs the tests, and takes it back.
    async fn judge(&self, copy: &Path, listed: &ListedMutant) -> Result<Option<Judged>, CommandError> {
        apply_to(copy, listed)?;
        let judged = self.run().await;
        if let Some(journal) = Journal::read(copy)? {
            journal.revert(copy, true)?;
        }
        match judged {
            // What keeps the application from starting is the mutant: the tests passed before.
            Err(error) if matches!(error.exit, Exit::Spec | Exit::Unresolved) => {
                Ok(Some(Judged { verdict: Verdict::Invalid, reason: error.message }))
            }
            other => other,
        }
    }

    /// None if it was interrupted.
    async fn run(&self) -> Result<Option<Judged>, CommandError> {
        let mut project = Project::open(&self.target, self.printer)?;
        project.find_cases(self.printer).await?;
        let tests = choose(&project, &self.args.tests)?;
        let (space, set) = project.under(&self.args.under)?;
        let circumstance = space.circumstance(&set).map_err(|e| CommandError::usage(e.to_string()))?;
        let treatment = space.treatment(&set);
        let request = TrialRequest { treatment, circumstance, drive: Tests::new(tests), wanted: None };
        let opening = Opening::new(CampaignKind::Test, &self.target, self.args.under.seed)
            .record(self.args.under.record);
        let campaign = RunningCampaign::open(&project, opening, self.global, self.printer).await?;
        let work = async |session: &_| run_trials(session, vec![request], false, &self.stop).await;
        let mut done = campaign.run(work, |done| count(done.runs.len(), "trial")).await?;
        Ok(done.runs.pop().filter(|_| !done.stopped).map(|run| judge_run(&run)))
    }
}

fn judge_run(run: &Run) -> Judged {
    match &run.outcome {
        Outcome::Pass => Judged { verdict: Verdict::Survived, reason: String::new() },
        Outcome::Fail { signature } => {
            Judged { verdict: Verdict::Killed, reason: format!("`{}` fails", signature.test) }
        }
        Outcome::Unresolved { reason } => Judged { verdict: Verdict::Invalid, reason: reason.to_string() },
    }
}

/// The verdicts so far, one in a line, so that a kill loses at most the one that was being written.
struct ScoreLog {
    file: File,
    known: BTreeMap<String, Scored>,
}

impl ScoreLog {
    fn open(path: &Path, resume: bool) -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| {
            CommandError::new(Exit::Environment, format!("cannot write {}", path.display())).because(error)
        };
        let mut known = BTreeMap::new();
        if resume {
            let text = read_text_bounded(path, MAX_LOG).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Scored>(line).ok());
            known.extend(lines.map(|scored| (scored.mutant.clone(), scored)));
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(resume).truncate(!resume);
        Ok(Self { file: options.open(path).map_err(failed)?, known })
    }

    fn verdict(&self, mutant: &str, question: Digest) -> Option<Scored> {
        self.known.get(mutant).filter(|scored| scored.question == question).cloned()
    }

    fn keep(&mut self, scored: Scored) -> Result<(), CommandError> {
        let line = serde_json::to_string(&scored)
            .map_err(|e| CommandError::internal("a verdict cannot be written as JSON").because(e))?;
        writeln!(self.file, "{line}")
            .map_err(|e| CommandError::new(Exit::Environment, "cannot keep a verdict").because(e))
    }
}

fn show(score: &Score<'_>, printer: &Printer) {
    let mut table = Table::new(&["mutant", "operator", "place", "verdict", "because"]);
    for one in score.mutants.iter().filter(|one| one.verdict != Verdict::Killed) {
        let operator = format!("{} {}", one.operator, one.operator.name());
        let place = format!("{}:{}", one.path, one.line);
        table.row([
            one.mutant.to_owned(),
            operator,
            place,
            one.verdict.word().to_owned(),
            one.reason.clone(),
        ]);
    }
    if score.survived + score.invalid > 0 {
        printer.line(table);
    }
    let judged = score.killed + score.survived;
    printer.line(format!(
        "{} of {} killed, {} survived, {} invalid, {} not tried",
        score.killed,
        count(judged, "mutant"),
        score.survived,
        score.invalid,
        score.left
    ));
    if score.stopped {
        printer.line("interrupted: `--resume` goes on from here");
    }
}
