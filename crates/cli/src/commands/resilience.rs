//! `faultscope resilience`

use std::sync::Arc;
use std::time::Duration;

use faultscope_engine::Session;
use faultscope_engine::resilience::{self, Defect, ResilienceOptions, ResilienceReport, TestReport, Verdict};
use faultscope_engine::views::{DefectTarget, RunTests, hide_settings, plain, reproduce_defect};
use faultscope_model::{Application, CampaignKind, Outcome, Run};
use faultscope_store::Store;

use super::debug_args::Budget;
use super::resilience_args::ResilienceArgs;
use crate::args::{Global, IsolationArg, Under};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render;
use crate::shell::{self, FolderOption};

/// How often a trial with an outage may take the whole time of its test: meanwhile, in an attempt that begins before the
/// time of recovery is over, and in the last one.
const RUNS_IN_TRIAL: u32 = 3;

/// The name of a test that was given by `--command`.
const COMMAND: &str = "command";

pub(crate) async fn run(
    args: ResilienceArgs,
    global: &Global,
    printer: &Printer,
) -> Result<Exit, CommandError> {
    let mut target = args.target();
    if args.command.is_some() && target.isolation.is_none() {
        // A single process without services runs as in a shell, with its own build cache.
        target.isolation = Some(IsolationArg::Ports);
    }
    let mut project = match &args.command {
        Some(command) => of_command(command)?,
        None => Project::read(&target.file)?,
    };
    project.find_cases(printer).await?;
    let names = args.named();
    super::test::choose(&project, &names)?;
    let settings = args.settings.clone();
    let under = Under {
        failing: false,
        deltas: Vec::new(),
        orders: Vec::new(),
        settings,
        record: None,
        seed: args.seed,
    };
    if !under.settings.is_empty() {
        let (space, none) = project.under(&under)?;
        let changed = space.circumstance(&none).map_err(|e| CommandError::usage(e.to_string()))?;
        project.application.simplest = changed;
    }
    let resume = match args.resume.as_deref() {
        None => None,
        Some(named) => {
            let store = Store::open(project.root.join(".faultscope"))?;
            let named = Some(named).filter(|named| !named.is_empty());
            let campaign = resilience::unfinished(&store, &project.application, named)?;
            printer.talk(format!("resuming campaign {campaign}"));
            Some(campaign)
        }
    };
    // The limit of the longest test, so that a slow test does not count as a broken trial.
    let longest = project.application.tests.iter().map(|test| test.within).chain(args.within).max();
    let outage = project.application.resilience.outage;
    let opening = Opening::new(CampaignKind::Resilience, &target, args.seed)
        .slots(args.slots)
        .resume(resume)
        .longest_test(longest.unwrap_or_default() * RUNS_IN_TRIAL + outage.lasts + outage.recovery);
    let stop = interrupted();
    if !args.reproduce.is_empty() {
        let test = only_test(&project.application, &names)?;
        let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
        let (asked, within) = (args.reproduce.clone(), args.within);
        let work = async |session: &_| resilience::reproduce(session, &test, asked, within, &stop).await;
        let again = campaign.run(work, |_| "one trial".into()).await?;
        return shown_again(again, &folder_option(&args, &project), printer);
    }
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let chosen = chosen(&args, names);
    let work = async |session: &Arc<Session>| {
        let mut report = resilience::resilience(session, &chosen, &stop).await?;
        for test in &mut report.tests {
            let (name, within) = (test.test.clone(), test.within);
            for defect in &mut test.defects {
                defect.reproduce = Some(reproduce(defect, &name, within, &args));
            }
        }
        session.campaign().put_report(&report)?;
        Ok(report)
    };
    let report = campaign.run(work, ResilienceReport::summary).await?;
    super::resilience_report::write_all(
        &project.root.join(".faultscope"),
        &report,
        &args.reports,
        (&project.secrets(), printer),
    )?;
    if printer.json {
        printer.result(&report)?;
    } else {
        for test in &report.tests {
            render::resilience::test(test, printer);
        }
        for test in &report.not_begun {
            printer.line(format!("{}: not begun", printer.strong(test)));
        }
        for warning in &report.warnings {
            printer.warn(warning);
        }
        hint(&report, &folder_option(&args, &project), printer);
    }
    Ok(exit_of(&report))
}

fn exit_of(report: &ResilienceReport) -> Exit {
    match &report.verdict {
        Verdict::Clean | Verdict::NothingToPerturb => Exit::Done,
        Verdict::Defects => Exit::Found,
        Verdict::FailsAlready => Exit::FailsAlready,
        Verdict::Unresolved { .. } => Exit::Unresolved,
        Verdict::Stopped => Exit::Interrupted,
        Verdict::OutOfBudget => Exit::Budget,
    }
}

