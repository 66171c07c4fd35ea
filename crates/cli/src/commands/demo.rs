//! `faultscope demo`: a sample of 45 services, its tests, and what the mesh saw.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use faultscope_engine::{Session, TrialEnd, TrialRequest};
use faultscope_model::units::show_duration;
use faultscope_model::{DeltaSet, Outcome, SlotId, Span, TraceId, TrialId};

use crate::args::{DemoArgs, Global, PlatformChoice, Target, Under};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project::{self, Project};
use crate::render;
use crate::samples::TICKETING;

/// Callers of the service map that are shown.
const MAP_CALLERS: usize = 6;
/// Calls of the call tree that are shown.
const TREE_CALLS: usize = 24;

pub(crate) async fn run(args: DemoArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let folder = args.into.unwrap_or_else(|| std::env::temp_dir().join(default_name()));
    TICKETING.write(&folder).map_err(|e| {
        CommandError::new(Exit::Environment, format!("cannot write to {}", folder.display())).because(e)
    })?;
    let project = Project::read(&folder)?;
    printer.talk(format!(
        "A railway's ticketing system of {} services starts in {}",
        project.application.services.len(),
        folder.display()
    ));
    let target = Target { file: folder.clone(), platform: PlatformChoice::Process, isolation: None };
    let platform = project.platform(&target).await?;
    for note in platform.capabilities().notes {
        printer.talk(format!("note: {note}"));
    }
    let under = Under { failing: false, deltas: Vec::new(), settings: Vec::new(), record: None, seed: 1 };
    let options = project.session("demo", &under)?;
    let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
    let progress = Progress::start(&session, global, printer);
    let request = TrialRequest {
        trial: TrialId(1),
        deltas: DeltaSet::new(),
        circumstance: project.application.simplest.clone(),
        tests: project.application.tests.clone(),
        wanted: None,
    };
    let stop = super::test::interrupted();
    let end = session.trial(SlotId(0), &request, &stop).await;
    progress.finish().await;
    let end = match end {
        Ok(end) => end,
        Err(error) => {
            let _ = super::test::close(session, "failed").await;
            return Err(error.into());
        }
    };
    let TrialEnd::Finished(run) = end else {
        super::test::close(session, "interrupted").await?;
        return Ok(Exit::Interrupted);
    };
    let spans = session.spans_of(run.trial).await?;
    let edges = session.edges_of(run.trial).await?;
    super::test::close(session, "shown").await?;
    if printer.json {
        printer.result(&run)?;
        return Ok(exit_of(&run.outcome));
    }
    render::run::tests(&run, printer);
    render::map::map(&edges, MAP_CALLERS, printer);
    render::tree::trees(&small_trace(&spans), 1, None, printer);
    printer.line(format!(
        "\n{} services were ready after {}, each in its own network, and all {} calls between them were recorded.",
        project.application.services.len(),
        show_duration(run.cost.deploy),
        run.evidence.spans,
    ));
    printer.line("What to try next:");
    let tool = tool_name();
    let folder = folder.display();
    let next = [
        (format!("{tool} runs show {} --folder {folder}", run.id), "more call trees of this run"),
        (format!("{tool} check {folder}/cases/dd-f1.yaml"), "the 36 deltas of a seeded failure"),
        (
            format!("{tool} debug {folder}/cases/dd-f1.yaml --slots 2 --only"),
            "the one delta of 36 that causes it",
        ),
        (format!("{tool} test {folder} --set instances.order=3"), "three instances of one service"),
        (format!("{tool} up {folder}"), "the system on your loopback, until Ctrl-C"),
        (format!("{tool} init"), "an application file from your Compose file"),
    ];
    let widest = next.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    for (command, what) in next {
        printer.line(format!("  {command:<widest$}  {}", printer.dim(what)));
    }
    Ok(exit_of(&run.outcome))
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

/// A folder for each user: another user's cannot be written, and must not be trusted.
fn default_name() -> PathBuf {
    let user = std::env::var("USER").unwrap_or_default();
    let plain: String = user.chars().filter(char::is_ascii_alphanumeric).collect();
    PathBuf::from(format!("faultscope-demo-{}", if plain.is_empty() { "user" } else { &plain }))
}

/// How the tool was called, so that the printed commands work.
fn tool_name() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let on_path = !called.contains('/');
    match project::own_program() {
        Ok(program) if !on_path => program.display().to_string(),
        _ => "faultscope".into(),
    }
}
