//! `faultscope services`

use clap::Args;
use faultscope_engine::views::{self, ServiceLine, plain};
use faultscope_model::units::count;

use super::traces::open;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::folder::FolderArg;
use crate::printer::Printer;
use crate::render;
use crate::render::table::Table;

#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    #[command(flatten)]
    pub(crate) folder: FolderArg,
}

pub(crate) fn run(args: &ServicesArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let listed = views::list_services(&open(&args.folder)?)?;
    if printer.json {
        printer.result(&listed)?;
        return Ok(Exit::Done);
    }
    if listed.is_empty() {
        printer.line("no service has reported spans yet");
        return Ok(Exit::Done);
    }
    let mut heading = vec!["service", "operations", "calls", "called by"];
    if listed.iter().any(|service| !service.metrics.is_empty()) {
        heading.push("used last");
    }
    let mut table = Table::new(&heading);
    for line in &listed {
        table.row([
            plain(&line.service),
            short(&line.operations),
            short(&line.calls),
            short(&line.called_by),
            used_last(line),
        ]);
    }
    printer.line(table);
    Ok(Exit::Done)
}

fn used_last(line: &ServiceLine) -> String {
    let Some(used) = line.total_use() else { return String::new() };
    let parts = [
        Some(count(used.instances, "instance")),
        used.cores.map(|cores| format!("{cores:.2} cores")),
        used.memory.map(render::usage::bytes),
        Some(render::time::ago(used.at_us)),
    ];
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
