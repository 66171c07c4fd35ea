//! `faultscope repro`: reproduces the failure of a bundle.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use faultscope_engine::debug::bundle::{self, BundleError, Manifest, RestoreError};
use faultscope_engine::testing::run_trial;
use faultscope_engine::{EngineError, Session, Tests, TrialRequest};
use faultscope_model::application::test_named;
use faultscope_model::{CampaignKind, Circumstance, Outcome, Run, Treatment};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::args::{Global, IsolationArg, PlatformChoice, Target};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::comparison::Comparison;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render;

#[derive(Debug, Args)]
pub(crate) struct ReproArgs {
    /// The bundle that `faultscope debug` wrote.
    pub(crate) bundle: PathBuf,
    /// Unpack it here and keep it; by default a temporary folder that is removed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: Option<PathBuf>,
    /// Run the bundle's command that restores what it leaves out, such as `npm ci`. It runs outside of any slot,
    /// with your rights and the network: look at it first.
    #[arg(long, conflicts_with = "skip_restore")]
    pub(crate) restore: bool,
    /// Do not run that command: what it restores is there already, or is not needed.
    #[arg(long)]
    pub(crate) skip_restore: bool,
    /// How often to try the failing circumstance; by default once, or more for a flaky failure.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tries: Option<u32>,
    /// Seed of every random choice; by default that of the campaign.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The platform that runs the application.
    #[arg(long, value_enum, default_value_t = PlatformChoice::Process)]
    pub(crate) platform: PlatformChoice,
    /// How processes are isolated; by default as in the file.
    #[arg(long, value_enum)]
    pub(crate) isolation: Option<IsolationArg>,
}

/// The JSON output of `repro`.
#[derive(Debug, Serialize)]
struct Shown {
    manifest: Manifest,
    /// Whether the failure occurred again.
    reproduced: bool,
    /// Trials of the failing circumstance, until the failure occurred.
    failing: Vec<Run>,
    /// The trial of the nearest passing circumstance.
    passing: Run,
}

pub(crate) async fn run(args: ReproArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let temporary;
    let folder = match &args.into {
        Some(folder) => empty(folder)?,
        None => {
            temporary = tempfile::tempdir().map_err(|e| {
                CommandError::new(Exit::Environment, "there is no temporary folder").because(e)
            })?;
            temporary.path().to_owned()
        }
    };
    let (manifest, file) = bundle::unpack(&args.bundle, &folder).map_err(|e| refused(&args.bundle, e))?;
    let mut project = unpacked(&manifest, &file, printer)?;
    stays_inside(&project, &folder, &args.bundle)?;
    for right in project.extra_rights() {
        printer.warn(format!("not granted to a bundle: {right}"));
    }
    project.drop_extra_rights();
    let stop = interrupted();
    if !restore(&args, &project, printer, &stop).await? {
        return Ok(Exit::Interrupted);
    }
    project.find_cases(printer).await?;
    printer.talk(format!("{}: {}", manifest.application, manifest.signature));
    let target = Target::for_file(file, args.platform, args.isolation);
    let opening = Opening::new(CampaignKind::Repro, &target, args.seed.unwrap_or(manifest.seed));
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let tries = args.tries.unwrap_or_else(|| tries(manifest.rate));
    let work = async |session: &_| try_both(session, &project, &manifest, tries, &stop).await;
    let Some((failing, passing)) = campaign.run(work, |_| "tried".into()).await? else {
        return Ok(Exit::Interrupted);
    };
    let reproduced = failing.iter().any(|run| matches!(run.outcome, Outcome::Fail { .. }));
    let shown = Shown { manifest, reproduced, failing, passing };
    let exit = match shown.failing.last().map(|run| &run.outcome) {
        _ if shown.reproduced => Exit::Found,
        Some(Outcome::Pass) => Exit::Done,
        _ => Exit::Unresolved,
    };
    if printer.json {
        printer.result(&shown)?;
    } else {
        show(&shown, printer);
    }
    Ok(exit)
}

/// The application of a bundle, with the nearest passing circumstance as the simplest one.
fn unpacked(manifest: &Manifest, file: &Path, printer: &Printer) -> Result<Project, CommandError> {
    let Some(compared) = &manifest.compared else { return Project::read(file) };
    let below = |paths: &[PathBuf]| paths.iter().map(|path| file.join(path)).collect();
    let comparison = Comparison {
        good: below(&compared.good),
        bad: below(&compared.bad),
        tests_from: compared.tests.as_ref().map(|path| file.join(path)),
    };
    let mut project = comparison.read(printer)?;
    project.application.simplest = compared.passing.clone();
    project.application.failing = compared.failing.clone();
    Ok(project)
}

/// Refuses a bundle whose application file leads out of the unpacked folder: what runs must be what came with it.
fn stays_inside(project: &Project, folder: &Path, bundle: &Path) -> Result<(), CommandError> {
    let folder = std::fs::canonicalize(folder)
        .map_err(|e| CommandError::new(Exit::Environment, "the unpacked bundle is gone").because(e))?;
    if project.root.starts_with(folder) {
        return Ok(());
    }
    let problem = format!("its `directory` leads out of it, to {}", project.root.display());
    Err(refused(bundle, BundleError::Refused(problem)))
}

