//! `bench platform`: how fast applications come up, and what the tool needs for it.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use faultscope_engine::testing::{run_trial, run_trials};
use faultscope_engine::{Session, SessionOptions, Tests, TrialRequest};
use faultscope_model::application::TestCase;
use faultscope_model::figures::{Better, Figure};
use faultscope_model::plan::Reset;
use faultscope_model::{Application, Circumstance, DeltaSet, Outcome};
use faultscope_platform::process::{ProcessOptions, ProcessPlatform, WantedIsolation};
use tokio_util::sync::CancellationToken;

use super::usage;
use crate::bench::BenchArgs;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::{self, Project};
use crate::samples::TICKETING;

/// How often each start is measured; the middle one counts.
const ROUNDS: u64 = 5;
const MIB: f64 = 1048576.0;

pub(super) async fn run(
    args: &BenchArgs,
    printer: &Printer,
    notes: &mut Vec<String>,
) -> Result<Vec<Figure>, CommandError> {
    let folder = tempfile::tempdir()
        .map_err(|e| CommandError::new(Exit::Environment, "there is no temporary folder").because(e))?;
    let mut figures = Vec::new();
    printer.talk("40 cells");
    figures.push(forty_cells(&folder.path().join("forty"), args.seed, notes).await?);
    let ticketing = folder.path().join("ticketing");
    TICKETING
        .write(&ticketing)
        .map_err(|e| CommandError::new(Exit::Environment, "the sample cannot be written").because(e))?;
    for (reset, goal) in [(Reset::Restart, 1.0), (Reset::Keep, 0.3)] {
        printer.talk(format!("ticketing with one changed setting, reset {reset:?}"));
        figures.extend(one_setting(&ticketing, reset, goal, args.seed).await?);
    }
    printer.talk("four slots of ticketing");
    figures.push(four_slots(&ticketing, args.seed).await?);
    Ok(figures)
}

async fn open(
    application: Application,
    root: &Path,
    slots: u16,
    seed: u64,
    notes: Option<&mut Vec<String>>,
) -> Result<Arc<Session>, CommandError> {
    let program = project::own_program()?;
    let options = ProcessOptions {
        isolation: WantedIsolation::Auto,
        program: program.clone(),
        state: Some(root.join(".faultscope")),
    };
    let platform = Arc::new(ProcessPlatform::new(options)?);
    if let Some(notes) = notes {
        let able = faultscope_platform::Platform::capabilities(&*platform);
        notes.push(format!("isolation {:?}, limits by {:?}", able.isolation, able.limits));
    }
    let mut options = SessionOptions::new("bench", root.to_owned(), program);
    options.slots = slots;
    options.seed = seed;
    Ok(Arc::new(Session::open(application, platform, options).await?))
}

fn request(circumstance: Circumstance, tests: Vec<TestCase>) -> TrialRequest {
    TrialRequest { deltas: DeltaSet::new(), circumstance, drive: Tests::new(tests), wanted: None }
}

/// Brings a circumstance up once and gives the seconds until everything was ready.
async fn ready_after(session: &Arc<Session>, circumstance: Circumstance) -> Result<f64, CommandError> {
    let run = run_trial(session, request(circumstance, Vec::new()), &CancellationToken::new()).await?;
    match run {
        Some(run) if run.outcome == Outcome::Pass => Ok(run.cost.deploy.as_secs_f64()),
        Some(run) => {
            Err(CommandError::new(Exit::Unresolved, format!("the sample did not come up: {:?}", run.outcome)))
        }
        None => Err(CommandError::new(Exit::Interrupted, "interrupted")),
    }
}

