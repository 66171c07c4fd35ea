//! The files that `resilience --report` writes.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use faultscope_engine::resilience::ResilienceReport;
use faultscope_store::Store;

use super::report::write;
use crate::error::CommandError;
use crate::printer::Printer;
use crate::render::resilience;

/// The form of a report file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One page that needs nothing else.
    Html,
    /// Everything, for programs.
    Json,
    /// For build servers: a test case for each test, with its defects.
    Junit,
}

/// A report file that was asked for: `html`, or `html=where.html`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    format: Format,
    file: Option<PathBuf>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (format, file) = match text.split_once('=') {
            Some((_, "")) => return Err("the file's name is missing after `=`".into()),
            Some((format, file)) => (format, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let format = Format::from_str(format, true).map_err(|_| "html, json or junit".to_owned())?;
        Ok(Self { format, file })
    }
}

/// Writes the report files of a campaign that has just ended; without a name they go beside it.
pub(crate) fn write_all(
    state: &Path,
    report: &ResilienceReport,
    wanted: &[Wanted],
    printer: &Printer,
) -> Result<(), CommandError> {
    for Wanted { format, file } in wanted {
        let (text, ending) = match format {
            Format::Html => (faultscope_console::resilience_report(report), "html"),
            Format::Junit => (resilience::junit(report), "xml"),
            Format::Json => {
                let text = serde_json::to_string_pretty(report)
                    .map_err(|e| CommandError::internal("the report cannot be written as JSON").because(e))?;
                (text, "json")
            }
        };
        let file = match file {
            Some(file) => file.clone(),
            None => {
                let stored = Store::open(state)?.campaign_by(&report.campaign)?;
                stored.folder().join(format!("resilience-report.{ending}"))
            }
        };
        write(&file, &text)?;
        printer.talk(format!("report: {}", file.display()));
    }
    Ok(())
}
