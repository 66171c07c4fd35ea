//! `faultscope runs`

use faultscope_engine::stored;
use faultscope_model::{Run, Span};
use faultscope_store::{CampaignMeta, Edge, Reader, Store, StoreError, StoreErrorKind};
use serde::Serialize;

use crate::args::{RunsArgs, RunsCommand, RunsLsArgs, RunsShowArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::render;
use crate::render::table::Table;

#[derive(Debug, Serialize)]
struct Listed {
    campaign: CampaignMeta,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Shown {
    run: Run,
    map: Vec<Edge>,
    spans: Vec<Span>,
}

pub(crate) async fn run(args: RunsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match args.command {
        RunsCommand::Ls(args) => list(&args, printer).await,
        RunsCommand::Show(args) => show(&args, printer).await,
    }
}

fn open(folder: &std::path::Path) -> Result<Store, CommandError> {
    let state = project::state_folder(folder);
    if !state.is_dir() {
        return Err(CommandError::usage(format!("there are no runs at {}", state.display()))
            .hint("runs lie beside the application file: name its folder, or run `faultscope test` first"));
    }
    Ok(Store::open(&state)?)
}

async fn list(args: &RunsLsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let store = open(&args.folder)?;
    let mut listed = Vec::new();
    for campaign in store.campaigns()?.into_iter().take(args.limit) {
        let runs = stored::runs(&campaign.reader()?)?;
        listed.push(Listed { campaign: campaign.meta, runs });
    }
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        printer.line("no runs yet");
        return Ok(Exit::Done);
    }
    let mut table =
        Table::new(&["run", "purpose", "application", "when", "outcome", "tests", "calls", "took"]);
    for Listed { campaign, runs } in &listed {
        let when = render::time::ago(campaign.started_us);
        if runs.is_empty() {
            let row = [campaign.id.to_string(), campaign.kind.clone(), campaign.application.clone(), when];
            table.row(row.into_iter().chain(["no runs".into(), String::new(), String::new(), String::new()]));
            continue;
        }
        for run in runs {
            let failed = run.evidence.tests.iter().filter(|t| t.failure.is_some()).count();
            table.row([
                run.id.to_string(),
                campaign.kind.clone(),
                campaign.application.clone(),
                when.clone(),
                run.outcome.word().to_owned(),
                format!("{}/{}", run.evidence.tests.len() - failed, run.evidence.tests.len()),
                run.evidence.spans.to_string(),
                faultscope_model::units::show_duration(run.cost.total),
            ]);
        }
    }
    printer.line(table);
    Ok(Exit::Done)
}

async fn show(args: &RunsShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let store = open(&args.folder)?;
    let (reader, run) = find(&store, &args.run)?;
    let spans = reader.spans_of(run.trial)?;
    let map = reader.edges(Some(run.trial))?;
    if printer.json {
        printer.result(&Shown { run, map, spans })?;
        return Ok(Exit::Done);
    }
    if let Some(wanted) = &args.trace {
        let chosen: Vec<_> =
            spans.iter().filter(|s| s.trace.to_string().starts_with(wanted.as_str())).cloned().collect();
        if chosen.is_empty() {
            return Err(CommandError::usage(format!("the run has no trace `{wanted}`")));
        }
        render::tree::trees(&chosen, usize::MAX, printer);
        return Ok(Exit::Done);
    }
    render::run::tests(&run, printer);
    render::run::endings(&run, usize::MAX, printer);
    render::run::evidence(&run, printer);
    render::map::map(&map, usize::MAX, printer);
    render::tree::trees(&spans, args.traces, printer);
    Ok(Exit::Done)
}

fn find(store: &Store, wanted: &str) -> Result<(Reader, Run), CommandError> {
    if wanted == "last" {
        for campaign in store.campaigns()? {
            let reader = campaign.reader()?;
            if let Some(run) = stored::runs(&reader)?.pop() {
                return Ok((reader, run));
            }
        }
        return Err(CommandError::usage("there are no runs yet").hint("`faultscope test` makes one"));
    }
    // A run's id is its campaign's short name and its trial, so a prefix of the campaign finds both.
    let short = wanted.split('.').next().unwrap_or(wanted);
    let unknown = |error: StoreError| match error.kind {
        StoreErrorKind::NotFound => no_run(wanted),
        _ => error.into(),
    };
    let campaign = store.campaign_by(short).map_err(unknown)?;
    let reader = campaign.reader()?;
    let mut runs = stored::runs(&reader)?;
    let found = match wanted.split_once('.') {
        Some((_, trial)) => runs.into_iter().find(|run| run.trial.0.to_string() == trial),
        None => runs.pop(),
    };
    let run = found.ok_or_else(|| no_run(wanted))?;
    Ok((reader, run))
}

fn no_run(wanted: &str) -> CommandError {
    CommandError::usage(format!("there is no run `{wanted}`")).hint("`faultscope runs ls` lists them")
}
