//! `faultscope services`

use std::path::{Path, PathBuf};

use clap::Args;
use faultscope_store::slices::SpanReader;
use serde::Serialize;

use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;
use crate::render::table::Table;
use crate::render::waterfall::plain;

#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    /// The application's folder or file.
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Serialize)]
struct Listed {
    service: String,
    operations: Vec<String>,
    calls: Vec<String>,
}

pub(crate) fn run(args: &ServicesArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let reader = open(&args.folder)?;
    let mut listed = Vec::new();
    for service in reader.services()? {
        let (operations, calls) = (reader.span_names(&service)?, reader.remote_services(&service)?);
        listed.push(Listed { service, operations, calls });
    }
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        printer.line("no service has reported spans yet");
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["service", "operations", "on the other side"]);
    for Listed { service, operations, calls } in &listed {
        table.row([plain(service), short(operations), short(calls)]);
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

fn short(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(|name| plain(name)).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
