//! `faultscope debug`

use std::sync::Arc;

use faultscope_engine::Session;
use faultscope_engine::debug::{self, DebugOptions, DebugReport, FoundCause, Strategy, Verdict};
use faultscope_model::units::show_duration;

use crate::args::{DebugArgs, Global, StrategyArg, Under};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project::Project;

pub(crate) async fn run(args: DebugArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let project = Project::read(&args.target.file)?;
    if let Some(name) = &args.test {
        super::test::choose(&project, std::slice::from_ref(name))?;
    }
    let platform = project.platform(&args.target).await?;
    let under =
        Under { failing: false, deltas: Vec::new(), settings: Vec::new(), record: None, seed: args.seed };
    let mut options = project.session("debug", &under)?;
    options.slots = args.slots;
    let session = Arc::new(Session::open(project.application.clone(), platform, options).await?);
    let progress = Progress::start(&session, global, printer);
    let chosen = DebugOptions {
        strategy: match args.strategy {
            StrategyArg::Bayes => Strategy::Bayes,
            StrategyArg::Ddmin => Strategy::Ddmin,
            StrategyArg::DdminPar => Strategy::DdminPar,
        },
        all: args.all,
        test: args.test.clone(),
        only_failing_test: args.only,
    };
    let stop = super::test::interrupted();
    let report = debug::debug(&session, &chosen, &stop).await;
    progress.finish().await;
    if let Ok(report) = &report {
        session.campaign().put_report(report)?;
    }
    let summary = report.as_ref().map_or_else(ToString::to_string, DebugReport::summary);
    let closed = super::test::close(session, &summary).await;
    let report = report?;
    closed?;
    if printer.json {
        printer.result(&report)?;
    } else {
        show(&report, &args, printer);
    }
    Ok(match report.verdict {
        Verdict::Reduced => Exit::Found,
        Verdict::NoDeltas => Exit::Spec,
        Verdict::FailsAlready => Exit::Found,
        Verdict::NotReproduced | Verdict::OtherTestsFail { .. } | Verdict::Unresolved { .. } => {
            Exit::Unresolved
        }
        Verdict::Stopped => Exit::Interrupted,
    })
}

fn show(report: &DebugReport, args: &DebugArgs, printer: &Printer) {
    if let Some(signature) = &report.signature {
        printer.line(format!("failure: {signature}"));
    }
    if report.verdict != Verdict::Reduced {
        printer.line(report.summary());
    }
    for cause in &report.causes {
        show_cause(cause, report, printer);
        if let Some(run) = &cause.run {
            printer.line(format!("Failing run: {run} (`faultscope runs show {run}`)"));
        }
        printer.line(format!("Reproduce with `{}`", reproduce(cause, report, args)));
    }
    if report.verdict == Verdict::Stopped && !report.best.is_empty() {
        printer.line(format!(
            "Smallest failing set so far: {} of {} deltas",
            report.best.len(),
            report.deltas
        ));
    }
    if let Some(difference) = &report.difference {
        let nothing = || "no such call".to_owned();
        printer.line(format!(
            "First call that differs from run {} (without {}):",
            difference.passing,
            difference.without.join(", ")
        ));
        printer.line(format!("  failing  {}", difference.failing_call.clone().unwrap_or_else(nothing)));
        printer.line(format!("  passing  {}", difference.passing_call.clone().unwrap_or_else(nothing)));
    }
    let trials = &report.trials;
    printer.line(printer.dim(&format!(
        "{} trials finished ({} unresolved), {} cancelled, {}",
        trials.finished,
        trials.unresolved,
        trials.cancelled,
        show_duration(report.took)
    )));
}

fn show_cause(cause: &FoundCause, report: &DebugReport, printer: &Printer) {
    let proof = if cause.minimal { "Minimal cause" } else { "Cause" };
    printer.line(printer.strong(&format!("{proof}: {} of {} deltas", cause.deltas.len(), report.deltas)));
    for delta in &cause.deltas {
        printer.line(format!("  {:<14} {}: {} -> {}", delta.dimension, delta.name, delta.from, delta.to));
    }
    if cause.witness.len() > cause.deltas.len() {
        let more = cause.witness.len() - cause.deltas.len();
        printer.line(format!("  (the failing trial also had {more} pairs of calls that these imply)"));
    }
}

fn reproduce(cause: &FoundCause, report: &DebugReport, args: &DebugArgs) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let deltas: Vec<_> = cause.witness.iter().map(|d| format!("--delta {}", quote(&d.name))).collect();
    let test = report.signature.as_ref().map(|s| format!(" --test {}", quote(&s.test))).unwrap_or_default();
    format!("faultscope test {} {}{test}", quote(&args.target.file.to_string_lossy()), deltas.join(" "))
}
