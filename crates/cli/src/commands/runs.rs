//! `faultscope runs`

use std::collections::BTreeSet;

use faultscope_engine::stored;
use faultscope_model::event::Event;
use faultscope_model::metrics::{History, Summary};
use faultscope_model::trace::ReportedSpan;
use faultscope_model::{Run, Span, SpanId};
use faultscope_store::interop::trace::group;
use faultscope_store::{
    CampaignMeta, Edge, Reader, Store, StoreError, StoreErrorKind, StoredCampaign, joined,
};
use serde::Serialize;

use super::beside::{Beside, Joined};
use crate::args::{RunsArgs, RunsCommand, RunsKeepArgs, RunsLsArgs, RunsShowArgs};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::render;
use crate::render::table::Table;
use crate::render::waterfall::plain;

#[derive(Debug, Serialize)]
struct Listed {
    campaign: CampaignMeta,
    runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
struct Shown {
    run: Run,
    map: Vec<Edge>,
    metrics: Vec<Summary>,
    /// What was known of the called instance when each call began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    used: Vec<Used>,
    spans: Vec<Span>,
    /// What instances reported themselves.
    reported: Vec<ReportedSpan>,
}

#[derive(Debug, Serialize)]
struct Used {
    span: SpanId,
    #[serde(flatten)]
    known: Joined,
}

pub(crate) async fn run(args: RunsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match args.command {
        RunsCommand::Ls(args) => list(&args, printer).await,
        RunsCommand::Show(args) => show(&args, printer).await,
        RunsCommand::Keep(args) => keep(&args, printer),
    }
}

pub(crate) fn open(folder: &std::path::Path) -> Result<Store, CommandError> {
    let state = project::state_folder(folder);
    if !state.is_dir() {
        return Err(CommandError::usage(format!("there are no runs at {}", state.display()))
            .hint("runs lie beside the application file: name its folder, or run `faultscope test` first"));
    }
    Ok(Store::open(&state)?)
}

fn keep(args: &RunsKeepArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let store = open(&args.folder)?;
    let short = args.run.split('.').next().unwrap_or(&args.run);
    let campaign = store.campaign_by(short).map_err(|error| match error.kind {
        StoreErrorKind::NotFound => no_run(&args.run),
        _ => error.into(),
    })?;
    store.keep(&campaign.meta.id, !args.off)?;
    let what = if args.off { "may be cleaned away" } else { "is kept" };
    printer.talk(format!("campaign {} {what}", campaign.meta.id));
    Ok(Exit::Done)
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
    let names =
        ["run", "purpose", "application", "when", "deltas", "outcome", "tests", "calls", "took", "failed"];
    let mut table = Table::new(&names);
    for Listed { campaign, runs } in &listed {
        let when = render::time::ago(campaign.started_us);
        if runs.is_empty() {
            let row = [campaign.id.to_string(), campaign.kind.clone(), campaign.application.clone(), when];
            let rest = ["", "no runs", "", "", "", ""].map(ToOwned::to_owned);
            table.row(row.into_iter().chain(rest));
            continue;
        }
        for run in runs {
            let failed = run.evidence.tests.iter().filter(|t| t.failure.is_some()).count();
            table.row([
                run.id.to_string(),
                campaign.kind.clone(),
                campaign.application.clone(),
                when.clone(),
                if run.deltas.is_empty() { String::new() } else { run.deltas.len().to_string() },
                run.outcome.word().to_owned(),
                format!("{}/{}", run.evidence.tests.len() - failed, run.evidence.tests.len()),
                run.evidence.spans.to_string(),
                faultscope_model::units::show_duration(run.cost.total),
                what_failed(run),
            ]);
        }
    }
    printer.line(table);
    Ok(Exit::Done)
}

/// The tests that failed in a run, or the service that did not come up, in short.
fn what_failed(run: &Run) -> String {
    const WIDTH: usize = 48;
    if let Some(start) = run.evidence.start_failure() {
        return start.to_string();
    }
    let failed = run.evidence.tests.iter().filter(|test| test.failure.is_some());
    let names: Vec<String> = failed.map(|test| plain(&test.test)).collect();
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

async fn show(args: &RunsShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let store = open(&args.folder)?;
    let Found { reader, run, summary } = find(&store, &args.run)?;
    let spans = reader.spans_of(run.trial)?;
    let map = reader.edges(Some(run.trial))?;
    let history = History::new(reader.samples_of(Some(run.trial))?);
    let metrics = history.summaries();
    let beside = args.beside.of_run(&reader, run.trial, &spans, history, printer)?;
    let used = used(&beside, &spans);
    if args.beside.is_any() {
        beside.say_missing(used.iter().map(|used| &used.known), printer);
    }
    if printer.json {
        let reported = joined(&[], reader.reported_in(run.trial)?);
        printer.result(&Shown { run, map, metrics, used, spans, reported })?;
        return Ok(Exit::Done);
    }
    if let Some(wanted) = &args.trace {
        let chosen: Vec<_> =
            spans.iter().filter(|s| s.trace.to_string().starts_with(wanted.as_str())).cloned().collect();
        if chosen.is_empty() {
            return Err(CommandError::usage(format!("the run has no trace `{wanted}`")));
        }
        let mut reported = Vec::new();
        for trace in chosen.iter().map(|span| span.trace).collect::<BTreeSet<_>>() {
            reported.extend(reader.reported_of_trace(trace)?.into_iter().filter(|r| r.trial == run.trial));
        }
        if reported.is_empty() {
            render::tree::trees(&chosen, usize::MAX, &beside, printer);
            return Ok(Exit::Done);
        }
        for spans in group(joined(&chosen, reported), true) {
            render::waterfall::waterfall(spans, false, &beside, printer);
        }
        return Ok(Exit::Done);
    }
    if let Some(summary) = summary {
        printer.line(printer.strong(&summary));
    }
    render::run::tests(&run, printer);
    render::run::endings(&run, usize::MAX, printer);
    render::run::evidence(&run, printer);
    render::map::map(&map, usize::MAX, printer);
    render::usage::summaries(&metrics, printer);
    render::tree::trees(&spans, args.traces, &beside, printer);
    Ok(Exit::Done)
}

fn used(beside: &Beside<'_>, spans: &[Span]) -> Vec<Used> {
    let one = |span: &Span| Some(Used { span: span.id, known: beside.of_call(span)? });
    spans.iter().filter_map(one).collect()
}

/// A run and, where its campaign was asked for, what that came to.
pub(super) struct Found {
    pub(super) reader: Reader,
    pub(super) run: Run,
    summary: Option<String>,
}

/// A run by its id, its campaign or `last`, with the reader of its campaign.
pub(super) fn find(store: &Store, wanted: &str) -> Result<Found, CommandError> {
    if wanted == "last" {
        return last(store, |_| true);
    }
    // A run's id is its campaign's short name and its trial, so a prefix of the campaign finds both.
    let short = wanted.split('.').next().unwrap_or(wanted);
    let unknown = |error: StoreError| match error.kind {
        StoreErrorKind::NotFound => no_run(wanted),
        _ => error.into(),
    };
    let campaign = store.campaign_by(short).map_err(unknown)?;
    let found = match wanted.split_once('.') {
        None => best_of(&campaign)?,
        Some((_, trial)) => {
            let reader = campaign.reader()?;
            let run = stored::runs(&reader)?.into_iter().find(|run| run.trial.name() == trial);
            run.map(|run| Found { reader, run, summary: None })
        }
    };
    found.ok_or_else(|| no_run(wanted))
}

/// The same, where `last` is the last run of one application.
pub(super) fn find_of(store: &Store, wanted: &str, application: &str) -> Result<Found, CommandError> {
    if wanted == "last" { last(store, |name| name == application) } else { find(store, wanted) }
}

/// The newest run of applications that are wanted.
fn last(store: &Store, is_wanted: impl Fn(&str) -> bool) -> Result<Found, CommandError> {
    for campaign in store.campaigns()?.into_iter().filter(|campaign| is_wanted(&campaign.meta.application)) {
        if let Some(found) = best_of(&campaign)? {
            return Ok(found);
        }
    }
    Err(CommandError::usage("there are no runs yet").hint("`faultscope test` makes one"))
}

/// The run that says most about a campaign: the one with the cause that was found, else the last one.
fn best_of(campaign: &StoredCampaign) -> Result<Option<Found>, CommandError> {
    let reader = campaign.reader()?;
    let mut runs = stored::runs(&reader)?;
    let report: Option<serde_json::Value> = campaign.report()?;
    let witness = report.as_ref().and_then(|report| report["causes"][0]["run"].as_str());
    let found = witness.and_then(|id| runs.iter().position(|run| run.id.as_str() == id));
    let run = match found {
        Some(place) => Some(runs.swap_remove(place)),
        None => runs.pop(),
    };
    let summary = match campaign.meta.kind.as_str() {
        "debug" => {
            campaign.events::<Event>(0)?.events.into_iter().rev().find_map(|logged| match logged.event {
                Event::CampaignFinished { summary } => Some(summary),
                _ => None,
            })
        }
        _ => None,
    };
    Ok(run.map(|run| Found { reader, run, summary }))
}

fn no_run(wanted: &str) -> CommandError {
    CommandError::usage(format!("there is no run `{wanted}`")).hint("`faultscope runs ls` lists them")
}
