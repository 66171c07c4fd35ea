//! `faultscope runs`

use std::path::Path;

use faultscope_engine::views::{self, Archive, CampaignRuns, RunTests, Subject, plain};
use faultscope_model::Run;
use faultscope_model::units::{count, show_duration};

use super::beside::warn_of_missing;
use crate::args::{RunsArgs, RunsCommand, RunsKeepArgs, RunsLsArgs, RunsShowArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::render;
use crate::render::table::Table;
use crate::render::timeline::Bodies;

pub(crate) fn run(args: &RunsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match &args.command {
        RunsCommand::Ls(args) => list(args, printer),
        RunsCommand::Show(args) => show(args, printer),
        RunsCommand::Keep(args) => keep(args, printer),
    }
}

/// Opens what is stored beside an application file, to read runs.
pub(super) fn open(folder: &Path) -> Result<Archive, CommandError> {
    Ok(Archive::open(&project::state_folder(folder), Subject::Run)?)
}

fn keep(args: &RunsKeepArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let store = open(&args.folder)?.store()?;
    let campaign = views::find_campaign_of_run(&store, &args.run)?;
    store.keep(&campaign.meta.id, !args.off)?;
    let what = if args.off { "is no longer pinned: `clean` may remove it" } else { "is kept" };
    printer.talk(format!("campaign {} {what}", campaign.meta.id));
    Ok(Exit::Done)
}

fn list(args: &RunsLsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let listed = views::list_runs(&open(&args.folder)?, args.limit)?;
    if printer.json {
        printer.result(&listed)?;
    } else if listed.is_empty() {
        printer.line("no runs yet");
    } else {
        printer.line(table(&listed));
    }
    Ok(Exit::Done)
}

fn table(listed: &[CampaignRuns]) -> Table {
    let names =
        ["run", "purpose", "application", "when", "deltas", "outcome", "tests", "calls", "took", "failed"];
    let mut table = Table::new(&names);
    for CampaignRuns { campaign, runs } in listed {
        let when = render::time::ago(campaign.started_us);
        if runs.is_empty() {
            let row =
                [campaign.id.to_string(), campaign.kind.to_string(), campaign.application.clone(), when];
            let rest = ["", "no runs", "", "", "", ""].map(ToOwned::to_owned);
            table.row(row.into_iter().chain(rest));
            continue;
        }
        for run in runs {
            let tests = RunTests::count(run);
            table.row([
                run.id.to_string(),
                campaign.kind.to_string(),
                campaign.application.clone(),
                when.clone(),
                match run.treatment.size() {
                    0 => String::new(),
                    size => size.to_string(),
                },
                run.outcome.word().to_owned(),
                format!("{}/{}", tests.passed(), tests.all),
                run.evidence.spans.to_string(),
                show_duration(run.cost.total),
                what_failed(&tests),
            ]);
        }
    }
    table
}

/// The tests that failed in a run, or the service that did not become ready, cut to the width of a cell.
fn what_failed(tests: &RunTests) -> String {
    const WIDTH: usize = 48;
    if let Some(start) = &tests.start_failure {
        return start.to_string();
    }
    let names: Vec<String> = tests.failed.iter().map(|test| plain(test)).collect();
    let mut shown = String::new();
    for (index, name) in names.iter().enumerate() {
        let longer = if index == 0 { name.clone() } else { format!("{shown}, {name}") };
        if index > 0 && longer.chars().count() > WIDTH {
            return format!("{shown} and {} more", names.len() - index);
        }
        shown = longer;
    }
    if shown.chars().count() > WIDTH {
        shown = shown.chars().take(WIDTH - 1).chain(['…']).collect();
    }
    shown
}

fn show(args: &RunsShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let (archive, wanted) = (open(&args.folder)?, args.beside.requested());
    if let Some(trace) = args.trace.as_ref().filter(|_| !printer.json) {
        let view = views::show_run_trace(&archive, &args.run, trace, &wanted)?;
        warn_of_missing(&view.missing, printer);
        if view.waterfalls.is_empty() {
            render::tree::trees(&view.spans, &view.trees, printer);
        }
        view.waterfalls.iter().for_each(|trace| render::waterfall::waterfall(trace, printer));
        if args.bodies {
            let first_us = view.spans.iter().map(|call| call.start_us).min().unwrap_or_default();
            render::timeline::calls(&view.spans, first_us, printer);
        }
        return Ok(Exit::Done);
    }
    let view = views::show_run(&archive, &args.run, &wanted)?;
    warn_of_missing(&view.missing, printer);
    if printer.json {
        printer.result(&view)?;
        return Ok(Exit::Done);
    }
    if let Some(summary) = &view.summary {
        printer.line(printer.strong(summary));
    }
    let run: &Run = &view.run;
    render::run::tests(run, printer);
    render::run::endings(run, usize::MAX, printer);
    render::run::evidence(run, printer);
    render::map::map(&view.map, usize::MAX, printer);
    render::usage::summaries(&view.metrics, printer);
    for tree in view.trees.iter().take(args.traces) {
        match view.waterfalls.get(&tree.trace) {
            Some(waterfall) => {
                printer.line("");
                render::waterfall::waterfall(waterfall, printer);
            }
            None => render::tree::trees(&view.spans, std::slice::from_ref(tree), printer),
        }
    }
    if args.logs {
        let bodies = if args.bodies { Bodies::Shown } else { Bodies::LeftOut };
        render::timeline::logs_and_calls(&view.logs, &view.spans, bodies, run.started_us, printer);
    } else {
        if args.bodies {
            render::timeline::calls(&view.spans, run.started_us, printer);
        }
        render::log::excerpts(&view.excerpts, &view.spans, run.started_us, printer);
        let lines: usize = view.logs.instances.iter().map(|log| log.lines.len()).sum();
        if lines > 0 {
            let printed = count(lines, "line");
            printer.line(printer.dim(&format!("\nservices printed {printed}: see them with --logs")));
        }
    }
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_fits_into_a_cell() {
        let shown = |names: &[&str]| {
            let failed = names.iter().map(ToString::to_string).collect();
            what_failed(&RunTests { all: 9, failed, start_failure: None })
        };
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&["pay", "list\n"]), "pay, list ");
        let long = "a name that goes on and on until it is too long to stand in a cell";
        assert_eq!(shown(&["pay", long, "list"]), "pay and 2 more");
        assert_eq!(shown(&[long]), "a name that goes on and on until it is too long…");
    }
}
