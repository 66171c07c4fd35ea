//! `faultscope debug`

use faultscope_model::CampaignKind;

use faultscope_engine::debug::{self, DebugOptions, DebugReport, Flaky, FoundCause, Strategy, Verdict};
use faultscope_engine::views::{CauseTarget, reproduce_cause};
use faultscope_model::units::{nouns, show_duration};
use faultscope_store::Store;

use super::debug_args::{Budget, DebugArgs, FlakyArg, StrategyArg};
use crate::args::Global;
use crate::campaign::{Opening, RunningCampaign, interrupted};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project::Project;
use crate::render::report::text;
use crate::shell::{self, FolderOption, quote};

pub(crate) async fn run(args: DebugArgs, global: &Global, printer: &Printer) -> Result<Exit, CommandError> {
    let mut project = Project::open(&args.target, printer)?;
    super::bundles::check(&project)?;
    project.find_cases(printer).await?;
    if args.all && args.strategy != StrategyArg::Bayes {
        return Err(CommandError::usage("only the strategy `bayes` looks for all causes")
            .hint("leave `--all` or `--strategy` out"));
    }
    let differs = project.application.space().is_ok_and(|space| !space.full().is_empty());
    // A service that does not become ready needs no test to be debugged.
    let untested = project.application.tests.is_empty() && differs && args.test.is_none();
    if !untested {
        super::test::choose(&project, args.test.as_slice())?;
    }
    if !differs && !args.input {
        let message = "simplest and failing circumstance are the same, so there is nothing to search";
        return Err(CommandError::new(Exit::Spec, message).hint(
            "write what is different when the test fails, for example\n  \
             failing: { instances: { order: 3 }, config: { order: { memory: 64MiB } } }",
        ));
    }
    let resume = match args.resume.as_deref() {
        None => None,
        Some(named) => {
            let store = Store::open(project.root.join(".faultscope"))?;
            let named = Some(named).filter(|named| !named.is_empty());
            Some(debug::unfinished(&store, &project.application, named)?)
        }
    };
    let opening = Opening::new(CampaignKind::Debug, &args.target, args.seed)
        .slots(args.slots)
        .sentinel_every(args.sentinel_every)
        .resume(resume);
    let campaign = RunningCampaign::open(&project, opening, global, printer).await?;
    let (chosen, stop) = (chosen(&args), interrupted());
    let work = async |session: &_| {
        let mut report = debug::debug(session, &chosen, &stop).await?;
        let verb = if untested { "up" } else { "test" };
        let commands: Vec<_> =
            report.causes.iter().map(|cause| reproduce(verb, cause, &report, &args)).collect();
        report.causes.iter_mut().zip(commands).for_each(|(cause, command)| cause.reproduce = Some(command));
        session.campaign().put_report(&report)?;
        Ok(report)
    };
    let report = campaign.run(work, DebugReport::summary).await?;
    if untested && report.verdict == Verdict::NotReproduced {
        // Every service becomes ready and there is no test, so there is nothing to debug.
        super::test::choose(&project, &[])?;
    }
    super::report::write_all(
        &project.root.join(".faultscope"),
        &report.campaign,
        &args.reports,
        (&project.secrets(), printer),
    )?;
    let bundles = super::bundles::write(&project, &args, &report, printer)?;
    if printer.json {
        printer.result(&report)?;
    } else {
        show(&report, &args, &shell::at(&project.root), printer);
        for bundle in bundles {
            printer.line(bundle);
        }
    }
    Ok(match report.verdict {
        Verdict::Reduced => Exit::Found,
        Verdict::NoDeltas => Exit::Spec,
        Verdict::FailsAlready | Verdict::FailsAtTimes | Verdict::FailsWithout => Exit::FailsAlready,
        Verdict::NotReproduced | Verdict::OtherTestsFail { .. } | Verdict::Unresolved { .. } => {
            Exit::Unresolved
        }
        Verdict::Stopped => Exit::Interrupted,
        Verdict::OutOfBudget => Exit::Budget,
    })
}

fn chosen(args: &DebugArgs) -> DebugOptions {
    let (most_time, most_trials) = Budget::tightest(&args.budget);
    DebugOptions {
        strategy: match args.strategy {
            StrategyArg::Bayes => Strategy::Bayes,
            StrategyArg::Ddmin => Strategy::Ddmin,
            StrategyArg::DdminPar => Strategy::DdminPar,
        },
        all: args.all,
        test: args.test.clone(),
        only_failing_test: args.only,
        flaky: match args.flaky {
            FlakyArg::Auto => Flaky::Auto,
            FlakyArg::Off => Flaky::Off,
            FlakyArg::Rate(rate) => Flaky::Rate(rate),
        },
        confidence: args.confidence,
        repeat: args.repeat,
        boundary: args.boundary,
        input: args.input,
        most_time,
        most_trials,
    }
}

fn show(report: &DebugReport, args: &DebugArgs, at: &FolderOption, printer: &Printer) {
    text::failure(report, printer);
    if report.verdict != Verdict::Reduced {
        printer.line(report.summary());
    }
    if let Some(hint) = hint(report, args, at) {
        printer.line(hint);
    }
    text::found(report, at, printer);
    let trials = &report.trials;
    let mut parts = vec![trials.describe()];
    for (count, what) in [
        (trials.deeper, "for boundaries and input".to_owned()),
        (trials.unresolved, "unresolved".to_owned()),
        (trials.cancelled, "cancelled".to_owned()),
        (trials.reused, "reused".to_owned()),
        (trials.earlier, "from before".to_owned()),
        (trials.sentinels, nouns(&trials.sentinels, "sentinel")),
        (trials.checks, nouns(&trials.checks, "start-up check")),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    parts.push(show_duration(report.took));
    printer.line(printer.dim(&parts.join(", ")));
}

/// What to do next, where the answer is not the cause.
fn hint(report: &DebugReport, args: &DebugArgs, at: &FolderOption) -> Option<String> {
    let campaign = report.campaign.split('-').next().unwrap_or_default();
    match &report.verdict {
        Verdict::Stopped | Verdict::OutOfBudget => Some(format!("Go on with `{}`", shell::resume(campaign))),
        Verdict::OtherTestsFail { failing, .. } if failing.len() > 1 => {
            Some(format!("Look at one of them alone with `{}`", shell::with_test(&failing[0], &["--only"])))
        }
        Verdict::OtherTestsFail { failing, .. } => {
            failing.first().map(|name| format!("Look for that one with `{}`", shell::with_test(name, &[])))
        }
        Verdict::FailsAlready | Verdict::FailsWithout => {
            Some(format!("See its calls with `faultscope runs show {campaign}.check-simplest{at}`"))
        }
        Verdict::Unresolved { .. } => Some(format!(
            "See its last lines with `faultscope test {} --failing`, or all that ran with `faultscope runs ls{at}`",
            args.target.words().iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
        )),
        Verdict::NotReproduced => {
            Some(format!("See what passed with `faultscope runs show {campaign}.check-failing{at}`"))
        }
        _ => None,
    }
}

fn reproduce(verb: &str, cause: &FoundCause, report: &DebugReport, args: &DebugArgs) -> String {
    let target = CauseTarget {
        verb,
        application: &args.target.words(),
        orders: &report.orders,
        // A service that does not come up needs no test.
        test: report.signature.as_ref().and_then(|signature| signature.failing_test()),
        // A flaky failure is tried until it shows.
        tries: super::repro::tries(report.calibration.map_or(1.0, |known| known.rate)),
    };
    reproduce_cause(cause, &target).to_string()
}
