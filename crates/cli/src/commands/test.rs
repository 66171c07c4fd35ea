//! `faultscope test`

use std::sync::Arc;

use faultscope_engine::campaign::{self, Brief};
use faultscope_engine::{EngineError, Session};
use faultscope_model::application::{TestCase, test_named};
use faultscope_model::units::count;
use faultscope_model::{DeltaSet, Outcome, Run};
use faultscope_search::Fixed;
use serde::Serialize;
use tokio::signal::unix::SignalKind;
use tokio_util::sync::CancellationToken;

use crate::args::{Global, TestArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project::Project;
use crate::render;

/// What `test` prints as JSON.
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
    let mut project = Project::of(&args.target, printer)?;
    project.find_cases(printer).await?;
    let tests = choose(&project, &args.tests)?;
    let (space, set) = project.under(&args.under)?;
    let mut options = project.session("test", &args.under)?;
    options.slots = args.slots;
    options.sentinel_every = args.sentinel_every;
    let platform = project.platform(&args.target).await?;
    project.say_fixed_names(&*platform, printer);
    let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
    let progress = Progress::start(&session, global, printer);
    let sets: Vec<DeltaSet> = (0..args.repeat).map(|_| set.clone()).collect();
    let mut search = Fixed::new(sets);
    if args.fail_fast {
        search = search.stop_at_failure();
    }
    let brief = Brief::new(space, tests);
    let stop = interrupted();
    let finished = campaign::run(&session, &brief, &mut search, &stop).await;
    progress.finish().await;
    let id = session.id().to_string();
    let seed = args.under.seed;
    let summary = match &finished {
        Ok(done) => count(done.runs.len(), "trial"),
        Err(error) => error.to_string(),
    };
    let closed = close(session, &summary).await;
    let finished = finished?;
    closed?;
    let judged = |word: &str| finished.runs.iter().filter(|run| run.outcome.word() == word).count();
    let tested = Tested {
        campaign: id,
        seed,
        passed: judged("pass"),
        failed: judged("fail"),
        unresolved: judged("unresolved"),
        stopped: finished.stopped.is_some(),
        runs: finished.runs,
    };
    if printer.json {
        printer.result(&tested)?;
    } else {
        show(&tested, printer);
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

fn show(tested: &Tested, printer: &Printer) {
    for run in &tested.runs {
        render::run::tests(run, printer);
        if run.outcome != Outcome::Pass {
            render::run::endings(run, render::run::MESSAGE_LINES, printer);
        }
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
        printer.line(printer.dim(&format!("see the calls with `faultscope runs show {}`", run.id)));
    }
    if tested.stopped {
        printer.line("interrupted: what had finished is stored");
    }
}

/// The tests that were asked for, or all.
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

/// A token that Ctrl-C, SIGTERM and SIGHUP cancel; a second Ctrl-C ends the tool at once.
pub(crate) fn interrupted() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let signal = async |kind: SignalKind| match tokio::signal::unix::signal(kind) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = signal(SignalKind::terminate()) => {}
            // The terminal was closed.
            () = signal(SignalKind::hangup()) => {}
        }
        stop.cancel();
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(Exit::Interrupted as i32);
        }
    });
    token
}

/// Closes a session that nothing else holds any more.
pub(crate) async fn close(session: Arc<Session>, summary: &str) -> Result<(), CommandError> {
    match Arc::try_unwrap(session) {
        Ok(session) => Ok(session.close(summary).await?),
        Err(_) => Err(EngineError::Internal("the session is still in use".into()).into()),
    }
}
