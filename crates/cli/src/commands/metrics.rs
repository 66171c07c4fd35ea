//! `faultscope metrics`

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use faultscope_model::metrics::{Kind, increase};
use serde::Serialize;

use super::metrics_source::lines;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::render;
use crate::render::spark::sparkline;
use crate::render::table::Table;
use crate::render::usage::value;
use crate::render::waterfall::plain;

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    #[command(subcommand)]
    command: MetricsCommand,
}

#[derive(Debug, Subcommand)]
enum MetricsCommand {
    /// Lists the metrics of each service: what platforms measured, and what services told or sent.
    ///
    /// Example: faultscope metrics ls --service order --since 1h
    Ls(LsArgs),
    /// Draws one metric over time, a line for each instance; counters as growth for each second.
    ///
    /// Example: faultscope metrics show cpu.seconds --service order --run last
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(super) struct Where {
    /// Only of this service.
    #[arg(long)]
    pub(super) service: Option<String>,
    /// How far back; everything of a run that is named.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    pub(super) since: String,
    /// Only of this run or campaign, or the first letters of one; `last` for the newest.
    #[arg(long, value_name = "RUN")]
    pub(super) run: Option<String>,
}

#[derive(Debug, Args)]
struct LsArgs {
    #[command(flatten)]
    of: Where,
    #[command(flatten)]
    folder: FolderArg,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// The metric, as `faultscope metrics ls` names it.
    name: String,
    #[command(flatten)]
    of: Where,
    /// Only of this instance: `order-2`.
    #[arg(long)]
    instance: Option<String>,
    /// Show counters as they were counted.
    #[arg(long)]
    raw: bool,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

#[derive(Debug, Serialize)]
struct Listed {
    service: String,
    name: String,
    kind: Kind,
    unit: String,
    source: &'static str,
    series: usize,
    points: usize,
    last_us: u64,
    last: f64,
}

pub(crate) fn run(args: &MetricsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match &args.command {
        MetricsCommand::Ls(args) => list(args, printer),
        MetricsCommand::Show(args) => show(args, printer),
    }
}

fn list(args: &LsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let mut listed: BTreeMap<(String, String, &str), Listed> = BTreeMap::new();
    for line in lines(&args.folder, &args.of, None)? {
        let Some(&(last_us, last)) = line.points.last() else { continue };
        let key = (line.service.clone(), line.name.clone(), line.source);
        let entry = listed.entry(key).or_insert(Listed {
            service: line.service,
            name: line.name,
            kind: line.kind,
            unit: line.unit,
            source: line.source,
            series: 0,
            points: 0,
            last_us: 0,
            last: 0.0,
        });
        entry.series += 1;
        entry.points += line.n_points.unwrap_or(line.points.len());
        if last_us >= entry.last_us {
            (entry.last_us, entry.last) = (last_us, last);
        }
    }
    let listed: Vec<Listed> = listed.into_values().collect();
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        nothing(&args.of, printer);
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["service", "metric", "kind", "by", "series", "points", "last", "when"]);
    for entry in &listed {
        table.row([
            plain(&entry.service),
            plain(&entry.name),
            kind(entry.kind).to_owned(),
            entry.source.to_owned(),
            entry.series.to_string(),
            entry.points.to_string(),
            value(&entry.name, &entry.unit, entry.last),
            render::time::ago(entry.last_us),
        ]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

fn show(args: &ShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let mut found = lines(&args.folder, &args.of, Some(&args.name))?;
    if let Some(wanted) = &args.instance {
        found.retain(|line| line.instance.as_ref() == Some(wanted));
    }
    if found.is_empty() {
        let error = CommandError::usage(format!("there is no metric `{}` here", args.name));
        return Err(error.hint("`faultscope metrics ls` lists them; --since takes a wider time"));
    }
    if printer.json {
        printer.result(&found)?;
        return Ok(Exit::Done);
    }
    let times = || found.iter().flat_map(|line| &line.points).map(|(at_us, _)| *at_us);
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    let took = render::usage::seconds((last - first) as f64 / 1e6);
    let heading = format!("{}: {} series, {took} up to {}", args.name, found.len(), render::time::ago(last));
    printer.line(printer.strong(&plain(&heading)));
    let widest = found.iter().map(|line| line.label().chars().count()).max().unwrap_or_default();
    for line in &found {
        let counted = line.kind == Kind::Counter && !args.raw;
        let points = if counted { rates(&line.processes) } else { line.points.clone() };
        let shown = |number: f64| {
            let per_second = if counted { "/s" } else { "" };
            format!(
                "{}{per_second}",
                value(&line.name, if counted { line.rate_unit() } else { &line.unit }, number)
            )
        };
        let values = || points.iter().map(|(_, value)| *value);
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        let figures = match points.last() {
            None => "one point only".to_owned(),
            Some((_, last)) => format!("{} .. {}, last {}", shown(low), shown(high), shown(*last)),
        };
        let grown = if counted {
            let grew: f64 = line.processes.iter().map(|points| increase(points)).sum();
            format!(", grew by {}", value(&line.name, &line.unit, grew))
        } else {
            String::new()
        };
        let label = line.label();
        printer.line(format!("  {label:<widest$}  {}  {figures}{grown}", sparkline(&points, first, last)));
    }
    Ok(Exit::Done)
}

fn nothing(of: &Where, printer: &Printer) {
    printer.line("no metrics were found");
    printer.talk(format!(
        "looked back {}; --since takes a wider time, `faultscope test` and `up` measure, `serve` takes them in",
        of.since
    ));
}

/// How fast the counters of some processes grew between their points.
fn rates(processes: &[Vec<(u64, f64)>]) -> Vec<(u64, f64)> {
    let rate = |pair: &[(u64, f64)]| {
        let seconds = (pair[1].0 - pair[0].0) as f64 / 1e6;
        (seconds > 0.0).then(|| (pair[1].0, increase(pair) / seconds))
    };
    let mut rates: Vec<_> = processes.iter().flat_map(|points| points.windows(2).filter_map(rate)).collect();
    rates.sort_by_key(|(at_us, _)| *at_us);
    rates
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Delta => "delta",
    }
}