fn chosen(args: &ResilienceArgs, tests: Vec<String>) -> ResilienceOptions {
    let (most_time, most_trials) = Budget::tightest(&args.budget);
    ResilienceOptions {
        tests,
        kinds: args.chosen_kinds(),
        strategy: args.strategy.chosen(),
        all_deliveries: args.all_deliveries,
        all_restarts: args.all_restarts,
        most_together: args.together.map_or(1, usize::from),
        larger_with_rest: args.together.is_none() && !args.budget.is_empty(),
        within: args.within,
        most_time,
        most_trials,
    }
}

/// An application that consists of a test command.
fn of_command(command: &str) -> Result<Project, CommandError> {
    let text = serde_json::json!({
        "name": COMMAND,
        "tests": [{ "name": COMMAND, "run": ["sh", "-c", command], "within": "30m" }],
    });
    let application = Application::read_alone(&text.to_string(), "--command")?;
    let root = std::env::current_dir()
        .map_err(|e| CommandError::new(Exit::Environment, "this folder cannot be opened").because(e))?;
    Ok(Project { application, root, files: Vec::new() })
}

/// The one test that `--reproduce` runs.
fn only_test(application: &Application, names: &[String]) -> Result<String, CommandError> {
    match (names, application.tests.as_slice()) {
        ([only], _) => Ok(only.clone()),
        ([], [only]) => Ok(only.name.clone()),
        (_, tests) => {
            let known: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
            Err(CommandError::usage("`--reproduce` needs just one test")
                .hint(format!("name it with --test: {}", known.join(", "))))
        }
    }
}

/// What leads other commands to where this one stores; nothing for a command that is tried here.
fn folder_option(args: &ResilienceArgs, project: &Project) -> FolderOption {
    if args.command.is_some() { FolderOption::default() } else { shell::at(&project.root) }
}

fn shown_again(run: Option<Run>, at: &FolderOption, printer: &Printer) -> Result<Exit, CommandError> {
    let Some(mut run) = run else { return Ok(Exit::Interrupted) };
    hide_settings(&mut run);
    if printer.json {
        printer.result(&run)?;
    } else {
        render::run::tests(&run, printer);
        let perturbed = run.perturbed.as_deref();
        let invariants = perturbed.map(|p| p.invariants.as_slice()).unwrap_or_default();
        for invariant in invariants.iter().filter(|result| result.failure.is_some()) {
            let message = invariant.failure.as_ref().map_or("", |failure| failure.message.as_str());
            printer.line(format!("  {}  {}: {message}", printer.bad("does not hold"), invariant.test));
        }
        let is_degraded = perturbed.is_some_and(|p| p.degraded);
        if is_degraded {
            printer.line("  the response is degraded, which is acceptable");
        }
        // What failed may be none of the tests above: a service that ended, or a system that does not recover.
        let tests = RunTests::count(&run);
        let is_shown = !is_degraded && tests.passed() < tests.all
            || invariants.iter().any(|result| result.failure.is_some());
        if let Outcome::Fail { signature } = &run.outcome
            && !is_shown
        {
            printer.line(format!("  {}  {}", printer.bad("FAIL"), plain(&signature.message)));
        }
        for missed in perturbed.map(|p| p.missed.as_slice()).unwrap_or_default() {
            printer.line(format!("  not applied: {} ({})", missed.perturbation, missed.why));
        }
        for exit in &run.evidence.exits {
            printer.line(format!("  {}  {} {}", printer.bad("ended"), exit.instance, exit.reason));
        }
        printer.line(printer.dim(&format!("see the calls with `faultscope runs show {}{at}`", run.id)));
    }
    Ok(match run.outcome {
        Outcome::Pass => Exit::Done,
        Outcome::Fail { .. } => Exit::Found,
        Outcome::Unresolved { .. } => Exit::Unresolved,
    })
}

/// The command that reproduces a defect.
fn reproduce(defect: &Defect, test: &str, within: Option<Duration>, args: &ResilienceArgs) -> String {
    let application = &args.target().words()[..];
    let (command, settings) = (args.command.as_deref(), &args.settings[..]);
    reproduce_defect(defect, &DefectTarget { command, application, test, settings, within }).to_string()
}

/// What to do next, where not everything was tried.
fn hint(report: &ResilienceReport, at: &FolderOption, printer: &Printer) {
    let campaign = report.campaign.split('-').next().unwrap_or_default();
    if matches!(report.verdict, Verdict::Stopped | Verdict::OutOfBudget) {
        printer.line(format!("Go on with `{}`", shell::resume(campaign)));
    }
    let fails = |test: &&TestReport| test.verdict == Verdict::FailsAlready;
    if report.tests.iter().any(|test| fails(&test)) {
        printer.line(format!("See its calls with `faultscope runs show {campaign}.check-simplest{at}`"));
    }
}
