//! `faultscope test`

use faultscope_engine::testing::run_trials;
use faultscope_engine::views::hide_settings;
use faultscope_engine::{Tests, TrialRequest};
use faultscope_model::application::{TestCase, test_named};
use faultscope_model::units::count;
use faultscope_model::{CampaignKind, Outcome, Run};
use serde::Serialize;

use crate::args::{Global, TestArgs};
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render;
use crate::shell::{self, FolderOption};

/// The JSON output of `test`.
#[derive(Debug, Serialize)]
pub(crate) struct Tested {
    pub(crate) campaign: String,
    pub(crate) seed: u64,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) unresolved: usize,
    pub(crate) stopped: bool,
    pub(crate) runs: Vec<Run>,
}

pub(crate) async fn run(args: TestArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let mut project = Project::open(&args.target, printer)?;
    project.find_cases(printer).await?;
    let tests = choose(&project, &args.tests)?;
    let (space, set) = project.under(&args.under)?;
    let circumstance = space.circumstance(&set).map_err(|e| CommandError::usage(e.to_string()))?;
    let request = TrialRequest {
        treatment: space.treatment(&set),
        circumstance,
        drive: Tests::new(tests),
        wanted: None,
    };
    let seed = args.under.seed;
    let opening = Opening::new(CampaignKind::Test, &args.target, seed)
        .record(args.under.record)
        .slots(args.slots)
        .sentinel_every(args.sentinel_every);
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let id = campaign.session.id().to_string();
    let stop = interrupted();
    let requests = vec![request; args.repeat as usize];
    let work = async |session: &_| run_trials(session, requests, args.fail_fast, &stop).await;
    let mut done = campaign.run(work, |done| count(done.runs.len(), "trial")).await?;
    done.runs.iter_mut().for_each(hide_settings);
    let judged = |word: &str| done.runs.iter().filter(|run| run.outcome.word() == word).count();
    let tested = Tested {
        campaign: id,
        seed,
        passed: judged("pass"),
        failed: judged("fail"),
        unresolved: judged("unresolved"),
        stopped: done.stopped,
        runs: done.runs,
    };
    if printer.json {
        printer.result(&tested)?;
    } else {
        show(&tested, &shell::at(&project.root), printer);
    }
    Ok(exit_of(&tested))
}

fn exit_of(tested: &Tested) -> Exit {
    match tested {
        Tested { stopped: true, .. } => Exit::Interrupted,
        Tested { failed: 1.., .. } => Exit::Found,
        Tested { unresolved: 1.., .. } => Exit::Unresolved,
        _ => Exit::Done,
    }
}

fn show(tested: &Tested, at: &FolderOption, printer: &Printer) {
    for run in &tested.runs {
        render::run::tests(run, printer);
        render::run::endings(run, render::run::MESSAGE_LINES, printer);
    }
    let trials = tested.runs.len();
    if trials > 1 {
        printer.line(format!(
            "{trials} trials: {} passed, {} failed, {} unresolved",
            tested.passed, tested.failed, tested.unresolved
        ));
    }
    let interesting = tested.runs.iter().find(|r| r.outcome != Outcome::Pass).or(tested.runs.first());
    if let Some(run) = interesting {
        printer.line(printer.dim(&format!("see the calls with `faultscope runs show {}{at}`", run.id)));
    }
    if tested.stopped {
        printer.line("interrupted: what had finished is stored");
    }
}

/// The requested tests, or all.
pub(crate) fn choose(project: &Project, names: &[String]) -> Result<Vec<TestCase>, CommandError> {
    let all = &project.application.tests;
    if all.is_empty() {
        return Err(CommandError::new(Exit::Spec, "the application has no tests")
            .hint("add `tests:` to the file, for example `- { name: up, http: { get: \"http://order:8080/health\" } }`"));
    }
    if names.is_empty() {
        return Ok(all.clone());
    }
    names
        .iter()
        .map(|name| {
            test_named(all, name).ok_or_else(|| {
                let known: Vec<_> = all.iter().map(|t| t.name.as_str()).collect();
                CommandError::usage(format!("there is no test `{name}`"))
                    .hint(format!("tests: {}", known.join(", ")))
            })
        })
        .collect()
}
