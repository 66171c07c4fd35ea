//! `faultscope demo`: runs a sample of 45 services, shows its calls, and debugs a seeded failure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use faultscope_engine::debug::{self, DebugOptions, DebugReport, Verdict};
use faultscope_engine::testing::run_trial;
use faultscope_engine::views::{CauseTarget, MetricsJoin, call_trees, reproduce_cause};
use faultscope_engine::{Session, Tests, TrialRequest};
use faultscope_model::units::show_duration;
use faultscope_model::{CampaignKind, Outcome, Run, Span, TraceId, Treatment};
use faultscope_store::Edge;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::args::{DemoArgs, Global, PlatformChoice, Target};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::{self, Project};
use crate::render;
use crate::sample_apps::TICKETING;
use crate::shell;

/// The callers in the printed service map.
const MAP_CALLERS: [&str; 2] = ["cancel", "dashboard"];
/// The most calls of the printed call tree.
const TREE_CALLS: usize = 10;
/// The seeded failure.
const CASE: &str = "cases/dd-f1.yaml";
/// Trials at the same time: what two cores can carry.
const SLOTS: u16 = 2;
/// Takes four repetitions of the cause instead of fourteen, which would double what the demo takes.
const CONFIDENCE: f64 = 0.75;
/// The same for everybody, so that what is shown is what the README shows.
const SEED: u64 = 1;

/// The JSON output of `demo`.
#[derive(Debug, Serialize)]
struct Shown {
    /// The tests in the simplest circumstance.
    run: Run,
    /// The seeded failure.
    debug: DebugReport,
}

pub(crate) async fn run(args: DemoArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let folder = args.into.unwrap_or_else(|| std::env::temp_dir().join(default_name()));
    TICKETING.write(&folder).map_err(|e| {
        CommandError::new(Exit::Environment, format!("cannot write to {}", folder.display())).because(e)
    })?;
    let stop = interrupted();
    let Some((run, spans, edges)) = run_sample(&folder, global, printer, &stop).await? else {
        return Ok(Exit::Interrupted);
    };
    if run.outcome != Outcome::Pass {
        if printer.json {
            printer.result(&run)?;
        } else {
            render::run::tests(&run, printer);
        }
        return Ok(exit_of(&run.outcome));
    }
    if !printer.json {
        render::run::summary(&run, printer);
        render::map::map_of(&edges, &MAP_CALLERS, printer);
        let shown = small_trace(&spans);
        render::tree::trees(&shown, &call_trees(&shown, &MetricsJoin::default()), printer);
    }
    let report = reduce(&folder, global, printer, &stop).await?;
    let exit = match report.verdict {
        Verdict::Reduced => Exit::Done,
        Verdict::Stopped => Exit::Interrupted,
        _ => Exit::Unresolved,
    };
    if printer.json {
        printer.result(&Shown { run, debug: report })?;
        return Ok(exit);
    }
    if exit != Exit::Done {
        printer.line(report.summary());
        return Ok(exit);
    }
    render::report::text::found(&report, &shell::at(&folder), printer);
    printer.line(printer.dim(&format!("{}, {}", report.summary(), show_duration(report.took))));
    next(&folder, &report, printer);
    Ok(exit)
}

/// Starts the sample in its simplest circumstance and runs its tests; none if it was interrupted.
async fn run_sample(
    folder: &Path,
    global: &Global,
    printer: &Printer,
    stop: &CancellationToken,
) -> Result<Option<(Run, Vec<Span>, Vec<Edge>)>, CommandError> {
    let project = Project::read(folder)?;
    printer.talk(format!(
        "A railway's ticketing system of {} services starts in {}",
        project.application.services.len(),
        folder.display()
    ));
    let target = Target::for_file(folder.to_owned(), PlatformChoice::Process, None);
    let opening = Opening::new(CampaignKind::Demo, &target, SEED);
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let notes = campaign.session.platform().capabilities().notes;
    notes.iter().for_each(|note| printer.talk(format!("note: {note}")));
    let request = TrialRequest {
        treatment: Treatment::Nothing,
        circumstance: project.application.simplest.clone(),
        drive: Tests::new(project.application.tests.clone()),
        wanted: None,
    };
    let work = async |session: &Arc<Session>| {
        let Some(run) = run_trial(session, request, stop).await? else { return Ok(None) };
        let (spans, edges) = (session.spans_of(run.trial).await?, session.edges_of(run.trial).await?);
        Ok(Some((run, spans, edges)))
    };
    campaign.run(work, |_| "shown".into()).await
}

