//! `faultscope services`

use std::path::Path;

use clap::Args;
use faultscope_model::metrics::Metric;
use faultscope_model::units::count;
use faultscope_store::slices::SpanReader;
use serde::Serialize;

use super::metrics_source::{Latest, latest};
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::project;
use crate::render;
use crate::render::table::Table;
use crate::render::waterfall::plain;

#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
}

#[derive(Debug, Serialize)]
struct Listed {
    service: String,
    operations: Vec<String>,
    calls: Vec<String>,
    /// What its instances used when they were measured last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<Latest>,
}

pub(crate) fn run(args: &ServicesArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let reader = open(&args.folder)?;
    let measured = latest(&project::state_folder(&args.folder))?;
    let mut listed = Vec::new();
    for service in reader.services()? {
        let (operations, calls) = (reader.span_names(&service)?, reader.remote_services(&service)?);
        // Reporters write names in small letters.
        let is_of = |one: &&Latest| one.instance.service.as_str().eq_ignore_ascii_case(&service);
        let metrics = measured.iter().filter(is_of).cloned().collect();
        listed.push(Listed { service, operations, calls, metrics });
    }
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        printer.line("no service has reported spans yet");
        return Ok(Exit::Done);
    }
    let mut heading = vec!["service", "operations", "on the other side"];
    if listed.iter().any(|service| !service.metrics.is_empty()) {
        heading.push("used last");
    }
    let mut table = Table::new(&heading);
    for Listed { service, operations, calls, metrics } in &listed {
        table.row([plain(service), short(operations), short(calls), used(metrics)]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

/// A reader of the spans beside an application file.
pub(crate) fn open(folder: &Path) -> Result<SpanReader, CommandError> {
    let state = project::state_folder(folder);
    if !state.is_dir() {
        return Err(CommandError::usage(format!("there are no spans at {}", state.display())).hint(
            "`faultscope serve` takes them in, `faultscope traces import FILE` reads them from a file",
        ));
    }
    Ok(SpanReader::open(&state, true))
}

fn used(metrics: &[Latest]) -> String {
    let Some(at_us) = metrics.iter().map(|latest| latest.at_us).max() else { return String::new() };
    let sum = |of: &dyn Fn(&Latest) -> Option<f64>| metrics.iter().filter_map(of).reduce(|a, b| a + b);
    let cores = sum(&|latest| latest.used.cpu_cores).map(|cores| format!("{cores:.2} cores"));
    let memory = sum(&|latest| {
        let values = &latest.used.values;
        values.get(Metric::MemoryWorkingSet).or(values.get(Metric::MemoryResident))
    });
    let instances = count(metrics.len(), "instance");
    let parts = [Some(instances), cores, memory.map(render::usage::bytes), Some(render::time::ago(at_us))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn short(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
