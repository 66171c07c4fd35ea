//! `faultscope metrics`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use faultscope_engine::views::{self, Archive, Drawn, MetricScope, MetricSource, SeriesView, Subject, plain};
use faultscope_model::metrics::Kind;

use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::now::{now_us, parse_micros};
use crate::printer::Printer;
use crate::project;
use crate::render;
use crate::render::spark::sparkline;
use crate::render::table::Table;
use crate::render::usage::value;

/// The most characters of a series' labels.
const LABEL: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    #[command(subcommand)]
    command: MetricsCommand,
}

#[derive(Debug, Subcommand)]
enum MetricsCommand {
    /// Lists the metrics of each service: measured by the platform, exported or sent by the service.
    ///
    /// Example: faultscope metrics ls --service order --since 1h
    Ls(LsArgs),
    /// Draws one metric over time, one line per instance; counters as growth per second.
    ///
    /// Example: faultscope metrics show cpu.seconds --service order --run last
    Show(ShowArgs),
}

#[derive(Debug, Args)]
struct Where {
    /// Only this service.
    #[arg(long)]
    service: Option<String>,
    /// How far to look back; ignored for a named run.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    since: String,
    /// Only this run or campaign, or the beginning of its id; `last` for the newest.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
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
    /// Only this instance: `order-2`.
    #[arg(long)]
    instance: Option<String>,
    /// Show counters as totals.
    #[arg(long)]
    raw: bool,
    /// The application's folder or file.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    folder: PathBuf,
}

pub(crate) fn run(args: &MetricsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    match &args.command {
        MetricsCommand::Ls(args) => list(args, printer),
        MetricsCommand::Show(args) => show(args, printer),
    }
}

fn list(args: &LsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let listed = views::list_metrics(&open(&args.folder)?, &args.of.scope(None)?)?;
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        nothing(&args.of, printer);
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["service", "metric", "kind", "by", "series", "points", "last", "when"]);
    for line in &listed {
        table.row([
            plain(&line.service),
            plain(&line.name),
            kind(line.kind).to_owned(),
            source(line.source).to_owned(),
            line.series.to_string(),
            line.points.to_string(),
            value(&line.name, &line.unit, line.last),
            render::time::ago(line.last_us),
        ]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

fn show(args: &ShowArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let scope = args.of.scope(args.instance.clone())?;
    let found = views::show_metric(&open(&args.folder)?, &args.name, &scope)?;
    if printer.json {
        printer.result(&found)?;
        return Ok(Exit::Done);
    }
    let times = || found.iter().flat_map(|series| &series.points).map(|(at_us, _)| *at_us);
    let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    let took = render::usage::seconds((last - first) as f64 / 1e6);
    let heading = format!("{}: {} series, {took} up to {}", args.name, found.len(), render::time::ago(last));
    printer.line(printer.strong(&plain(&heading)));
    let label = |series: &SeriesView| plain(&series.label()).chars().take(LABEL).collect::<String>();
    let widest = found.iter().map(|series| label(series).chars().count()).max().unwrap_or_default();
    for series in &found {
        let drawn = series.draw(args.raw);
        let line = sparkline(&drawn.points, first, last);
        printer.line(format!("  {:<widest$}  {line}  {}", label(series), figures(series, &drawn)));
    }
    Ok(Exit::Done)
}

/// The values of a series as text.
fn figures(series: &SeriesView, drawn: &Drawn) -> String {
    let shown = |number: f64| match drawn.grown {
        Some(_) => format!("{}/s", value(&series.name, series.rate_unit(), number)),
        None => value(&series.name, &series.unit, number),
    };
    let range = match drawn.range {
        None => "one point only".to_owned(),
        Some(range) => format!("{} .. {}, last {}", shown(range.low), shown(range.high), shown(range.last)),
    };
    match drawn.grown {
        Some(grown) => format!("{range}, grew by {}", value(&series.name, &series.unit, grown)),
        None => range,
    }
}

/// Opens what is stored beside an application file, to read metrics.
fn open(folder: &Path) -> Result<Archive, CommandError> {
    Ok(Archive::open(&project::state_folder(folder), Subject::Metric)?)
}

impl Where {
    fn scope(&self, instance: Option<String>) -> Result<MetricScope, CommandError> {
        let from_us = now_us().saturating_sub(parse_micros(&self.since)?);
        Ok(MetricScope { service: self.service.clone(), instance, run: self.run.clone(), from_us })
    }
}

fn nothing(of: &Where, printer: &Printer) {
    printer.line("no metrics were found");
    printer.talk(format!(
        "looked back {}; use --since to look further. `faultscope test` and `up` measure, `serve` accepts metrics",
        of.since
    ));
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Delta => "delta",
    }
}

fn source(source: MetricSource) -> &'static str {
    match source {
        MetricSource::Measured => "measured",
        MetricSource::Reported => "exported",
        MetricSource::Sent => "sent",
    }
}