/// Debugs the seeded failure.
async fn reduce(
    folder: &Path,
    global: &Global,
    printer: &Printer,
    stop: &CancellationToken,
) -> Result<DebugReport, CommandError> {
    let file = folder.join(CASE);
    let project = Project::read(&file)?;
    let deltas = project.application.space().map_or(0, |space| space.full().len());
    let test = project.application.failing_test.clone().unwrap_or_default();
    printer.talk(format!(
        "\nIn production the test `{test}` fails. {deltas} things are different there: which of them is it?"
    ));
    let target = Target::for_file(file.clone(), PlatformChoice::Process, None);
    let opening = Opening::new(CampaignKind::Debug, &target, SEED).slots(SLOTS);
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    // The failure is known to be stable: one check is enough, and so are a few repetitions; what they show is said.
    let options = DebugOptions {
        only_failing_test: true,
        repeat: 1,
        confidence: CONFIDENCE,
        ..DebugOptions::default()
    };
    let work = async |session: &Arc<Session>| {
        let mut report = debug::debug(session, &options, stop).await?;
        for cause in &mut report.causes {
            let application = [file.to_string_lossy().into_owned()];
            let target = CauseTarget {
                verb: "test",
                application: &application,
                orders: &report.orders,
                test: Some(&test),
                tries: 1,
            };
            let mut command = reproduce_cause(cause, &target);
            command.words[0] = tool_name();
            cause.reproduce = Some(command.to_string());
        }
        session.campaign().put_report(&report)?;
        Ok(report)
    };
    campaign.run(work, DebugReport::summary).await
}

fn next(folder: &Path, report: &DebugReport, printer: &Printer) {
    printer.line(printer.strong("What to try next"));
    let tool = tool_name();
    let failing = report.difference.as_ref().map(|difference| difference.failing.to_string());
    let failing = failing.unwrap_or_else(|| "last".into());
    let folder = folder.display();
    let next = [
        (format!("{tool} report --folder {folder}"), "how the search went; --format html for a page"),
        (format!("{tool} runs show {failing} --folder {folder}"), "every call of the failing run"),
        (format!("{tool} debug {folder}/cases/dd-f3.yaml --slots 2 --only"), "calls in a wrong order"),
        (format!("{tool} debug {folder}/cases/dd-f2.yaml --slots 2 --only --all"), "three causes"),
        (format!("{tool} up {folder}"), "the system on your loopback, until Ctrl-C"),
        (format!("{tool} init"), "an application file from your Compose file"),
    ];
    let widest = next.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    for (command, what) in next {
        printer.line(format!("  {command:<widest$}  {}", printer.dim(what)));
    }
}

/// The largest trace that fits on a screen.
fn small_trace(spans: &[Span]) -> Vec<Span> {
    let mut sizes: BTreeMap<TraceId, usize> = BTreeMap::new();
    for span in spans {
        *sizes.entry(span.trace).or_default() += 1;
    }
    let fits = sizes.iter().filter(|(_, size)| **size <= TREE_CALLS).max_by_key(|(_, size)| **size);
    let chosen = fits.or_else(|| sizes.iter().min_by_key(|(_, size)| **size)).map(|(trace, _)| *trace);
    spans.iter().filter(|span| Some(span.trace) == chosen).cloned().collect()
}

fn exit_of(outcome: &Outcome) -> Exit {
    match outcome {
        Outcome::Pass => Exit::Done,
        Outcome::Fail { .. } => Exit::Found,
        Outcome::Unresolved { .. } => Exit::Unresolved,
    }
}

/// A folder for each user: that of another user is not writable, and must not be trusted.
fn default_name() -> PathBuf {
    let user = std::env::var("USER").unwrap_or_default();
    let plain: String = user.chars().filter(char::is_ascii_alphanumeric).collect();
    PathBuf::from(format!("faultscope-demo-{}", if plain.is_empty() { "user" } else { &plain }))
}

/// How the tool was called, so that printed commands work.
fn tool_name() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let on_path = !called.contains('/');
    match project::own_program() {
        Ok(program) if !on_path => program.display().to_string(),
        _ => "faultscope".into(),
    }
}