async fn forty_cells(folder: &Path, seed: u64, notes: &mut Vec<String>) -> Result<Figure, CommandError> {
    let broken =
        |e: std::io::Error| CommandError::new(Exit::Environment, "the cells cannot be written").because(e);
    let mut file = String::from("name: forty\nservices:\n");
    let mut spec = String::from("version: 1\nservices:\n");
    for number in 1..=40 {
        let _ = writeln!(
            file,
            "  c{number}: {{ command: [\"${{faultscope}}\", cell, --spec, cells.yaml, --service, c{number}], \
             ports: [8080], protocol: http, ready: {{ http: /health }}, calls: [] }}"
        );
        let _ = writeln!(
            spec,
            "  c{number}: {{ port: 8080, operations: {{ \"GET /\": {{ steps: [ {{ respond: {{ status: 200, body: {{}} }} }} ] }} }} }}"
        );
    }
    std::fs::create_dir_all(folder).map_err(broken)?;
    std::fs::write(folder.join("faultscope.yaml"), file).map_err(broken)?;
    std::fs::write(folder.join("cells.yaml"), spec).map_err(broken)?;
    let project = Project::read(folder)?;
    let session = open(project.application, folder, 1, seed, Some(notes)).await?;
    let mut times = Vec::new();
    for _ in 1..=ROUNDS {
        times.push(ready_after(&session, Circumstance::default()).await?);
    }
    crate::campaign::close(session, "measured").await?;
    Ok(super::lower("40 cells ready", super::median(&mut times), "s", 2.0))
}

async fn one_setting(folder: &Path, reset: Reset, goal: f64, seed: u64) -> Result<Vec<Figure>, CommandError> {
    let mut application = Project::read(folder)?.application;
    application.reset = reset;
    let service = application
        .services
        .keys()
        .find(|name| name.as_str() == "order")
        .cloned()
        .ok_or_else(|| CommandError::internal("the sample has no service `order`"))?;
    let session = open(application, folder, 1, seed, None).await?;
    ready_after(&session, Circumstance::default()).await?;
    let mut times = Vec::new();
    for trial in 2..2 + ROUNDS {
        let mut circumstance = Circumstance::default();
        let value = format!("{}MiB", 100 + trial);
        circumstance.config.entry(service.clone()).or_default().insert("memory".into(), value);
        times.push(ready_after(&session, circumstance).await?);
    }
    let name = match reset {
        Reset::Restart => "ticketing, one changed setting, reset: restart",
        Reset::Keep => "ticketing, one changed setting, reset: keep",
    };
    let mut figures = vec![super::lower(name, super::median(&mut times), "s", goal)];
    if reset == Reset::Keep {
        // Cells are measured once they have served every kind of request.
        let busy = request(Circumstance::default(), session.application().tests.clone());
        run_trial(&session, busy, &CancellationToken::new()).await?;
        figures.extend(memory(session.application().services.len()));
    }
    crate::campaign::close(session, "measured").await?;
    Ok(figures)
}

/// What the tool and its cells need while the sample is up.
fn memory(services: usize) -> Vec<Figure> {
    let own = std::process::id();
    let below = usage::descendants(own);
    let cells: Vec<u32> =
        below.iter().filter(|(_, line)| line.contains(" cell ")).map(|(pid, _)| *pid).collect();
    let launchers = below.iter().filter(|(_, line)| line.contains(" launch ")).map(|(pid, _)| *pid);
    let launchers: u64 = launchers.map(usage::proportional).sum();
    let mut resident: Vec<f64> = cells.iter().map(|&pid| usage::resident(pid) as f64 / MIB).collect();
    let largest = resident.iter().copied().fold(f64::NAN, f64::max);
    vec![
        super::lower(
            &format!("the tool with {services} services up"),
            usage::resident(own) as f64 / MIB,
            "MiB",
            80.0,
        ),
        Figure::new("its launchers beside it, by their share", launchers as f64 / MIB, "MiB", Better::Lower),
        Figure::new("a cell, median", super::median(&mut resident), "MiB", Better::Lower),
        super::lower("a cell, largest", largest, "MiB", 8.0),
    ]
}

async fn four_slots(folder: &Path, seed: u64) -> Result<Figure, CommandError> {
    let application = Project::read(folder)?.application;
    let request = request(Circumstance::default(), application.tests.clone());
    let session = open(application, folder, 4, seed, None).await?;
    let finished = run_trials(&session, vec![request; 4], false, &CancellationToken::new()).await;
    crate::campaign::close(session, "measured").await?;
    let passed = finished?.runs.iter().filter(|run| run.outcome == Outcome::Pass).count();
    Ok(Figure::new("4 slots of ticketing at once, passing", passed as f64, "of 4", Better::Higher).goal(4.0))
}