/// Runs the command that restores what the bundle leaves out, if the user allows it; false if it was interrupted.
async fn restore(
    args: &ReproArgs,
    project: &Project,
    printer: &Printer,
    stop: &CancellationToken,
) -> Result<bool, CommandError> {
    let Some(words) = project.application.bundle.restore.as_deref().filter(|_| !args.skip_restore) else {
        return Ok(true);
    };
    let command = bundle::shown_command(words);
    if !args.restore {
        // Services run in slots. This command does not, so nobody else's file may start it by itself.
        return Err(CommandError::usage(format!("the bundle wants to run `{command}` on this machine first"))
            .hint(
                "it restores what the bundle leaves out, outside of any slot, with your rights and the network; \
                 look at the bundle with `--into FOLDER`, then say `--restore`, or `--skip-restore` to go on without",
            ));
    }
    printer.talk(format!("restoring with `{command}`"));
    let ended = tokio::select! {
        ended = bundle::restore(words, &project.root) => ended,
        () = stop.cancelled() => return Ok(false),
    };
    ended.map(|()| true).map_err(|error| {
        let lines = match &error {
            RestoreError::Failed { last_lines, .. } => last_lines.clone(),
            _ => Vec::new(),
        };
        let failed = CommandError::new(Exit::Environment, "what the bundle leaves out cannot be restored");
        CommandError { lines, ..failed.because(error) }.hint(
            "repair it by hand: `--into FOLDER` keeps what was unpacked, and its README.md says how to go on",
        )
    })
}

/// Tries the failing circumstance until it fails, then the passing one; none if it was interrupted.
async fn try_both(
    session: &Arc<Session>,
    project: &Project,
    manifest: &Manifest,
    tries: u32,
    stop: &CancellationToken,
) -> Result<Option<(Vec<Run>, Run)>, EngineError> {
    let application = &project.application;
    let tests = match manifest.signature.failing_test() {
        // Whether a service becomes ready is known before any test runs.
        None => Vec::new(),
        Some(test) if manifest.only => test_named(&application.tests, test).into_iter().collect(),
        Some(_) => application.tests.clone(),
    };
    let drive = Tests::new(tests);
    let request = |circumstance: &Circumstance, treatment: Treatment| TrialRequest {
        treatment,
        circumstance: circumstance.clone(),
        drive: drive.clone(),
        wanted: Some(manifest.signature.clone()),
    };
    let cause = Treatment::of_deltas(manifest.deltas.iter().cloned().collect());
    let mut failing = Vec::new();
    for _ in 0..tries.max(1) {
        let Some(run) = run_trial(session, request(&application.failing, cause.clone()), stop).await? else {
            return Ok(None);
        };
        let is_over = run.outcome != Outcome::Pass;
        failing.push(run);
        if is_over {
            break;
        }
    }
    let passing = run_trial(session, request(&application.simplest, Treatment::Nothing), stop).await?;
    Ok(passing.map(|passing| (failing, passing)))
}

fn show(shown: &Shown, printer: &Printer) {
    let Shown { manifest, failing, passing, .. } = shown;
    printer.line(format!("failing circumstance ({}):", manifest.deltas.join(", ")));
    if let Some(run) = failing.last() {
        render::run::tests(run, printer);
        render::run::endings(run, render::run::MESSAGE_LINES, printer);
    }
    printer.line("nearest passing circumstance:");
    render::run::tests(passing, printer);
    let times = failing.len();
    let verdict = match failing.last().map(|run| &run.outcome) {
        Some(Outcome::Fail { .. }) if passing.outcome == Outcome::Pass => "reproduced".to_owned(),
        Some(Outcome::Fail { .. }) => {
            "reproduced, but the passing circumstance does not pass here".to_owned()
        }
        Some(Outcome::Unresolved { reason }) => format!("not reproduced: {reason}"),
        _ if times > 1 => format!("not reproduced in {times} tries: the failing circumstance passes"),
        _ => "not reproduced: the failing circumstance passes".to_owned(),
    };
    printer.line(printer.strong(&verdict));
}

/// The number of tries after which a failure of this rate has shown with a probability of 99 %.
pub(crate) fn tries(rate: f64) -> u32 {
    if rate >= 1.0 {
        return 1;
    }
    let tries = (0.01_f64.ln() / (1.0 - rate.max(0.01)).ln()).ceil();
    // Between 2 and 459 by the bounds above.
    tries as u32
}

fn empty(folder: &Path) -> Result<PathBuf, CommandError> {
    let cannot = |e| CommandError::usage(format!("cannot use {}", folder.display())).because(e);
    std::fs::create_dir_all(folder).map_err(cannot)?;
    if std::fs::read_dir(folder).map_err(cannot)?.next().is_some() {
        return Err(CommandError::usage(format!("{} is not empty", folder.display()))
            .hint("name a folder that is not there yet"));
    }
    Ok(folder.to_owned())
}

fn refused(file: &Path, error: BundleError) -> CommandError {
    let exit = match &error {
        BundleError::Io { source, .. } if source.kind() != std::io::ErrorKind::NotFound => Exit::Environment,
        _ => Exit::Usage,
    };
    CommandError::new(exit, format!("cannot use {}", file.display()))
        .because(error)
        .hint("`faultscope debug --bundle FILE` writes one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_failures_are_tried_more_often() {
        assert_eq!([tries(1.0), tries(0.5), tries(0.3)], [1, 7, 13]);
        assert!(tries(0.0) < 500);
    }
}
