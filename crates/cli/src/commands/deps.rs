//! `faultscope deps`

use std::path::PathBuf;

use clap::Args;

use super::services;
use super::traces::now_us;
use crate::error::CommandError;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::render::table::Table;
use crate::render::waterfall::plain;

#[derive(Debug, Args)]
pub(crate) struct DepsArgs {
    /// The application's folder or file.
    #[arg(value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// How far back: `1h`, `24h`.
    #[arg(long, default_value = "24h", value_name = "DURATION")]
    pub(crate) since: String,
}

pub(crate) fn run(args: &DepsArgs, printer: &Printer) -> Result<Exit, CommandError> {
    let reader = services::open(&args.folder)?;
    let mut links = reader.dependencies(now_us(), super::traces::micros(&args.since)?)?;
    links.sort_by(|a, b| (&a.parent, &a.child).cmp(&(&b.parent, &b.child)));
    if printer.json {
        printer.result(&links)?;
        return Ok(Exit::Done);
    }
    if links.is_empty() {
        printer.line("no calls between services were reported in this time");
        printer.talk("a wider time: --since 720h");
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["caller", "callee", "calls", "errors", "error rate"]);
    for link in &links {
        let rate = match link.error_count {
            0 => String::new(),
            n => printer.bad(&format!("{:.1} %", n as f64 * 100.0 / link.call_count.max(1) as f64)),
        };
        let (calls, errors) = (link.call_count.to_string(), link.error_count.to_string());
        table.row([plain(&link.parent), plain(&link.child), calls, errors, rate]);
    }
    printer.line(table);
    Ok(Exit::Done)
}
